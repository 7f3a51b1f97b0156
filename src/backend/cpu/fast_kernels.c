#include "backend/cpu/fast_kernels.h"

#include "backend/cpu/kernels.h"

#include <string.h>

extern const struct gs_fast_kernels gs_fast_kernels_generic;
#if defined(__x86_64__)
extern const struct gs_fast_kernels gs_fast_kernels_avx2;
extern const struct gs_fast_kernels gs_fast_kernels_avxvnni;
extern const struct gs_fast_kernels gs_fast_kernels_avx512;
extern const struct gs_fast_kernels gs_fast_kernels_avx512vnni256;
extern const struct gs_fast_kernels gs_fast_kernels_avx512vnni;
extern const struct gs_fast_kernels gs_fast_kernels_avx512bf16;
extern const struct gs_fast_kernels gs_fast_kernels_amx;
#elif defined(__aarch64__)
extern const struct gs_fast_kernels gs_fast_kernels_dotprod;
extern const struct gs_fast_kernels gs_fast_kernels_i8mm;
extern const struct gs_fast_kernels gs_fast_kernels_bf16;
#endif

static const struct gs_fast_kernels *const variants[] = {
    &gs_fast_kernels_generic,
#if defined(__x86_64__)
    &gs_fast_kernels_avx2,          &gs_fast_kernels_avxvnni,    &gs_fast_kernels_avx512,
    &gs_fast_kernels_avx512vnni256, &gs_fast_kernels_avx512vnni, &gs_fast_kernels_avx512bf16,
    &gs_fast_kernels_amx,
#elif defined(__aarch64__)
    &gs_fast_kernels_dotprod,
    &gs_fast_kernels_i8mm,
    &gs_fast_kernels_bf16,
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
    /* Weights of 8 bits: at most a byte each, and a block a scale; two sides of 16 rows of whole registers;
     * then 16 vectors as AMX takes them, and a tile of sums. Of 16 bits, which is more: two sides, and a
     * register's room at the end of each lane; or 32 vectors side by side. */
    size_t n_blocks = (n + 31) / 32;
    return (n_blocks + 1) * 32 * sizeof(uint16_t) * GS_FAST_TILE_ROWS;
}

size_t gs_fast_span_floats(int64_t n_head, int64_t d_head)
{
    return (size_t)(n_head * (d_head + 2));
}

/* Four heads' queries and sums, then the partial results of an item. */
static size_t plain_floats(int64_t d_head)
{
    return (size_t)((2 * GS_FAST_HEADS_TOGETHER * d_head + 15) / 16 * 16);
}

size_t gs_fast_attention_bytes(int64_t n_head, int64_t d_head)
{
    return (plain_floats(d_head) + GS_FAST_SPANS * gs_fast_span_floats(n_head, d_head)) * sizeof(float);
}

static int64_t span_keys(int64_t last)
{
    int64_t keys = GS_FAST_SPAN_KEYS;
    while (last / keys >= GS_FAST_SPANS)
        keys *= 2;
    return keys;
}

int64_t gs_fast_span_count(int64_t first, int64_t last)
{
    int64_t keys = span_keys(last);
    return last / keys - first / keys + 1;
}

struct gs_fast_attention gs_fast_span(const struct gs_fast_attention *attention, int64_t span)
{
    struct gs_fast_attention part = *attention;
    int64_t keys = span_keys(part.last), begin = (part.first / keys + span) * keys, end = begin + keys;
    part.first = part.first > begin ? part.first : begin;
    part.last = part.last < end ? part.last : end - 1;
    part.partial += (size_t)span * gs_fast_span_floats(part.n_head, part.d_head);
    return part;
}

void gs_fast_attend(const struct gs_fast_kernels *kernels, const struct gs_fast_attention *attention)
{
    struct gs_fast_attention whole = *attention;
    int64_t n_spans = gs_fast_span_count(whole.first, whole.last);
    whole.partial = (float *)whole.work + plain_floats(whole.d_head);
    struct gs_fast_attention part = gs_fast_span(&whole, 0);
    for (int64_t span = 0; span < n_spans; span++) {
        struct gs_fast_attention next = span + 1 < n_spans ? gs_fast_span(&whole, span + 1) : part;
        part.next = span + 1 < n_spans ? &next : attention->next;
        kernels->attend(&part);
        part = next;
    }
    kernels->merge_spans(&whole, n_spans);
}
