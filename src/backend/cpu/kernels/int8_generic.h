/* In plain C. */
#include "backend/cpu/kernels/narrow.h"

/* Doubled values of the codes. */
static const int8_t doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static float mxfp4_dot(const struct gs_mxfp4_row *row, size_t n, const struct gs_q8_chunk *x)
{
    float total = 0.0f;
    for (size_t b = 0; b < n / 32; b++) {
        const uint8_t *codes = row->scales ? row->blocks + b * 16 : row->blocks + b * 17 + 1;
        uint32_t scale = row->scales ? row->scales[b] : codes[-1];
        const struct gs_q8_chunk *chunk = &x[b / 4];
        const int8_t *first = chunk->q + b % 4 * 16, *second = first + GS_Q8_CHUNK / 2;
        int32_t sum = 0;
        for (int i = 0; i < 16; i++)
            sum += doubled[codes[i] & 15] * first[i] + doubled[codes[i] >> 4] * second[i];
        total += (float)sum * (gs_bits_float(scale << 23) * chunk->scale[b % 4 * 4]);
    }
    return 0.5f * total;
}

static float q8_0_dot(const struct gs_q8_0_row *row, size_t n, const struct gs_q8_chunk *x)
{
    float total = 0.0f;
    for (size_t b = 0; b < n / 32; b++) {
        const uint8_t *block = row->blocks + b * 34;
        const struct gs_q8_chunk *chunk = &x[b / 4];
        const int8_t *first = chunk->q + b % 4 * 16, *second = first + GS_Q8_CHUNK / 2;
        int32_t sum = 0;
        for (int i = 0; i < 16; i++)
            sum += (int8_t)block[2 + i] * first[i] + (int8_t)block[18 + i] * second[i];
        total += (float)sum * (gs_half_float(gs_load_u16(block)) * chunk->scale[b % 4 * 4]);
    }
    return total;
}

void GS_VARIANT(gs_mxfp4_q8)(const struct gs_mxfp4_row *rows, size_t n_rows, size_t n,
                             const struct gs_q8_chunk *const *x, size_t n_x, void *work, float *out,
                             size_t stride)
{
    (void)work;
    for (size_t r = 0; r < n_rows; r++)
        for (size_t t = 0; t < n_x; t++)
            out[t * stride + r] = mxfp4_dot(&rows[r], n, x[t]);
}

void GS_VARIANT(gs_q8_0_q8)(const struct gs_q8_0_row *rows, size_t n_rows, size_t n,
                            const struct gs_q8_chunk *const *x, size_t n_x, void *work, float *out,
                            size_t stride)
{
    (void)work;
    for (size_t r = 0; r < n_rows; r++)
        for (size_t t = 0; t < n_x; t++)
            out[t * stride + r] = q8_0_dot(&rows[r], n, x[t]);
}
