/*
 * What the attention kernels of decode and of batches share. A block takes one KV head, with its 8 query
 * heads, and a part of the keys; a warp takes 16 keys at a time, straight from memory into the operands of
 * mma.m16n8k16:
 *
 *   scores^T[head][key] = q k^T: A = query heads (rows 0-7 one term, rows 8-15 the next), B = keys as they
 *     lie: lane 4g+c loads dimensions 8c ... 8c+7 of key g.
 *   out^T[dimension][head] = v^T p^T: A = values, lane 4g+c loads dimensions 8g ... 8g+7 of keys 2c, 2c+1,
 *     2c+8, 2c+9 and pairs them up; B = the probabilities, which the scores' layout has in place.
 *
 * Queries and probabilities are float32 in TERMS bfloat16 terms: with three, products are exact.
 */
#ifndef GS_BACKEND_GPU_ATTENTION_TILE_CUH
#define GS_BACKEND_GPU_ATTENTION_TILE_CUH

#include "backend/gpu/decode_stream.cuh"

#define D_HEAD   64
#define GROUP    8 /* query heads of a KV head */
#define TILE     16
#define OUT_STEP (D_HEAD + 2) /* floats from head to head, so that stores spread over the banks */

/* ---------------------------------------------------------------- queries */

template <int TERMS> struct query_terms {
    uint32_t high[4][4]; /* [step of 16 dimensions]: an A operand of the first two terms */
    uint32_t low[4][2];  /* of the third */
};

/* Of block->q [GROUP][D_HEAD], in shared memory. */
template <int TERMS, class Block>
GS_DEVICE void load_queries(const Block *block, struct query_terms<TERMS> *q)
{
    int g = lane_of_thread() / 4, c = lane_of_thread() % 4;
#pragma unroll
    for (int step = 0; step < 4; step++)
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            int i = step / 2 * 32 + 8 * c + step % 2 * 4 + 2 * pair;
            uint32_t terms[3];
            split_pair(block->q[g][i], block->q[g][i + 1], terms);
            q->high[step][2 * pair] = terms[0];
            q->high[step][2 * pair + 1] = terms[1];
            if (TERMS == 3)
                q->low[step][pair] = terms[2];
        }
}

/* ---------------------------------------------------------------- a tile of keys */

/* What a lane loads of a tile of 16 keys. */
struct tile {
    struct u32x4 key[2][2]; /* [key g, key g+8][dimensions 8c.., 32+8c..] */
    struct u32x4 value[4];  /* keys 2c, 2c+1, 2c+8, 2c+9 */
};

/* Keys first ... first+15: slot(at) is the place of key `at` in the cache, load(array, place) 16 bytes of it.
 */
template <class Slot, class Load>
GS_DEVICE void load_slots(struct tile *t, const struct gs_gpu_kv_layer &kv, int first, Slot slot, Load load)
{
    int g = lane_of_thread() / 4, c = lane_of_thread() % 4;
#pragma unroll
    for (int n = 0; n < 2; n++) {
        int64_t at = slot(first + g + 8 * n) + 8 * c;
        t->key[n][0] = load(kv.keys, at);
        t->key[n][1] = load(kv.keys, at + 32);
    }
#pragma unroll
    for (int n = 0; n < 4; n++)
        t->value[n] = load(kv.values, slot(first + 2 * c + n % 2 + n / 2 * 8) + 8 * g);
}

/*
 * From key `fresh` on, if there are `any`, in the place of what was loaded: fresh_of(0, at) is the key,
 * fresh_of(1, at) its value.
 */
template <class Fresh>
GS_DEVICE void patch_tile(struct tile *t, int first, int fresh, bool any, Fresh fresh_of)
{
    int g = lane_of_thread() / 4, c = lane_of_thread() % 4;
#pragma unroll
    for (int n = 0; n < 2; n++) {
        int at = first + g + 8 * n;
        if (at >= fresh && any) {
            t->key[n][0] = fresh_of(0, at)[c];
            t->key[n][1] = fresh_of(0, at)[4 + c];
        }
    }
#pragma unroll
    for (int n = 0; n < 4; n++) {
        int at = first + 2 * c + n % 2 + n / 2 * 8;
        if (at >= fresh && any)
            t->value[n] = fresh_of(1, at)[g];
    }
}

/* Running softmax of a warp: of head g in all four lanes of a row; out of heads 2c and 2c+1. */
struct running {
    float largest, sum;
    float out[4][4]; /* [m tile i]: dimension 8g+2i, then 8g+2i+1; heads 2c, 2c+1 */
};

/* Scores p of head g with keys 2c, 2c+1, 2c+8, 2c+9 of the tile; -infinity past `last`. */
template <int TERMS>
GS_DEVICE void score_tile(float p[4], const struct query_terms<TERMS> *q, const struct tile *t, int first,
                          int last)
{
    int c = lane_of_thread() % 4;
#pragma unroll
    for (int n = 0; n < 2; n++) {
        float s[4] = {0.0f, 0.0f, 0.0f, 0.0f}, low[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int step = 0; step < 4; step++) {
            const struct u32x4 &k = t->key[n][step / 2];
            uint32_t b0 = step % 2 ? k.z : k.x, b1 = step % 2 ? k.w : k.y;
            mma_bf16(s, q->high[step], b0, b1);
            if (TERMS == 3) {
                const uint32_t a[4] = {q->low[step][0], 0, q->low[step][1], 0};
                mma_bf16(low, a, b0, b1);
            }
        }
#pragma unroll
        for (int j = 0; j < 2; j++)
            p[2 * n + j] = first + 8 * n + 2 * c + j <= last
                               ? s[j] + (TERMS == 3 ? s[2 + j] + low[j] : s[2 + j])
                               : -INFINITY;
    }
}

/* Takes a tile into the running softmax; what lies past key `last` counts for nothing. */
template <int TERMS>
GS_DEVICE void attend_tile(struct running *r, const struct query_terms<TERMS> *q, const struct tile *t,
                           int first, int last)
{
    int c = lane_of_thread() % 4;
    float p[4];
    score_tile(p, q, t, first, last);
    float largest = fmaxf(fmaxf(p[0], p[1]), fmaxf(p[2], p[3]));
    largest = fmaxf(largest, gs_shuffle_xor(largest, 1));
    largest = fmaxf(largest, gs_shuffle_xor(largest, 2));
    largest = fmaxf(largest, r->largest);
    float shrink = gs_exp(r->largest - largest), sum = 0.0f;
    r->largest = largest;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        p[j] = gs_exp(p[j] - largest);
        sum += p[j];
    }
    r->sum = r->sum * shrink + sum; /* of this lane's keys; lanes are added at the end */
    float shrink0 = __shfl_sync(0xffffffffu, shrink, 8 * c),
          shrink1 = __shfl_sync(0xffffffffu, shrink, 8 * c + 4);
    uint32_t b0[3], b1[3];
    split_pair(p[0], p[1], b0);
    split_pair(p[2], p[3], b1);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t v[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[k] = i == 0 ? t->value[k].x : i == 1 ? t->value[k].y : i == 2 ? t->value[k].z : t->value[k].w;
        const uint32_t a[4] = {__byte_perm(v[0], v[1], 0x5410), __byte_perm(v[0], v[1], 0x7632),
                               __byte_perm(v[2], v[3], 0x5410), __byte_perm(v[2], v[3], 0x7632)};
        r->out[i][0] *= shrink0;
        r->out[i][1] *= shrink1;
        r->out[i][2] *= shrink0;
        r->out[i][3] *= shrink1;
#pragma unroll
        for (int k = 0; k < TERMS; k++)
            mma_bf16(r->out[i], a, b0[k], b1[k]);
    }
}

/* ---------------------------------------------------------------- results */

/* Every warp's result to shared memory: block->out, largest and sum, as WARP_RESULTS declares them. */
#define WARP_RESULTS(n_warp)                                                                                 \
    float2 out[n_warp][GROUP][OUT_STEP / 2]; /* pairs of dimensions */                                       \
    float largest[n_warp][GROUP];                                                                            \
    float sum[n_warp][GROUP]

template <class Block> GS_DEVICE void leave_warp(struct running *r, Block *block)
{
    int warp = warp_of_thread(), g = lane_of_thread() / 4, c = lane_of_thread() % 4;
    r->sum += gs_shuffle_xor(r->sum, 1);
    r->sum += gs_shuffle_xor(r->sum, 2);
    if (c == 0) {
        block->largest[warp][g] = r->largest;
        block->sum[warp][g] = r->sum;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            block->out[warp][2 * c + h][4 * g + i] = make_float2(r->out[i][h], r->out[i][2 + h]);
}

/* A thread's pair of dimensions of one head. */
struct merged {
    float largest, sum, a, b;
};

/* Over all warps, in their order. */
template <int N_WARP, class Block> GS_DEVICE struct merged merge_warps(const Block *block, int h, int pair)
{
    struct merged m = {-INFINITY, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int w = 0; w < N_WARP; w++)
        m.largest = fmaxf(m.largest, block->largest[w][h]);
#pragma unroll
    for (int w = 0; w < N_WARP; w++) {
        float factor = gs_exp(block->largest[w][h] - m.largest); /* 0 where the warp had no key */
        float2 out = block->out[w][h][pair];
        m.sum += block->sum[w][h] * factor;
        m.a += out.x * factor;
        m.b += out.y * factor;
    }
    return m;
}

/* Dimensions d and d+1 of a split's result, beside the other splits': the largest score, the sum, the values.
 */
GS_DEVICE void leave_split(float *to, const struct merged &m, int d)
{
    if (d == 0) {
        to[0] = m.largest;
        to[1] = m.sum;
    }
    to[2 + d] = m.a;
    to[3 + d] = m.b;
}

/* The result, with the sink, which takes part in the sum and has no value. */
GS_DEVICE float2 add_sink(const struct merged &m, float sink)
{
    float largest = fmaxf(sink, m.largest), factor = gs_exp(m.largest - largest);
    float total = m.sum * factor + gs_exp(sink - largest);
    return make_float2(m.a * factor / total, m.b * factor / total);
}

#endif
