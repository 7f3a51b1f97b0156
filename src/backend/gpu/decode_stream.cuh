/*
 * The body of every stage that streams weights: a warp's share of the chunks goes through its ring in shared
 * memory, products of a strip are summed in registers, and the parts of strips that several warps computed
 * are added in the order of the warps.
 */
#ifndef GS_BACKEND_GPU_DECODE_STREAM_CUH
#define GS_BACKEND_GPU_DECODE_STREAM_CUH

#include "backend/gpu/decode_common.cuh"

/* Sums of strips that the warps of a block left for the end. */
struct parts {
    float sum[WARPS][GS_DECODE_SEGMENTS][GS_DECODE_STRIP];
};

GS_DEVICE int lane_of_thread(void)
{
    return gs_thread() % 32;
}

GS_DEVICE int warp_of_thread(void)
{
    return gs_thread() / 32;
}

template <int SLOTS> GS_DEVICE void stream_prepare(uint32_t bars)
{
    if (elect_lane()) {
        for (int i = 0; i < SLOTS; i++)
            barrier_init(bars + 8 * i);
        barrier_init_fence();
    }
}

/*
 * The first copies to slots `from` ... `to` - 1. next() gives the addresses of the warp's chunks, one after
 * another.
 */
template <int BYTES, class Next>
GS_DEVICE void stream_fill(uint32_t ring, uint32_t bars, int from, int to, int count, uint64_t policy,
                           Next &next)
{
    if (elect_lane()) /* the same lane in stream_run: its `next` goes on */
#pragma unroll 1
        for (int i = from; i < to && i < count; i++)
            copy_start_once(ring + i * BYTES, next(), BYTES, bars + 8 * i, policy);
    __syncwarp();
}

/* work(address) for every chunk, in order; a slot that was worked on is filled anew. All have been filled. */
template <int SLOTS, int BYTES, class Next, class Work>
GS_DEVICE void stream_run(uint32_t ring, uint32_t bars, int count, uint64_t policy, Next &next, Work work)
{
    uint32_t at = ring, bar = bars, phase = 0;
#pragma unroll 1
    for (int left = count; left > 0; left--) {
        barrier_wait(bar, phase);
        work(at);
        __syncwarp();
        if (left > SLOTS && elect_lane())
            copy_start_once(at, next(), BYTES, bar, policy);
        at += BYTES;
        bar += 8;
        if (at == ring + SLOTS * BYTES) {
            at = ring;
            bar = bars;
            phase ^= 1;
        }
    }
}

/* Chunks that lie one after another. */
template <int BYTES> struct contiguous {
    const uint8_t *at;
    __device__ __forceinline__ const uint8_t *operator()()
    {
        const uint8_t *chunk = at;
        at += BYTES;
        return chunk;
    }
};

/*
 * Where a lane finds the activations of a block of 32 in a split vector in shared memory. Lanes of columns
 * 0 ... 2 read their term. The other columns' results are never looked at: their lanes read one of the three.
 */
#define OPERAND_STEP 192 /* bytes from block to block */

GS_DEVICE uint32_t operand_of(uint32_t vector)
{
    int g = lane_of_thread() / 4, q = lane_of_thread() % 4;
    return vector + (uint32_t)(g % 3 * 64 + q * 16);
}

/*
 * The two forms of dense weights: the bytes of a chunk of 16 rows x 64 columns, and c[0] + c[1] += the chunk,
 * whose first block of 32 columns has index `block`. Two chains of sums.
 */
struct weights_bf16 {
    static const int CHUNK = GS_DECODE_DENSE_CHUNK;
    static __device__ __forceinline__ void multiply(uint32_t chunk, uint32_t x, int block, float c[2][4])
    {
        uint32_t at = chunk + (uint32_t)lane_of_thread() * 16, from = x + (uint32_t)block * OPERAND_STEP;
#pragma unroll
        for (int k = 0; k < 2; k++) {
            struct u32x4 b = load_shared_16(from + k * OPERAND_STEP);
            struct u32x4 w0 = load_shared_16(at + k * 1024), w1 = load_shared_16(at + k * 1024 + 512);
            const uint32_t a0[4] = {w0.x, w0.y, w0.z, w0.w}, a1[4] = {w1.x, w1.y, w1.z, w1.w};
            mma_bf16(c[0], a0, b.x, b.y);
            mma_bf16(c[1], a1, b.z, b.w);
        }
    }
};

GS_DEVICE uint32_t subtract_bf16x2(uint32_t a, uint32_t b)
{
    uint32_t c;
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
}

/*
 * Four bytes of sign and magnitude (7 bits) as two pairs of bfloat16: bytes 0 and 2, then 1 and 3. 128 + the
 * magnitude is a bfloat16 with the magnitude as mantissa.
 */
GS_DEVICE void decode_bytes(uint32_t w, uint32_t *even, uint32_t *odd)
{
    const uint32_t base = 0x43004300u;
    *even = subtract_bf16x2((w & 0x007f007fu) | base, base) | (w * 256 & 0x80008000u);
    *odd = subtract_bf16x2((w >> 8 & 0x007f007fu) | base, base) | (w & 0x80008000u);
}

struct weights_q8 {
    static const int CHUNK = GS_DECODE_Q8_CHUNK;
    static __device__ __forceinline__ void multiply(uint32_t chunk, uint32_t x, int block, float c[2][4])
    {
        int lane = lane_of_thread();
        uint32_t from = x + (uint32_t)block * OPERAND_STEP;
        uint32_t scales = chunk + 1024 + (uint32_t)(lane / 4 * 8);
#pragma unroll
        for (int k = 0; k < 2; k++) {
            struct u32x4 b = load_shared_16(from + k * OPERAND_STEP);
            struct u32x4 w = load_shared_16(chunk + (uint32_t)(k * 512 + lane * 16));
            uint32_t scale = load_shared_4(scales + 4 * k);
            float s0 = gs_float_of_f16((uint16_t)scale), s1 = gs_float_of_f16((uint16_t)(scale >> 16));
            float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            uint32_t a[4];
            decode_bytes(w.x, &a[0], &a[2]);
            decode_bytes(w.z, &a[1], &a[3]);
            mma_bf16(sum, a, b.x, b.y);
            decode_bytes(w.y, &a[0], &a[2]);
            decode_bytes(w.w, &a[1], &a[3]);
            mma_bf16(sum, a, b.z, b.w);
            c[k][0] += s0 * sum[0];
            c[k][1] += s0 * sum[1];
            c[k][2] += s1 * sum[2];
            c[k][3] += s1 * sum[3];
        }
    }
};

/*
 * The 8 codes of a word as 4 pairs of bfloat16, value * 2^-126: sign in bit 15, magnitude in bits 8 ... 6.
 * Per half of the word, which holds every second element, pair 0 lies there, pair 1 three bits lower, pair 2
 * six. Pair 3 has what is left: sign 11, magnitude 10, 14, 13. Seven bits to the right they are 4, 3, 7, 6,
 * where 7 and 6 are in place; 2^5 brings 3 to 8, and 2^11, which is 4 to the left of where they came from, 4
 * to 15. Masks and right shifts share a pipe; left shifts are multiplications, for which another has room.
 */
GS_DEVICE void decode_word(uint32_t w, uint32_t pairs[4])
{
    const uint32_t pair = 0x81c081c0u;
    uint32_t rest = w & 0x6c006c00u;
    pairs[0] = w & pair;
    pairs[1] = w * 8 & pair;
    pairs[2] = w * 64 & pair;
    pairs[3] = (rest >> 7) * 0x821 & pair;
}

/* 2^(byte - 127) of byte `index` of a word; byte 0 gives 0, which differs by less than anything counts. */
GS_DEVICE float scale_of_word(uint32_t word, int index)
{
    uint32_t bits = index == 3 ? word >> 1 : word << (23 - 8 * index);
    return gs_float_of_bits(bits & 0x7f800000u);
}

/*
 * sum += the chunk's three times 64 columns; `block` is the first block of 32. sum[0], sum[1] are row g and
 * columns 2q, 2q+1, sum[2], sum[3] row g+8. Units: value * 2^-126.
 */
GS_DEVICE void multiply_experts(uint32_t chunk, uint32_t x, int block, float sum[4])
{
    int lane = lane_of_thread();
    uint32_t from = x + (uint32_t)block * OPERAND_STEP;
#pragma unroll
    for (int k = 0; k < 3; k++) {
        struct u32x4 w = load_shared_16(chunk + (uint32_t)(k * 512 + lane * 16));
        uint32_t scales = load_shared_4(chunk + (uint32_t)(3 * 512 + k * 32 + lane / 4 * 4));
        const uint32_t codes[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            struct u32x4 b = load_shared_16(from + (2 * k + half) * OPERAND_STEP);
            uint32_t low[4], high[4];
            decode_word(codes[2 * half], low);
            decode_word(codes[2 * half + 1], high);
            const uint32_t a0[4] = {low[0], high[0], low[1], high[1]};
            const uint32_t a1[4] = {low[2], high[2], low[3], high[3]};
            float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            mma_bf16(c, a0, b.x, b.y);
            mma_bf16(c, a1, b.z, b.w);
            float s0 = scale_of_word(scales, 2 * half), s1 = scale_of_word(scales, 2 * half + 1);
            sum[0] += s0 * c[0];
            sum[1] += s0 * c[1];
            sum[2] += s1 * c[2];
            sum[3] += s1 * c[3];
        }
    }
}

/*
 * The sum over the three columns of the terms: row g in [0], row g+8 in [1], in all four lanes of a row. Lane
 * quarter q has columns 2q, 2q+1.
 */
GS_DEVICE void add_columns(const float c[4], float rows[2])
{
    int q = lane_of_thread() % 4;
    rows[0] = q == 0 ? c[0] + c[1] : q == 1 ? c[0] : 0.0f;
    rows[1] = q == 0 ? c[2] + c[3] : q == 1 ? c[2] : 0.0f;
#pragma unroll
    for (int mask = 1; mask < 4; mask *= 2) {
        rows[0] += gs_shuffle_xor(rows[0], mask);
        rows[1] += gs_shuffle_xor(rows[1], mask);
    }
}

/* A warp leaves its part of a strip. */
GS_DEVICE void leave_part(struct parts *parts, int segment, const float c[4])
{
    float rows[2];
    int warp = warp_of_thread(), lane = lane_of_thread();
    add_columns(c, rows);
    if (lane % 4 == 0) {
        parts->sum[warp][segment][lane / 4] = rows[0];
        parts->sum[warp][segment][lane / 4 + 8] = rows[1];
    }
}

/* The share of a warp of a stage, in chunks. */
struct share {
    int block_first, block_count;
    int first, count;
};

GS_DEVICE struct share share_among(int n, int block, int n_block)
{
    struct share s;
    share_of(n, block, n_block, &s.block_first, &s.block_count);
    share_of(s.block_count, warp_of_thread(), WARPS, &s.first, &s.count);
    s.first += s.block_first;
    return s;
}

GS_DEVICE struct share share_of_warp(int n)
{
    return share_among(n, gs_block(), gs_n_block());
}

/* A warp without a share leaves zeros, which are added. */
GS_DEVICE void leave_nothing(struct parts *parts)
{
    const float zero[4] = {};
    leave_part(parts, 0, zero);
}

/* Where the parts of a strip lie: those of warps `warp` ... `warp` + n - 1, the first in `segment`, the
 * others in 0. */
struct part_place {
    int n;
    uint32_t first, others; /* addresses; others: of the warp after the first */
};

GS_DEVICE struct part_place parts_of_strip(const struct parts *parts, const struct share *mine, int n_chunk,
                                           int strip)
{
    struct part_place p;
    uint32_t n = (uint32_t)mine->block_count, here = (uint32_t)mine->block_first;
    uint32_t from = (uint32_t)(strip * n_chunk), end = from + (uint32_t)n_chunk;
    from = from > here ? from - here : 0;
    end = end - here < n ? end - here : n;
    uint32_t warp = ((from + 1) * WARPS - 1) / n, last = (end * WARPS - 1) / n;
    uint32_t segment = (uint32_t)strip - (here + n * warp / WARPS) / (uint32_t)n_chunk;
    p.n = (int)(last - warp) + 1;
    p.first = shared_address(parts->sum[warp][segment]);
    p.others = shared_address(parts->sum[warp + 1 < WARPS ? warp + 1 : warp][0]);
    return p;
}

/*
 * The sum of a row of a strip over `n` warps, in their order; `first`, `others` as in part_place, of the row.
 * AT_ONCE parts after the first are under way together.
 */
template <int AT_ONCE> GS_DEVICE float add_parts_of(int n, uint32_t first, uint32_t others)
{
    const uint32_t STEP = GS_DECODE_SEGMENTS * GS_DECODE_STRIP * 4;
    float sum = load_shared_float(first), part[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
        part[i] = i + 1 < n ? load_shared_float(others + i * STEP) : 0.0f;
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
        sum += part[i];
#pragma unroll 1
    for (int i = AT_ONCE; i + 1 < n; i++)
        sum += load_shared_float(others + (uint32_t)i * STEP);
    return sum;
}

GS_DEVICE float add_parts(const struct part_place &p, int row)
{
    return add_parts_of<6>(p.n, p.first + 4 * (uint32_t)row, p.others + 4 * (uint32_t)row);
}

/* The rows that a block has a part of; at most one a thread. */
struct rows {
    int first, n;
};

GS_DEVICE struct rows rows_of_block(const struct share *mine, int n_chunk)
{
    struct rows rows;
    int end = mine->block_first + mine->block_count;
    rows.first = mine->block_first / n_chunk * GS_DECODE_STRIP;
    rows.n = (end + n_chunk - 1) / n_chunk * GS_DECODE_STRIP - rows.first;
    return rows;
}

/* A thread's row among those that its block has a part of; found before the stream, used after it. */
struct row_place {
    int row;    /* -1: none */
    int starts; /* has the block the strip's first chunk? 2: and the last one too */
    struct part_place parts;
};

GS_DEVICE struct row_place place_of_row(const struct parts *parts, const struct share *mine, int n_chunk)
{
    struct rows rows = rows_of_block(mine, n_chunk);
    struct row_place p;
    p.row = gs_thread() < rows.n ? rows.first + gs_thread() : -1;
    int strip = (p.row >= 0 ? p.row : rows.first) / GS_DECODE_STRIP;
    p.starts = strip * n_chunk >= mine->block_first;
    p.starts += p.starts && (strip + 1) * n_chunk <= mine->block_first + mine->block_count;
    p.parts = parts_of_strip(parts, mine, n_chunk, strip);
    return p;
}

/*
 * What is left for a thread to do when the stream is through, in 16 bytes, which lie in shared memory
 * meanwhile: the constant bank and code that was not yet run would both be fetched behind the weights of the
 * blocks that still stream.
 */
struct row_end {
    uint32_t what;  /* parts | ROW_* | floats from `to` to the pair's second vector << 8 */
    uint32_t parts; /* addresses / 4: the first part, the others << 16 */
    float *to;
};
#define ROW_STARTS 16u
#define ROW_WHOLE  32u

GS_DEVICE struct row_end end_of_row(const struct row_place &place, float *first, float *second)
{
    struct row_end end;
    int row = place.row, in_strip = row % GS_DECODE_STRIP;
    end.what = (uint32_t)place.parts.n | (place.starts ? ROW_STARTS : 0) |
               (place.starts == 2 ? ROW_WHOLE : 0) | (uint32_t)(second - first) << 8;
    end.parts = (place.parts.first / 4 + (uint32_t)in_strip) | (place.parts.others / 4 + (uint32_t)in_strip)
                                                                   << 16;
    end.to = (place.starts ? first : second) + row;
    return end;
}

GS_DEVICE void keep_row(uint32_t at, const struct row_end &end)
{
    uint64_t to = (uint64_t)end.to;
    store_shared_16(at, end.what, end.parts, (uint32_t)to, (uint32_t)(to >> 32));
}

GS_DEVICE struct row_end recall_row(uint32_t at)
{
    const struct u32x4 kept = load_shared_16(at);
    struct row_end end = {kept.x, kept.y, (float *)((uint64_t)kept.w << 32 | kept.z)};
    return end;
}

GS_DEVICE void store_float(float *to, float value)
{
    asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(value) : "memory");
}

GS_DEVICE void store_half(uint16_t *to, uint16_t value)
{
    asm volatile("st.global.u16 [%0], %1;" ::"l"(to), "h"(value) : "memory");
}

/*
 * A block's results to the two vectors of a pair, a row a thread: the block that has a strip's first chunk
 * writes scale * sum + add to the first, one that has only later chunks scale * sum to the second; where
 * there is none, the second is zero. Returns what was written.
 */
template <int AT_ONCE> GS_DEVICE float write_row(const struct row_end &end, float scale, float add)
{
    float sum =
        add_parts_of<AT_ONCE>((int)(end.what & 15u), (end.parts & 0xffffu) * 4, end.parts >> 16 << 2) * scale;
    if (end.what & ROW_STARTS)
        sum += add;
    store_float(end.to, sum);
    if (end.what & ROW_WHOLE)
        store_float(end.to + (end.what >> 8), 0.0f);
    return sum;
}

/* The same at once, for a thread that may have no row; the row's value to values[thread] too. */
GS_DEVICE void write_pair(const struct row_place &place, float scale, float add, float *first, float *second,
                          float *values)
{
    if (place.row < 0)
        return;
    float sum = add_parts(place.parts, place.row % GS_DECODE_STRIP) * scale;
    if (place.starts)
        sum += add;
    (place.starts ? first : second)[place.row] = sum;
    if (place.starts == 2)
        second[place.row] = 0.0f;
    if (values)
        values[gs_thread()] = sum;
}

/* A norm's weights, and the residual stream: a thread has four neighbouring elements, and four again. */
struct norm_weights {
    float4 of[GS_DECODE_MAX_QUADS];
};

struct residual {
    float4 of[GS_DECODE_MAX_QUADS];
};

GS_DEVICE int quad_of_thread(int j)
{
    return 4 * (gs_thread() + j * THREADS);
}

/* Loaded early. */
GS_DEVICE void load_norm(struct norm_weights *w, const float *norm, int n)
{
#pragma unroll
    for (int j = 0; j < GS_DECODE_MAX_QUADS; j++) {
        int i = quad_of_thread(j);
        w->of[j] = i < n ? *(const float4 *)(norm + i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
}

/*
 * The residual stream: the sum of `vectors` of N vectors, which lie one after another. Returns this thread's
 * part of the sum of squares.
 */
template <int N> GS_DEVICE float load_residual(struct residual *r, const float *from, int n, int vectors = N)
{
    float4 part[N][GS_DECODE_MAX_QUADS];
#pragma unroll
    for (int v = 0; v < N; v++)
#pragma unroll
        for (int j = 0; j < GS_DECODE_MAX_QUADS; j++) {
            int i = quad_of_thread(j);
            part[v][j] = i < n && v < vectors ? __ldcg((const float4 *)(from + (uint32_t)(v * n + i)))
                                              : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
    float squares = 0.0f;
#pragma unroll
    for (int j = 0; j < GS_DECODE_MAX_QUADS; j++) {
        float4 sum = part[0][j];
#pragma unroll
        for (int v = 1; v < N; v++) {
            sum.x += part[v][j].x;
            sum.y += part[v][j].y;
            sum.z += part[v][j].z;
            sum.w += part[v][j].w;
        }
        squares += (sum.x * sum.x + sum.y * sum.y) + (sum.z * sum.z + sum.w * sum.w);
        r->of[j] = sum;
    }
    return squares;
}

/* residual * norm weight * scale as a split vector. */
GS_DEVICE void store_split(const struct residual *r, const struct norm_weights *w, uint32_t *to, int n,
                           float scale)
{
#pragma unroll
    for (int j = 0; j < GS_DECODE_MAX_QUADS; j++) {
        int i = quad_of_thread(j);
        if (i < n) {
            uint32_t low[3], high[3], at = split_word((uint32_t)i, 0, 0, 1);
            split_pair(r->of[j].x * w->of[j].x * scale, r->of[j].y * w->of[j].y * scale, low);
            split_pair(r->of[j].z * w->of[j].z * scale, r->of[j].w * w->of[j].w * scale, high);
#pragma unroll
            for (int k = 0; k < 3; k++)
                *(uint2 *)(to + at + 16 * k) = make_uint2(low[k], high[k]);
        }
    }
}

/* Each warp's sum, for the block to add after its next barrier. */
GS_DEVICE void leave_sum(float *sums, float value)
{
    value = gs_warp_sum(value);
    if (lane_of_thread() == 0)
        sums[warp_of_thread()] = value;
}

GS_DEVICE float add_sums(const float *sums)
{
    float sum[4] = {};
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        sum[w % 4] += sums[w];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* 1/sqrt(x) within an ulp, for normal x: one Newton step after the approximation. */
GS_DEVICE float inverse_root(float x)
{
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return fmaf(0.5f * y, fmaf(-x * y, y, 1.0f), y);
}

/* The norm's factor from the warps' sums of squares. */
GS_DEVICE float norm_scale(const float *squares, const struct gs_gpu_dims &dims)
{
    return inverse_root(__fdividef(add_sums(squares), (float)dims.d_model) + dims.rms_norm_eps);
}

/* What a norm needs beside the residual stream, kept in shared memory by one thread before the wait. */
struct norm_kept {
    float inverse, eps; /* inverse: of d_model */
};

GS_DEVICE void keep_norm(struct norm_kept *kept, const struct gs_gpu_dims &dims)
{
    kept->inverse = __fdividef(1.0f, (float)dims.d_model), kept->eps = dims.rms_norm_eps;
}

GS_DEVICE float norm_scale_kept(const float *squares, const struct norm_kept *kept)
{
    uint32_t at = shared_address(kept);
    return inverse_root(fmaf(add_sums(squares), load_shared_float(at), load_shared_float(at + 4)));
}

#endif
