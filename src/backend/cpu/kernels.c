#include "backend/cpu/kernels.h"

#include "base/arm.h"

#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

struct variant {
    const struct gs_kernels *kernels;
    bool (*runs_here)(void); /* the same sets as the build's flags for each variant */
};

static bool runs_anywhere(void)
{
    return true;
}

#if defined(__x86_64__)
/* Not every compiler has a name for what is asked by number here in __builtin_cpu_supports. */
static bool has_avx2(void)
{
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avxvnni(void)
{
    unsigned a, b, c, d;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool has_avx512vnni256(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
}

static bool has_avx512vnni(void)
{
    return has_avx512vnni256() && __builtin_cpu_supports("avx512vbmi");
}

static bool has_avx512bf16(void)
{
    return has_avx512vnni() && __builtin_cpu_supports("avx512bf16");
}

/* Linux lets a process use the tiles' state only after it has asked. */
static bool may_use_tiles(void)
{
#if defined(__linux__) && defined(SYS_arch_prctl)
    const long request_permission = 0x1023, tile_data = 18; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
    return false;
#endif
}

static bool has_amx(void)
{
    unsigned a, b, c, d, state_low, state_high;
    if (!has_avx512bf16() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d >> 24 & 3) != 3) /* TILE, INT8 */
        return false;
    __asm__("xgetbv" : "=a"(state_low), "=d"(state_high) : "c"(0));
    return (state_low >> 17 & 3) == 3 && may_use_tiles();
}

extern const struct gs_kernels gs_kernels_avx2;
extern const struct gs_kernels gs_kernels_avxvnni;
extern const struct gs_kernels gs_kernels_avx512;
extern const struct gs_kernels gs_kernels_avx512vnni256;
extern const struct gs_kernels gs_kernels_avx512vnni;
extern const struct gs_kernels gs_kernels_avx512bf16;
extern const struct gs_kernels gs_kernels_amx;
#elif defined(__aarch64__)
static bool has_dotprod(void)
{
    return gs_arm_features() & GS_ARM_DOTPROD;
}

static bool has_i8mm(void)
{
    return has_dotprod() && (gs_arm_features() & GS_ARM_I8MM);
}

static bool has_bf16(void)
{
    return has_i8mm() && (gs_arm_features() & GS_ARM_BF16);
}

extern const struct gs_kernels gs_kernels_dotprod;
extern const struct gs_kernels gs_kernels_i8mm;
extern const struct gs_kernels gs_kernels_bf16;
#endif
extern const struct gs_kernels gs_kernels_generic;

/* Worst first. */
static const struct variant variants[] = {
    {&gs_kernels_generic, runs_anywhere},
#if defined(__x86_64__)
    {&gs_kernels_avx2, has_avx2},
    {&gs_kernels_avxvnni, has_avxvnni},
    {&gs_kernels_avx512, has_avx512},
    {&gs_kernels_avx512vnni256, has_avx512vnni256},
    {&gs_kernels_avx512vnni, has_avx512vnni},
    {&gs_kernels_avx512bf16, has_avx512bf16},
    {&gs_kernels_amx, has_amx},
#elif defined(__aarch64__)
    {&gs_kernels_dotprod, has_dotprod},
    {&gs_kernels_i8mm, has_i8mm},
    {&gs_kernels_bf16, has_bf16},
#endif
};

#define N_VARIANT (sizeof variants / sizeof *variants)

/* The variant number `index` of those that run here, or that do not; N_VARIANT if there are fewer. */
static size_t find_variant(bool runs, size_t index)
{
    size_t i = 0;
    for (; i < N_VARIANT; i++)
        if (variants[i].runs_here() == runs && index-- == 0)
            break;
    return i;
}

size_t gs_kernels_count(void)
{
    size_t count = 0;
    for (size_t i = 0; i < N_VARIANT; i++)
        count += variants[i].runs_here();
    return count;
}

const struct gs_kernels *gs_kernels_at(size_t index)
{
    return variants[find_variant(true, index)].kernels;
}

const char *gs_kernels_missing(size_t index)
{
    size_t at = find_variant(false, index);
    return at < N_VARIANT ? variants[at].kernels->isa : NULL;
}

const struct gs_kernels *gs_kernels_best(void)
{
    return gs_kernels_at(gs_kernels_count() - 1);
}

const struct gs_kernels *gs_kernels_find(const char *isa)
{
    for (size_t i = 0; i < N_VARIANT; i++)
        if (strcmp(variants[i].kernels->isa, isa) == 0)
            return variants[i].runs_here() ? variants[i].kernels : NULL;
    return NULL;
}
