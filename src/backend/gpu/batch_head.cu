/*
 * Batch: the head. There are strips enough for all: a warp takes two of them from their first column to their
 * last, each warp with a ring of its own for weights. The rows' columns come once for all warps of a block,
 * by way of a second ring that a warp of its own fills.
 */
#include "backend/gpu/batch_forms.cuh"

#define STRIPS  GS_BATCH_HEAD_STRIPS
#define WARPS_H GS_BATCH_WARPS

/*
 * A slot of the rows' ring is free once every warp has read it: a named barrier of the block for each slot
 * (number 0 is gs_sync's), at which the warps that read arrive and the one that fills waits.
 */
GS_DEVICE void free_slot(int slot)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(slot + 1), "n"((WARPS_H + 1) * 32) : "memory");
}

GS_DEVICE void wait_for_slot(int slot)
{
    asm volatile("bar.sync %0, %1;" ::"r"(slot + 1), "n"((WARPS_H + 1) * 32) : "memory");
}

/* A place in a ring, and the parity of its turn. */
template <int SLOTS> struct place {
    int slot;
    uint32_t phase;
    __device__ __forceinline__ void go_on(void)
    {
        if (++slot == SLOTS) {
            slot = 0;
            phase ^= 1;
        }
    }
};

/* A warp's chunks, of one pair of strips after another. */
template <class Form> struct head_feed {
    const uint8_t *weights, *at;
    int n_strip, n_chunk, group, chunk;
    int64_t other; /* bytes to the second strip of the pair */
    __device__ __forceinline__ void enter(void)
    {
        int strip = (group * WARPS_H + warp_of_thread()) * STRIPS, last = n_strip - 1;
        int first = strip < last ? strip : last, second = strip + 1 < last ? strip + 1 : last;
        at = weights + (int64_t)first * n_chunk * Form::CHUNK;
        other = (int64_t)(second - first) * n_chunk * Form::CHUNK;
        chunk = 0;
    }
    __device__ __forceinline__ void fetch(uint32_t to, uint32_t bar, uint64_t policy)
    {
        expect_bytes(bar, STRIPS * Form::CHUNK);
        copy_once(to, at, Form::CHUNK, bar, policy);
        copy_once(to + Form::CHUNK, at + other, Form::CHUNK, bar, policy);
        at += Form::CHUNK;
        if (++chunk == n_chunk) {
            group += gs_n_block();
            enter();
        }
    }
};

/* The last warp: the rows' columns, chunk after chunk, once for every group of strips. */
GS_DEVICE void feed_rows(const struct gs_gpu_args &args, int n, int n_chunk, uint32_t ring, uint32_t step,
                         uint32_t full)
{
    uint32_t bytes = (uint32_t)args.n_rows * GS_DECODE_DENSE_COLUMNS * 2;
    for (int i = 0, chunk = 0, slot = 0; i < n; i++) {
        if (i >= GS_BATCH_HEAD_X_SLOTS)
            wait_for_slot(slot); /* with all lanes: each counts at the barrier */
        if (lane_of_thread() == 0) {
            expect_bytes(full + 8 * (uint32_t)slot, bytes);
            copy_rows(ring + (uint32_t)slot * step, (const char *)normed_of(args) + (int64_t)chunk * bytes,
                      bytes, full + 8 * (uint32_t)slot);
        }
        chunk = chunk + 1 < n_chunk ? chunk + 1 : 0;
        slot = slot + 1 < GS_BATCH_HEAD_X_SLOTS ? slot + 1 : 0;
    }
}

template <int TILES> GS_DEVICE void clear_sums(float sum[STRIPS][TILES][4])
{
#pragma unroll
    for (int s = 0; s < STRIPS; s++)
#pragma unroll
        for (int t = 0; t < TILES; t++)
            sum[s][t][0] = sum[s][t][1] = sum[s][t][2] = sum[s][t][3] = 0.0f;
}

template <int TILES>
GS_DEVICE void write_logits(const struct gs_gpu_args &args, int strip, const float *scale,
                            const float sum[TILES][4])
{
    int g = lane_of_thread() / 4, q = lane_of_thread() % 4;
    float *logits = args.s.logits + strip * GS_DECODE_STRIP + g;
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int row = t * 8 + 2 * q + i;
            if (row >= args.n_rows)
                continue;
            float *to = logits + (int64_t)row * args.dims.n_vocab;
            to[0] = sum[t][i] * scale[row];
            to[8] = sum[t][2 + i] * scale[row];
        }
}

/* For all of the block. */
GS_DEVICE void init_bars(const uint64_t *weights, int n_weights, const uint64_t *rows, int n_rows)
{
    if (gs_thread() == 0) {
        for (int i = 0; i < n_weights; i++)
            barrier_init(shared_address(weights + i));
        for (int i = 0; i < n_rows; i++)
            barrier_init(shared_address(rows + i));
        barrier_init_fence();
    }
    gs_sync();
}

/* Grid: a block a multiprocessor. */
template <int TILES, class Form> GS_DEVICE void head(const struct gs_gpu_args &args)
{
    const int X = TILES * 8 * GS_DECODE_DENSE_COLUMNS * 2, SLOTS = GS_BATCH_HEAD_SLOTS;
    const int X_SLOTS = GS_BATCH_HEAD_X_SLOTS;
    extern __shared__ __align__(128) uint8_t dynamic[];
    GS_SHARED uint64_t bars[WARPS_H * SLOTS], full[X_SLOTS];
    GS_SHARED float scale[GS_BATCH_ROWS];
    const struct gs_gpu_matrix &m = args.outer;
    int warp = warp_of_thread(), lane = lane_of_thread(), g = lane / 4, q = lane % 4;
    int n_strip = m.rows / GS_DECODE_STRIP, n_chunk = m.columns / GS_DECODE_DENSE_COLUMNS;
    int n_group = (n_strip + WARPS_H * STRIPS - 1) / (WARPS_H * STRIPS);
    int mine = gs_block() < n_group ? (n_group - gs_block() - 1) / gs_n_block() + 1 : 0, n = mine * n_chunk;
    uint32_t x = shared_address(dynamic), bar = shared_address(bars + warp * SLOTS);
    uint32_t ring = x + (uint32_t)(X_SLOTS * X + warp * SLOTS * STRIPS * Form::CHUNK);
    init_bars(bars, WARPS_H * SLOTS, full, X_SLOTS);
    gs_let_next_start();
    struct head_feed<Form> feed = {
        (const uint8_t *)m.relaid, NULL, n_strip, n_chunk, gs_block(), 0, 0
    };
    const uint64_t policy = policy_read_once();
    if (warp < WARPS_H && lane == 0) {
        feed.enter();
        for (int i = 0; i < SLOTS && i < n; i++)
            feed.fetch(ring + (uint32_t)(i * STRIPS * Form::CHUNK), bar + 8 * (uint32_t)i, policy);
    }
    gs_wait_for_previous();
    if (gs_thread() < args.n_rows)
        scale[gs_thread()] = scale_of_row(args, gs_thread());
    gs_sync();
    if (warp == WARPS_H) {
        feed_rows(args, n, n_chunk, x, X, shared_address(full));
        return;
    }
    struct place<GS_BATCH_HEAD_SLOTS> at = {
        0, 0
    };
    struct place<GS_BATCH_HEAD_X_SLOTS> x_at = {
        0, 0
    };
    for (int group = gs_block(), left = n; group < n_group; group += gs_n_block()) {
        float sum[STRIPS][TILES][4];
        clear_sums<TILES>(sum);
        for (int chunk = 0; chunk < n_chunk; chunk++, left--) {
            uint32_t weights = ring + (uint32_t)(at.slot * STRIPS * Form::CHUNK);
            barrier_wait(bar + 8 * (uint32_t)at.slot, at.phase);
            barrier_wait(shared_address(full + x_at.slot), x_at.phase);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t from =
                    x + (uint32_t)(x_at.slot * X + g * 128 + ((half * 4 + q) ^ (g & 1) << 2) * 16);
                Form form[STRIPS];
#pragma unroll
                for (int s = 0; s < STRIPS; s++)
                    form[s].load(weights + (uint32_t)(s * Form::CHUNK), half);
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    struct u32x4 b = load_shared_16(from + (uint32_t)(t * 1024));
#pragma unroll
                    for (int s = 0; s < STRIPS; s++)
                        form[s].multiply(sum[s][t], b);
                }
            }
            __syncwarp();
            if (lane == 0 && left > SLOTS)
                feed.fetch(weights, bar + 8 * (uint32_t)at.slot, policy);
            __syncwarp();
            if (left > X_SLOTS) /* it is filled once more, after a wait for this */
                free_slot(x_at.slot);
            at.go_on();
            x_at.go_on();
        }
#pragma unroll
        for (int s = 0; s < STRIPS; s++) {
            int strip = (group * WARPS_H + warp) * STRIPS + s;
            if (strip < n_strip)
                write_logits<TILES>(args, strip, scale, sum[s]);
        }
    }
}

#define KERNEL(name, form, rows)                                                                             \
    GS_KERNEL void GS_BOUNDS((WARPS_H + 1) * 32, 1) name##_##rows(GS_ARGS(struct gs_gpu_args, args))         \
    {                                                                                                        \
        head<rows / 8, form>(args);                                                                          \
    }
#define KERNELS(name, form)                                                                                  \
    KERNEL(name, form, 8)                                                                                    \
    KERNEL(name, form, 16)                                                                                   \
    KERNEL(name, form, 32)                                                                                   \
    KERNEL(name, form, 64)

KERNELS(gs_batch_head, form_bf16)
KERNELS(gs_batch_head_q8, form_q8)
