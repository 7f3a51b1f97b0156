/*
 * Heads of 64 with AVX-512 BF16: eight query heads meet 16 keys, four query heads two values at a time. The
 * multiplying pipe is what limits it, so what can be done elsewhere is: the sum of the probabilities is a
 * product with ones, e^x is a power of two with a short polynomial, and a head is rescaled only where its
 * largest score grows.
 */
#include <immintrin.h>
#include <stdalign.h>

#define D_HEAD 64
#define HEADS  8 /* of a pass */
#define AHEAD  2 /* blocks of keys, and of values, that are asked for before their turn */
#define INLINE static inline __attribute__((always_inline))

struct pass {
    alignas(64) float out[HEADS][D_HEAD];
    float sums[HEADS][16]; /* of probabilities, in lanes */
    float largest[16];     /* not yet scaled, each in LANE(head) */
    uint16_t query[HEADS][D_HEAD];
    uint16_t weights[HEADS][BLOCK]; /* probabilities */
};

/* 2^t for t <= 0, relative error below 4e-6; below -126 it gives what it gives for that. */
INLINE __m512 exp2_negative(__m512 t)
{
    const __m512 magic = _mm512_set1_ps(12582912.0f); /* 1.5 * 2^23: no room for a fraction */
    t = _mm512_max_ps(_mm512_set1_ps(-126.0f), t);    /* a NaN stays */
    __m512 shifted = _mm512_add_ps(t, magic);
    __m512 r = _mm512_sub_ps(t, _mm512_sub_ps(shifted, magic));
    __m512 p = _mm512_set1_ps(9.57010188e-03f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.59178618e-02f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.40247448e-01f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.93121815e-01f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.99999261e-01f));
    __m512i power = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), power));
}

INLINE __m512bh broadcast_pair(const uint16_t *pair)
{
    int32_t bits;
    memcpy(&bits, pair, sizeof bits);
    return (__m512bh)_mm512_set1_epi32(bits);
}

/* Of a block: its first and last key that are seen, 0 ... 63. */
struct range {
    int64_t low, high;
};

INLINE struct range find_range(const struct gs_fast_attention *a, int64_t begin)
{
    return (struct range){a->first > begin ? a->first - begin : 0,
                          a->last - begin < BLOCK - 1 ? a->last - begin : BLOCK - 1};
}

/*
 * What is asked for while a block is at work: a later block of the item, or of the one that comes next, as
 * far as it is seen. Where there is none, the block itself, which costs nothing.
 */
struct soon {
    const uint16_t *keys, *values;
    struct range range;
};

INLINE struct soon find_soon(const struct gs_fast_attention *a, int64_t begin)
{
    int64_t at = begin + AHEAD * BLOCK;
    if (at > a->last && a->next) {
        at += a->next->first - a->next->first % BLOCK - (a->last - a->last % BLOCK + BLOCK);
        a = a->next;
    }
    int64_t slot = at % a->n_slot;
    struct range none = {BLOCK, -1};
    return (struct soon){a->keys + slot * D_HEAD, a->values + slot * D_HEAD,
                         at <= a->last ? find_range(a, at) : none};
}

INLINE bool is_part_of(struct range range, int64_t part)
{
    return part >= range.low / 16 && part <= range.high / 16;
}

/* scores [head][key] of the block's keys in `range`, not yet scaled; the others are zero or a part's rest. */
INLINE void score_wide(const uint16_t *keys, struct range range, const struct soon *soon,
                       const struct pass *pass, __m512 scores[HEADS][BLOCK / 16])
{
#pragma GCC unroll 4
    for (int k = 0; k < BLOCK / 16; k++, keys += 16 * D_HEAD) {
        __m512 sums[HEADS];
        const uint16_t *ask = is_part_of(soon->range, k) ? soon->keys + k * 16 * D_HEAD : keys;
#pragma GCC unroll 8
        for (int h = 0; h < HEADS; h++)
            sums[h] = _mm512_setzero_ps();
        if (is_part_of(range, k)) {
            for (int j = 0; j < D_HEAD / 2; j++) {
                __m512bh pair = (__m512bh)_mm512_loadu_si512(keys + j * 32);
                _mm_prefetch((const char *)(ask + j * 32), _MM_HINT_T1);
#pragma GCC unroll 8
                for (int h = 0; h < HEADS; h++)
                    sums[h] = _mm512_dpbf16_ps(sums[h], pair, broadcast_pair(&pass->query[h][2 * j]));
            }
        } else if (ask != keys) {
            for (int j = 0; j < D_HEAD / 2; j++)
                _mm_prefetch((const char *)(ask + j * 32), _MM_HINT_T1);
        }
#pragma GCC unroll 8
        for (int h = 0; h < HEADS; h++)
            scores[h][k] = sums[h];
    }
}

/* Of two registers: lanes of 128 bits with the larger halves, a and b alternating. */
INLINE __m512 larger_halves(__m512 a, __m512 b)
{
    return _mm512_max_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}

INLINE __m512 larger_quarters(__m512 a, __m512 b)
{
    __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
    return _mm512_max_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}

/* The largest lane of each head's register, in lane LANE(head). */
#define LANE(head)  ((head) / 4 * 8 + (head) % 4)
#define HEADS_LANES 0x0F0F

INLINE __m512 largest_of_heads(const __m512 top[HEADS])
{
    __m512 low = larger_quarters(larger_halves(top[0], top[1]), larger_halves(top[2], top[3]));
    __m512 high = larger_quarters(larger_halves(top[4], top[5]), larger_halves(top[6], top[7]));
    __m512 both = _mm512_max_ps(_mm512_shuffle_f32x4(low, high, 0x44), _mm512_shuffle_f32x4(low, high, 0xEE));
    return _mm512_max_ps(both, _mm512_shuffle_f32x4(both, both, 0xB1));
}

/* Heads whose largest score has grown shrink what they have; nothing is there before the first block. */
INLINE void grow(struct pass *pass, __m512 largest, bool is_first, float factor)
{
    __m512 before = _mm512_load_ps(pass->largest);
    uint32_t grown = _mm512_cmp_ps_mask(largest, before, _CMP_GT_OQ) & HEADS_LANES;
    if (grown == 0)
        return;
    _mm512_store_ps(pass->largest, _mm512_mask_mov_ps(before, (__mmask16)grown, largest));
    if (is_first)
        return;
    float shrinks[16];
    _mm512_storeu_ps(shrinks,
                     exp2_negative(_mm512_mul_ps(_mm512_sub_ps(before, largest), _mm512_set1_ps(factor))));
    for (; grown != 0; grown &= grown - 1) {
        int lane = __builtin_ctz(grown), h = lane / 8 * 4 + lane % 4;
        __m512 shrink = _mm512_set1_ps(shrinks[lane]);
        _mm512_store_ps(pass->sums[h], _mm512_mul_ps(_mm512_load_ps(pass->sums[h]), shrink));
        for (int j = 0; j < D_HEAD; j += 16)
            _mm512_store_ps(&pass->out[h][j], _mm512_mul_ps(_mm512_load_ps(&pass->out[h][j]), shrink));
    }
}

/* Probabilities of the block's keys that `seen` names. */
INLINE void weigh_wide(struct pass *pass, __m512 scores[HEADS][BLOCK / 16], __mmask64 seen, bool is_first,
                       float factor)
{
    const __m512bh ones = (__m512bh)_mm512_set1_epi32(0x3F803F80);
    __m512 tops[HEADS];
#pragma GCC unroll 8
    for (int h = 0; h < HEADS; h++) {
        __m512 least = _mm512_set1_ps(pass->largest[LANE(h)]), top[BLOCK / 16];
#pragma GCC unroll 4
        for (int k = 0; k < BLOCK / 16; k++)
            top[k] = _mm512_mask_max_ps(least, (__mmask16)(seen >> 16 * k), least, scores[h][k]);
        tops[h] = _mm512_max_ps(_mm512_max_ps(top[0], top[1]), _mm512_max_ps(top[2], top[3]));
    }
    grow(pass, largest_of_heads(tops), is_first, factor);
    for (int h = 0; h < HEADS; h++) {
        __m512 zero = _mm512_set1_ps(-factor * pass->largest[LANE(h)]), p[BLOCK / 16];
        __m512 sum = is_first ? _mm512_setzero_ps() : _mm512_load_ps(pass->sums[h]);
#pragma GCC unroll 4
        for (int k = 0; k < BLOCK / 16; k++)
            p[k] = exp2_negative(_mm512_fmadd_ps(scores[h][k], _mm512_set1_ps(factor), zero));
#pragma GCC unroll 2
        for (int k = 0; k < BLOCK / 16; k += 2) {
            __m512i pairs = (__m512i)_mm512_cvtne2ps_pbh(p[k + 1], p[k]);
            pairs = _mm512_maskz_mov_epi16((__mmask32)(seen >> 16 * k), pairs);
            sum = _mm512_dpbf16_ps(sum, ones, (__m512bh)pairs);
            _mm512_storeu_si512(&pass->weights[h][16 * k], pairs);
        }
        _mm512_store_ps(pass->sums[h], sum);
    }
}

/* Values of two positions, of those that are asked for. */
INLINE void ask_for_values(const struct soon *soon, int64_t i, int n_lines, int first)
{
    if (i + 1 < soon->range.low || i > soon->range.high)
        return;
    for (int j = first; j < first + n_lines; j++)
        _mm_prefetch((const char *)(soon->values + i * D_HEAD + j * 32), _MM_HINT_T1);
}

/* out += probabilities * values of the keys in `range`, four heads at a time. */
INLINE void mix_wide(const uint16_t *from, struct range range, const struct soon *soon, bool is_first,
                     struct pass *pass)
{
    for (int64_t i = 0; i < BLOCK; i += 2)
        if (i + 1 < range.low || i > range.high)
            ask_for_values(soon, i, 4, 0);
    for (int first = 0; first < HEADS; first += 4) {
        __m512 sums[4][4];
#pragma GCC unroll 4
        for (int h = 0; h < 4; h++)
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
                sums[h][j] = is_first ? _mm512_setzero_ps() : _mm512_load_ps(&pass->out[first + h][16 * j]);
        for (int64_t i = range.low / 2 * 2; i <= range.high; i += 2) {
            const uint16_t *values = from + i * D_HEAD;
            __m512bh pairs[4];
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
                pairs[j] = (__m512bh)_mm512_loadu_si512(values + 32 * j);
            ask_for_values(soon, i, 2, first / 2); /* each half of the heads asks for half of the lines */
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
                _mm512_store_ps(&pass->out[first + h][16 * j], sums[h][j]);
    }
}

static void attend_wide(const struct gs_fast_attention *a)
{
    const float factor = a->scale * 1.44269504f; /* of a score, to the base 2 */
    struct pass pass;
    for (int64_t first = 0; first < a->n_head; first += HEADS) {
        int64_t n = a->n_head - first < HEADS ? a->n_head - first : HEADS;
        int64_t first_block = a->first - a->first % BLOCK;
        GS_VARIANT(gs_round_bf16)(a->query + first * D_HEAD, (size_t)(n * D_HEAD), pass.query[0]);
        memset(pass.query[n], 0, (size_t)(HEADS - n) * sizeof pass.query[0]);
        _mm512_store_ps(pass.largest, _mm512_set1_ps(-INFINITY));
        for (int64_t begin = first_block; begin <= a->last; begin += BLOCK) {
            bool is_first = begin == first_block;
            struct range range = find_range(a, begin);
            struct soon soon = find_soon(a, begin);
            __mmask64 seen = ~(__mmask64)0 << range.low & ~(__mmask64)0 >> (BLOCK - 1 - range.high);
            int64_t slot = begin % a->n_slot;
            __m512 scores[HEADS][BLOCK / 16];
            score_wide(a->keys + slot * D_HEAD, range, &soon, &pass, scores);
            weigh_wide(&pass, scores, seen, is_first, factor);
            mix_wide(a->values + slot * D_HEAD, range, &soon, is_first, &pass);
        }
        for (int64_t h = 0; h < n; h++)
            store_span(a, first + h, pass.out[h], pass.largest[LANE(h)] * a->scale,
                       _mm512_reduce_add_ps(_mm512_load_ps(pass.sums[h])));
    }
}
