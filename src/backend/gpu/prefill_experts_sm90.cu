/*
 * The experts' products on wgmma: tiles of 192 weight rows x up to 144 routes. One block an SM goes through
 * the tiles of all experts: one warpgroup loads, three take 64 rows each, decode their codes to the A operand
 * in registers and multiply, so that one decodes while others multiply. An expert's routes are dealt out
 * evenly to its tiles, and the products are as wide as they need to be.
 */
#include "backend/gpu/prefill_experts.cuh"
#include "backend/gpu/prefill_wgmma.cuh"

#define ROWS         192
#define ROUTES       144 /* 2,048 tokens give an expert about 256 routes, and often a few more */
#define STAGES       7
#define STAGE_CODES  TILE_BYTES(ROUTES)
#define STAGE_SCALES (STAGE_CODES + ROWS * 32)
#define STAGE_BYTES  ((STAGE_SCALES + ROWS * 4 + 1023) / 1024 * 1024) /* tiles begin at multiples of 1024 */
#define STAGED_ROW   80 /* bytes of a route's 32 units on their way out, padded against bank conflicts */
#define STAGED_BYTES (ROUTES * STAGED_ROW)
#define MAX_EXPERT   GS_PREFILL_MAX_EXPERT

static_assert(STAGE_SCALES + ROWS * 4 <= STAGE_BYTES && STAGE_BYTES % 1024 == 0, "a stage holds its parts");
static_assert(GS_PREFILL_EXPERT_SM90_SHARED == STAGES * STAGE_BYTES + 3 * STAGED_BYTES, "prefill_launch.h");

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* What all threads of a block share besides the stages. */
struct schedule {
    uint64_t full[STAGES], empty[STAGES];
    int32_t first[MAX_EXPERT + 1]; /* route tiles of the experts before this one */
    int32_t n_route_tile[MAX_EXPERT];
};

struct expert_tile {
    int expert, place, count, weight_row0;
};

GS_DEVICE void make_schedule(struct schedule *schedule, const struct gs_gpu_args &args)
{
    int n_expert = args.dims.n_expert, thread = gs_thread();
    if (thread < n_expert) {
        int count = args.s.route_first[thread + 1] - args.s.route_first[thread];
        schedule->n_route_tile[thread] = (count + ROUTES - 1) / ROUTES;
    }
    if (thread == 0) {
        for (int s = 0; s < STAGES; s++) {
            barrier_init(shared_address(&schedule->full[s]), 128);
            barrier_init(shared_address(&schedule->empty[s]), 12); /* computing warps */
        }
    }
    gs_sync();
    if (thread <= n_expert) {
        int before = 0;
        for (int e = 0; e < thread; e++)
            before += schedule->n_route_tile[e];
        schedule->first[thread] = before;
    }
    gs_sync();
}

/* Tile `index`: weight rows fastest, so that the tiles under way at one time share routes and experts. */
GS_DEVICE struct expert_tile tile_of(const struct schedule &schedule, const struct gs_gpu_args &args,
                                     int index, int n_row_tile, int expert)
{
    int route_tile = index / n_row_tile;
    while (route_tile >= schedule.first[expert + 1])
        expert++;
    int first = args.s.route_first[expert], count = args.s.route_first[expert + 1] - first;
    int tiles = schedule.n_route_tile[expert];
    int share = ((count + tiles - 1) / tiles + 7) / 8 * 8,
        begin = (route_tile - schedule.first[expert]) * share;
    int rest = count - begin;
    return {expert, first + begin, rest < share ? (rest > 0 ? rest : 0) : share, index % n_row_tile * ROWS};
}

template <int PRODUCT>
GS_DEVICE void load_tile(struct schedule *schedule, const struct gs_gpu_args &args,
                         const struct expert_tile &tile, uint32_t base, int *stage, uint32_t *parity)
{
    struct expert_operands in = expert_operands_of<PRODUCT>(args, tile.expert);
    int thread = gs_thread() & 127, chunk = thread & 7, r = thread >> 3;
    uint32_t rows[ROUTES / 16], codes[3], scales[2];
#pragma unroll
    for (int i = 0; i < ROUTES / 16; i++) {
        int route = r + 16 * i < tile.count ? r + 16 * i : tile.count - 1;
        rows[i] = (uint32_t)activation_row_of<PRODUCT>(args, tile.place + route) * (uint32_t)(in.depth * 2);
    }
#pragma unroll
    for (int i = 0; i < 3; i++) {
        int row = tile.weight_row0 + weight_row_of<PRODUCT>((thread >> 1) + 64 * i);
        row = row < in.n_weight_rows ? row : in.n_weight_rows - 1;
        codes[i] = (uint32_t)row * (uint32_t)(in.depth / 2) + (thread & 1) * 16;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = tile.weight_row0 + weight_row_of<PRODUCT>((thread + 128 * i) % ROWS);
        row = row < in.n_weight_rows ? row : in.n_weight_rows - 1;
        scales[i] = (uint32_t)(row * in.scale_stride);
    }
    uint32_t row_place = tile_offset(r, chunk),
             code_place = STAGE_CODES + code_offset(thread >> 1, thread & 1);
    int n_step = in.depth / TILE_K, width = (tile.count + 15) / 16;
    for (int s = 0; s < n_step; s++) {
        uint32_t place = base + *stage * STAGE_BYTES;
        const char *column = (const char *)(in.rows + s * TILE_K + chunk * 8);
        const uint8_t *code = in.codes + s * 32, *scale = in.scales + (s >> 1) * 4;
        barrier_wait(shared_address(&schedule->empty[*stage]), *parity ^ 1);
#pragma unroll
        for (int i = 0; i < 3; i++)
            copy_async_16(place + code_place + i * 64 * 32, code + codes[i]);
        copy_async_4(place + STAGE_SCALES + thread * 4, scale + scales[0]);
        if (thread < ROWS - 128)
            copy_async_4(place + STAGE_SCALES + (thread + 128) * 4, scale + scales[1]);
#pragma unroll
        for (int i = 0; i < ROUTES / 16; i++) {
            if (i < width)
                copy_async_16(place + row_place + i * 16 * 128, column + rows[i]);
        }
        barrier_arrive_after_copies(shared_address(&schedule->full[*stage]));
        if (++*stage == STAGES) {
            *stage = 0;
            *parity ^= 1;
        }
    }
}

/* A word of codes and its factor 2^(scale-1), in both halves, to the pairs of decode_codes. */
GS_DEVICE void decode_word(uint32_t out[4], uint32_t word, uint32_t factor)
{
    out[0] = ((word << 12) & 0x80008000u) | ((word << 6) & 0x01C001C0u);
    out[1] = ((word << 8) & 0x80008000u) | ((word << 2) & 0x01C001C0u);
    out[2] = ((word << 4) & 0x80008000u) | ((word >> 2) & 0x01C001C0u);
    out[3] = (word & 0x80008000u) | ((word >> 6) & 0x01C001C0u);
#pragma unroll
    for (int i = 0; i < 4; i++)
        out[i] = multiply_bf16_pairs(out[i], factor);
}

/* The lane's A operands of a stage: four k16 steps. `slot` is the lane's row g of its warp's sixteen. */
GS_DEVICE void decode_stage(uint32_t a[4][4], const uint8_t *stage, int slot, int s, int q)
{
    const uint8_t *scales = stage + STAGE_SCALES + slot * 4 + (s & 1) * 2;
    uint32_t pair = *(const uint16_t *)scales | (uint32_t) * (const uint16_t *)(scales + 32) << 16;
    uint32_t place = STAGE_CODES + code_offset(slot, 0) + q * 4;
    int usual =
        __all_sync(0xffffffffu, (pair & 0x80808080u) == 0); /* below 128: one multiplication is enough */
#pragma unroll
    for (int group = 0; group < 2; group++) {
        uint32_t rows[2][4];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t word = *(const uint32_t *)(stage + (place ^ group << 4) + half * 8 * 32);
            uint32_t scale = (pair >> (8 * group + 16 * half)) & 0xff;
            if (usual)
                decode_word(rows[half], word, scale * 0x00800080u + 0x3F003F00u);
            else
                decode_codes(rows[half], word, scale);
        }
#pragma unroll
        for (int step = 0; step < 2; step++) {
            a[2 * group + step][0] = rows[0][2 * step];
            a[2 * group + step][1] = rows[1][2 * step];
            a[2 * group + step][2] = rows[0][2 * step + 1];
            a[2 * group + step][3] = rows[1][2 * step + 1];
        }
    }
}

struct cursor { /* of a computing warpgroup */
    const uint8_t *shared;
    struct schedule *schedule;
    int stage;
    uint32_t parity;
    int slot, q, lane;
};

GS_DEVICE void advance(struct cursor *c)
{
    if (++c->stage == STAGES) {
        c->stage = 0;
        c->parity ^= 1;
    }
}

template <int N> GS_DEVICE void start_products(float (*sums)[4], const uint32_t a[4][4], const uint8_t *stage)
{
    uint64_t b = tile_descriptor(shared_address(stage));
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; step++)
        wgmma_rs<N>::run(sums, a[step], b + step * 2);
    wgmma_commit();
}

/*
 * One stage: starts the products of `now`, whose codes are decoded already, decodes the next stage to `next`
 * meanwhile, and gives the stage back.
 */
template <int N>
GS_DEVICE void run_stage(struct cursor *c, float (*sums)[4], const uint32_t now[4][4], uint32_t next[4][4],
                         int s, int n_step)
{
    int current = c->stage;
    start_products<N>(sums, now, c->shared + current * STAGE_BYTES);
    advance(c);
    if (s + 1 < n_step) {
        barrier_wait(shared_address(&c->schedule->full[c->stage]), c->parity);
        fence_shared_for_wgmma();
        decode_stage(next, c->shared + c->stage * STAGE_BYTES, c->slot, s + 1, c->q);
    }
    wgmma_wait<0>();
    __syncwarp();
    if (c->lane == 0)
        barrier_arrive(shared_address(&c->schedule->empty[current]));
}

template <int N> GS_DEVICE void multiply_tile(struct cursor *c, float (*sums)[4], int n_step)
{
    uint32_t even[4][4], odd[4][4];
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[j][i] = 0;
    }
    barrier_wait(shared_address(&c->schedule->full[c->stage]), c->parity);
    fence_shared_for_wgmma();
    decode_stage(even, c->shared + c->stage * STAGE_BYTES, c->slot, 0, c->q);
    for (int s = 0; s < n_step; s += 2) {
        run_stage<N>(c, sums, even, odd, s, n_step);
        if (s + 1 < n_step)
            run_stage<N>(c, sums, odd, even, s + 1, n_step);
    }
}

/* The warpgroup's 32 units, one block of permuted columns, x the tile's routes. */
template <int N>
GS_DEVICE void write_activated(const struct gs_gpu_args &args, float (*sums)[4], const float *bias,
                               const struct expert_tile &tile, uint8_t *staged, int group, int warp, int lane)
{
    struct gs_prefill_parts parts = gs_prefill_carve(&args.dims, args.s.prefill);
    int g = lane >> 2, q = lane & 3, unit0 = tile.weight_row0 / 2 + group * 32, unit = warp * 8 + g;
    int known = unit0 + unit < args.dims.d_ff;
    float gate_bias = known ? bias[2 * (unit0 + unit)] : 0,
          up_bias = known ? bias[2 * (unit0 + unit) + 1] : 0;
    int column = permuted_column(unit);
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float y = swiglu(args.dims, sums[j][i] + gate_bias, sums[j][2 + i] + up_bias);
            *(uint16_t *)(staged + (8 * j + 2 * q + i) * STAGED_ROW + column * 2) = gs_bf16_of_float(y);
        }
    }
    warpgroup_sync(1 + group);
    if (unit0 < args.dims.d_ff) {
        for (int i = gs_thread() & 127; i < tile.count * 4; i += 128) {
            uint16_t *out = parts.activated + (int64_t)(tile.place + (i >> 2)) * args.dims.d_ff + unit0;
            ((uint4 *)out)[i & 3] = *(const uint4 *)(staged + (i >> 2) * STAGED_ROW + (i & 3) * 16);
        }
    }
    warpgroup_sync(1 + group);
}

template <int N>
GS_DEVICE void write_expert_out(const struct gs_gpu_args &args, float (*sums)[4], const float *bias,
                                const struct expert_tile &tile, uint8_t *staged, int group, int warp,
                                int lane)
{
    int q = lane & 3, n_row = args.dims.d_model,
        row = tile.weight_row0 + group * 64 + warp * 16 + (lane >> 2);
    int32_t *targets = (int32_t *)staged;
    float *weights = (float *)(staged + ROUTES * 4), upper_bias = row < n_row ? bias[row] : 0;
    float lower_bias = row + 8 < n_row ? bias[row + 8] : 0;
    for (int r = gs_thread() & 127; r < tile.count; r += 128) {
        targets[r] = args.s.routes[tile.place + r];
        weights[r] = args.s.choice_weight[targets[r]];
    }
    warpgroup_sync(1 + group);
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int route = 8 * j + 2 * q + i;
            if (route >= tile.count)
                continue;
            float *out = args.s.expert_out + (int64_t)targets[route] * n_row + row, weight = weights[route];
            if (row < n_row)
                out[0] = (sums[j][i] + upper_bias) * weight;
            if (row + 8 < n_row)
                out[8] = (sums[j][2 + i] + lower_bias) * weight;
        }
    }
    warpgroup_sync(1 + group);
}

template <int PRODUCT, int N>
GS_DEVICE void compute_tile(const struct gs_gpu_args &args, struct cursor *c, const struct expert_tile &tile,
                            int n_step, uint8_t *staged, int group, int warp, int lane)
{
    float sums[N / 8][4];
    const float *bias = expert_operands_of<PRODUCT>(args, tile.expert).bias;
    multiply_tile<N>(c, sums, n_step);
    if (PRODUCT == EXPERT_GATE_UP)
        write_activated<N>(args, sums, bias, tile, staged, group, warp, lane);
    else
        write_expert_out<N>(args, sums, bias, tile, staged, group, warp, lane);
}

template <int PRODUCT> GS_DEVICE void experts(const struct gs_gpu_args &args)
{
    extern GS_SHARED __align__(1024) uint8_t shared[];
    GS_SHARED struct schedule schedule;
    const struct gs_gpu_experts &w = PRODUCT == EXPERT_GATE_UP ? args.w.gate_up : args.w.down;
    int n_row_tile = (w.rows + ROWS - 1) / ROWS, n_step = w.columns / TILE_K, group = gs_thread() >> 7;

    gs_wait_for_previous();
    gs_let_next_start();
    make_schedule(&schedule, args);
    int n_tile = schedule.first[args.dims.n_expert] * n_row_tile;
    struct expert_tile tile = {0, 0, 0, 0};
    if (group == 3) {
        fewer_registers<40>();
        int stage = 0;
        uint32_t parity = 0;
        for (int index = gs_block(); index < n_tile; index += gs_n_block()) {
            tile = tile_of(schedule, args, index, n_row_tile, tile.expert);
            if (tile.count > 0)
                load_tile<PRODUCT>(&schedule, args, tile, shared_address(shared), &stage, &parity);
        }
        copy_commit();
        copy_wait<0>();
    } else {
        more_registers<152>();
        int lane = gs_thread() & 31, warp = (gs_thread() >> 5) & 3;
        uint8_t *staged = shared + STAGES * STAGE_BYTES + group * STAGED_BYTES;
        struct cursor c = {shared, &schedule, 0, 0, group * 64 + warp * 16 + (lane >> 2), lane & 3, lane};
        for (int index = gs_block(); index < n_tile; index += gs_n_block()) {
            tile = tile_of(schedule, args, index, n_row_tile, tile.expert);
            if (tile.count == 0)
                continue;
            switch ((tile.count + 15) / 16) {
            case 1:
            case 2:
                compute_tile<PRODUCT, 32>(args, &c, tile, n_step, staged, group, warp, lane);
                break;
            case 3:
            case 4:
                compute_tile<PRODUCT, 64>(args, &c, tile, n_step, staged, group, warp, lane);
                break;
            case 5:
                compute_tile<PRODUCT, 80>(args, &c, tile, n_step, staged, group, warp, lane);
                break;
            case 6:
                compute_tile<PRODUCT, 96>(args, &c, tile, n_step, staged, group, warp, lane);
                break;
            case 7:
                compute_tile<PRODUCT, 112>(args, &c, tile, n_step, staged, group, warp, lane);
                break;
            case 8:
                compute_tile<PRODUCT, 128>(args, &c, tile, n_step, staged, group, warp, lane);
                break;
            default:
                compute_tile<PRODUCT, ROUTES>(args, &c, tile, n_step, staged, group, warp, lane);
            }
        }
    }
}

#endif

GS_KERNEL void GS_BOUNDS(512, 1) gs_prefill_gate_up_sm90(GS_ARGS(struct gs_gpu_args, args))
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    experts<EXPERT_GATE_UP>(args);
#endif
}

GS_KERNEL void GS_BOUNDS(512, 1) gs_prefill_down_sm90(GS_ARGS(struct gs_gpu_args, args))
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    experts<EXPERT_DOWN>(args);
#endif
}
