/* What happens to a whole row between two products, on one thread while the others wait. */
#include "backend/cpu/kernels/lanes.h"
#include "backend/cpu/kernels/variant.h"

/* A product and a sum, each rounded: the bits do not depend on the width. */
void GS_VARIANT(gs_add_scaled)(float *to, const float *from, float weight, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store_floats(to + i, load_floats(to + i) + load_floats(from + i) * weight);
    for (; i < n; i++)
        to[i] += from[i] * weight;
}

void GS_VARIANT(gs_add_bias)(float *to, size_t stride, size_t n_x, const float *bias, size_t n)
{
    for (size_t t = 0; t < n_x; t++, to += stride) {
        size_t i = 0;
        for (; i + LANES <= n; i += LANES)
            store_floats(to + i, load_floats(to + i) + load_floats(bias + i));
        for (; i < n; i++)
            to[i] += bias[i];
    }
}

void GS_VARIANT(gs_rotate)(const float *cosine, const float *sine, size_t d_head, float *heads, size_t n_head)
{
    size_t half = d_head / 2;
    for (float *low = heads; low < heads + n_head * d_head; low += d_head) {
        float *high = low + half;
        size_t j = 0;
        for (; j + LANES <= half; j += LANES) {
            floats a = load_floats(low + j), b = load_floats(high + j);
            floats c = load_floats(cosine + j), s = load_floats(sine + j);
            store_floats(low + j, a * c - b * s);
            store_floats(high + j, b * c + a * s);
        }
        for (; j < half; j++) {
            float a = low[j], b = high[j];
            low[j] = a * cosine[j] - b * sine[j];
            high[j] = b * cosine[j] + a * sine[j];
        }
    }
}
