#include "backend/cpu/fast_kernels.h"

#include "backend/cpu/kernels.h"

#include <string.h>

extern const struct gs_fast_kernels gs_fast_kernels_generic;
#if defined(__x86_64__)
extern const struct gs_fast_kernels gs_fast_kernels_avx2;
extern const struct gs_fast_kernels gs_fast_kernels_avx512;
extern const struct gs_fast_kernels gs_fast_kernels_avx512vnni;
extern const struct gs_fast_kernels gs_fast_kernels_avx512bf16;
#elif defined(__aarch64__)
extern const struct gs_fast_kernels gs_fast_kernels_dotprod;
#endif

static const struct gs_fast_kernels *const variants[] = {
    &gs_fast_kernels_generic,
#if defined(__x86_64__)
    &gs_fast_kernels_avx2,       &gs_fast_kernels_avx512,
    &gs_fast_kernels_avx512vnni, &gs_fast_kernels_avx512bf16,
#elif defined(__aarch64__)
    &gs_fast_kernels_dotprod,
#endif
};

/* Of `variants`: those whose name the exact kernels have too, which is to say that this processor runs them.
 */
const struct gs_fast_kernels *gs_fast_kernels_at(size_t index)
{
    size_t n = sizeof variants / sizeof *variants;
    for (size_t i = 0; i < n; i++)
        if (gs_kernels_find(variants[i]->isa) && index-- == 0)
            return variants[i];
    return NULL;
}

size_t gs_fast_kernels_count(void)
{
    size_t count = 0;
    while (gs_fast_kernels_at(count))
        count++;
    return count;
}

const struct gs_fast_kernels *gs_fast_kernels_best(void)
{
    return gs_fast_kernels_at(gs_fast_kernels_count() - 1);
}

const struct gs_fast_kernels *gs_fast_kernels_find(const char *isa)
{
    for (size_t i = 0; i < gs_fast_kernels_count(); i++)
        if (strcmp(gs_fast_kernels_at(i)->isa, isa) == 0)
            return gs_fast_kernels_at(i);
    return NULL;
}

size_t gs_fast_work_bytes(size_t n)
{
    /* A weight takes at most a byte, and a block a scale; two sides of 16 rows of whole registers. */
    return (n + 31) / 32 * 32 * GS_FAST_TILE_ROWS + (n + 31) / 32 * sizeof(float) * GS_FAST_TILE_ROWS;
}

size_t gs_fast_attention_bytes(int64_t n_head, int64_t d_head)
{
    (void)n_head;
    return (size_t)d_head * sizeof(float);
}
