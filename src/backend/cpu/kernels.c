#include "backend/cpu/kernels.h"

#include <string.h>

extern const struct gs_kernels gs_kernels_generic;
#if defined(__x86_64__)
extern const struct gs_kernels gs_kernels_avx2;
extern const struct gs_kernels gs_kernels_avx512;
#endif

size_t gs_kernels_count(void)
{
#if defined(__x86_64__)
    /* The same sets as the build's flags for each variant. */
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return 3;
    if (__builtin_cpu_supports("avx2"))
        return 2;
#endif
    return 1;
}

const struct gs_kernels *gs_kernels_at(size_t index)
{
    static const struct gs_kernels *const variants[] = {
        &gs_kernels_generic,
#if defined(__x86_64__)
        &gs_kernels_avx2,
        &gs_kernels_avx512,
#endif
    };
    return variants[index];
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
