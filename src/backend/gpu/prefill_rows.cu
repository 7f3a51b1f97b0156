/*
 * Prefill's kernels that go over rows, not tiles: norms, the router with the choice of experts, the sort of
 * routes by expert, and the sum over a row's experts.
 */
#include "backend/gpu/prefill_common.cuh"

/* 1/sqrt(mean square + eps) of a row, by one warp. */
GS_DEVICE float row_scale(const float *row, int n, float eps, int lane)
{
    float sum = 0;
    for (int k = lane * 4; k < n; k += 128) {
        float4 x = *(const float4 *)(row + k);
        sum += x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w;
    }
    return 1.0f / gs_sqrt(gs_warp_sum(sum) / (float)n + eps);
}

/* hidden -> normed, by the layer's attention norm. A warp a row. The first layer's; the others': combine. */
GS_KERNEL void GS_BOUNDS(256, 4) gs_prefill_norm(GS_ARGS(struct gs_gpu_args, args))
{
    int lane = gs_thread() & 31, row = gs_block() * 8 + (gs_thread() >> 5), n = args.dims.d_model;
    struct gs_prefill_parts parts = gs_prefill_carve(&args.dims, args.s.prefill);

    gs_wait_for_previous();
    gs_let_next_start();
    if (row >= args.n_rows)
        return;
    const float *x = args.s.hidden + (int64_t)row * n;
    uint16_t *y = parts.normed + (int64_t)row * n;
    float scale = row_scale(x, n, args.dims.rms_norm_eps, lane);
    for (int k = lane * 4; k < n; k += 128) {
        float4 v = *(const float4 *)(x + k), w = *(const float4 *)(args.w.attention_norm + k);
        uint2 packed = {pack_bf16(w.x * (v.x * scale), w.y * (v.y * scale)),
                        pack_bf16(w.z * (v.z * scale), w.w * (v.w * scale))};
        *(uint2 *)(y + k) = packed;
    }
}

/* One row normed by the experts' norm, columns permuted: lanes take 8 columns, four of them a block of 32. */
GS_DEVICE void write_permuted(uint16_t *y, const float *x, const float *w, float scale, int n, int lane)
{
    for (int k = lane * 8; k < n; k += 256) {
        float4 a = *(const float4 *)(x + k), b = *(const float4 *)(x + k + 4);
        float4 u = *(const float4 *)(w + k), v = *(const float4 *)(w + k + 4);
        uint32_t *out = (uint32_t *)(y + permuted_column(k));
        out[0] = pack_bf16(u.x * (a.x * scale), v.x * (b.x * scale));
        out[4] = pack_bf16(u.y * (a.y * scale), v.y * (b.y * scale));
        out[8] = pack_bf16(u.z * (a.z * scale), v.z * (b.z * scale));
        out[12] = pack_bf16(u.w * (a.w * scale), v.w * (b.w * scale));
    }
}

#define ROUTER_ROWS GS_PREFILL_ROUTER_ROWS
#define MAX_EXPERT  GS_PREFILL_MAX_EXPERT

/*
 * Products of the block's rows with 32 columns of the router, a lane a column. The eight warps share the sum
 * over k and meet in `partial`; the caller adds them in order.
 */
GS_DEVICE void router_products(const struct gs_gpu_args &args, int row0, int expert0, int warp, int lane,
                               float (*partial)[ROUTER_ROWS][32])
{
    int n = args.dims.d_model, n_expert = args.dims.n_expert, share = n / 8;
    int expert = expert0 + lane < n_expert ? expert0 + lane : n_expert - 1;
    float sum[ROUTER_ROWS] = {};
    const float *column = args.w.router_columns + expert;
    for (int k = warp * share; k < (warp + 1) * share; k += 4) {
        float w0 = column[(int64_t)k * n_expert], w1 = column[(int64_t)(k + 1) * n_expert];
        float w2 = column[(int64_t)(k + 2) * n_expert], w3 = column[(int64_t)(k + 3) * n_expert];
#pragma unroll
        for (int r = 0; r < ROUTER_ROWS; r++) {
            int row = row0 + r < args.n_rows ? row0 + r : args.n_rows - 1;
            float4 x = *(const float4 *)(args.s.hidden + (int64_t)row * n + k);
            sum[r] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
        }
    }
#pragma unroll
    for (int r = 0; r < ROUTER_ROWS; r++)
        partial[warp][r][lane] = sum[r];
}

/*
 * The n_active largest logits of a row, by one warp: larger first, then the lower expert. Softmax over them.
 */
GS_DEVICE void choose_experts(const struct gs_gpu_args &args, int row, const float *logits, int32_t *counts,
                              int lane)
{
    int n_active = args.dims.n_active, n_expert = args.dims.n_expert;
    float mine[MAX_EXPERT / 32], best[8];
    int32_t chosen[8];
#pragma unroll
    for (int i = 0; i < MAX_EXPERT / 32; i++)
        mine[i] = lane + 32 * i < n_expert ? logits[lane + 32 * i] : -INFINITY;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        if (k >= n_active)
            break;
        float top = -INFINITY;
        int32_t expert = MAX_EXPERT;
#pragma unroll
        for (int i = 0; i < MAX_EXPERT / 32; i++) {
            if (mine[i] > top) {
                top = mine[i];
                expert = lane + 32 * i;
            }
        }
#pragma unroll
        for (int mask = 16; mask > 0; mask /= 2) {
            float other = gs_shuffle_xor(top, mask);
            int32_t other_expert = gs_shuffle_xor_i32(expert, mask);
            if (other > top || (other == top && other_expert < expert)) {
                top = other;
                expert = other_expert;
            }
        }
        expert = expert < n_expert ? expert : 0; /* only if every logit is NaN or -inf */
        best[k] = top;
        chosen[k] = expert;
#pragma unroll
        for (int i = 0; i < MAX_EXPERT / 32; i++) {
            if (expert == lane + 32 * i)
                mine[i] = -INFINITY;
        }
    }
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        if (k < n_active)
            sum += gs_exp(best[k] - best[0]);
    }
#pragma unroll
    for (int k = 0; k < 8; k++) {
        if (k < n_active && lane == k) {
            args.s.choice[(int64_t)row * n_active + k] = chosen[k];
            args.s.choice_weight[(int64_t)row * n_active + k] = gs_exp(best[k] - best[0]) / sum;
            atomicAdd(&counts[chosen[k]], 1); /* integers: the order does not matter */
        }
    }
}

/* hidden -> normed (permuted), router logits, choice, and how many routes of these rows each expert gets. */
GS_KERNEL void GS_BOUNDS(256, 2) gs_prefill_router(GS_ARGS(struct gs_gpu_args, args))
{
    GS_SHARED float partial[8][ROUTER_ROWS][32];
    GS_SHARED float logits[ROUTER_ROWS][MAX_EXPERT];
    GS_SHARED float scales[ROUTER_ROWS];
    GS_SHARED int32_t counts[MAX_EXPERT];
    int thread = gs_thread(), lane = thread & 31, warp = thread >> 5;
    int row0 = gs_block() * ROUTER_ROWS, n = args.dims.d_model, n_expert = args.dims.n_expert;
    struct gs_prefill_parts parts = gs_prefill_carve(&args.dims, args.s.prefill);

    gs_wait_for_previous();
    gs_let_next_start();
    for (int r = warp; r < ROUTER_ROWS; r += 8) {
        int row = row0 + r;
        if (row >= args.n_rows)
            continue;
        const float *x = args.s.hidden + (int64_t)row * n;
        float scale = row_scale(x, n, args.dims.rms_norm_eps, lane);
        write_permuted(parts.normed + (int64_t)row * n, x, args.w.mlp_norm, scale, n, lane);
        if (lane == 0)
            scales[r] = scale;
    }
    for (int e = thread; e < MAX_EXPERT; e += 256)
        counts[e] = 0;
    for (int expert0 = 0; expert0 < n_expert; expert0 += 32) {
        router_products(args, row0, expert0, warp, lane, partial);
        gs_sync();
        for (int i = thread; i < ROUTER_ROWS * 32; i += 256) {
            int r = i >> 5, expert = expert0 + (i & 31);
            if (row0 + r >= args.n_rows || expert >= n_expert)
                continue;
            float sum = 0;
            for (int w = 0; w < 8; w++)
                sum += partial[w][r][i & 31];
            float logit = sum * scales[r] + args.w.router_bias[expert];
            logits[r][expert] = logit;
            args.s.router[(int64_t)(row0 + r) * n_expert + expert] = logit;
        }
        gs_sync();
    }
    for (int r = warp; r < ROUTER_ROWS; r += 8) {
        if (row0 + r < args.n_rows)
            choose_experts(args, row0 + r, logits[r], counts, lane);
    }
    gs_sync();
    for (int e = thread; e < n_expert; e += 256)
        parts.counts[(int64_t)gs_block() * n_expert + e] = counts[e];
}

#define WIDE_THREADS 512
#define WIDE_WARPS   (WIDE_THREADS / 32)

/*
 * The same in one pass over hidden: the rows stay in shared memory, [16][d_model] and then [16 warps][16][32]
 * partial sums. For devices with room for that.
 */
GS_KERNEL void GS_BOUNDS(WIDE_THREADS, 1) gs_prefill_router_wide(GS_ARGS(struct gs_gpu_args, args))
{
    extern GS_SHARED __align__(16) float rows[];
    GS_SHARED float logits[ROUTER_ROWS][MAX_EXPERT];
    GS_SHARED int32_t counts[MAX_EXPERT];
    int thread = gs_thread(), lane = thread & 31, warp = thread >> 5;
    int row0 = gs_block() * ROUTER_ROWS, n = args.dims.d_model, n_expert = args.dims.n_expert;
    float(*partial)[ROUTER_ROWS][32] = (float(*)[ROUTER_ROWS][32])(rows + ROUTER_ROWS * n);
    struct gs_prefill_parts parts = gs_prefill_carve(&args.dims, args.s.prefill);
    int row = row0 + warp < args.n_rows ? row0 + warp : args.n_rows - 1;
    float *mine = rows + warp * n;

    gs_wait_for_previous();
    gs_let_next_start();
    const float *hidden = args.s.hidden + (int64_t)row * n;
#pragma unroll 8
    for (int k = lane * 4; k < n; k += 128)
        *(float4 *)(mine + k) = *(const float4 *)(hidden + k);
    for (int e = thread; e < MAX_EXPERT; e += WIDE_THREADS)
        counts[e] = 0;
    __syncwarp();
    float scale = row_scale(mine, n, args.dims.rms_norm_eps, lane);
    if (row0 + warp < args.n_rows)
        write_permuted(parts.normed + (int64_t)row * n, mine, args.w.mlp_norm, scale, n, lane);
    gs_sync();
    for (int expert0 = 0; expert0 < n_expert; expert0 += 32) {
        int expert = expert0 + lane < n_expert ? expert0 + lane : n_expert - 1;
        const float *column = args.w.router_columns + expert;
        float sum[ROUTER_ROWS] = {};
        /* groups of four k, the warps in turn */
#pragma unroll 3
        for (int k = warp * 4; k < n; k += WIDE_WARPS * 4) {
            const float *w = column + (int64_t)k * n_expert;
            float w0 = __ldg(w), w1 = __ldg(w + n_expert), w2 = __ldg(w + 2 * n_expert),
                  w3 = __ldg(w + 3 * n_expert);
#pragma unroll
            for (int r = 0; r < ROUTER_ROWS; r++) {
                float4 x = *(const float4 *)(rows + r * n + k);
                sum[r] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
            }
        }
#pragma unroll
        for (int r = 0; r < ROUTER_ROWS; r++)
            partial[warp][r][lane] = sum[r];
        gs_sync();
        float total = 0; /* warp r adds up row r */
        for (int w = 0; w < WIDE_WARPS; w++)
            total += partial[w][warp][lane];
        if (row0 + warp < args.n_rows && expert0 + lane < n_expert) {
            float logit = total * scale + args.w.router_bias[expert];
            logits[warp][expert] = logit;
            args.s.router[(int64_t)row * n_expert + expert] = logit;
        }
        gs_sync();
    }
    if (row0 + warp < args.n_rows)
        choose_experts(args, row, logits[warp], counts, lane);
    gs_sync();
    for (int e = thread; e < n_expert; e += WIDE_THREADS)
        parts.counts[(int64_t)gs_block() * n_expert + e] = counts[e];
}

/* Exclusive sum over the 256 threads of a block; *total gets the sum of all. */
GS_DEVICE int32_t block_scan(int32_t value, int32_t *sums, int32_t *total)
{
    int lane = gs_thread() & 31, warp = gs_thread() >> 5;
    int32_t inclusive = value;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        int32_t below = __shfl_up_sync(0xffffffffu, inclusive, step);
        if (lane >= step)
            inclusive += below;
    }
    gs_sync();
    if (lane == 31)
        sums[warp] = inclusive;
    gs_sync();
    int32_t before = 0, all = 0;
    for (int w = 0; w < 8; w++) {
        before += w < warp ? sums[w] : 0;
        all += sums[w];
    }
    *total = all;
    return before + inclusive - value;
}

/*
 * choice -> route_first, routes: a block an expert. A stable counting sort: the routers' counts give each
 * block of rows its first place, and one thread writes that block's routes in order.
 */
GS_KERNEL void GS_BOUNDS(256, 1) gs_prefill_sort(GS_ARGS(struct gs_gpu_args, args))
{
    GS_SHARED int32_t sums[8];
    int n_expert = args.dims.n_expert, n_active = args.dims.n_active, expert = gs_block();
    int n_block = (args.n_rows + ROUTER_ROWS - 1) / ROUTER_ROWS;
    struct gs_prefill_parts parts = gs_prefill_carve(&args.dims, args.s.prefill);
    int32_t before = 0, first, total;

    gs_wait_for_previous();
    gs_let_next_start();
    for (int b = gs_thread(); b < n_block; b += 256) {
        for (int e = 0; e < expert; e++)
            before += parts.counts[(int64_t)b * n_expert + e];
    }
    block_scan(before, sums, &first);
    if (gs_thread() == 0)
        args.s.route_first[expert] = first;
    for (int chunk = 0; chunk < n_block; chunk += 256) {
        int b = chunk + gs_thread();
        int32_t count = b < n_block ? parts.counts[(int64_t)b * n_expert + expert] : 0;
        int32_t place = first + block_scan(count, sums, &total);
        first += total;
        if (count == 0)
            continue;
        int32_t end = (b + 1) * ROUTER_ROWS < args.n_rows ? (b + 1) * ROUTER_ROWS : args.n_rows;
        for (int32_t route = b * ROUTER_ROWS * n_active; route < end * n_active; route++) {
            if (args.s.choice[route] == expert)
                args.s.routes[place++] = route;
        }
    }
    if (expert == n_expert - 1 && gs_thread() == 0)
        args.s.route_first[n_expert] = first;
}

#define COMBINE_THREADS 128
#define COMBINE_SHARE   8 /* groups of four columns that a thread may own: d_model is 4,096 at most */

/* Places of a row's slots by ascending expert. */
GS_DEVICE void order_slots(int32_t order[8], const int32_t *choice, int n_active)
{
    for (int k = 0; k < n_active; k++) {
        int place = 0;
        for (int other = 0; other < n_active; other++)
            place += choice[other] < choice[k];
#pragma unroll
        for (int i = 0; i < 8; i++)
            order[i] = place == i ? k : order[i];
    }
}

/*
 * expert_out -> hidden: a row a block, its experts in ascending order. Then the next layer's attention norm
 * of the row, while it is at hand: hidden -> normed.
 */
GS_KERNEL void GS_BOUNDS(COMBINE_THREADS, 8) gs_prefill_combine(GS_ARGS(struct gs_gpu_args, args))
{
    GS_SHARED float squares[COMBINE_THREADS / 32];
    int row = gs_block(), n = args.dims.d_model, n_active = args.dims.n_active;
    int32_t order[8] = {};
    float4 kept[COMBINE_SHARE];
    float square = 0;

    gs_wait_for_previous();
    gs_let_next_start();
    order_slots(order, args.s.choice + (int64_t)row * n_active, n_active);
    const float *outputs = args.s.expert_out + (int64_t)row * n_active * n;
#pragma unroll
    for (int share = 0; share < COMBINE_SHARE; share++) {
        int c = (share * COMBINE_THREADS + gs_thread()) * 4;
        if (c >= n)
            break;
        float4 sum = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (i >= n_active)
                break;
            float4 v = *(const float4 *)(outputs + (int64_t)order[i] * n + c);
            sum = {sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w};
        }
        float4 *hidden = (float4 *)(args.s.hidden + (int64_t)row * n + c), h = *hidden;
        h = {h.x + sum.x, h.y + sum.y, h.z + sum.z, h.w + sum.w};
        *hidden = kept[share] = h;
        square += h.x * h.x + h.y * h.y + h.z * h.z + h.w * h.w;
    }
    if (!args.norm)
        return;
    square = gs_warp_sum(square);
    if ((gs_thread() & 31) == 0)
        squares[gs_thread() >> 5] = square;
    gs_sync();
    square = squares[0] + squares[1] + squares[2] + squares[3];
    float scale = 1.0f / gs_sqrt(square / (float)n + args.dims.rms_norm_eps);
    uint16_t *normed = gs_prefill_carve(&args.dims, args.s.prefill).normed + (int64_t)row * n;
#pragma unroll
    for (int share = 0; share < COMBINE_SHARE; share++) {
        int c = (share * COMBINE_THREADS + gs_thread()) * 4;
        if (c >= n)
            break;
        float4 w = *(const float4 *)(args.norm + c), h = kept[share];
        *(uint2 *)(normed + c) = {pack_bf16(w.x * (h.x * scale), w.y * (h.y * scale)),
                                  pack_bf16(w.z * (h.z * scale), w.w * (h.w * scale))};
    }
}
