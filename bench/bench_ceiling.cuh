/*
 * The kernels of bench_ceiling: a token's matrix products as launches that may be cut finer or coarser
 * without any change to their code, their weights or their arithmetic. Made of the decode kernels' own parts
 * (decode_stream.cuh): the same rings of bulk copies, the same products on tensor cores.
 *
 * What they leave out of a token: the router (the choice of experts lies in memory, and is read after the
 * wait for the stage before, as the engine's is) and the keys and values (attention over an empty context is
 * its queries).
 *
 * A pair is a vector that lies as the sum of two: [2][n] float32.
 */
#ifndef GS_BENCH_CEILING_CUH
#define GS_BENCH_CEILING_CUH

#include "backend/gpu/decode_stream.cuh"

#define CEILING_SLOTS    3       /* chunks in flight for each warp */
#define CEILING_SCALE    0x1p64f /* of activations before experts: codes are read as value * 2^-126 */
#define CEILING_UNSCALE  0x1p62f
#define CEILING_DENSE    GS_DECODE_DENSE_CHUNK
#define CEILING_EXPERT   GS_DECODE_EXPERT_CHUNK
#define CEILING_MAX      8    /* experts a launch */
#define CEILING_MODEL    3072 /* elements of a vector at most */
#define CEILING_ATTENDED 4096

struct ceiling_shared {
    uint64_t bars[WARPS * CEILING_SLOTS + CEILING_MAX];
    float squares[WARPS];
    struct parts parts;
};

/* Bytes of dynamic shared memory: rings, the struct above, a split vector of n elements. */
static inline uint32_t ceiling_shared_bytes(int chunk, int n)
{
    return (uint32_t)(WARPS * CEILING_SLOTS * chunk +
                      (int)((sizeof(struct ceiling_shared) + 127) / 128 * 128) + n * 6);
}

/* How a kernel brings its weights from memory. */
enum ceiling_loads {
    CEILING_RINGS, /* bulk copies into shared memory, several chunks ahead */
    CEILING_WIDE,  /* 16 bytes a lane into registers, a chunk ahead */
    CEILING_BYTES, /* the same bytes by loads of one byte each: the control */
};

struct ceiling_dense_args {
    const uint8_t *weights; /* [n_strip][n_chunk] chunks of 16 rows x 64 columns */
    int32_t n_strip, n_chunk;
    const float *in;      /* pair [n_in]; NULL: split is the input */
    const float *norm;    /* [n_in] */
    const uint8_t *split; /* split vector of 64*n_chunk elements */
    int32_t n_in;
    const float *before; /* pair, added to the result; NULL: nothing is */
    float *out;          /* pair [16*n_strip] */
    float *flat;         /* whole rows [16*n_strip] instead of a pair, for many strips a warp; or NULL */
};

struct ceiling_expert_args {
    const uint8_t *weights;     /* [n_expert][n_strip][n_chunk] chunks of 16 rows x 192 columns */
    const float *bias;          /* [n_expert][16*n_strip] */
    const int32_t *choice;      /* [CEILING_MAX] */
    const float *choice_weight; /* [CEILING_MAX] */
    int32_t first;              /* of the chosen, the first that this launch computes */
    int32_t n_strip, n_chunk;
    const float *in;    /* gate and up: pair [d_model] */
    const float *norm;  /* gate and up */
    uint8_t *activated; /* [CEILING_MAX] split vectors of d_ff */
    int32_t d_model, d_ff;
    const float *before; /* down: pair, added */
    float *out;          /* down: pair */
};

extern __shared__ __align__(128) unsigned char ceiling_memory[];

struct ceiling_place {
    struct ceiling_shared *block;
    uint32_t *vector;
    uint32_t ring, bars, vector_bars;
};

template <int CHUNK> GS_DEVICE struct ceiling_place ceiling_place_of_warp(void)
{
    struct ceiling_place p;
    p.block = (struct ceiling_shared *)(ceiling_memory + WARPS * CEILING_SLOTS * CHUNK);
    p.vector = (uint32_t *)((unsigned char *)p.block + (sizeof(struct ceiling_shared) + 127) / 128 * 128);
    p.ring = shared_address(ceiling_memory) + (uint32_t)warp_of_thread() * CEILING_SLOTS * CHUNK;
    p.bars = shared_address(p.block->bars + warp_of_thread() * CEILING_SLOTS);
    p.vector_bars = shared_address(p.block->bars + WARPS * CEILING_SLOTS);
    return p;
}

GS_DEVICE void ceiling_prepare(const struct ceiling_place *p, int n_vector)
{
    if (gs_thread() == 0) {
        for (int i = 0; i < n_vector; i++)
            barrier_init(p->vector_bars + 8 * i);
        barrier_init_fence();
    }
}

/* The norm's factor is returned: it is applied to the results. A barrier of the block is inside. */
GS_DEVICE float ceiling_take_pair(const struct ceiling_place *p, const float *pair, const float *norm, int n,
                                  float scale)
{
    struct norm_weights weights;
    struct residual x;
    load_norm(&weights, norm, n);
    float squares = load_residual<2>(&x, pair, n);
    leave_sum(p->block->squares, squares);
    store_split(&x, &weights, p->vector, n, scale);
    gs_sync();
    return 1.0f / gs_sqrt(add_sums(p->block->squares) / (float)n + 1e-5f);
}

/* ---------------------------------------------------------------- dense */

/* Chunks of all strips are cut evenly among the warps of the grid; flat: whole strips a warp. */
__global__ static void __launch_bounds__(THREADS, 2)
    ceiling_dense(const __grid_constant__ struct ceiling_dense_args args)
{
    struct ceiling_place place = ceiling_place_of_warp<CEILING_DENSE>();
    struct share mine = share_of_warp(args.n_strip * args.n_chunk);
    if (args.flat) {
        share_of(args.n_strip, gs_block() * WARPS + warp_of_thread(), gs_n_block() * WARPS, &mine.first,
                 &mine.count);
        mine.first *= args.n_chunk, mine.count *= args.n_chunk;
    }
    struct contiguous<CEILING_DENSE> next = {
        args.weights + (int64_t)mine.first *CEILING_DENSE
    };
    uint64_t policy = policy_read_once();
    stream_prepare<CEILING_SLOTS>(place.bars);
    stream_fill<CEILING_DENSE>(place.ring, place.bars, 0, CEILING_SLOTS, mine.count, policy, next);
    gs_let_next_start();
    ceiling_prepare(&place, 1);
    struct row_place row = place_of_row(&place.block->parts, &mine, args.n_chunk);
    gs_wait_for_previous();
    float add = 0.0f, scale = 1.0f;
    if (args.before && row.row >= 0)
        add = load_fresh(args.before + row.row) + load_fresh(args.before + 16 * args.n_strip + row.row);
    if (args.in) {
        scale = ceiling_take_pair(&place, args.in, args.norm, args.n_in, 1.0f);
    } else {
        uint32_t bytes = (uint32_t)(args.n_chunk * 64 * 6);
        if (gs_thread() == 0)
            copy_start(shared_address(place.vector), args.split, bytes, place.vector_bars);
        gs_sync();
        barrier_wait(place.vector_bars, 0);
    }
    uint32_t operand = operand_of(shared_address(place.vector));
    int strip = mine.first / args.n_chunk, chunk = mine.first % args.n_chunk, segment = 0;
    float c[2][4] = {}, sum[4];
    auto take = [&](void) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            sum[j] = c[0][j] + c[1][j];
            c[0][j] = c[1][j] = 0.0f;
        }
    };
    stream_run<CEILING_SLOTS, CEILING_DENSE>(
        place.ring, place.bars, mine.count, policy, next, [&](uint32_t slot) {
            weights_bf16::multiply(slot, operand, 2 * chunk, c);
            if (++chunk < args.n_chunk)
                return;
            chunk = 0;
            take();
            if (!args.flat) {
                leave_part(&place.block->parts, segment++, sum);
                return;
            }
            float whole[2];
            add_columns(sum, whole);
            if (lane_of_thread() % 4 < 2)
                args.flat[strip * 16 + lane_of_thread() / 4 + lane_of_thread() % 4 * 8] =
                    whole[lane_of_thread() % 4] * scale;
            strip++;
        });
    if (args.flat)
        return;
    if (mine.count == 0) {
        leave_nothing(&place.block->parts);
    } else if (chunk > 0) {
        take();
        leave_part(&place.block->parts, segment, sum);
    }
    gs_sync();
    write_pair(row, scale, add, args.out, args.out + 16 * args.n_strip, nullptr);
}

/* Attention over an empty context: the queries (a pair's first elements) as a split vector. */
__global__ static void ceiling_attend(const float *pair, int n_pair, uint32_t *split, int n)
{
    gs_let_next_start();
    gs_wait_for_previous();
    for (int i = 2 * (gs_block() * gs_n_thread() + gs_thread()); i < n;
         i += 2 * gs_n_block() * gs_n_thread()) {
        uint32_t terms[3];
        split_pair(load_fresh(pair + i) + load_fresh(pair + n_pair + i),
                   load_fresh(pair + i + 1) + load_fresh(pair + n_pair + i + 1), terms);
        for (int k = 0; k < 3; k++)
            split[split_word(i, 0, k, 1)] = terms[k];
    }
}

__global__ static void ceiling_empty(int unused)
{
    (void)unused;
    gs_let_next_start();
    gs_wait_for_previous();
}

/* ---------------------------------------------------------------- experts */

struct ceiling_choice {
    int expert[CEILING_MAX];
    float weight[CEILING_MAX];
};

template <int N> GS_DEVICE struct ceiling_choice ceiling_load_choice(const struct ceiling_expert_args &args)
{
    struct ceiling_choice c;
#pragma unroll
    for (int i = 0; i < N; i++) {
        c.expert[i] = __ldcg(args.choice + args.first + i);
        c.weight[i] = __ldcg(args.choice_weight + args.first + i);
    }
    return c;
}

/* The value of place i of a small array in registers. */
template <int N, class T> GS_DEVICE T ceiling_pick(const T (&values)[CEILING_MAX], int i)
{
    T value = values[0];
#pragma unroll
    for (int j = 1; j < N; j++)
        value = i == j ? values[j] : value;
    return value;
}

/* A chunk's words, in registers. */
struct ceiling_words {
    struct u32x4 codes[3];
    uint32_t scales[3];
};

/* A byte that the compiler may not join with its neighbours. */
GS_DEVICE uint32_t ceiling_load_byte(const uint8_t *at)
{
    uint32_t value;
    asm volatile("ld.global.u8 %0, [%1];" : "=r"(value) : "l"(at));
    return value;
}

template <enum ceiling_loads LOADS> GS_DEVICE uint32_t ceiling_load_word(const uint8_t *at)
{
    if (LOADS == CEILING_WIDE)
        return *(const uint32_t *)at;
    return ceiling_load_byte(at) | ceiling_load_byte(at + 1) << 8 | ceiling_load_byte(at + 2) << 16 |
           ceiling_load_byte(at + 3) << 24;
}

template <enum ceiling_loads LOADS>
GS_DEVICE void ceiling_load_chunk(const uint8_t *chunk, struct ceiling_words *w)
{
    int lane = lane_of_thread();
#pragma unroll
    for (int k = 0; k < 3; k++) {
        const uint8_t *at = chunk + k * 512 + lane * 16;
        if (LOADS == CEILING_WIDE) {
            uint4 v = __ldcs((const uint4 *)at);
            w->codes[k].x = v.x, w->codes[k].y = v.y, w->codes[k].z = v.z, w->codes[k].w = v.w;
        } else {
            w->codes[k].x = ceiling_load_word<LOADS>(at);
            w->codes[k].y = ceiling_load_word<LOADS>(at + 4);
            w->codes[k].z = ceiling_load_word<LOADS>(at + 8);
            w->codes[k].w = ceiling_load_word<LOADS>(at + 12);
        }
        w->scales[k] = ceiling_load_word<LOADS>(chunk + 3 * 512 + k * 32 + lane / 4 * 4);
    }
}

/* multiply_experts of decode_stream.cuh with its words in registers. */
GS_DEVICE void ceiling_multiply(const struct ceiling_words *words, uint32_t x, int block, float sum[4])
{
    uint32_t from = x + (uint32_t)block * OPERAND_STEP;
#pragma unroll
    for (int k = 0; k < 3; k++) {
        const uint32_t codes[4] = {words->codes[k].x, words->codes[k].y, words->codes[k].z,
                                   words->codes[k].w};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            struct u32x4 b = load_shared_16(from + (uint32_t)(2 * k + half) * OPERAND_STEP);
            uint32_t low[4], high[4];
            decode_word(codes[2 * half], low);
            decode_word(codes[2 * half + 1], high);
            const uint32_t a0[4] = {low[0], high[0], low[1], high[1]};
            const uint32_t a1[4] = {low[2], high[2], low[3], high[3]};
            float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            mma_bf16(c, a0, b.x, b.y);
            mma_bf16(c, a1, b.z, b.w);
            float s0 = scale_of_word(words->scales[k], 2 * half),
                  s1 = scale_of_word(words->scales[k], 2 * half + 1);
            sum[0] += s0 * c[0];
            sum[1] += s0 * c[1];
            sum[2] += s1 * c[2];
            sum[3] += s1 * c[3];
        }
    }
}

/* A stage's stream of expert chunks: started, then run, by rings or through registers. */
template <enum ceiling_loads LOADS, class Next> struct ceiling_stream {
    uint32_t ring, bars;
    int count;
    uint64_t policy;
    Next next;

    __device__ __forceinline__ void start(void)
    {
        if (LOADS == CEILING_RINGS)
            stream_fill<CEILING_EXPERT>(ring, bars, 0, CEILING_SLOTS, count, policy, next);
    }

    /* done() after every chunk; block() is the first block of 32 columns of the chunk at hand. */
    template <class Block, class Done>
    __device__ __forceinline__ void run(uint32_t operand, float sum[4], Block block, Done done)
    {
        if (LOADS == CEILING_RINGS) {
            stream_run<CEILING_SLOTS, CEILING_EXPERT>(ring, bars, count, policy, next, [&](uint32_t slot) {
                multiply_experts(slot, operand, block(), sum);
                done();
            });
            return;
        }
        struct ceiling_words now, then;
        if (count > 0)
            ceiling_load_chunk<LOADS>(next(), &now);
        for (int i = 0; i < count; i++) {
            if (i + 1 < count)
                ceiling_load_chunk<LOADS>(next(), &then);
            ceiling_multiply(&now, operand, block(), sum);
            done();
            now = then;
        }
    }
};

/* Gate and up: one expert after another. */
template <int N> struct ceiling_gate_up_chunks {
    const uint8_t *weights, *at;
    struct ceiling_choice choice;
    int slot, left, matrix; /* chunks of an expert */

    __device__ __forceinline__ void seek(int chunk)
    {
        slot = chunk / matrix;
        left = matrix - (chunk - slot * matrix);
        at = weights +
             ((int64_t)ceiling_pick<N>(choice.expert, slot) * matrix + (matrix - left)) * CEILING_EXPERT;
    }

    __device__ __forceinline__ const uint8_t *operator()()
    {
        const uint8_t *chunk = at;
        at += CEILING_EXPERT;
        if (--left == 0)
            seek(++slot * matrix);
        return chunk;
    }
};

GS_DEVICE void ceiling_store_activation(uint8_t *activated, int d_ff, int slot, int unit, float gate,
                                        float up)
{
    gate = gate > 7.0f ? 7.0f : gate;
    up = up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up;
    float value = (up + 1.0f) * (gate / (1.0f + gs_exp(-1.702f * gate))) * CEILING_SCALE;
    uint16_t *to = (uint16_t *)activated + (int64_t)slot * 3 * d_ff + unit / 32 * 96 + unit % 32;
#pragma unroll
    for (int k = 0; k < 3; k++) {
        uint16_t term = (uint16_t)pack_bf16(value, 0.0f);
        to[32 * k] = term;
        value -= gs_float_of_bf16(term);
    }
}

/* Gate and up rows of experts first ... first+N-1 of the chosen: clamped SwiGLU. A block has whole strips. */
template <int N, enum ceiling_loads LOADS>
__global__ static void __launch_bounds__(THREADS, 2)
    ceiling_gate_up(const __grid_constant__ struct ceiling_expert_args args)
{
    struct ceiling_place place = ceiling_place_of_warp<CEILING_EXPERT>();
    int strip0, strips;
    share_of(N * args.n_strip, gs_block(), gs_n_block(), &strip0, &strips);
    struct share mine; /* of the block's chunks */
    mine.block_first = 0, mine.block_count = strips * args.n_chunk;
    share_of(mine.block_count, warp_of_thread(), WARPS, &mine.first, &mine.count);
    bool has_unit = gs_thread() < strips * 8;
    struct part_place parts =
        parts_of_strip(&place.block->parts, &mine, args.n_chunk, has_unit ? gs_thread() / 8 : 0);
    stream_prepare<CEILING_SLOTS>(place.bars);
    ceiling_prepare(&place, 0);
    gs_let_next_start();
    gs_wait_for_previous();
    struct ceiling_choice choice = ceiling_load_choice<N>(args);
    ceiling_stream<LOADS, ceiling_gate_up_chunks<N>> stream = {
        place.ring, place.bars, mine.count, policy_read_once(), {}};
    stream.next.weights = args.weights;
    stream.next.choice = choice;
    stream.next.matrix = args.n_strip * args.n_chunk;
    stream.next.seek(strip0 * args.n_chunk + mine.first);
    stream.start();
    float scale = ceiling_take_pair(&place, args.in, args.norm, args.d_model, CEILING_SCALE);
    uint32_t operand = operand_of(shared_address(place.vector));
    int chunk = mine.first % args.n_chunk, segment = 0;
    float sum[4] = {};
    stream.run(
        operand, sum, [&](void) { return 6 * chunk; },
        [&](void) {
            if (++chunk < args.n_chunk)
                return;
            leave_part(&place.block->parts, segment++, sum);
            sum[0] = sum[1] = sum[2] = sum[3] = 0.0f;
            chunk = 0;
        });
    if (mine.count == 0)
        leave_nothing(&place.block->parts);
    else if (chunk > 0)
        leave_part(&place.block->parts, segment, sum);
    gs_sync();
    if (!has_unit)
        return;
    int global_unit = strip0 * 8 + gs_thread(), slot = global_unit / args.d_ff,
        unit = global_unit % args.d_ff;
    const float *bias = args.bias + (int64_t)ceiling_pick<N>(choice.expert, slot) * 2 * args.d_ff + 2 * unit;
    float factor = CEILING_UNSCALE * scale;
    float gate = add_parts(parts, gs_thread() % 8) * factor + bias[0];
    float up = add_parts(parts, gs_thread() % 8 + 8) * factor + bias[1];
    ceiling_store_activation(args.activated, args.d_ff, args.first + slot, unit, gate, up);
}

/* Down: the N experts' chunks of a strip follow each other. */
template <int N> struct ceiling_down_chunks {
    const uint8_t *weights, *at;
    struct ceiling_choice choice;
    int strip, slot, left, n_chunk, n_strip;

    __device__ __forceinline__ void seek(int sequence)
    {
        strip = sequence / (N * n_chunk);
        sequence -= strip * (N * n_chunk);
        slot = sequence / n_chunk;
        int chunk = sequence - slot * n_chunk;
        left = n_chunk - chunk;
        at = weights + (((int64_t)ceiling_pick<N>(choice.expert, slot) * n_strip + strip) * n_chunk + chunk) *
                           CEILING_EXPERT;
    }

    __device__ __forceinline__ const uint8_t *operator()()
    {
        const uint8_t *chunk = at;
        at += CEILING_EXPERT;
        if (--left == 0)
            seek((strip * N + slot + 1) * n_chunk);
        return chunk;
    }
};

/* Down rows of the same experts, weighed, and what was before. The choice is known before the wait: the stage
 * before it has waited for it. */
template <int N, enum ceiling_loads LOADS>
__global__ static void __launch_bounds__(THREADS, 2)
    ceiling_down(const __grid_constant__ struct ceiling_expert_args args)
{
    struct ceiling_place place = ceiling_place_of_warp<CEILING_EXPERT>();
    struct share mine = share_of_warp(args.n_strip * N * args.n_chunk);
    struct ceiling_choice choice = ceiling_load_choice<N>(args);
    ceiling_stream<LOADS, ceiling_down_chunks<N>> stream = {
        place.ring, place.bars, mine.count, policy_read_once(), {}};
    stream_prepare<CEILING_SLOTS>(place.bars);
    ceiling_prepare(&place, N);
    stream.next.weights = args.weights;
    stream.next.choice = choice;
    stream.next.n_chunk = args.n_chunk, stream.next.n_strip = args.n_strip;
    stream.next.seek(mine.first);
    stream.start();
    gs_let_next_start();
    struct row_place row = place_of_row(&place.block->parts, &mine, N * args.n_chunk);
    gs_sync();
    gs_wait_for_previous();
    uint32_t bytes = (uint32_t)args.d_ff * 6;
    if (gs_thread() == 0)
        for (int i = 0; i < N; i++)
            copy_start(shared_address(place.vector) + (uint32_t)i * bytes,
                       args.activated + (int64_t)(args.first + i) * bytes, bytes, place.vector_bars + 8 * i);
    float add = 0.0f;
    if (row.row >= 0) {
        add = load_fresh(args.before + row.row) + load_fresh(args.before + args.d_model + row.row);
#pragma unroll
        for (int k = 0; k < N; k++)
            add += choice.weight[k] * args.bias[(int64_t)choice.expert[k] * args.d_model + row.row];
    }
    uint32_t operand = operand_of(shared_address(place.vector));
    int rest = mine.first % (N * args.n_chunk), segment = 0;
    int slot = rest / args.n_chunk, chunk = rest % args.n_chunk;
    float sum[4] = {}, total[4] = {};
    for (int i = 0; i < N; i++)
        barrier_wait(place.vector_bars + 8 * i, 0);
    auto weigh = [&](void) {
        float weight = ceiling_pick<N>(choice.weight, slot);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            total[j] += weight * sum[j];
            sum[j] = 0.0f;
        }
    };
    stream.run(
        operand, sum, [&](void) { return slot * (args.d_ff / 32) + 6 * chunk; },
        [&](void) {
            if (++chunk < args.n_chunk)
                return;
            weigh();
            chunk = 0;
            slot = slot + 1 == N ? 0 : slot + 1;
            if (slot > 0)
                return;
            leave_part(&place.block->parts, segment++, total);
            total[0] = total[1] = total[2] = total[3] = 0.0f;
        });
    if (mine.count == 0) {
        leave_nothing(&place.block->parts);
    } else if (chunk > 0 || slot > 0) {
        if (chunk > 0)
            weigh();
        leave_part(&place.block->parts, segment, total);
    }
    gs_sync();
    write_pair(row, CEILING_UNSCALE, add, args.out, args.out + args.d_model, nullptr);
}

#endif
