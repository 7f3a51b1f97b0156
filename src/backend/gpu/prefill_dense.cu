/*
 * Dense products over many rows on mma.sync: tiles of 128 rows x 128 columns, eight warps of 32 x 64, three
 * stages of 64 in flight. The warps' 64 columns are one head, so RoPE happens in registers.
 */
#include "backend/gpu/prefill_dense.cuh"

#define STAGES      3
#define STAGE_BYTES (2 * TILE_BYTES(128))

static_assert(GS_PREFILL_DENSE_SHARED == STAGES * STAGE_BYTES, "prefill_launch.h must agree");

/* 128 rows from `row0`, columns k0 ... k0+63; rows past the end repeat the last one. */
GS_DEVICE void load_tile(uint32_t tile, const uint16_t *matrix, int row0, int n_rows, int columns, int k0)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int index = gs_thread() + i * 256, r = index >> 3, chunk = index & 7;
        int row = row0 + r < n_rows ? row0 + r : n_rows - 1;
        copy_async_16(tile + tile_offset(r, chunk), matrix + (int64_t)row * columns + k0 + chunk * 8);
    }
}

/* sums[m][n] of the warp's 32 x 64 += a stage's products */
GS_DEVICE void multiply_stage(float sums[2][8][4], uint32_t a_tile, uint32_t b_tile, int row, int column,
                              int lane)
{
#pragma unroll
    for (int step = 0; step < 4; step++) {
        uint32_t a[2][4], b[4][4];
#pragma unroll
        for (int m = 0; m < 2; m++)
            load_a_fragment(a[m], a_tile, row + 16 * m, step, lane);
#pragma unroll
        for (int n = 0; n < 4; n++)
            load_b_fragments(b[n], b_tile, column + 16 * n, step, lane);
#pragma unroll
        for (int m = 0; m < 2; m++) {
#pragma unroll
            for (int n = 0; n < 8; n++)
                mma_bf16(sums[m][n], a[m], b[n >> 1][(n & 1) * 2], b[n >> 1][(n & 1) * 2 + 1]);
        }
    }
}

template <int OUTPUT> GS_DEVICE void dense(const struct gs_gpu_args &args)
{
    extern GS_SHARED __align__(1024) uint8_t shared[];
    int lane = gs_thread() & 31, warp = gs_thread() >> 5;
    int row0 = gs_block() * 128, column0 = gs_block_y() * 128;
    int row = (warp & 3) * 32, column = (warp >> 2) * 64;
    struct dense_operands in = dense_operands_of<OUTPUT>(args);
    uint32_t base = shared_address(shared);
    int n_step = in.depth / TILE_K;
    float sums[2][8][4] = {};

    gs_wait_for_previous();
    gs_let_next_start();
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < n_step) {
            load_tile(base + s * STAGE_BYTES, in.rows, row0, in.n_rows, in.depth, s * TILE_K);
            load_tile(base + s * STAGE_BYTES + TILE_BYTES(128), in.weights, column0, in.n_columns, in.depth,
                      s * TILE_K);
        }
        copy_commit();
    }
    for (int s = 0; s < n_step; s++) {
        copy_wait<STAGES - 2>();
        gs_sync();
        int next = s + STAGES - 1;
        uint32_t stage = base + next % STAGES * STAGE_BYTES;
        if (next < n_step) {
            load_tile(stage, in.rows, row0, in.n_rows, in.depth, next * TILE_K);
            load_tile(stage + TILE_BYTES(128), in.weights, column0, in.n_columns, in.depth, next * TILE_K);
        }
        copy_commit();
        stage = base + s % STAGES * STAGE_BYTES;
        multiply_stage(sums, stage, stage + TILE_BYTES(128), row, column, lane);
    }
    if (column0 + column >= in.n_columns)
        return;
#pragma unroll
    for (int m = 0; m < 2; m++) {
        for (int half = 0; half < 2; half++)
            write_dense<OUTPUT>(args, sums[m], half, row0 + row + 16 * m + 8 * half + (lane >> 2),
                                column0 + column, lane & 3);
    }
}

GS_KERNEL void GS_BOUNDS(256, 1) gs_prefill_qkv(GS_ARGS(struct gs_gpu_args, args))
{
    dense<DENSE_QKV>(args);
}

GS_KERNEL void GS_BOUNDS(256, 1) gs_prefill_o(GS_ARGS(struct gs_gpu_args, args))
{
    dense<DENSE_O>(args);
}
