/*
 * The two dense products of a layer as the tensor-core kernels see them: operands, and what becomes of a
 * finished run of 64 columns. The same for mma.sync and wgmma, whose accumulators have one layout.
 */
#ifndef GS_BACKEND_GPU_PREFILL_DENSE_CUH
#define GS_BACKEND_GPU_PREFILL_DENSE_CUH

#include "backend/gpu/prefill_common.cuh"

#define DENSE_QKV 0 /* normed -> queries in the scratch, keys and values in the cache: bias, RoPE */
#define DENSE_O   1 /* attended -> hidden: bias, residual */

struct dense_operands {
    const uint16_t *rows;    /* bf16 [n_rows][depth] */
    const uint16_t *weights; /* bf16 [n_columns][depth] */
    int n_rows, n_columns, depth;
};

template <int OUTPUT> GS_DEVICE struct dense_operands dense_operands_of(const struct gs_gpu_args &args)
{
    struct gs_prefill_parts parts = gs_prefill_carve(&args.dims, args.s.prefill);
    const struct gs_gpu_matrix &matrix = OUTPUT == DENSE_QKV ? args.w.qkv : args.w.o;
    return {OUTPUT == DENSE_QKV ? parts.normed : parts.attended, (const uint16_t *)matrix.data, args.n_rows,
            matrix.rows, matrix.columns};
}

/*
 * A head of a row of queries, keys or values: this lane's columns are 8j + 2q + {0, 1} of `sums`[j]. Pairs of
 * RoPE are 32 columns apart, so j and j+4 meet in one lane.
 */
template <class SUMS>
GS_DEVICE void write_qkv_head(const struct gs_gpu_args &args, const SUMS &sums, int half, int row, int column,
                              int q)
{
    const struct gs_gpu_row &where = args.s.rows[row];
    int head = column / 64, n_head = args.dims.n_head, n_kv_head = args.dims.n_kv_head;
    const float *bias = args.w.qkv_bias + column, *rope = args.s.rope + (int64_t)where.position * 64;
    uint16_t *out;
    if (head < n_head) {
        struct gs_prefill_parts parts = gs_prefill_carve(&args.dims, args.s.prefill);
        out = parts.queries + ((int64_t)row * n_head + head) * 64;
    } else {
        const struct gs_gpu_kv_layer &kv = where.kv[args.layer];
        int is_value = head >= n_head + n_kv_head, kv_head = head - n_head - (is_value ? n_kv_head : 0);
        out = (uint16_t *)(is_value ? kv.values : kv.keys) +
              ((int64_t)kv_head * kv.n_slot + where.position % kv.n_slot) * 64;
    }
    int rotated = head < n_head + n_kv_head;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        int c = 8 * j + 2 * q;
        float low0 = sums[j][2 * half] + bias[c], low1 = sums[j][2 * half + 1] + bias[c + 1];
        float high0 = sums[j + 4][2 * half] + bias[c + 32], high1 = sums[j + 4][2 * half + 1] + bias[c + 33];
        if (rotated) {
            float4 angle = *(const float4 *)(rope + 2 * c); /* cos, sin of c, cos, sin of c+1 */
            float turned0 = low0 * angle.x - high0 * angle.y, turned1 = low1 * angle.z - high1 * angle.w;
            high0 = high0 * angle.x + low0 * angle.y;
            high1 = high1 * angle.z + low1 * angle.w;
            low0 = turned0;
            low1 = turned1;
        }
        *(uint32_t *)(out + c) = pack_bf16(low0, low1);
        *(uint32_t *)(out + c + 32) = pack_bf16(high0, high1);
    }
}

/* `sums`[0 ... 7] are a row's 64 columns from `column`, a multiple of 64; half 0 or 1: rows g or g+8. */
template <int OUTPUT, class SUMS>
GS_DEVICE void write_dense(const struct gs_gpu_args &args, const SUMS &sums, int half, int row, int column,
                           int q)
{
    if (row >= args.n_rows)
        return;
    if (OUTPUT == DENSE_QKV) {
        write_qkv_head(args, sums, half, row, column, q);
        return;
    }
    /* all loads before the first store: they may not be moved across it later */
    float *hidden = args.s.hidden + (int64_t)row * args.dims.d_model + column + 2 * q;
    const float *bias = args.w.o_bias + column + 2 * q;
    float2 before[8], add[8];
#pragma unroll
    for (int j = 0; j < 8; j++) {
        before[j] = __ldcg((const float2 *)(hidden + 8 * j));
        add[j] = __ldg((const float2 *)(bias + 8 * j));
    }
#pragma unroll
    for (int j = 0; j < 8; j++)
        *(float2 *)(hidden + 8 * j) = {before[j].x + (sums[j][2 * half] + add[j].x),
                                       before[j].y + (sums[j][2 * half + 1] + add[j].y)};
}

#endif
