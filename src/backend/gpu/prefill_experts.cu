/*
 * The experts' products on mma.sync: tiles of 128 weight rows x 128 routes, eight warps of 32 x 64, codes
 * decoded in registers to the A operand. A block finds its expert from its index; those past the last tile
 * have nothing to do.
 */
#include "backend/gpu/prefill_experts.cuh"

#define STAGES      4
#define ROWS        128
#define ROUTES      128
#define STAGE_CODES TILE_BYTES(ROUTES)
#define STAGE_SCALE (STAGE_CODES + ROWS * 32)
#define STAGE_BYTES (STAGE_SCALE + ROWS * 4)

static_assert(GS_PREFILL_EXPERT_SHARED == STAGES * STAGE_BYTES, "prefill_launch.h must agree");

/* The route tile `index` of the call: its expert, first place in s.routes and how many; expert -1: none. */
GS_DEVICE void find_tile(const struct gs_gpu_args &args, int index, int *expert, int *place, int *count)
{
    *expert = -1;
    int first = args.s.route_first[0];
    for (int e = 0; e < args.dims.n_expert; e++) {
        int end = args.s.route_first[e + 1], tiles = (end - first + ROUTES - 1) / ROUTES;
        if (index < tiles) {
            *expert = e;
            *place = first + index * ROUTES;
            *count = end - *place < ROUTES ? end - *place : ROUTES;
            return;
        }
        index -= tiles;
        first = end;
    }
}

struct tile_source {
    const uint16_t *rows[4]; /* this thread's share of a stage: four chunks of activations, */
    const uint8_t *codes;    /* one group of codes, */
    const uint8_t *scales;   /* and for threads 0 ... 127 a word of scales */
    uint32_t row_offset[4], code_place;
};

template <int PRODUCT>
GS_DEVICE void start_source(struct tile_source *from, const struct gs_gpu_args &args,
                            const struct expert_operands &in, int weight_row0, int place, int count)
{
    int thread = gs_thread();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int index = thread + i * 256, r = index >> 3, chunk = index & 7;
        int row = activation_row_of<PRODUCT>(args, place + (r < count ? r : count - 1));
        from->rows[i] = in.rows + (int64_t)row * in.depth + chunk * 8;
        from->row_offset[i] = tile_offset(r, chunk);
    }
    int slot = thread >> 1, group = thread & 1;
    int row = weight_row0 + weight_row_of<PRODUCT>(slot);
    row = row < in.n_weight_rows ? row : in.n_weight_rows - 1;
    from->codes = in.codes + ((int64_t)row * (in.depth / 32) + group) * 16;
    from->code_place = code_offset(slot, group);
    row = weight_row0 + weight_row_of<PRODUCT>(thread & 127);
    row = row < in.n_weight_rows ? row : in.n_weight_rows - 1;
    from->scales = in.scales + (int64_t)row * in.scale_stride;
}

GS_DEVICE void load_stage(uint32_t stage, const struct tile_source &from, int s)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        copy_async_16(stage + from.row_offset[i], from.rows[i] + s * TILE_K);
    copy_async_16(stage + STAGE_CODES + from.code_place, from.codes + s * 32);
    if (gs_thread() < ROWS)
        copy_async_4(stage + STAGE_SCALE + gs_thread() * 4, from.scales + (s >> 1) * 4);
}

/* A fragments of both k16 steps of group `group` for the 16 rows from `slot` */
GS_DEVICE void decode_fragments(uint32_t a[2][4], const uint8_t *stage, int slot, int group, int s, int lane)
{
    int g = lane >> 2, q = lane & 3;
    uint32_t upper[4], lower[4];
    int byte = (s & 1) * 2 + group;
    decode_codes(upper, *(const uint32_t *)(stage + STAGE_CODES + code_offset(slot + g, group) + q * 4),
                 stage[STAGE_SCALE + (slot + g) * 4 + byte]);
    decode_codes(lower, *(const uint32_t *)(stage + STAGE_CODES + code_offset(slot + g + 8, group) + q * 4),
                 stage[STAGE_SCALE + (slot + g + 8) * 4 + byte]);
#pragma unroll
    for (int step = 0; step < 2; step++) {
        a[step][0] = upper[2 * step];
        a[step][1] = lower[2 * step];
        a[step][2] = upper[2 * step + 1];
        a[step][3] = lower[2 * step + 1];
    }
}

GS_DEVICE void multiply_stage(float sums[2][8][4], const uint8_t *stage, int slot, int route, int s, int lane)
{
    uint32_t tile = shared_address(stage);
#pragma unroll
    for (int group = 0; group < 2; group++) {
        uint32_t a[2][2][4];
        decode_fragments(a[0], stage, slot, group, s, lane);
        decode_fragments(a[1], stage, slot + 16, group, s, lane);
#pragma unroll
        for (int step = 0; step < 2; step++) {
            uint32_t b[4][4];
#pragma unroll
            for (int n = 0; n < 4; n++)
                load_b_fragments(b[n], tile, route + 16 * n, group * 2 + step, lane);
#pragma unroll
            for (int m = 0; m < 2; m++) {
#pragma unroll
                for (int n = 0; n < 8; n++)
                    mma_bf16(sums[m][n], a[m][step], b[n >> 1][(n & 1) * 2], b[n >> 1][(n & 1) * 2 + 1]);
            }
        }
    }
}

/* The block's 64 units x 128 routes, through shared memory so that a route's columns go out together. */
GS_DEVICE void write_activated(const struct gs_gpu_args &args, float sums[2][8][4], const float *bias,
                               uint8_t *shared, int unit0, int slot, int route, int place, int count,
                               int lane)
{
    struct gs_prefill_parts parts = gs_prefill_carve(&args.dims, args.s.prefill);
    int g = lane >> 2, q = lane & 3;
    uint16_t *staged = (uint16_t *)shared; /* [ROUTES][64] */
    gs_sync();
#pragma unroll
    for (int m = 0; m < 2; m++) {
        int unit = slot / 2 + m * 8 + g;
        float gate_bias = bias[2 * (unit0 + unit)], up_bias = bias[2 * (unit0 + unit) + 1];
        int column = permuted_column(unit);
#pragma unroll
        for (int n = 0; n < 8; n++) {
            int r = route + 8 * n + 2 * q;
            float first = swiglu(args.dims, sums[m][n][0] + gate_bias, sums[m][n][2] + up_bias);
            float second = swiglu(args.dims, sums[m][n][1] + gate_bias, sums[m][n][3] + up_bias);
            staged[r * 64 + column] = gs_bf16_of_float(first);
            staged[(r + 1) * 64 + column] = gs_bf16_of_float(second);
        }
    }
    gs_sync();
    for (int i = gs_thread(); i < count * 8; i += 256) {
        uint4 *out =
            (uint4 *)(parts.activated + (int64_t)(place + (i >> 3)) * args.dims.d_ff + unit0) + (i & 7);
        *out = ((const uint4 *)shared)[i];
    }
}

GS_DEVICE void write_expert_out(const struct gs_gpu_args &args, float sums[2][8][4], const float *bias,
                                int row0, int route, int place, int count, int lane)
{
    int g = lane >> 2, q = lane & 3, n_row = args.dims.d_model;
#pragma unroll
    for (int n = 0; n < 8; n++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int r = route + 8 * n + 2 * q + i;
            if (r >= count)
                continue;
            int target = args.s.routes[place + r];
            float weight = args.s.choice_weight[target];
#pragma unroll
            for (int m = 0; m < 4; m++) {
                int row = row0 + 8 * m + g;
                if (row < n_row)
                    args.s.expert_out[(int64_t)target * n_row + row] =
                        (sums[m >> 1][n][(m & 1) * 2 + i] + bias[row]) * weight;
            }
        }
    }
}

template <int PRODUCT> GS_DEVICE void experts(const struct gs_gpu_args &args)
{
    extern GS_SHARED __align__(1024) uint8_t shared[];
    int lane = gs_thread() & 31, warp = gs_thread() >> 5;
    int slot = (warp & 3) * 32, route = (warp >> 2) * 64, weight_row0 = gs_block() * ROWS;
    int expert, place, count;
    float sums[2][8][4] = {};
    struct tile_source from;

    gs_wait_for_previous();
    gs_let_next_start();
    find_tile(args, gs_block_y(), &expert, &place, &count);
    if (expert < 0)
        return;
    struct expert_operands in = expert_operands_of<PRODUCT>(args, expert);
    start_source<PRODUCT>(&from, args, in, weight_row0, place, count);
    uint32_t base = shared_address(shared);
    int n_step = in.depth / TILE_K;
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < n_step)
            load_stage(base + s * STAGE_BYTES, from, s);
        copy_commit();
    }
    for (int s = 0; s < n_step; s++) {
        copy_wait<STAGES - 2>();
        gs_sync();
        int next = s + STAGES - 1;
        if (next < n_step)
            load_stage(base + next % STAGES * STAGE_BYTES, from, next);
        copy_commit();
        multiply_stage(sums, shared + s % STAGES * STAGE_BYTES, slot, route, s, lane);
    }
    copy_wait<0>();
    if (PRODUCT == EXPERT_GATE_UP)
        write_activated(args, sums, in.bias, shared, weight_row0 / 2, slot, route, place, count, lane);
    else
        write_expert_out(args, sums, in.bias, weight_row0 + slot, route, place, count, lane);
}

GS_KERNEL void GS_BOUNDS(256, 1) gs_prefill_gate_up(GS_ARGS(struct gs_gpu_args, args))
{
    experts<EXPERT_GATE_UP>(args);
}

GS_KERNEL void GS_BOUNDS(256, 1) gs_prefill_down(GS_ARGS(struct gs_gpu_args, args))
{
    experts<EXPERT_DOWN>(args);
}
