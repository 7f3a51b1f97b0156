/*
 * Batch: the dense products of up to 64 rows. A block computes a strip of 16 rows of weights: its warps take
 * the blocks of 32 columns in turn, and their sums are added in the order of the warps.
 */
#include "backend/gpu/batch.cuh"

/* One block of 32 columns of a strip, bfloat16: two k16 steps of A. */
struct form_bf16 {
    static const int BLOCK_BYTES = 1024; /* of 16 rows x 32 columns */
    struct u32x4 w0, w1;
    __device__ __forceinline__ void load(const uint8_t *strip, int block)
    {
        const uint8_t *at = strip + (int64_t)block * BLOCK_BYTES + lane_of_thread() * 16;
        w0 = load_global_16(at);
        w1 = load_global_16(at + 512);
    }
    __device__ __forceinline__ void operands(uint32_t a0[4], uint32_t a1[4]) const
    {
        a0[0] = w0.x, a0[1] = w0.y, a0[2] = w0.z, a0[3] = w0.w;
        a1[0] = w1.x, a1[1] = w1.y, a1[2] = w1.z, a1[3] = w1.w;
    }
    __device__ __forceinline__ void add(float sum[4], const float c[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            sum[i] += c[i];
    }
};

/* The same in 8 bits: sign and magnitude, and a scale for each row. */
struct form_q8 {
    static const int BLOCK_BYTES = 0;
    struct u32x4 w;
    uint32_t scale;
    __device__ __forceinline__ void load(const uint8_t *strip, int block)
    {
        const uint8_t *chunk = strip + (int64_t)(block / 2) * GS_DECODE_Q8_CHUNK;
        w = load_global_16(chunk + block % 2 * 512 + lane_of_thread() * 16);
        scale = __ldg((const uint32_t *)(chunk + 1024 + lane_of_thread() / 4 * 8 + block % 2 * 4));
    }
    __device__ __forceinline__ void operands(uint32_t a0[4], uint32_t a1[4]) const
    {
        decode_bytes(w.x, &a0[0], &a0[2]);
        decode_bytes(w.z, &a0[1], &a0[3]);
        decode_bytes(w.y, &a1[0], &a1[2]);
        decode_bytes(w.w, &a1[1], &a1[3]);
    }
    __device__ __forceinline__ void add(float sum[4], const float c[4]) const
    {
        float s0 = gs_float_of_f16((uint16_t)scale), s1 = gs_float_of_f16((uint16_t)(scale >> 16));
        sum[0] += s0 * c[0];
        sum[1] += s0 * c[1];
        sum[2] += s1 * c[2];
        sum[3] += s1 * c[3];
    }
};

template <class Form> GS_DEVICE int64_t strip_bytes(int columns)
{
    return Form::BLOCK_BYTES ? (int64_t)columns / 32 * Form::BLOCK_BYTES
                             : (int64_t)columns / 64 * GS_DECODE_Q8_CHUNK;
}

/*
 * The block's strips times x (bfloat16 [n_rows][columns]): done(row of the matrix, t, value) for each of
 * their rows and every row t, by the threads of the block. TILES: groups of 8 rows; with many of them a block
 * takes two strips, since x is then what it mostly reads.
 */
template <int TILES, class Form, class Done>
GS_DEVICE void dense(const struct gs_gpu_matrix &m, const uint16_t *x, int n_rows, Done done)
{
    const int STRIPS = TILES >= GS_BATCH_WIDE_TILES ? 2 : 1;
    const int AHEAD = TILES <= 2 ? 4 : TILES <= 4 ? 2 : 1; /* blocks of columns whose weights are under way */
    GS_SHARED float parts[GS_BATCH_WARPS][GS_DECODE_STRIP][TILES * 8 + 1];
    int lane = lane_of_thread(), warp = warp_of_thread(), g = lane / 4, q = lane % 4;
    int n_block = m.columns / 32, n_strip = m.rows / GS_DECODE_STRIP, strip0 = gs_block() * STRIPS;
    const uint8_t *weights[STRIPS];
    Form form[AHEAD][STRIPS];
#pragma unroll
    for (int s = 0; s < STRIPS; s++) {
        int strip = strip0 + s < n_strip ? strip0 + s : n_strip - 1;
        weights[s] = (const uint8_t *)m.relaid + strip * strip_bytes<Form>(m.columns);
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (warp + GS_BATCH_WARPS * i < n_block)
                form[i][s].load(weights[s], warp + GS_BATCH_WARPS * i);
    }
    gs_wait_for_previous();
    gs_let_next_start();
    float sum[STRIPS][TILES][4];
#pragma unroll
    for (int s = 0; s < STRIPS; s++)
#pragma unroll
        for (int t = 0; t < TILES; t++)
            sum[s][t][0] = sum[s][t][1] = sum[s][t][2] = sum[s][t][3] = 0.0f;
    for (int first = warp; first < n_block; first += GS_BATCH_WARPS * AHEAD) {
        struct u32x4 b[AHEAD][TILES]; /* all of them under way before the first is needed */
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                int row = t * 8 + g < n_rows ? t * 8 + g : n_rows - 1, block = first + GS_BATCH_WARPS * i;
                block = block < n_block ? block : n_block - 1;
                b[i][t] = load_fresh_16(x + (int64_t)row * m.columns + block * 32 + q * 8);
            }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int block = first + GS_BATCH_WARPS * i, next = block + GS_BATCH_WARPS * AHEAD;
            if (block >= n_block)
                break;
            Form now[STRIPS];
            uint32_t a0[STRIPS][4], a1[STRIPS][4];
#pragma unroll
            for (int s = 0; s < STRIPS; s++) {
                now[s] = form[i][s];
                if (next < n_block)
                    form[i][s].load(weights[s], next);
                now[s].operands(a0[s], a1[s]);
            }
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int s = 0; s < STRIPS; s++) {
                    float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                    mma_bf16(c, a0[s], b[i][t].x, b[i][t].y);
                    mma_bf16(c, a1[s], b[i][t].z, b[i][t].w);
                    now[s].add(sum[s][t], c);
                }
        }
    }
#pragma unroll
    for (int s = 0; s < STRIPS; s++) {
        if (s > 0)
            gs_sync();
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                parts[warp][g + i / 2 * 8][t * 8 + q * 2 + i % 2] = sum[s][t][i];
        gs_sync();
        for (int i = gs_thread(); i < GS_DECODE_STRIP * n_rows && strip0 + s < n_strip;
             i += GS_BATCH_THREADS) {
            int row = i % GS_DECODE_STRIP, t = i / GS_DECODE_STRIP;
            float value = 0.0f;
#pragma unroll
            for (int w = 0; w < GS_BATCH_WARPS; w++)
                value += parts[w][row][t];
            done((strip0 + s) * GS_DECODE_STRIP + row, t, value);
        }
    }
}

template <int TILES, class Form> GS_DEVICE void qkv(const struct gs_gpu_args &args)
{
    const uint16_t *x =
        (const uint16_t *)((const char *)args.s.prefill + gs_batch_layout_of(&args.dims).normed);
    dense<TILES, Form>(args.w.qkv, x, args.n_rows, [&](int row, int t, float value) {
        args.s.qkv[(int64_t)t * args.w.qkv.rows + row] = value + args.w.qkv_bias[row];
    });
}

template <int TILES, class Form> GS_DEVICE void output(const struct gs_gpu_args &args)
{
    const uint16_t *x =
        (const uint16_t *)((const char *)args.s.prefill + gs_batch_layout_of(&args.dims).attended);
    dense<TILES, Form>(args.w.o, x, args.n_rows, [&](int row, int t, float value) {
        float *hidden = args.s.hidden + (int64_t)t * args.dims.d_model + row;
        *hidden = load_fresh(hidden) + (value + args.w.o_bias[row]);
    });
}

template <int TILES, class Form> GS_DEVICE void head(const struct gs_gpu_args &args)
{
    const uint16_t *x =
        (const uint16_t *)((const char *)args.s.prefill + gs_batch_layout_of(&args.dims).normed);
    dense<TILES, Form>(args.outer, x, args.n_rows, [&](int row, int t, float value) {
        args.s.logits[(int64_t)t * args.dims.n_vocab + row] = value;
    });
}

#define KERNELS(name, function, suffix, form)                                                                \
    GS_KERNEL void GS_BOUNDS(GS_BATCH_THREADS, 2) name##suffix##_8(GS_ARGS(struct gs_gpu_args, args))        \
    {                                                                                                        \
        function<1, form>(args);                                                                             \
    }                                                                                                        \
    GS_KERNEL void GS_BOUNDS(GS_BATCH_THREADS, 2) name##suffix##_16(GS_ARGS(struct gs_gpu_args, args))       \
    {                                                                                                        \
        function<2, form>(args);                                                                             \
    }                                                                                                        \
    GS_KERNEL void GS_BOUNDS(GS_BATCH_THREADS, 2) name##suffix##_32(GS_ARGS(struct gs_gpu_args, args))       \
    {                                                                                                        \
        function<4, form>(args);                                                                             \
    }                                                                                                        \
    GS_KERNEL void GS_BOUNDS(GS_BATCH_THREADS, 2) name##suffix##_64(GS_ARGS(struct gs_gpu_args, args))       \
    {                                                                                                        \
        function<8, form>(args);                                                                             \
    }

KERNELS(gs_batch_qkv, qkv, , form_bf16)
KERNELS(gs_batch_qkv, qkv, _q8, form_q8)
KERNELS(gs_batch_o, output, , form_bf16)
KERNELS(gs_batch_o, output, _q8, form_q8)
KERNELS(gs_batch_head, head, , form_bf16)
KERNELS(gs_batch_head, head, _q8, form_q8)
