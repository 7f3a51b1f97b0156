/*
 * Both sides widened to float32, a fused multiply-add each, four rows at a time against one or two vectors:
 * the part that all instruction sets share. The file that includes it has STEP, the elements of a register;
 * struct wide, as many in float32; struct sums, lanes that add up products; and
 *
 *   struct wide load_wide(const void *from, size_t n_left)     elements past n_left are zero
 *   struct sums no_sums(void)
 *   struct sums add_products(struct sums, struct wide, struct wide)
 *   float total_of(struct sums)
 */
#ifndef GS_BACKEND_CPU_KERNELS_BF16_WIDENED_H
#define GS_BACKEND_CPU_KERNELS_BF16_WIDENED_H

/* 4 rows by n_x (1 or 2, a constant) vectors. */
INLINE void multiply_batch(const unsigned char *const rows[4], size_t n, const uint16_t *const *x, size_t n_x,
                           float out[2][4])
{
    struct sums sums[2][4];
#pragma GCC unroll 2
    for (size_t t = 0; t < 2; t++)
#pragma GCC unroll 4
        for (size_t r = 0; r < 4; r++)
            sums[t][r] = no_sums();
    for (size_t i = 0; i < n; i += STEP) {
        struct wide values[2];
#pragma GCC unroll 2
        for (size_t t = 0; t < n_x; t++)
            values[t] = load_wide(x[t] + i, n - i);
#pragma GCC unroll 4
        for (size_t r = 0; r < 4; r++) {
            struct wide weights = load_wide(rows[r] + 2 * i, n - i);
#pragma GCC unroll 2
            for (size_t t = 0; t < n_x; t++)
                sums[t][r] = add_products(sums[t][r], weights, values[t]);
        }
    }
#pragma GCC unroll 2
    for (size_t t = 0; t < n_x; t++)
#pragma GCC unroll 4
        for (size_t r = 0; r < 4; r++)
            out[t][r] = total_of(sums[t][r]);
}

void GS_VARIANT(gs_bf16_bf16)(const struct gs_bf16_rows *rows, size_t n_rows, size_t n,
                              const uint16_t *const *x, size_t n_x, void *work, float *out, size_t stride,
                              bool same_x)
{
    (void)same_x;
    (void)work;
    for (size_t t = 0; t < n_x; t += 2)
        for (size_t r = 0; r < n_rows; r += 4) {
            const unsigned char *four[4];
            float sums[2][4];
            size_t n_t = n_x - t < 2 ? 1 : 2;
            for (size_t i = 0; i < 4; i++)
                four[i] = rows->data + (r + i < n_rows ? r + i : n_rows - 1) * n * 2;
            if (n_t == 2)
                multiply_batch(four, n, x + t, 2, sums);
            else
                multiply_batch(four, n, x + t, 1, sums);
            for (size_t j = 0; j < n_t; j++)
                for (size_t i = 0; i < 4 && r + i < n_rows; i++)
                    out[(t + j) * stride + r + i] = sums[j][i];
        }
}

#endif
