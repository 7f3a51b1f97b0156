#include "backend/cpu/kernels.h"

#include <stdbool.h>
#include <string.h>

extern const struct gs_kernels gs_kernels_generic;
#if defined(__x86_64__)
#include <cpuid.h>
extern const struct gs_kernels gs_kernels_avx2;
extern const struct gs_kernels gs_kernels_avx512;
extern const struct gs_kernels gs_kernels_avx512vnni;
extern const struct gs_kernels gs_kernels_avx512bf16;
#elif defined(__aarch64__)
extern const struct gs_kernels gs_kernels_dotprod;
#endif

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#define HAS_DOTPROD (getauxval(AT_HWCAP) >> 20 & 1) /* HWCAP_ASIMDDP */
#elif defined(__aarch64__) && defined(__APPLE__)
#define HAS_DOTPROD 1 /* the M1 and all since */
#else
#define HAS_DOTPROD 0
#endif

static const struct gs_kernels *const variants[] = {
    &gs_kernels_generic,
#if defined(__x86_64__)
    &gs_kernels_avx2,    &gs_kernels_avx512, &gs_kernels_avx512vnni, &gs_kernels_avx512bf16,
#elif defined(__aarch64__)
    &gs_kernels_dotprod,
#endif
};

#if defined(__x86_64__)
/* Not every compiler has a name for it in __builtin_cpu_supports. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

size_t gs_kernels_count(void)
{
#if defined(__x86_64__)
    /* The same sets as the build's flags for each variant. */
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c())
        return 1;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return 2;
    if (!__builtin_cpu_supports("avx512vnni") || !__builtin_cpu_supports("avx512vbmi"))
        return 3;
    return __builtin_cpu_supports("avx512bf16") ? 5 : 4;
#elif defined(__aarch64__)
    return HAS_DOTPROD ? 2 : 1;
#else
    return 1;
#endif
}

const struct gs_kernels *gs_kernels_at(size_t index)
{
    return variants[index];
}

const char *gs_kernels_missing(size_t index)
{
    size_t at = gs_kernels_count() + index;
    return at < sizeof variants / sizeof *variants ? variants[at]->isa : NULL;
}

const struct gs_kernels *gs_kernels_best(void)
{
    return gs_kernels_at(gs_kernels_count() - 1);
}

const struct gs_kernels *gs_kernels_find(const char *isa)
{
    for (size_t i = 0; i < gs_kernels_count(); i++)
        if (strcmp(gs_kernels_at(i)->isa, isa) == 0)
            return gs_kernels_at(i);
    return NULL;
}
