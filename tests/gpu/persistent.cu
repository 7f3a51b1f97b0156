/*
 * Decode as one cooperative kernel: a block on every multiprocessor runs all stages of all layers of a chain
 * of greedy tokens, without the host. The stages' arithmetic is that of the graph's kernels (src/backend/gpu/
 * decode_*), which are compiled here once more for their device functions; what differs is who waits for
 * whom. Between stages stands a barrier of all blocks, and the stream of weights goes on over it.
 *
 * Eight warps a block, not twelve: 255 registers a thread hold nearly the whole kernel. What does not fit
 * is spilled to memory that may lie behind the stream's queue (docs/gpu-decode.md).
 */
#ifndef GS_DECODE_WARPS
#define GS_DECODE_WARPS     8
#define GS_DECODE_MAX_QUADS 3
#endif

#define gs_decode_attention gs_unused_attention
#define gs_decode_gate_up   gs_unused_gate_up
#define gs_decode_down      gs_unused_down
#include "backend/gpu/decode_attention.cu"
#include "backend/gpu/decode_experts.cu"
#undef CHUNK

#include "persistent.h"
#include "persistent_ring.cuh"

#ifndef GS_PERSISTENT_SLOTS /* of a warp's ring: 98 KB for a block, and as many of 8-bit chunks */
#define GS_PERSISTENT_SLOTS    6
#define GS_PERSISTENT_Q8_SLOTS 7
#endif

/* The dimensions of the official models, which the compiler may know. */
enum {
    D_MODEL = 2880,
    N_HEAD = 64,
    N_KV_HEAD = 8,
    D_FF = 2880,
    N_QKV = (N_HEAD + 2 * N_KV_HEAD) * D_HEAD,
    N_ATTENDED = N_HEAD * D_HEAD,
    QKV_CHUNKS = D_MODEL / GS_DECODE_DENSE_COLUMNS, /* of a strip */
    O_CHUNKS = N_ATTENDED / GS_DECODE_DENSE_COLUMNS,
    UP_CHUNKS = D_MODEL / GS_DECODE_EXPERT_COLUMNS,
    DOWN_CHUNKS = D_FF / GS_DECODE_EXPERT_COLUMNS,
    UP_STRIPS = 2 * D_FF / GS_DECODE_STRIP, /* of an expert */
    STRIPS = D_MODEL / GS_DECODE_STRIP,
    EXPERT_BYTES = GS_DECODE_EXPERT_CHUNK,
    VECTOR_BYTES = PER_PART * D_FF * 6, /* the largest of a stage's vectors */
};
static_assert(THREADS == ATTENTION_THREADS, "the whole block attends");
static_assert(VECTOR_BYTES >= N_ATTENDED * 6 && VECTOR_BYTES >= (int)sizeof(struct attention_shared), "room");

struct persistent_shared {
    uint64_t bars[WARPS * MAX_SLOTS + 1]; /* rings, then the vector's */
    float squares[WARPS];
    union {
        struct router_sums sums; /* until the choice is made */
        struct parts parts;
    };
    float values[THREADS]; /* C: this block's rows */
    float logits[WARPS][GS_DECODE_EXPERTS];
    float weights[WARPS][ACTIVE]; /* of the chosen experts; each warp its own */
    struct choice_shared choice;
    unsigned long long best[WARPS];
    uint32_t is_late;
};

template <class Weights> struct dense_bytes;
template <> struct dense_bytes<struct weights_bf16> {
    static const int value = GS_DECODE_DENSE_CHUNK;
};
template <> struct dense_bytes<struct weights_q8> {
    static const int value = GS_DECODE_Q8_CHUNK;
};

template <class Weights, int SLOTS> struct persistent {
    static const int DENSE = dense_bytes<Weights>::value;
    static const int SLOT = DENSE > EXPERT_BYTES ? DENSE : EXPERT_BYTES;
    static const int RINGS = WARPS * SLOTS * SLOT;
    static const int BLOCK = (sizeof(struct persistent_shared) + 127) / 128 * 128;
    static const int SHARED = RINGS + BLOCK + VECTOR_BYTES;
    typedef cursor<contiguous<DENSE>> dense_cursor;

    const struct gs_persistent_args &args;
    struct gs_decode_layout at;
    uint8_t *base;
    struct persistent_shared *block;
    uint32_t *vector;
    uint32_t vector_bar, vector_phase;
    struct ring ring;
    uint32_t all, heads; /* sums that the counters have when all have come */
    const struct gs_gpu_kv_layer *kv;
    int position, token, logit_row;
    bool is_late; /* the same for the whole block */

    __device__ __forceinline__ persistent(const struct gs_persistent_args &a) : args(a)
    {
        struct gs_gpu_dims known = a.dims; /* so that the places are constants, not registers */
        known.d_model = D_MODEL, known.d_head = D_HEAD, known.n_head = N_HEAD, known.n_kv_head = N_KV_HEAD;
        known.d_ff = D_FF;
        at = gs_decode_layout_of(&known);
        base = (uint8_t *)a.s.decode;
        block = (struct persistent_shared *)(shared + RINGS);
        vector = (uint32_t *)(shared + RINGS + BLOCK);
        vector_bar = shared_address(block->bars + WARPS * MAX_SLOTS);
        vector_phase = all = heads = 0;
        ring.data = shared_address(shared) + (uint32_t)(warp_of_thread() * SLOTS * SLOT);
        ring.bars = shared_address(block->bars + warp_of_thread() * MAX_SLOTS);
        ring.in = ring.out = 0, ring.free = SLOTS, ring.phase = 0, ring.policy = policy_read_once();
        kv = (const struct gs_gpu_kv_layer *)__ldcg((const unsigned long long *)&a.s.rows[0].kv);
        position = __ldcg(&a.s.rows[0].position);
        token = __ldcg(&a.s.rows[0].token);
        logit_row = __ldcg(&a.s.rows[0].logit_row);
        is_late = false;
        stream_prepare<SLOTS>(ring.bars);
        if (gs_thread() == 0) {
            block->is_late = 0;
            keep_norm(&block->choice.norm, args.dims);
            barrier_init(vector_bar);
            barrier_init_fence();
        }
        gs_sync();
    }

    /* What the graph's functions look at. */
    __device__ __forceinline__ struct gs_gpu_args view_of(void) const
    {
        struct gs_gpu_args view;
        view.dims = args.dims;
        view.s = args.s;
        return view;
    }

    /* ------------------------------------------------------------ barriers */

    /* After what the block wrote, by all its threads: arrive(), then wait() before others' is read. */
    __device__ __forceinline__ void arrive_all(void)
    {
        gs_sync();
        if (gs_thread() == 0)
            signal_one(args.sync->all);
        all += (uint32_t)gs_n_block();
    }

    __device__ __forceinline__ void wait_for(const uint32_t *counter, uint32_t sum)
    {
        if (gs_thread() == 0 && !await(counter, sum))
            block->is_late = 1;
        gs_sync();
        is_late = block->is_late != 0;
    }

    __device__ __forceinline__ void wait_all(void)
    {
        wait_for(args.sync->all, all);
    }

    /* When the counter is there, a vector that others wrote is copied to shared memory. */
    __device__ __forceinline__ void wait_and_copy(const uint32_t *counter, uint32_t sum, const uint8_t *from,
                                                  uint32_t bytes)
    {
        if (gs_thread() == 0) {
            if (!await(counter, sum))
                block->is_late = 1;
            asm volatile("fence.proxy.async;" ::: "memory");
            copy_start(shared_address(vector), from, bytes, vector_bar);
        }
        gs_sync();
        is_late = block->is_late != 0;
        barrier_wait(vector_bar, vector_phase);
        vector_phase ^= 1;
    }

    /* ------------------------------------------------------------ dense stages */

    __device__ __forceinline__ struct share share_qkv(void) const
    {
        return share_of_warp(N_QKV / GS_DECODE_STRIP * QKV_CHUNKS);
    }

    __device__ __forceinline__ struct share share_o(void) const
    {
        return share_of_warp(STRIPS * O_CHUNKS);
    }

    __device__ __forceinline__ void share_head(int *strip0, int *n_strip) const
    {
        share_of(args.dims.n_vocab / GS_DECODE_STRIP, gs_block() * WARPS + warp_of_thread(),
                 gs_n_block() * WARPS, strip0, n_strip);
    }

    __device__ __forceinline__ dense_cursor cursor_qkv(int layer) const
    {
        struct share mine = share_qkv();
        return {{args.layers[layer].qkv + (int64_t)mine.first * DENSE}, mine.count};
    }

    __device__ __forceinline__ dense_cursor cursor_o(int layer) const
    {
        struct share mine = share_o();
        return {{args.layers[layer].o + (int64_t)mine.first * DENSE}, mine.count};
    }

    __device__ __forceinline__ dense_cursor cursor_head(void) const
    {
        int strip0, n_strip;
        share_head(&strip0, &n_strip);
        return {{args.head + (int64_t)strip0 * QKV_CHUNKS * DENSE}, n_strip * QKV_CHUNKS};
    }

    /* Streams a share of a dense matrix and leaves the parts of its strips. */
    template <int N_CHUNK, class Following>
    __device__ __forceinline__ void multiply_dense(const struct share *mine, dense_cursor &own,
                                                   cursor<Following> &following)
    {
        uint32_t x = operand_of(shared_address(vector));
        float c[2][4] = {};
        int segment = 0, chunk = mine->first % N_CHUNK;
        auto flush = [&](void) {
            float sum[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                sum[j] = c[0][j] + c[1][j];
                c[0][j] = c[1][j] = 0.0f;
            }
            leave_part(&block->parts, segment++, sum);
        };
        ring_run<SLOT, SLOTS, DENSE, DENSE>(&ring, mine->count, own, following, [&](uint32_t slot) {
            Weights::multiply(slot, x, 2 * chunk, c);
            if (++chunk == N_CHUNK) {
                flush();
                chunk = 0;
            }
        });
        if (mine->count == 0)
            leave_nothing(&block->parts);
        else if (chunk > 0)
            flush();
    }

    /* An element of the first layer's input. */
    __device__ __forceinline__ float embedded(int i) const
    {
        return args.embedding ? gs_float_of_bf16(args.embedding[(int64_t)token * D_MODEL + i])
                              : load_fresh(args.s.hidden + i);
    }

    __device__ __forceinline__ float load_input(struct residual *x, bool is_first) const
    {
        if (!is_first)
            return load_residual<GS_DECODE_BEFORE>(x, (const float *)(base + at.before), D_MODEL);
        float squares = 0.0f;
#pragma unroll
        for (int j = 0; j < GS_DECODE_MAX_QUADS; j++) {
            int i = quad_of_thread(j);
            float4 q = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (i < D_MODEL)
                q = make_float4(embedded(i), embedded(i + 1), embedded(i + 2), embedded(i + 3));
            squares += (q.x * q.x + q.y * q.y) + (q.z * q.z + q.w * q.w);
            x->of[j] = q;
        }
        return squares;
    }

    /* The normed input as a split vector in shared memory; its factor is norm_scale's, after a gs_sync. */
    __device__ __forceinline__ void prepare_input(const float *weights, bool is_first)
    {
        struct norm_weights norm;
        struct residual x;
        load_norm(&norm, weights, D_MODEL);
        wait_all();
        float squares = load_input(&x, is_first);
        store_split(&x, &norm, vector, D_MODEL, 1.0f);
        leave_sum(block->squares, squares);
        gs_sync();
    }

    /* A */
    __device__ __forceinline__ void run_qkv(int layer, dense_cursor &own, dense_cursor &following)
    {
        struct share mine = share_qkv();
        prepare_input(args.layers[layer].attention_norm, layer == 0);
        multiply_dense<QKV_CHUNKS>(&mine, own, following);
        gs_sync();
        float *out = (float *)(base + at.qkv), scale = norm_scale_kept(block->squares, &block->choice.norm);
        if (gs_block() == gs_n_block() - 1 && warp_of_thread() == 0)
            clear_router(view_of(), scale);
        write_pair(place_of_row(&block->parts, &mine, QKV_CHUNKS), scale, 0.0f, out, out + N_QKV, nullptr);
        arrive_all();
    }

    /* ------------------------------------------------------------ attention */

    __device__ __forceinline__ struct keys keys_of_part(bool is_window, int part, int most) const
    {
        int first = is_window && position >= args.dims.window ? position - args.dims.window + 1 : 0;
        int n_key = position + 1 - first;
        int n_split = (n_key + GS_DECODE_SPLIT_KEYS - 1) / GS_DECODE_SPLIT_KEYS;
        n_split = n_split < most ? n_split : most;
        int per = (n_key + n_split * TILE - 1) / (n_split * TILE) * TILE;
        struct keys k;
        k.n_split = (n_key + per - 1) / per;
        k.begin = first + part * per;
        k.begin = k.begin < position + 1 ? k.begin : position + 1;
        k.end = k.begin + per < position + 1 ? k.begin + per : position + 1;
        return k;
    }

    /* B: the first n_kv_head * n_split blocks. The others go on at once, and wait in C for all heads. */
    __device__ __forceinline__ void run_attention(int layer)
    {
        int most = gs_n_block() / N_KV_HEAD, head = gs_block() % N_KV_HEAD, part = gs_block() / N_KV_HEAD;
        most = most < GS_DECODE_MAX_SPLIT ? most : GS_DECODE_MAX_SPLIT;
        const struct keys keys = keys_of_part(layer % 2 == 0, part, most);
        heads += N_KV_HEAD;
        if (part < most && keys.begin < keys.end)
            attend(layer, keys, head, part);
    }

    __device__ __forceinline__ void attend(int layer, const struct keys &keys, int head, int part)
    {
        struct gs_gpu_args view;
        view.dims = args.dims;
        view.s = args.s;
        view.w.qkv.rows = N_QKV;
        view.w.qkv_bias = args.layers[layer].qkv_bias;
        struct attention_shared *memory = (struct attention_shared *)vector;
        const struct gs_gpu_kv_layer mine = kv[layer];
        float sink = args.layers[layer].sinks[head * GROUP + gs_thread() / 32];
        int64_t cache = (int64_t)head * mine.n_slot * D_HEAD;
        int offset = keys.begin - keys.begin % mine.n_slot, key = keys.begin + warp_of_thread() * TILE;
        struct early early;
        struct tile tile;
        load_early(view, head, position, &early);
        if (key < keys.end)
            load_tile(&tile, mine, offset, cache, key, position);
        wait_all();
        prepare(view, mine, (const float *)(base + at.qkv), head, position, keys.end == position + 1, &early,
                memory);
        gs_sync();
        struct query_terms<3> q;
        load_queries(memory, &q);
        struct running r = {-INFINITY, 0.0f, {}};
        while (key < keys.end) {
            struct tile current = tile;
            int next = key + ATTENTION_WARPS * TILE;
            if (next < keys.end)
                load_tile(&tile, mine, offset, cache, next, position);
            if (key + TILE > position)
                patch_newest(&current, memory, key, position);
            attend_tile(&r, &q, &current, key, keys.end - 1);
            key = next;
        }
        leave_warp(&r, memory);
        gs_sync();
        finish_head(view, memory, keys, sink, head, part);
    }

    /* As in the graph, the split that comes last adds up all; then the head is done. */
    __device__ __forceinline__ void finish_head(const struct gs_gpu_args &view,
                                                struct attention_shared *memory, const struct keys &keys,
                                                float sink, int head, int part)
    {
        uint32_t *attended = (uint32_t *)(base + at.attended), *arrived = (uint32_t *)(base + at.arrived);
        float *partial = (float *)(base + at.partial);
        int h = gs_thread() / 32, d = gs_thread() % 32 * 2, head_of_all = head * GROUP + h;
        struct merged m = merge_warps<ATTENTION_WARPS>(memory, h, d / 2);
        bool is_last = true;
        if (keys.n_split == 1) {
            float2 sum = add_sink(m, sink);
            store_attended(attended, head_of_all * D_HEAD + d, sum.x, sum.y);
        } else {
            leave_split(partial + ((int64_t)part * N_HEAD + head_of_all) * (D_HEAD + 2), m, d);
            gs_sync();
            if (gs_thread() == 0) {
                memory->is_last = arrive(arrived + head) + 1 == (uint32_t)keys.n_split;
                if (memory->is_last)
                    arrived[head] = 0;
            }
            gs_sync();
            is_last = memory->is_last;
            if (is_last)
                combine_splits(view, partial, head, keys.n_split, sink, attended);
        }
        gs_sync();
        if (is_last && gs_thread() == 0)
            signal_one(args.sync->heads);
    }

    /* ------------------------------------------------------------ C */

    /* This block's part of the router's logits. */
    __device__ __forceinline__ void add_router(const float *columns, struct rows rows, float unit)
    {
        int n = args.dims.n_expert;
        for (int e = lane_of_thread(); e < n; e += 32) {
            float sum = 0.0f;
#pragma unroll 4
            for (int i = warp_of_thread(); i < rows.n; i += WARPS)
                sum += block->values[i] * columns[(int64_t)(rows.first + i) * n + e];
            block->logits[warp_of_thread()][e] = sum;
        }
        gs_sync();
        for (int e = gs_thread(); e < n; e += THREADS) {
            float sum = 0.0f;
#pragma unroll
            for (int w = 0; w < WARPS; w++)
                sum += block->logits[w][e];
            add_units(router_sums_of_block(view_of()) + e, router_units(sum, unit));
        }
    }

    __device__ __forceinline__ void run_o(int layer, dense_cursor &own)
    {
        const struct gs_persistent_layer &w = args.layers[layer];
        struct share mine = share_o();
        struct rows rows = rows_of_block(&mine, O_CHUNKS);
        const float *before = (const float *)(base + at.before);
        float *middle = (float *)(base + at.middle), add = 0.0f;
        cursor<struct nothing> none = {{}, 0};
        ring_fill<SLOT, SLOTS, DENSE, DENSE>(&ring, own, none);
        if (gs_thread() < rows.n) {
            int row = rows.first + gs_thread();
            add = w.o_bias[row]; /* in the graph's order, for its bits */
            if (layer == 0)
                add += embedded(row);
            else
#pragma unroll
                for (int v = 0; v < GS_DECODE_BEFORE; v++)
                    add += load_fresh(before + v * D_MODEL + row);
        }
        if (gs_thread() == 0)
            want_in_l2(w.router_columns + (int64_t)rows.first * args.dims.n_expert,
                       (uint32_t)(rows.n * args.dims.n_expert * 4));
        wait_and_copy(args.sync->heads, heads, base + at.attended, N_ATTENDED * 6);
        float unit = router_unit(view_of());
        multiply_dense<O_CHUNKS>(&mine, own, none);
        gs_sync();
        write_pair(place_of_row(&block->parts, &mine, O_CHUNKS), 1.0f, add, middle, middle + D_MODEL,
                   block->values);
        gs_sync();
        add_router(w.router_columns, rows, unit);
        arrive_all();
    }

    /* ------------------------------------------------------------ experts */

    __device__ __forceinline__ int part_of_down(void) const
    {
        return gs_block() / (gs_n_block() / GS_DECODE_DOWN_PARTS);
    }

    __device__ __forceinline__ struct share share_down(void) const
    {
        int blocks = gs_n_block() / GS_DECODE_DOWN_PARTS;
        return share_among(STRIPS * PER_PART * DOWN_CHUNKS, gs_block() - part_of_down() * blocks, blocks);
    }

    /* E. `add` of F: the residual stream and the down biases of this thread's row. */
    template <int LANE>
    __device__ __forceinline__ void run_gate_up(int layer, struct route *route, float *add,
                                                cursor<struct down_chunks> &following)
    {
        const struct gs_persistent_layer &w = args.layers[layer];
        int strip0, strips;
        share_of(ACTIVE * UP_STRIPS, gs_block(), gs_n_block(), &strip0, &strips);
        struct share mine;
        mine.block_first = 0, mine.block_count = strips * UP_CHUNKS;
        share_of(mine.block_count, warp_of_thread(), WARPS, &mine.first, &mine.count);
        int first = mine.first, count = mine.count;
        struct norm_weights norm;
        struct router_lane<LANE> router;
        struct residual x;
        const struct gs_gpu_args view = view_of();
        load_norm(&norm, w.mlp_norm, D_MODEL);
        router.early(w.router_bias, args.dims.n_expert);
        wait_all();
        load_choice(view, &x, &block->choice, &block->sums);
        gs_sync();
        choose_from(view, router, &block->choice, &block->sums, route);
        float scale = norm_scale_kept(block->choice.squares, &block->choice.norm);
        /* Biases are asked for before the chunks: behind these they would wait for all of them. */
        int global_unit = strip0 * 8 + gs_thread(), slot_of_unit = global_unit / D_FF;
        int unit = global_unit - slot_of_unit * D_FF;
        bool has_unit = gs_thread() < strips * 8;
        float2 bias = make_float2(0.0f, 0.0f);
        if (has_unit)
            bias = *(const float2 *)(w.gate_up_bias + (int64_t)of_slot(route, slot_of_unit) * 2 * D_FF +
                                     2 * unit);
        struct share down = share_down();
        struct row_place place = place_of_row(&block->parts, &down, PER_PART * DOWN_CHUNKS);
        const float *middle = (const float *)(base + at.middle);
        float down_bias[ACTIVE] = {}, residual = 0.0f;
        if (part_of_down() == 0 && place.row >= 0) {
            residual = load_fresh(middle + place.row) + load_fresh(middle + D_MODEL + place.row);
#pragma unroll
            for (int k = 0; k < ACTIVE; k++)
                down_bias[k] = w.down_bias[(int64_t)of_slot(route, k) * D_MODEL + place.row];
        }
        cursor<struct gate_up_chunks> own;
        own.next.seek(w.gate_up, strip0 * UP_CHUNKS + first, UP_STRIPS * UP_CHUNKS);
        own.next.choose(route);
        own.left = count;
        following.next.weights = w.down, following.next.route = route;
        following.next.n_chunk = DOWN_CHUNKS, following.next.n_strip = STRIPS;
        following.next.slot0 = part_of_down() * PER_PART;
        following.next.set(following.next.seek(down.first));
        following.left = down.count;
        ring_fill<SLOT, SLOTS, EXPERT_BYTES, EXPERT_BYTES>(&ring, own, following);
        leave_weights(block->weights[warp_of_thread()], route);
        if (gs_block() == 0 && warp_of_thread() == 0)
            publish_choice(view, route);
        store_split(&x, &norm, vector, D_MODEL, ACTIVATION_SCALE);
        gs_sync();
        uint32_t operand = operand_of(shared_address(vector));
        int chunk = first % UP_CHUNKS, segment = 0;
        float sum[4] = {};
        ring_run<SLOT, SLOTS, EXPERT_BYTES, EXPERT_BYTES>(&ring, count, own, following, [&](uint32_t slot) {
            multiply_experts(slot, operand, 6 * chunk, sum);
            if (++chunk < UP_CHUNKS)
                return;
            leave_part(&block->parts, segment++, sum);
            sum[0] = sum[1] = sum[2] = sum[3] = 0.0f;
            chunk = 0;
        });
        if (count == 0)
            leave_nothing(&block->parts);
        else if (chunk > 0)
            leave_part(&block->parts, segment, sum);
        gs_sync();
        if (has_unit) {
            float factor = RESULT_SCALE * scale;
            struct part_place sums = parts_of_strip(&block->parts, &mine, UP_CHUNKS, gs_thread() / 8);
            float gate = add_parts(sums, gs_thread() % 8) * factor + bias.x;
            float up = add_parts(sums, gs_thread() % 8 + 8) * factor + bias.y;
            store_activation((uint16_t *)(base + at.activated) + place_of_unit(D_FF, slot_of_unit, unit),
                             swiglu(args.dims.swiglu_limit, args.dims.swiglu_alpha, gate, up));
        }
        *add = residual;
#pragma unroll
        for (int k = 0; k < ACTIVE; k++)
            *add = __fadd_rn(*add,
                             __fmul_rn(block->weights[warp_of_thread()][k], down_bias[k])); /* as the graph */
        arrive_all();
    }

    /* F */
    __device__ __forceinline__ void run_down(float add, cursor<struct down_chunks> &own,
                                             dense_cursor &following)
    {
        struct share mine = share_down();
        int part = part_of_down(), slot0 = part * PER_PART;
        ring_fill<SLOT, SLOTS, EXPERT_BYTES, DENSE>(&ring, own, following);
        if (gs_block() == 0 && gs_thread() == 0)
            args.s.argmax[0] = 0;
        wait_and_copy(args.sync->all, all, base + at.activated + slot0 * D_FF * 6, VECTOR_BYTES);
        uint32_t operand = operand_of(shared_address(vector));
        int rest = mine.first % (PER_PART * DOWN_CHUNKS);
        int slot = rest / DOWN_CHUNKS, chunk = rest % DOWN_CHUNKS, segment = 0;
        float sum[4] = {}, total[4] = {};
        auto weigh = [&](void) {
            float weight = block->weights[warp_of_thread()][slot0 + slot];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                total[j] += weight * sum[j];
                sum[j] = 0.0f;
            }
        };
        ring_run<SLOT, SLOTS, EXPERT_BYTES, DENSE>(&ring, mine.count, own, following, [&](uint32_t at_slot) {
            multiply_experts(at_slot, operand, slot * (D_FF / 32) + 6 * chunk, sum);
            if (++chunk < DOWN_CHUNKS)
                return;
            weigh();
            chunk = 0;
            slot = slot + 1 == PER_PART ? 0 : slot + 1;
            if (slot > 0)
                return;
            leave_part(&block->parts, segment++, total);
            total[0] = total[1] = total[2] = total[3] = 0.0f;
        });
        if (mine.count == 0) {
            leave_nothing(&block->parts);
        } else if (chunk > 0 || slot > 0) {
            if (chunk > 0)
                weigh();
            leave_part(&block->parts, segment, total);
        }
        gs_sync();
        float *before = (float *)(base + at.before) + part * 2 * D_MODEL;
        write_pair(place_of_row(&block->parts, &mine, PER_PART * DOWN_CHUNKS), RESULT_SCALE, add, before,
                   before + D_MODEL, nullptr);
        arrive_all();
    }

    /* ------------------------------------------------------------ the token */

    /* Head: logits where they are wanted, and the argmax. A warp has whole strips. */
    __device__ __forceinline__ void run_head(dense_cursor &own, dense_cursor &following)
    {
        int strip, n_strip, lane = lane_of_thread(), chunk = 0;
        share_head(&strip, &n_strip);
        prepare_input(args.norm, false);
        float scale = norm_scale(block->squares, args.dims);
        uint32_t operand = operand_of(shared_address(vector));
        float *logits = args.s.logits + (int64_t)(logit_row > 0 ? logit_row : 0) * args.dims.n_vocab;
        unsigned long long best = 0;
        float c[2][4] = {};
        ring_run<SLOT, SLOTS, DENSE, DENSE>(&ring, n_strip * QKV_CHUNKS, own, following, [&](uint32_t slot) {
            Weights::multiply(slot, operand, 2 * chunk, c);
            if (++chunk < QKV_CHUNKS)
                return;
            float sum[4], rows[2];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                sum[j] = c[0][j] + c[1][j];
                c[0][j] = c[1][j] = 0.0f;
            }
            add_columns(sum, rows);
            float value = (lane % 4 == 0 ? rows[0] : rows[1]) * scale;
            int row = strip * GS_DECODE_STRIP + lane / 4 + (lane % 4 == 0 ? 0 : 8);
            if (lane % 4 < 2) {
                if (logit_row >= 0)
                    logits[row] = value;
                uint64_t packed = gs_gpu_pack_argmax(gs_bits_of_float(value), (uint32_t)row);
                best = packed > best ? packed : best;
            }
            chunk = 0;
            strip++;
        });
#pragma unroll
        for (int mask = 16; mask > 0; mask /= 2) {
            unsigned long long other = __shfl_xor_sync(0xffffffffu, best, mask);
            best = other > best ? other : best;
        }
        if (lane == 0)
            block->best[warp_of_thread()] = best;
        gs_sync();
        if (gs_thread() == 0) {
            for (int w = 1; w < WARPS; w++)
                best = block->best[w] > best ? block->best[w] : best;
            gs_atomic_max_u64(args.s.argmax, best);
            if (gs_block() == 0 && args.cancel)
                args.sync->stop[0] = *(const volatile uint32_t *)args.cancel;
        }
        arrive_all();
    }

    /* The token that all blocks have found, the n-th. False: the chain ends here. */
    __device__ __forceinline__ bool take_token(int n)
    {
        wait_all();
        token = (int)gs_gpu_argmax_token(__ldcg((const unsigned long long *)args.s.argmax));
        position++;
        if (gs_block() == 0 && gs_thread() == 0) {
            args.s.tokens[1 + n] = token;
            args.s.tokens[0] = n + 1;
            args.s.rows[0].token = token;
            args.s.rows[0].position = position;
        }
        return __ldcg(args.sync->stop) == 0 && !is_late;
    }

    __device__ __forceinline__ void run_layers(dense_cursor &dense)
    {
        int end = args.first_layer + args.n_layer;
        for (int layer = args.first_layer; layer < end && !is_late; layer++) {
            dense_cursor o = cursor_o(layer);
            cursor<struct down_chunks> down;
            struct route route;
            float add;
            run_qkv(layer, dense, o);
            run_attention(layer);
            run_o(layer, o);
            if (args.dims.n_expert <= 32)
                run_gate_up<1>(layer, &route, &add, down);
            else
                run_gate_up<ROUTER_LANE>(layer, &route, &add, down);

            dense = layer + 1 < end ? cursor_qkv(layer + 1) : cursor_head();
            if (layer + 1 == end && args.n_token == 0)
                dense.left = 0;
            run_down(add, down, dense);
        }
    }

    __device__ __forceinline__ void run(void)
    {
        dense_cursor none = {{nullptr}, 0},
                     dense = args.n_layer > 0 ? cursor_qkv(args.first_layer) : cursor_head();
        ring_fill<SLOT, SLOTS, DENSE, DENSE>(&ring, dense, none);
        if (args.n_token == 0)
            run_layers(dense);
        for (int n = 0; n < args.n_token; n++) {
            run_layers(dense);
            dense_cursor following = n + 1 < args.n_token ? cursor_qkv(args.first_layer) : none;
            ring_fill<SLOT, SLOTS, DENSE, DENSE>(&ring, dense, following);
            if (is_late)
                break;
            run_head(dense, following);
            dense = following;
            if (!take_token(n))
                break;
            ring_fill<SLOT, SLOTS, DENSE, DENSE>(&ring, dense, none);
        }
        ring_drain<SLOTS>(&ring);
        if (is_late && gs_thread() == 0)
            args.sync->late[0] = 1;
    }
};

typedef persistent<struct weights_bf16, GS_PERSISTENT_SLOTS> persistent_bf16;
typedef persistent<struct weights_q8, GS_PERSISTENT_Q8_SLOTS> persistent_q8;

GS_KERNEL void GS_BOUNDS(THREADS, 1) gs_persistent_decode(GS_ARGS(struct gs_persistent_args, args))
{
    persistent_bf16 p(args);
    p.run();
}

GS_KERNEL void GS_BOUNDS(THREADS, 1) gs_persistent_decode_q8(GS_ARGS(struct gs_persistent_args, args))
{
    persistent_q8 p(args);
    p.run();
}

cudaError_t gs_persistent_launch(const struct gs_persistent_args *args, int n_block, cudaStream_t stream)
{
    const void *kernel =
        args->is_q8 ? (const void *)gs_persistent_decode_q8 : (const void *)gs_persistent_decode;
    size_t bytes = (size_t)(args->is_q8 ? persistent_q8::SHARED : persistent_bf16::SHARED);
    void *parameters[] = {(void *)args};
    cudaError_t status = cudaMemsetAsync(args->sync, 0, sizeof *args->sync, stream);
    if (status == cudaSuccess)
        status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    return status == cudaSuccess ? cudaLaunchCooperativeKernel(kernel, dim3((unsigned)n_block), dim3(THREADS),
                                                               parameters, bytes, stream)
                                 : status;
}
