/* In plain C: 16 lanes, element i in lane i mod 16, which then fold 8, 4, 2, 1. */
#define LANES 16

static float bf16_dot(const unsigned char *w, const uint16_t *x, size_t n)
{
    float lanes[LANES] = {0};
    size_t whole = n - n % LANES;
    for (size_t i = 0; i < whole; i += LANES) {
        uint16_t weights[LANES];
        memcpy(weights, w + 2 * i, sizeof weights);
        for (size_t l = 0; l < LANES; l++)
            lanes[l] += gs_bf16_float(weights[l]) * gs_bf16_float(x[i + l]);
    }
    for (size_t i = whole; i < n; i++)
        lanes[i - whole] += gs_bf16_float(gs_load_u16(w + 2 * i)) * gs_bf16_float(x[i]);
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lanes[l] += lanes[l + half];
    return lanes[0];
}

void GS_VARIANT(gs_bf16_bf16)(const struct gs_bf16_rows *rows, size_t n_rows, size_t n,
                              const uint16_t *const *x, size_t n_x, void *work, float *out, size_t stride,
                              bool same_x)
{
    (void)same_x;
    (void)work;
    for (size_t r = 0; r < n_rows; r++)
        for (size_t t = 0; t < n_x; t++)
            out[t * stride + r] = bf16_dot(rows->data + r * n * 2, x[t], n);
}
