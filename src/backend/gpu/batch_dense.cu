/*
 * Batch: the dense products of up to 64 rows. A block computes strips of 16 rows of weights, or a part of
 * their columns: its warps take the chunks of 64 columns in turn, each by way of a ring of its own that it
 * fills before it waits for the kernel before, and their sums are added in the order of the warps. How many
 * rows there are changes nothing in that order.
 */
#include "backend/gpu/batch_forms.cuh"

/* What a block computes: strips strip0 ... of n_strip, chunks first ... first+count-1 of their columns. */
struct cut {
    int strip0, n_strip, piece, n_piece, first, count, n_chunk;
};

template <int STRIPS> GS_DEVICE struct cut cut_of_block(const struct gs_gpu_matrix &m)
{
    struct cut c;
    c.n_strip = m.rows / GS_DECODE_STRIP;
    c.n_chunk = m.columns / GS_DECODE_DENSE_COLUMNS;
    c.n_piece = gs_n_block() / ((c.n_strip + STRIPS - 1) / STRIPS);
    c.strip0 = gs_block() / c.n_piece * STRIPS;
    c.piece = gs_block() % c.n_piece;
    c.first = c.n_chunk * c.piece / c.n_piece;
    c.count = c.n_chunk * (c.piece + 1) / c.n_piece - c.first;
    return c;
}

/* A warp's chunks of the block's strips, in a ring; in a wide product the rows of x beside them. */
template <int TILES, class Form> struct warp_ring {
    static const int STRIPS = gs_batch_strips(TILES), X = gs_batch_slot_x(TILES);
    static const int SLOT = X + STRIPS * Form::CHUNK;
    const uint8_t *weights[STRIPS];      /* the warp's first chunk */
    const uint16_t *x;                   /* the same of x, of all rows */
    uint32_t base, bars, phase, x_bytes; /* x_bytes: of a chunk */
    int slot, n_slot, n, fetched;        /* n: chunks of the warp */
    uint64_t policy;
    __device__ __forceinline__ void fetch_weights(int at, int chunk)
    {
        uint32_t to = base + (uint32_t)(at * SLOT + X), bar = bars + 8 * (uint32_t)at;
        expect_bytes(bar, STRIPS * Form::CHUNK + x_bytes);
#pragma unroll
        for (int s = 0; s < STRIPS; s++)
            copy_once(to + (uint32_t)(s * Form::CHUNK),
                      weights[s] + (int64_t)chunk * GS_BATCH_WARPS * Form::CHUNK, Form::CHUNK, bar, policy);
    }
    __device__ __forceinline__ void fetch_x(int at, int chunk)
    {
        if (X > 0)
            copy_rows(base + (uint32_t)(at * SLOT),
                      (const char *)x + (int64_t)chunk * GS_BATCH_WARPS * x_bytes, x_bytes,
                      bars + 8 * (uint32_t)at);
    }
    __device__ __forceinline__ void start(const struct gs_gpu_matrix &m, const uint16_t *of, int n_rows,
                                          const struct cut &cut, uint32_t memory, uint32_t all_bars)
    {
        int warp = warp_of_thread();
        n = (cut.count - warp + GS_BATCH_WARPS - 1) / GS_BATCH_WARPS;
        n_slot = gs_batch_dense_slots(m.columns, cut.n_piece, TILES);
        base = memory + (uint32_t)(warp * n_slot * SLOT);
        bars = all_bars + (uint32_t)(warp * n_slot * 8);
        phase = 0, slot = 0, fetched = n_slot < n ? n_slot : n;
        policy = policy_read_once();
        x_bytes = X > 0 ? (uint32_t)n_rows * GS_DECODE_DENSE_COLUMNS * 2 : 0;
        x = of + (int64_t)(cut.first + warp) * n_rows * GS_DECODE_DENSE_COLUMNS;
#pragma unroll
        for (int s = 0; s < STRIPS; s++) {
            int strip = cut.strip0 + s < cut.n_strip ? cut.strip0 + s : cut.n_strip - 1;
            weights[s] =
                (const uint8_t *)m.relaid + ((int64_t)strip * cut.n_chunk + cut.first + warp) * Form::CHUNK;
        }
        if (lane_of_thread() == 0) {
            for (int i = 0; i < n_slot; i++)
                barrier_init(bars + 8 * (uint32_t)i);
            barrier_init_fence();
            for (int i = 0; i < fetched; i++)
                fetch_weights(i, i);
        }
        __syncwarp();
    }
    __device__ __forceinline__ void start_x(void)
    {
        if (lane_of_thread() == 0)
            for (int i = 0; i < fetched; i++)
                fetch_x(i, i);
    }
    /* The offset of the next chunk's slot. */
    __device__ __forceinline__ uint32_t wait(void) const
    {
        barrier_wait(bars + 8 * (uint32_t)slot, phase);
        return base + (uint32_t)(slot * SLOT);
    }
    __device__ __forceinline__ void done(void)
    {
        __syncwarp();
        if (fetched < n) {
            if (lane_of_thread() == 0) {
                fetch_weights(slot, fetched);
                fetch_x(slot, fetched);
            }
            fetched++;
        }
        if (++slot == n_slot) {
            slot = 0;
            phase ^= 1;
        }
    }
};

/* Few rows: a lane loads its part of x itself, AHEAD blocks of 32 columns before they are needed. */
template <int TILES, class Form>
GS_DEVICE void multiply_narrow(struct warp_ring<TILES, Form> &ring, int n_rows, float sum[][TILES][4])
{
    const int AHEAD = TILES == 1 ? 6 : 4;
    int g = lane_of_thread() / 4, q = lane_of_thread() % 4, n = 2 * ring.n;
    uint32_t chunk = 0;
    for (int first = 0; first < n; first += AHEAD) {
        struct u32x4 b[AHEAD][TILES];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                int row = t * 8 + g < n_rows ? t * 8 + g : n_rows - 1,
                    block = first + i < n ? first + i : n - 1;
                b[i][t] = load_fresh_16(
                    ring.x + tiled(row, block / 2 * GS_BATCH_WARPS * 64 + block % 2 * 32 + q * 8, n_rows));
            }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (first + i >= n)
                break;
            if (i % 2 == 0)
                chunk = ring.wait();
            Form form;
            form.load(chunk, i % 2);
#pragma unroll
            for (int t = 0; t < TILES; t++)
                form.multiply(sum[0][t], b[i][t]);
            if (i % 2 == 1)
                ring.done();
        }
    }
}

/* Many rows: x comes by way of the ring, once for all strips of the block. */
template <int TILES, class Form>
GS_DEVICE void multiply_wide(struct warp_ring<TILES, Form> &ring, float sum[][TILES][4])
{
    int g = lane_of_thread() / 4, q = lane_of_thread() % 4;
    for (int i = 0; i < ring.n; i++) {
        uint32_t slot = ring.wait();
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t from = slot + (uint32_t)(g * 128 + ((half * 4 + q) ^ (g & 1) << 2) * 16);
            Form form[ring.STRIPS];
#pragma unroll
            for (int s = 0; s < ring.STRIPS; s++)
                form[s].load(slot + (uint32_t)(ring.X + s * Form::CHUNK), half);
#pragma unroll
            for (int t = 0; t < TILES; t++) {
                struct u32x4 b = load_shared_16(from + (uint32_t)(t * 1024));
#pragma unroll
                for (int s = 0; s < ring.STRIPS; s++)
                    form[s].multiply(sum[s][t], b);
            }
        }
        ring.done();
    }
}

/*
 * The block's strips times x (bfloat16, all rows, in tiles). An epilogue is told when weights are under way
 * (early), when what earlier kernels wrote is there (ready), of every value (done: of strip s of the block;
 * its j-th of the thread) and of the end of a strip. TILES: groups of 8 rows; with many of them a block takes
 * several strips, since x is then what it mostly reads.
 */
template <int TILES, class Form, class Epilogue>
GS_DEVICE void dense(const struct gs_gpu_args &args, const struct gs_gpu_matrix &m, const uint16_t *x)
{
    const int STRIPS = gs_batch_strips(TILES);
    const int PART = TILES * 8 + 1, ITEMS = (TILES + 1) / 2;
    extern __shared__ __align__(128) uint8_t dynamic[];
    GS_SHARED uint64_t bars[GS_BATCH_WARPS * GS_BATCH_DENSE_SLOTS];
    int g = lane_of_thread() / 4, q = lane_of_thread() % 4, warp = warp_of_thread();
    const struct cut cut = cut_of_block<STRIPS>(m);
    struct warp_ring<TILES, Form> ring;
    ring.start(m, x, args.n_rows, cut, shared_address(dynamic), shared_address(bars));
    gs_let_next_start();
    Epilogue epilogue(args, cut);
    epilogue.early();
    gs_wait_for_previous();
    ring.start_x();
    epilogue.ready();
    float sum[STRIPS][TILES][4];
#pragma unroll
    for (int s = 0; s < STRIPS; s++)
#pragma unroll
        for (int t = 0; t < TILES; t++)
            sum[s][t][0] = sum[s][t][1] = sum[s][t][2] = sum[s][t][3] = 0.0f;
    if constexpr (TILES < GS_BATCH_WIDE_TILES)
        multiply_narrow<TILES, Form>(ring, args.n_rows, sum);
    else
        multiply_wide<TILES, Form>(ring, sum);
    float *parts = (float *)dynamic; /* [warp][16][PART], where the rings were */
#pragma unroll
    for (int s = 0; s < STRIPS; s++) {
        gs_sync();
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                parts[(warp * GS_DECODE_STRIP + g + i / 2 * 8) * PART + t * 8 + q * 2 + i % 2] = sum[s][t][i];
        gs_sync();
        if (cut.strip0 + s >= cut.n_strip)
            break;
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            int i = gs_thread() + j * GS_BATCH_THREADS, row = i % GS_DECODE_STRIP, t = i / GS_DECODE_STRIP;
            if (t >= args.n_rows)
                break;
            float value = 0.0f;
#pragma unroll
            for (int w = 0; w < GS_BATCH_WARPS; w++)
                value += parts[(w * GS_DECODE_STRIP + row) * PART + t];
            epilogue.done(s, j, (cut.strip0 + s) * GS_DECODE_STRIP + row, t, value);
        }
        epilogue.end(s);
    }
}

/* Projections of normed rows: times the norm's scale, whose sums of squares lie beside them. */
template <int TILES> struct to_qkv {
    const struct gs_gpu_args &args;
    float scale[(TILES + 1) / 2]; /* of the rows of this thread's values */
    __device__ __forceinline__ to_qkv(const struct gs_gpu_args &of, const struct cut &) : args(of)
    {
    }
    __device__ __forceinline__ void early(void)
    {
    }
    __device__ __forceinline__ void ready(void)
    {
#pragma unroll
        for (int j = 0; j < (TILES + 1) / 2; j++) {
            int t = (gs_thread() + j * GS_BATCH_THREADS) / GS_DECODE_STRIP;
            scale[j] = scale_of_row(args, t < args.n_rows ? t : args.n_rows - 1);
        }
    }
    __device__ __forceinline__ void done(int, int j, int row, int t, float value)
    {
        args.s.qkv[(int64_t)t * args.w.qkv.rows + row] = value * scale[j] + __ldg(args.w.qkv_bias + row);
    }
    __device__ __forceinline__ void end(int)
    {
    }
};

/*
 * The output projection: the first piece adds to hidden, the second's part lies beside it (layout.second)
 * until the router adds it. Both leave their share of the router's logits, which are linear in hidden.
 */
template <int TILES> struct to_hidden {
    static const int STRIPS = gs_batch_strips(TILES), ITEMS = (TILES + 1) / 2;
    const struct gs_gpu_args &args;
    const struct cut &cut;
    float before[STRIPS][ITEMS];
    float *columns, *tile; /* shared: the router's columns [STRIPS][16][n_expert];
                              [16][T] of the strip */
    __device__ __forceinline__ to_hidden(const struct gs_gpu_args &of, const struct cut &c) : args(of), cut(c)
    {
        GS_SHARED float shared_columns[STRIPS * GS_DECODE_STRIP * GS_DECODE_EXPERTS];
        GS_SHARED float shared_tile[GS_DECODE_STRIP * TILES * 8];
        columns = shared_columns;
        tile = shared_tile;
    }
    __device__ __forceinline__ void early(void)
    {
        int n = GS_DECODE_STRIP * args.dims.n_expert,
            left = args.dims.d_model * args.dims.n_expert - cut.strip0 * n;
        const float *from = args.w.router_columns + (int64_t)cut.strip0 * n;
        for (int i = gs_thread(); i < STRIPS * n && i < left; i += GS_BATCH_THREADS)
            columns[i] = __ldg(from + i);
    }
    __device__ __forceinline__ void ready(void)
    {
#pragma unroll
        for (int s = 0; s < STRIPS; s++)
#pragma unroll
            for (int j = 0; j < ITEMS; j++) {
                int i = gs_thread() + j * GS_BATCH_THREADS, t = i / GS_DECODE_STRIP;
                int row = (cut.strip0 + s) * GS_DECODE_STRIP + i % GS_DECODE_STRIP;
                before[s][j] = 0.0f;
                if (cut.piece == 0 && t < args.n_rows && row < args.dims.d_model)
                    before[s][j] = load_fresh(args.s.hidden + (int64_t)t * args.dims.d_model + row) +
                                   __ldg(args.w.o_bias + row);
            }
    }
    __device__ __forceinline__ void done(int s, int j, int row, int t, float value)
    {
        float *to = cut.piece == 0 ? args.s.hidden : second_of(args);
        value += before[s][j];
        to[(int64_t)t * args.dims.d_model + row] = value;
        tile[t * GS_DECODE_STRIP + row % GS_DECODE_STRIP] = value;
    }
    __device__ __forceinline__ void end(int s)
    {
        int n_expert = args.dims.n_expert, n_part = cut.n_strip * cut.n_piece;
        int part = (cut.strip0 + s) * cut.n_piece + cut.piece;
        gs_sync();
        for (int i = gs_thread(); i < args.n_rows * n_expert; i += GS_BATCH_THREADS) {
            int t = i / n_expert, e = i % n_expert;
            const float *column = columns + s * GS_DECODE_STRIP * n_expert + e;
            float dot = 0.0f;
#pragma unroll
            for (int r = 0; r < GS_DECODE_STRIP; r++)
                dot += tile[t * GS_DECODE_STRIP + r] * column[r * n_expert];
            router_parts_of(args)[((int64_t)t * n_part + part) * n_expert + e] = dot;
        }
    }
};

template <int TILES, class Form> GS_DEVICE void qkv(const struct gs_gpu_args &args)
{
    dense<TILES, Form, to_qkv<TILES>>(args, args.w.qkv, normed_of(args));
}

template <int TILES, class Form> GS_DEVICE void output(const struct gs_gpu_args &args)
{
    dense<TILES, Form, to_hidden<TILES>>(args, args.w.o, attended_of(args));
}

#define KERNEL(name, function, form, rows, blocks)                                                           \
    GS_KERNEL void GS_BOUNDS(GS_BATCH_THREADS, blocks) name##_##rows(GS_ARGS(struct gs_gpu_args, args))      \
    {                                                                                                        \
        function<rows / 8, form>(args);                                                                      \
    }
#define KERNELS(name, function, form)                                                                        \
    KERNEL(name, function, form, 8, 2)                                                                       \
    KERNEL(name, function, form, 16, 2)                                                                      \
    KERNEL(name, function, form, 32, 1)                                                                      \
    KERNEL(name, function, form, 64, 1)

KERNELS(gs_batch_qkv, qkv, form_bf16)
KERNELS(gs_batch_qkv_q8, qkv, form_q8)
KERNELS(gs_batch_o, output, form_bf16)
KERNELS(gs_batch_o_q8, output, form_q8)
