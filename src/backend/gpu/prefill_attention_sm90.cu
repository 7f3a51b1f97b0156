/*
 * Attention over many rows on wgmma. A block owns 32 rows and one key head, 256 rows of scores: four
 * warpgroups of two heads each, which load blocks of 64 keys and values together, some blocks ahead. Barriers
 * keep them no closer than that, so while one warpgroup takes exponentials the others multiply.
 */
#include "backend/gpu/prefill_attention.cuh"
#include "backend/gpu/prefill_wgmma.cuh"

#define ATTENTION_ROWS 32
#define STAGES         6
#define AHEAD          3 /* blocks that are loaded ahead: a warpgroup may fall STAGES - AHEAD behind */
#define STAGE_BYTES    (2 * TILE_BYTES(KEYS))
#define QUERY_BYTES    TILE_BYTES(64) /* of a warpgroup */

static_assert(GS_PREFILL_ATTENTION_SM90_SHARED == STAGES * STAGE_BYTES + 4 * QUERY_BYTES, "prefill_launch.h");

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

struct ring {
    uint32_t base, full, empty; /* stages; barriers, 8 bytes each */
    int stage, load_stage;
    uint32_t parity, load_parity;
};

GS_DEVICE void advance(int *stage, uint32_t *parity)
{
    if (++*stage == STAGES) {
        *stage = 0;
        *parity ^= 1;
    }
}

/* A chunk of a key and of a value for each of the 512 threads; keys past the last repeat it, masked later. */
GS_DEVICE void load_block(struct ring *ring, const char *keys, const char *values, int n_slot, int key0,
                          int last)
{
    int r = gs_thread() >> 3, chunk = gs_thread() & 7, position = key0 + r < last ? key0 + r : last;
    uint32_t from = (uint32_t)(position % n_slot) * 128 + chunk * 16;
    uint32_t place = ring->base + ring->load_stage * STAGE_BYTES + tile_offset(r, chunk);
    barrier_wait(ring->empty + ring->load_stage * 8, ring->load_parity ^ 1);
    copy_async_16(place, keys + from);
    copy_async_16(place + TILE_BYTES(KEYS), values + from);
    barrier_arrive_after_copies(ring->full + ring->load_stage * 8);
    advance(&ring->load_stage, &ring->load_parity);
}

GS_DEVICE void attend(const struct gs_gpu_args &args, struct ring *ring, struct running *state,
                      uint32_t query_tile, int kv_head, int row, int begin, int end, int lane)
{
    const struct gs_gpu_kv_layer kv = args.s.rows[begin].kv[args.layer];
    const char *key_base = (const char *)kv.keys + (int64_t)kv_head * kv.n_slot * 128;
    const char *value_base = (const char *)kv.values + (int64_t)kv_head * kv.n_slot * 128;
    struct visible v = visible_of(args, row, begin, end, end - begin == ATTENTION_ROWS);
    int last_key = args.s.rows[end - 1].position;
    float scale = args.dims.attention_scale * LOG2_E;
    uint64_t queries = tile_descriptor(query_tile);

    for (int b = 0; b < AHEAD && b < v.n_block; b++)
        load_block(ring, key_base, value_base, kv.n_slot, v.key_begin + b * KEYS, last_key);
    for (int b = 0; b < v.n_block; b++) {
        uint32_t stage = ring->base + ring->stage * STAGE_BYTES;
        uint64_t keys = tile_descriptor(stage), values = transposed_descriptor(stage + TILE_BYTES(KEYS));
        float scores[8][4];
        uint32_t p[4][4];
        barrier_wait(ring->full + ring->stage * 8, ring->parity);
        fence_shared_for_wgmma();
        wgmma_fence();
        wgmma_ss<64>::start(scores, queries, keys);
#pragma unroll
        for (int step = 1; step < 4; step++)
            wgmma_ss<64>::run(scores, queries + step * 2, keys + step * 2);
        wgmma_commit();
        if (b + AHEAD < v.n_block)
            load_block(ring, key_base, value_base, kv.n_slot, v.key_begin + (b + AHEAD) * KEYS, last_key);
        wgmma_wait<0>();
        take_scores(state, scores, scale, v.key_begin + b * KEYS, lane & 3, v);
#pragma unroll
        for (int step = 0; step < 4; step++)
            pack_probabilities(p[step], scores, step);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; step++) /* 16 keys are 2,048 bytes */
            wgmma_rs_transposed<64>::run(state->out, p[step], values + step * 128);
        wgmma_commit();
        wgmma_wait<0>();
        if (lane == 0)
            barrier_arrive(ring->empty + ring->stage * 8);
        advance(&ring->stage, &ring->parity);
    }
}

/* The warpgroup's two heads of 32 rows to its tile: rows of a warp are 16 rows of one head. */
GS_DEVICE void load_queries(const struct gs_gpu_args &args, uint32_t tile, int row0, int row_end, int head0)
{
    struct gs_prefill_parts parts = gs_prefill_carve(&args.dims, args.s.prefill);
    int thread = gs_thread() & 127;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int index = thread + i * 128, r = index >> 3, chunk = index & 7;
        int row = row0 + (r & 31) < row_end ? row0 + (r & 31) : row_end - 1;
        copy_async_16(tile + tile_offset(r, chunk),
                      parts.queries + ((int64_t)row * args.dims.n_head + head0 + (r >> 5)) * 64 + chunk * 8);
    }
    copy_commit();
    copy_wait<0>();
    fence_shared_for_wgmma();
    warpgroup_sync(1 + (gs_thread() >> 7));
}

GS_DEVICE void attention(const struct gs_gpu_args &args)
{
    extern GS_SHARED __align__(1024) uint8_t shared[];
    GS_SHARED __align__(8) uint64_t full[STAGES], empty[STAGES];
    int lane = gs_thread() & 31, group = gs_thread() >> 7, warp = (gs_thread() >> 5) & 3,
        kv_head = gs_block_y();
    /* the longest rows first */
    int row0 = (gs_n_block() - 1 - gs_block()) * ATTENTION_ROWS;
    int row_end = row0 + ATTENTION_ROWS < args.n_rows ? row0 + ATTENTION_ROWS : args.n_rows;
    struct ring ring = {shared_address(shared), shared_address(full), shared_address(empty), 0, 0, 0, 0};

    if (gs_thread() == 0) {
        for (int s = 0; s < STAGES; s++) {
            barrier_init(ring.full + s * 8, 512);
            barrier_init(ring.empty + s * 8, 16);
        }
    }
    gs_sync();
    gs_wait_for_previous();
    gs_let_next_start();
    struct running state;
    int head = kv_head * 8 + group * 2 + (warp >> 1), row = row0 + (warp & 1) * 16 + (lane >> 2);
    uint32_t query_tile = ring.base + STAGES * STAGE_BYTES + group * QUERY_BYTES;
    load_queries(args, query_tile, row0, row_end, kv_head * 8 + group * 2);
    start_running(&state, args, head, lane);
    for (int begin = row0; begin < row_end;) {
        int end = end_of_timeline(args, begin, row_end);
        attend(args, &ring, &state, query_tile, kv_head, row, begin, end, lane);
        begin = end;
    }
    write_attended(args, state, row, row_end, head, lane);
}

#endif

GS_KERNEL void GS_BOUNDS(512, 1) gs_prefill_attention_sm90(GS_ARGS(struct gs_gpu_args, args))
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    attention(args);
#endif
}
