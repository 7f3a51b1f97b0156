/*
 * Attention over many rows on mma.sync. A block owns 16 rows and one key head: warp w is query head w of the
 * eight that share it, so keys and values are read once for all of them. Blocks of 64 keys, three in flight.
 * A block whose rows belong to several timelines takes these one after the other.
 */
#include "backend/gpu/prefill_attention.cuh"

#define ATTENTION_ROWS 16
#define STAGES         3
#define STAGE_BYTES    (2 * TILE_BYTES(KEYS))

static_assert(GS_PREFILL_ATTENTION_SHARED == STAGES * STAGE_BYTES, "prefill_launch.h must agree");

/* Keys and values of positions key0 ... key0+63; those past `last` repeat it and are masked later. */
GS_DEVICE void load_keys(uint32_t stage, const uint16_t *keys, const uint16_t *values, int n_slot, int key0,
                         int last)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int index = gs_thread() + i * 256, r = index >> 3, chunk = index & 7;
        int position = key0 + r < last ? key0 + r : last;
        int64_t from = (int64_t)(position % n_slot) * 64 + chunk * 8;
        copy_async_16(stage + tile_offset(r, chunk), keys + from);
        copy_async_16(stage + TILE_BYTES(KEYS) + tile_offset(r, chunk), values + from);
    }
}

/* scores[j] (16 rows x 8 keys each) = queries * keys */
GS_DEVICE void multiply_keys(float scores[8][4], const uint32_t queries[4][4], uint32_t tile, int lane)
{
#pragma unroll
    for (int j = 0; j < 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            scores[j][i] = 0;
    }
#pragma unroll
    for (int step = 0; step < 4; step++) {
#pragma unroll
        for (int n = 0; n < 4; n++) {
            uint32_t b[4];
            load_b_fragments(b, tile, 16 * n, step, lane);
            mma_bf16(scores[2 * n], queries[step], b[0], b[1]);
            mma_bf16(scores[2 * n + 1], queries[step], b[2], b[3]);
        }
    }
}

/* out += probabilities (16 x 64 keys) * values */
GS_DEVICE void multiply_values(float out[8][4], const float p[8][4], uint32_t tile, int lane)
{
#pragma unroll
    for (int step = 0; step < 4; step++) {
        uint32_t a[4];
        pack_probabilities(a, p, step);
#pragma unroll
        for (int n = 0; n < 4; n++) { /* 16 columns of the head */
            uint32_t b[4];
            int r = step * 16 + (lane & 15), chunk = n * 2 + (lane >> 4);
            load_matrix_4_transposed(b, tile + tile_offset(r, chunk));
            mma_bf16(out[2 * n], a, b[0], b[1]);
            mma_bf16(out[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/* The rows of one timeline among the block's: rows `begin` ... end-1 of the call. */
GS_DEVICE void attend(const struct gs_gpu_args &args, struct running *state, const uint32_t queries[4][4],
                      uint32_t base, int tile_row0, int begin, int end, int kv_head, int lane)
{
    const struct gs_gpu_kv_layer kv = args.s.rows[begin].kv[args.layer];
    const uint16_t *keys = (const uint16_t *)kv.keys + (int64_t)kv_head * kv.n_slot * 64;
    const uint16_t *values = (const uint16_t *)kv.values + (int64_t)kv_head * kv.n_slot * 64;
    struct visible v = visible_of(args, tile_row0 + (lane >> 2), begin, end, end - begin == ATTENTION_ROWS);
    int last_key = args.s.rows[end - 1].position;
    float scale = args.dims.attention_scale * LOG2_E;

    gs_sync(); /* the timeline before is done with the stages */
    for (int b = 0; b < STAGES - 1; b++) {
        if (b < v.n_block)
            load_keys(base + b * STAGE_BYTES, keys, values, kv.n_slot, v.key_begin + b * KEYS, last_key);
        copy_commit();
    }
    for (int b = 0; b < v.n_block; b++) {
        copy_wait<STAGES - 2>();
        gs_sync();
        int next = b + STAGES - 1;
        if (next < v.n_block)
            load_keys(base + next % STAGES * STAGE_BYTES, keys, values, kv.n_slot, v.key_begin + next * KEYS,
                      last_key);
        copy_commit();
        uint32_t stage = base + b % STAGES * STAGE_BYTES;
        float scores[8][4];
        multiply_keys(scores, queries, stage, lane);
        take_scores(state, scores, scale, v.key_begin + b * KEYS, lane & 3, v);
        multiply_values(state->out, scores, stage + TILE_BYTES(KEYS), lane);
    }
    copy_wait<0>();
}

GS_KERNEL void GS_BOUNDS(256, 1) gs_prefill_attention(GS_ARGS(struct gs_gpu_args, args))
{
    extern GS_SHARED __align__(1024) uint8_t shared[];
    int lane = gs_thread() & 31, warp = gs_thread() >> 5, kv_head = gs_block_y();
    int n_head = args.dims.n_head, head = kv_head * 8 + warp;
    /* the longest rows first */
    int row0 = (gs_n_block() - 1 - gs_block()) * ATTENTION_ROWS;
    int row_end = row0 + ATTENTION_ROWS < args.n_rows ? row0 + ATTENTION_ROWS : args.n_rows;
    struct gs_prefill_parts parts = gs_prefill_carve(&args.dims, args.s.prefill);
    uint32_t queries[4][4];
    struct running state;

    gs_wait_for_previous();
    gs_let_next_start();
#pragma unroll
    for (int i = 0; i < 4; i++) { /* a[0], a[2]: row g; a[1], a[3]: row g+8 */
        int row = row0 + (lane >> 2) + 8 * (i & 1);
        row = row < row_end ? row : row_end - 1;
        const uint16_t *from =
            parts.queries + ((int64_t)row * n_head + head) * 64 + (i >> 1) * 8 + (lane & 3) * 2;
#pragma unroll
        for (int step = 0; step < 4; step++)
            queries[step][i] = *(const uint32_t *)(from + step * 16);
    }
    start_running(&state, args, head, lane);
    for (int begin = row0; begin < row_end;) {
        int end = end_of_timeline(args, begin, row_end);
        attend(args, &state, queries, shared_address(shared), row0, begin, end, kv_head, lane);
        begin = end;
    }
    write_attended(args, state, row0 + (lane >> 2), row_end, head, lane);
}
