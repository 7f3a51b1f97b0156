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
    int32_t first[WARPS], count[WARPS]; /* strips of the sums */
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
    if (lane_of_thread() == 0) {
        for (int i = 0; i < SLOTS; i++)
            barrier_init(bars + 8 * i);
        barrier_init_fence();
    }
}

/* The first copies. next() gives the addresses of the warp's chunks, one after another. */
template <int SLOTS, int BYTES, class Next>
GS_DEVICE void stream_start(uint32_t ring, uint32_t bars, int count, uint64_t policy, Next &next)
{
    if (lane_of_thread() == 0)
        for (int i = 0; i < SLOTS && i < count; i++)
            copy_start_once(ring + i * BYTES, next(), BYTES, bars + 8 * i, policy);
    __syncwarp();
}

/* work(address) for every chunk, in order; a slot that was worked on is filled anew. */
template <int SLOTS, int BYTES, class Next, class Work>
GS_DEVICE void stream_run(uint32_t ring, uint32_t bars, int count, uint64_t policy, Next &next, Work work)
{
    int slot = 0;
    uint32_t phase = 0;
    for (int i = 0; i < count; i++) {
        barrier_wait(bars + 8 * slot, phase);
        work(ring + slot * BYTES);
        __syncwarp();
        if (lane_of_thread() == 0 && i + SLOTS < count)
            copy_start_once(ring + slot * BYTES, next(), BYTES, bars + 8 * slot, policy);
        slot++;
        if (slot == SLOTS) {
            slot = 0;
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
 * Where a lane finds the activations of a block of 32 in a split vector in shared memory: lanes of columns
 * 0 ... 2 read their term; the others, always the same zeros.
 */
struct operand {
    uint32_t base, step; /* address of block 0, bytes from block to block */
};

GS_DEVICE struct operand operand_of(uint32_t vector, uint32_t zeros)
{
    int g = lane_of_thread() / 4, q = lane_of_thread() % 4;
    struct operand o;
    o.base = g < 3 ? vector + (uint32_t)(g * 64 + q * 16) : zeros;
    o.step = g < 3 ? 192 : 0;
    return o;
}

/*
 * The two forms of dense weights: the bytes of a chunk of 16 rows x 64 columns, and c[0] + c[1] += the chunk,
 * whose first block of 32 columns has index `block`. Two chains of sums.
 */
struct weights_bf16 {
    static const int CHUNK = GS_DECODE_DENSE_CHUNK;
    static __device__ __forceinline__ void multiply(uint32_t chunk, struct operand x, int block,
                                                    float c[2][4])
    {
        uint32_t at = chunk + (uint32_t)lane_of_thread() * 16, from = x.base + (uint32_t)block * x.step;
#pragma unroll
        for (int k = 0; k < 2; k++) {
            struct u32x4 b = load_shared_16(from + k * x.step);
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
    static __device__ __forceinline__ void multiply(uint32_t chunk, struct operand x, int block,
                                                    float c[2][4])
    {
        int lane = lane_of_thread();
        uint32_t from = x.base + (uint32_t)block * x.step;
        uint32_t scales = chunk + 1024 + (uint32_t)(lane / 4 * 8);
#pragma unroll
        for (int k = 0; k < 2; k++) {
            struct u32x4 b = load_shared_16(from + k * x.step);
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
 * The 8 codes of a word as 4 pairs of bfloat16, value * 2^-126. Per half of the word, which holds every
 * second element: pair 0 has its sign in bit 15 and its magnitude in bits 8 ... 6, pair 1 in 14 and 5 ... 3,
 * pair 2 in 9 and 2 ... 0, pair 3 in 13 and 12 ... 10. Only one shift goes right: left ones are
 * multiplications, for which another pipe has room.
 */
GS_DEVICE void decode_word(uint32_t w, uint32_t pairs[4])
{
    const uint32_t sign = 0x80008000u, magnitude = 0x01c001c0u;
    pairs[0] = w & (sign | magnitude);
    pairs[1] = (w * 8 & magnitude) | (w * 2 & sign);
    pairs[2] = w * 64 & (sign | magnitude);
    pairs[3] = (w >> 4 & magnitude) | (w * 4 & sign);
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
GS_DEVICE void multiply_experts(uint32_t chunk, struct operand x, int block, float sum[4])
{
    int lane = lane_of_thread();
    uint32_t from = x.base + (uint32_t)block * x.step;
#pragma unroll
    for (int k = 0; k < 3; k++) {
        struct u32x4 w = load_shared_16(chunk + (uint32_t)(k * 512 + lane * 16));
        uint32_t scales = load_shared_4(chunk + (uint32_t)(3 * 512 + k * 32 + lane / 4 * 4));
        const uint32_t codes[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            struct u32x4 b = load_shared_16(from + (2 * k + half) * x.step);
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

/* The sum over the columns: row g in [0], row g+8 in [1], in all four lanes of a row. */
GS_DEVICE void add_columns(const float c[4], float rows[2])
{
    rows[0] = c[0] + c[1];
    rows[1] = c[2] + c[3];
#pragma unroll
    for (int mask = 1; mask < 4; mask *= 2) {
        rows[0] += gs_shuffle_xor(rows[0], mask);
        rows[1] += gs_shuffle_xor(rows[1], mask);
    }
}

/* A warp leaves its part of a strip. */
GS_DEVICE void leave_part(struct parts *parts, int segment, int strip, const float c[4])
{
    float rows[2];
    int warp = warp_of_thread(), lane = lane_of_thread();
    add_columns(c, rows);
    if (lane % 4 == 0) {
        parts->sum[warp][segment][lane / 4] = rows[0];
        parts->sum[warp][segment][lane / 4 + 8] = rows[1];
    }
    if (lane == 0) {
        parts->first[warp] = strip - segment;
        parts->count[warp] = segment + 1;
    }
}

GS_DEVICE void clear_parts(struct parts *parts)
{
    if (gs_thread() < WARPS)
        parts->count[gs_thread()] = 0;
}

/* The sum of a row of a strip over the warps, in their order. */
GS_DEVICE float add_parts(const struct parts *parts, int strip, int row)
{
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        int i = strip - parts->first[w];
        if (i >= 0 && i < parts->count[w])
            sum += parts->sum[w][i][row];
    }
    return sum;
}

/* The share of a warp of a stage, in chunks. */
struct share {
    int block_first, block_count;
    int first, count;
};

GS_DEVICE struct share share_of_warp(int n)
{
    struct share s;
    share_of(n, gs_block(), gs_n_block(), &s.block_first, &s.block_count);
    share_of(s.block_count, warp_of_thread(), WARPS, &s.first, &s.count);
    s.first += s.block_first;
    return s;
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

/*
 * A block's results to the two vectors of a pair, a row a thread: the block that has a strip's first chunk
 * writes scale * sum + add to `first`, one that has only later chunks scale * sum to `second`; where there is
 * none, `second` is zero.
 */
GS_DEVICE void write_pair(const struct parts *parts, const struct share *mine, int n_chunk, struct rows rows,
                          float scale, float add, float *first, float *second, float *values)
{
    int i = gs_thread();
    if (i >= rows.n)
        return;
    int row = rows.first + i, strip = row / GS_DECODE_STRIP;
    float sum = add_parts(parts, strip, i % GS_DECODE_STRIP) * scale;
    bool starts = strip * n_chunk >= mine->block_first;
    bool ends = (strip + 1) * n_chunk <= mine->block_first + mine->block_count;
    if (starts)
        sum += add;
    (starts ? first : second)[row] = sum;
    if (starts && ends)
        second[row] = 0.0f;
    if (values)
        values[i] = sum;
}

/* A norm's weights of a thread's elements, loaded early. */
struct norm_weights {
    float2 pair[GS_DECODE_MAX_PAIRS];
};

GS_DEVICE void load_norm(struct norm_weights *w, const float *norm, int n)
{
#pragma unroll
    for (int j = 0; j < GS_DECODE_MAX_PAIRS; j++) {
        int i = 2 * (gs_thread() + j * THREADS);
        w->pair[j] = i < n ? *(const float2 *)(norm + i) : make_float2(0.0f, 0.0f);
    }
}

/* The same elements of the residual stream, which lies as a sum of two vectors (`second` may be NULL). */
struct residual {
    float2 pair[GS_DECODE_MAX_PAIRS];
};

/* Returns this thread's part of the sum of squares. */
GS_DEVICE float load_residual(struct residual *r, const float *first, const float *second, int n)
{
    float2 other[GS_DECODE_MAX_PAIRS];
#pragma unroll
    for (int j = 0; j < GS_DECODE_MAX_PAIRS; j++) {
        int i = 2 * (gs_thread() + j * THREADS);
        r->pair[j] = i < n ? __ldcg((const float2 *)(first + i)) : make_float2(0.0f, 0.0f);
        other[j] = i < n && second ? __ldcg((const float2 *)(second + i)) : make_float2(0.0f, 0.0f);
    }
    float squares = 0.0f;
#pragma unroll
    for (int j = 0; j < GS_DECODE_MAX_PAIRS; j++) {
        r->pair[j].x += other[j].x;
        r->pair[j].y += other[j].y;
        squares += r->pair[j].x * r->pair[j].x + r->pair[j].y * r->pair[j].y;
    }
    return squares;
}

/* residual * norm weight * scale as a split vector. */
GS_DEVICE void store_split(const struct residual *r, const struct norm_weights *w, uint32_t *to, int n,
                           float scale)
{
#pragma unroll
    for (int j = 0; j < GS_DECODE_MAX_PAIRS; j++) {
        int i = 2 * (gs_thread() + j * THREADS);
        if (i < n) {
            uint32_t terms[3];
            split_pair(r->pair[j].x * w->pair[j].x * scale, r->pair[j].y * w->pair[j].y * scale, terms);
#pragma unroll
            for (int k = 0; k < 3; k++)
                to[split_word(i, 0, k, 1)] = terms[k];
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
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        sum += sums[w];
    return sum;
}

#endif
