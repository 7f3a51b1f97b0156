/* Heads of 64 with AVX-512 BF16: eight query heads meet 16 keys, four query heads two values at a time. */
#include <immintrin.h>

#define D_HEAD 64
#define HEADS  8 /* of a pass */
#define INLINE static inline __attribute__((always_inline))

struct pass {
    float out[HEADS][D_HEAD];
    uint16_t query[HEADS][D_HEAD];
    uint16_t weights[HEADS][BLOCK]; /* probabilities */
    float largest[HEADS], sum[HEADS];
};

/* e^x for x <= 0, relative error below 3e-7; 0 below -87. */
INLINE __m512 exp_negative(__m512 x)
{
    __mmask16 counts = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.0f), _CMP_GE_OQ);
    __m512 t = _mm512_mul_ps(x, _mm512_set1_ps(1.44269504f));
    __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.3981999507e-3f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    __m512i power = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23);
    return _mm512_maskz_mul_ps(counts, p, _mm512_castsi512_ps(power));
}

INLINE __m512bh broadcast_pair(const uint16_t *pair)
{
    int32_t bits;
    memcpy(&bits, pair, sizeof bits);
    return (__m512bh)_mm512_set1_epi32(bits);
}

/* Scores of the block's keys, 16 at a time, of all heads of the pass; then its probabilities. */
INLINE void weigh_block(const struct gs_fast_attention *a, struct pass *pass, int64_t slot, int64_t low,
                        int64_t high)
{
    __m512 scores[HEADS][BLOCK / 16];
#pragma GCC unroll 4
    for (int k = 0; k < BLOCK / 16; k++) {
        const uint16_t *keys = a->keys + (slot + 16 * k) * D_HEAD;
        __m512 sums[HEADS];
        for (int h = 0; h < HEADS; h++)
            sums[h] = _mm512_setzero_ps();
        for (int j = 0; j < D_HEAD / 2; j++) {
            __m512bh pair = (__m512bh)_mm512_loadu_si512(keys + j * 32);
#pragma GCC unroll 8
            for (int h = 0; h < HEADS; h++)
                sums[h] = _mm512_dpbf16_ps(sums[h], pair, broadcast_pair(&pass->query[h][2 * j]));
        }
#pragma GCC unroll 8
        for (int h = 0; h < HEADS; h++)
            scores[h][k] = _mm512_mul_ps(sums[h], _mm512_set1_ps(a->scale));
    }
    __mmask64 seen = ~(__mmask64)0 << low & ~(__mmask64)0 >> (BLOCK - 1 - high);
    for (int h = 0; h < HEADS; h++) {
        __m512 top = _mm512_set1_ps(pass->largest[h]);
#pragma GCC unroll 4
        for (int k = 0; k < BLOCK / 16; k++)
            top = _mm512_mask_max_ps(top, (__mmask16)(seen >> 16 * k), top, scores[h][k]);
        float largest = _mm512_reduce_max_ps(top);
        __m512 sum = _mm512_setzero_ps();
#pragma GCC unroll 4
        for (int k = 0; k < BLOCK / 16; k++) {
            __m512 p = exp_negative(_mm512_sub_ps(scores[h][k], _mm512_set1_ps(largest)));
            __m256i bits = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_mov_ps((__mmask16)(seen >> 16 * k), p));
            _mm256_storeu_si256((void *)&pass->weights[h][16 * k], bits);
            sum = _mm512_add_ps(sum, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16)));
        }
        __m512 shrink = exp_negative(_mm512_set1_ps(pass->largest[h] - largest));
        pass->sum[h] = pass->sum[h] * _mm512_cvtss_f32(shrink) + _mm512_reduce_add_ps(sum);
        pass->largest[h] = largest;
        for (int j = 0; j < D_HEAD; j += 16)
            _mm512_storeu_ps(&pass->out[h][j], _mm512_mul_ps(_mm512_loadu_ps(&pass->out[h][j]), shrink));
    }
}

/* out += probabilities * values, four heads at a time. */
INLINE void mix_block(const struct gs_fast_attention *a, struct pass *pass, int64_t slot)
{
    for (int first = 0; first < HEADS; first += 4) {
        __m512 sums[4][4];
#pragma GCC unroll 4
        for (int h = 0; h < 4; h++)
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
                sums[h][j] = _mm512_loadu_ps(&pass->out[first + h][16 * j]);
        for (int i = 0; i < BLOCK; i += 2) {
            const uint16_t *values = a->values + (slot + i) * D_HEAD;
            __m512bh pairs[4];
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
                pairs[j] = (__m512bh)_mm512_loadu_si512(values + 32 * j);
#pragma GCC unroll 4
            for (int h = 0; h < 4; h++) {
                __m512bh weight = broadcast_pair(&pass->weights[first + h][i]);
#pragma GCC unroll 4
                for (int j = 0; j < 4; j++)
                    sums[h][j] = _mm512_dpbf16_ps(sums[h][j], pairs[j], weight);
            }
        }
#pragma GCC unroll 4
        for (int h = 0; h < 4; h++)
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
                _mm512_storeu_ps(&pass->out[first + h][16 * j], sums[h][j]);
    }
}

static void attend_wide(const struct gs_fast_attention *a)
{
    struct pass pass;
    for (int64_t first = 0; first < a->n_head; first += HEADS) {
        int64_t n = a->n_head - first < HEADS ? a->n_head - first : HEADS;
        memset(&pass, 0, sizeof pass);
        for (int64_t h = 0; h < n; h++) {
            for (int64_t j = 0; j < D_HEAD; j++)
                pass.query[h][j] = gs_float_bf16(a->query[(first + h) * D_HEAD + j]);
            pass.largest[h] = a->sinks[first + h];
            pass.sum[h] = 1.0f;
        }
        for (int64_t begin = a->first - a->first % BLOCK; begin <= a->last; begin += BLOCK) {
            int64_t low = a->first > begin ? a->first - begin : 0;
            int64_t high = a->last - begin < BLOCK - 1 ? a->last - begin : BLOCK - 1;
            weigh_block(a, &pass, begin % a->n_slot, low, high);
            mix_block(a, &pass, begin % a->n_slot);
        }
        for (int64_t h = 0; h < n; h++)
            for (int64_t j = 0; j < D_HEAD; j++)
                a->out[(first + h) * D_HEAD + j] = pass.out[h][j] / pass.sum[h];
    }
}
