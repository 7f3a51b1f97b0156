/*
 * The running softmax of attention over blocks of 64 keys, as the tensor-core kernels see it: a warp has 16
 * rows of one head, a lane the rows g and g+8. The learned sink is the first entry of maximum and sum.
 */
#ifndef GS_BACKEND_GPU_PREFILL_ATTENTION_CUH
#define GS_BACKEND_GPU_PREFILL_ATTENTION_CUH

#include "backend/gpu/prefill_common.cuh"

#define KEYS         64
#define LOG2_E       1.4426950408889634f
#define HIDDEN_SCORE (-1e30f) /* of a key that a row does not see: finite, so that no difference is NaN */

struct running {
    float largest[2], sum[2]; /* of rows g and g+8; raw scores, before the scale; sum is this lane's part */
    float out[8][4];
};

/* Which keys the rows of a timeline among a block's rows see. */
struct visible {
    int first[2], last[2];   /* of rows g and g+8 */
    int key_begin, n_block;  /* positions that any of the rows sees */
    int all_first, all_last; /* positions that all of them see; all_first > all_last: none */
};

/* Rows `begin` ... end-1 of the call, of one timeline; this lane's are row and row+8. */
GS_DEVICE struct visible visible_of(const struct gs_gpu_args &args, int row, int begin, int end, int whole)
{
    struct visible v;
    int position0 = args.s.rows[begin].position, last_key = position0 + end - begin - 1;
    int window = args.is_window ? args.dims.window : last_key + 1;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int r = row + 8 * half;
        v.last[half] = r >= begin && r < end ? position0 + r - begin : -1;
        v.first[half] = v.last[half] - window + 1;
    }
    /*
     * Blocks of keys begin at multiples of KEYS, so that a row's sums do not depend on the rows beside it. A
     * slot before the first visible key holds numbers: the host clears a new cache.
     */
    v.key_begin = position0 - window + 1 > 0 ? (position0 - window + 1) / KEYS * KEYS : 0;
    v.n_block = (last_key - v.key_begin) / KEYS + 1;
    v.all_first = last_key - window + 1;
    v.all_last = whole ? position0 : -1;
    return v;
}

GS_DEVICE void start_running(struct running *state, const struct gs_gpu_args &args, int head, int lane)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        state->largest[half] = args.w.sinks[head] / args.dims.attention_scale;
        state->sum[half] = (lane & 3) == 0 ? 1.0f : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            state->out[j][i] = 0;
    }
}

/* A block of raw scores from key `key0` into the state; they become probabilities, not yet divided by the
 * sum. */
GS_DEVICE void take_scores(struct running *state, float scores[8][4], float scale, int key0, int q,
                           const struct visible &v)
{
    if (key0 < v.all_first || key0 + KEYS - 1 > v.all_last) {
#pragma unroll
        for (int j = 0; j < 8; j++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int key = key0 + 8 * j + 2 * q + (i & 1);
                if (key < v.first[i >> 1] || key > v.last[i >> 1])
                    scores[j][i] = HIDDEN_SCORE;
            }
        }
    }
    float top[2] = {state->largest[0], state->largest[1]}, shrink[2];
#pragma unroll
    for (int j = 0; j < 8; j++) {
        top[0] = fmaxf(top[0], fmaxf(scores[j][0], scores[j][1]));
        top[1] = fmaxf(top[1], fmaxf(scores[j][2], scores[j][3]));
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        top[half] = fmaxf(top[half], gs_shuffle_xor(top[half], 1));
        top[half] = fmaxf(top[half], gs_shuffle_xor(top[half], 2));
        shrink[half] = exp2_fast((state->largest[half] - top[half]) * scale);
        state->largest[half] = top[half];
        state->sum[half] *= shrink[half];
    }
    if (__any_sync(0xffffffffu, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
#pragma unroll
        for (int j = 0; j < 8; j++) {
            state->out[j][0] *= shrink[0];
            state->out[j][1] *= shrink[0];
            state->out[j][2] *= shrink[1];
            state->out[j][3] *= shrink[1];
        }
    }
    float offset[2] = {-top[0] * scale, -top[1] * scale};
#pragma unroll
    for (int j = 0; j < 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            scores[j][i] = exp2_fast(fmaf(scores[j][i], scale, offset[i >> 1]));
            state->sum[i >> 1] += scores[j][i];
        }
    }
}

/* The A operand of the product with values: k16 step `step` of the probabilities. */
GS_DEVICE void pack_probabilities(uint32_t a[4], const float p[8][4], int step)
{
    a[0] = pack_bf16(p[2 * step][0], p[2 * step][1]);
    a[1] = pack_bf16(p[2 * step][2], p[2 * step][3]);
    a[2] = pack_bf16(p[2 * step + 1][0], p[2 * step + 1][1]);
    a[3] = pack_bf16(p[2 * step + 1][2], p[2 * step + 1][3]);
}

/* The lane's two rows of a head to `attended`; rows from row_end on do not exist. */
GS_DEVICE void write_attended(const struct gs_gpu_args &args, const struct running &state, int row,
                              int row_end, int head, int lane)
{
    struct gs_prefill_parts parts = gs_prefill_carve(&args.dims, args.s.prefill);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = state.sum[half] + gs_shuffle_xor(state.sum[half], 1);
        sum += gs_shuffle_xor(sum, 2);
        if (row + 8 * half >= row_end)
            continue;
        uint16_t *out =
            parts.attended + ((int64_t)(row + 8 * half) * args.dims.n_head + head) * 64 + (lane & 3) * 2;
        float share = 1.0f / sum;
#pragma unroll
        for (int j = 0; j < 8; j++)
            *(uint32_t *)(out + 8 * j) =
                pack_bf16(state.out[j][2 * half] * share, state.out[j][2 * half + 1] * share);
    }
}

/* One past the last row of row `begin`'s timeline, row_end at most. */
GS_DEVICE int end_of_timeline(const struct gs_gpu_args &args, int begin, int row_end)
{
    int end = begin + 1, first = args.s.rows[begin].first;
    if (args.s.rows[row_end - 1].first == first)
        return row_end;
    while (args.s.rows[end].first == first)
        end++;
    return end;
}

#endif
