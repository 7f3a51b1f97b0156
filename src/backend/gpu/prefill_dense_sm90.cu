/*
 * Dense products over many rows on wgmma. One block an SM goes through the tiles: one warpgroup loads, two
 * multiply 64 rows each. The loader runs ahead across tiles, so the next tile's first stages arrive while
 * this one's results are written.
 */
#include "backend/gpu/prefill_dense.cuh"
#include "backend/gpu/prefill_wgmma.cuh"

#define ROWS  128
#define GROUP 16 /* row tiles that share a run through the columns: their activations stay in the L2 */

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <int COLUMNS> struct dense_shape {
    static constexpr int stage_bytes = TILE_BYTES(ROWS + COLUMNS);
    static constexpr int stages = GS_PREFILL_DENSE_SM90_TILES / stage_bytes;
};

struct tile_position {
    int row0, column0;
};

GS_DEVICE struct tile_position position_of(int tile, int n_row_tile, int n_column_tile, int columns)
{
    int group = tile / (GROUP * n_column_tile), within = tile % (GROUP * n_column_tile);
    int rows = n_row_tile - group * GROUP < GROUP ? n_row_tile - group * GROUP : GROUP;
    return {(group * GROUP + within % rows) * ROWS, within / rows * columns};
}

/* The loading warpgroup's share of N rows of a tile: rows r, r+16, ... of one 16-byte chunk. */
template <int N>
GS_DEVICE void load_rows(uint32_t tile, const uint16_t *matrix, int row0, int n_rows, int depth, int k0)
{
    int thread = gs_thread() & 127, chunk = thread & 7, r = thread >> 3;
    const char *column = (const char *)(matrix + k0 + chunk * 8);
    uint32_t place = tile + tile_offset(r, chunk); /* r+16 has the same swizzle */
#pragma unroll
    for (int i = 0; i < N / 16; i++) {
        int row = row0 + r + 16 * i < n_rows ? row0 + r + 16 * i : n_rows - 1;
        copy_async_16(place + i * 16 * 128, column + (uint32_t)row * (uint32_t)(depth * 2)); /* < 4 GB */
    }
}

/* Stages of shared memory that are filled and emptied in turn. */
struct ring {
    uint32_t base, parity;
    int stage;
};

template <int STAGES> GS_DEVICE void step_ring(struct ring *r)
{
    if (++r->stage == STAGES) {
        r->stage = 0;
        r->parity ^= 1;
    }
}

/* The loading warpgroup's part of a tile. */
template <int COLUMNS>
GS_DEVICE void load_tile(struct ring *r, const struct dense_operands &in, const struct tile_position &at,
                         uint64_t *full, uint64_t *empty)
{
    typedef dense_shape<COLUMNS> shape;
    for (int s = 0; s < in.depth / TILE_K; s++) {
        uint32_t place = r->base + r->stage * shape::stage_bytes;
        barrier_wait(shared_address(&empty[r->stage]), r->parity ^ 1);
        load_rows<ROWS>(place, in.rows, at.row0, in.n_rows, in.depth, s * TILE_K);
        load_rows<COLUMNS>(place + TILE_BYTES(ROWS), in.weights, at.column0, in.n_columns, in.depth,
                           s * TILE_K);
        barrier_arrive_after_copies(shared_address(&full[r->stage]));
        step_ring<shape::stages>(r);
    }
}

/* A computing warpgroup's 64 rows of a tile. */
template <int COLUMNS>
GS_DEVICE void multiply_tile(struct ring *r, float (*sums)[4], int n_step, uint64_t *full, uint64_t *empty)
{
    typedef dense_shape<COLUMNS> shape;
    int group = gs_thread() >> 7, lane = gs_thread() & 31;
    int before = -1; /* the stage whose products may still be under way */
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[j][i] = 0;
    }
    for (int s = 0; s < n_step; s++) {
        uint32_t place = r->base + r->stage * shape::stage_bytes;
        uint64_t a = tile_descriptor(place + group * TILE_BYTES(64));
        uint64_t b = tile_descriptor(place + TILE_BYTES(ROWS));
        barrier_wait(shared_address(&full[r->stage]), r->parity);
        fence_shared_for_wgmma();
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; step++)
            wgmma_ss<COLUMNS>::run(sums, a + step * 2, b + step * 2);
        wgmma_commit();
        wgmma_wait<1>();
        if (before >= 0 && lane == 0)
            barrier_arrive(shared_address(&empty[before]));
        before = r->stage;
        step_ring<shape::stages>(r);
    }
    wgmma_wait<0>();
    if (lane == 0)
        barrier_arrive(shared_address(&empty[before]));
}

template <int OUTPUT, int COLUMNS> GS_DEVICE void dense(const struct gs_gpu_args &args)
{
    extern GS_SHARED __align__(1024) uint8_t shared[];
    typedef dense_shape<COLUMNS> shape;
    GS_SHARED __align__(8) uint64_t full[shape::stages], empty[shape::stages];
    struct dense_operands in = dense_operands_of<OUTPUT>(args);
    int n_row_tile = (in.n_rows + ROWS - 1) / ROWS, n_column_tile = (in.n_columns + COLUMNS - 1) / COLUMNS;
    int n_tile = n_row_tile * n_column_tile, n_step = in.depth / TILE_K, group = gs_thread() >> 7;
    struct ring ring = {shared_address(shared), 0, 0};

    if (gs_thread() == 0) {
        for (int s = 0; s < shape::stages; s++) {
            barrier_init(shared_address(&full[s]), 128);
            barrier_init(shared_address(&empty[s]), 8); /* computing warps */
        }
    }
    gs_sync();
    gs_wait_for_previous();
    gs_let_next_start();
    if (group == 2) {
        fewer_registers<88>();
        for (int tile = gs_block(); tile < n_tile; tile += gs_n_block())
            load_tile<COLUMNS>(&ring, in, position_of(tile, n_row_tile, n_column_tile, COLUMNS), full, empty);
        copy_commit();
        copy_wait<0>();
    } else {
        more_registers<208>();
        int lane = gs_thread() & 31, warp = (gs_thread() >> 5) & 3;
        for (int tile = gs_block(); tile < n_tile; tile += gs_n_block()) {
            struct tile_position at = position_of(tile, n_row_tile, n_column_tile, COLUMNS);
            float sums[COLUMNS / 8][4];
            multiply_tile<COLUMNS>(&ring, sums, n_step, full, empty);
#pragma unroll
            for (int j = 0; j < COLUMNS / 64; j++) {
                if (at.column0 + j * 64 >= in.n_columns)
                    continue;
#pragma unroll
                for (int half = 0; half < 2; half++)
                    write_dense<OUTPUT>(args, &sums[8 * j], half,
                                        at.row0 + group * 64 + warp * 16 + 8 * half + (lane >> 2),
                                        at.column0 + 64 * j, lane & 3);
            }
        }
    }
}

#endif

GS_KERNEL void GS_BOUNDS(384, 1) gs_prefill_qkv_sm90(GS_ARGS(struct gs_gpu_args, args))
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    dense<DENSE_QKV, 256>(args);
#endif
}

GS_KERNEL void GS_BOUNDS(384, 1) gs_prefill_o_sm90(GS_ARGS(struct gs_gpu_args, args))
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    dense<DENSE_O, 192>(args);
#endif
}
