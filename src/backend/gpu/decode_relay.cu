/* Decode: weights into the order of decode_common.cuh, once after loading. */
#include "backend/gpu/decode_stream.cuh"

/*
 * bfloat16 [rows][columns] -> [strip][block of 32 columns][step j][lane][8]: lane 4g+q has row g, then row
 * g+8, of columns 8q+4j, +1, then both of 8q+4j+2, +3. A thread writes 16 bytes. Grid: any.
 */
GS_KERNEL void GS_BOUNDS(256, 1) gs_decode_relay_dense(GS_ARGS(struct gs_decode_relay, args))
{
    int64_t n = (int64_t)args.rows * args.columns / 8, blocks = args.columns / 32;
    for (int64_t i = (int64_t)gs_block() * 256 + gs_thread(); i < n; i += (int64_t)gs_n_block() * 256) {
        int lane = (int)(i % 32), j = (int)(i / 32 % 2);
        int64_t block = i / 64 % blocks, strip = i / 64 / blocks;
        int64_t row = strip * GS_DECODE_STRIP + lane / 4, column = block * 32 + lane % 4 * 8 + 4 * j;
        const uint32_t *low = (const uint32_t *)((const uint16_t *)args.from + row * args.columns + column);
        const uint32_t *high = low + 8 * (int64_t)args.columns / 2;
        struct u32x4 v = {low[0], high[0], low[1], high[1]};
        ((struct u32x4 *)args.to)[i] = v;
    }
}

/* A code as sign and magnitude. -128 has no such form; quantising never makes it. */
GS_DEVICE uint32_t sign_magnitude(int8_t code)
{
    int value = code < -127 ? -127 : code;
    return value < 0 ? 0x80u | (uint32_t)-value : (uint32_t)value;
}

/*
 * int8 [rows][columns] and its scales -> [strip][chunk]: a chunk is 2 blocks of 32 columns. Codes
 * [block][lane][row g, row g+8][8], elements 8q ... 8q+7 in the order 0 2 1 3, 4 6 5 7; then the scales
 * [g][row g block 0, row g+8 block 0, row g block 1, row g+8 block 1]. A thread writes 4 bytes. Grid: any.
 */
GS_KERNEL void GS_BOUNDS(256, 1) gs_decode_relay_q8(GS_ARGS(struct gs_decode_relay, args))
{
    const int words = GS_DECODE_Q8_CHUNK / 4;
    int64_t chunks = args.columns / GS_DECODE_DENSE_COLUMNS, n = args.rows / GS_DECODE_STRIP * chunks * words;
    const int8_t *codes = (const int8_t *)args.from;
    const uint16_t *scales = (const uint16_t *)args.scales;
    for (int64_t i = (int64_t)gs_block() * 256 + gs_thread(); i < n; i += (int64_t)gs_n_block() * 256) {
        int word = (int)(i % words);
        int64_t chunk = i / words % chunks, row0 = i / words / chunks * GS_DECODE_STRIP;
        uint32_t out = 0;
        if (word < 256) {
            int lane = word / 4 % 32;
            int64_t row = row0 + lane / 4 + word / 2 % 2 * 8;
            int64_t column = chunk * GS_DECODE_DENSE_COLUMNS + word / 128 * 32 + lane % 4 * 8 + word % 2 * 4;
            const int8_t *four = codes + row * args.columns + column;
            out = sign_magnitude(four[0]) | sign_magnitude(four[2]) << 8 | sign_magnitude(four[1]) << 16 |
                  sign_magnitude(four[3]) << 24;
        } else {
            int g = (word - 256) / 2;
            int64_t at = (row0 + g) * args.columns / 32 + chunk * 2 + word % 2;
            out = scales[at] | (uint32_t)scales[at + 8 * (int64_t)args.columns / 32] << 16;
        }
        ((uint32_t *)args.to)[i] = out;
    }
}

/* Eight codes (element i in bits 4i ... 4i+3) to the order that decode_word reads. */
GS_DEVICE uint32_t interleave_codes(uint32_t codes)
{
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint32_t sign = codes >> (4 * i + 3) & 1, magnitude = codes >> (4 * i) & 7, half = 0;
        switch (i / 2) {
        case 0:
            half = sign << 15 | magnitude << 6;
            break;
        case 1:
            half = sign << 12 | magnitude << 3;
            break;
        case 2:
            half = sign << 9 | magnitude;
            break;
        default:
            half = sign << 11 | (magnitude & 3) << 13 | magnitude >> 2 << 10;
        }
        word |= half << (16 * (i % 2));
    }
    return word;
}

GS_DEVICE int64_t row_of_strip(const struct gs_decode_relay &args, int64_t strip, int row)
{
    return args.pairs ? 2 * (8 * strip + row % 8) + row / 8 : strip * GS_DECODE_STRIP + row;
}

/*
 * Planar MXFP4 -> [expert][strip][chunk]: a chunk is 3 times 64 columns. Codes [3][lane][row g block 0, row
 * g+8 block 0, row g block 1, row g+8 block 1], a word of 8 codes each, of columns 8q ... 8q+7 of the block;
 * then the scales [3][g] in the same order of four. A thread writes 4 bytes. Grid: any.
 */
GS_KERNEL void GS_BOUNDS(256, 1) gs_decode_relay_experts(GS_ARGS(struct gs_decode_relay, args))
{
    const int words = GS_DECODE_EXPERT_CHUNK / 4;
    int64_t chunks = args.columns / GS_DECODE_EXPERT_COLUMNS, strips = args.rows / GS_DECODE_STRIP;
    int64_t n = args.n_expert * strips * chunks * words;
    for (int64_t i = (int64_t)gs_block() * 256 + gs_thread(); i < n; i += (int64_t)gs_n_block() * 256) {
        int word = (int)(i % words);
        int64_t chunk = i / words % chunks, strip = i / words / chunks % strips;
        int64_t expert = i / words / chunks / strips;
        if (word < 3 * 128) {
            int lane = word / 4 % 32, which = word % 4;
            int64_t row = row_of_strip(args, strip, lane / 4 + which % 2 * 8);
            int64_t column =
                chunk * GS_DECODE_EXPERT_COLUMNS + word / 128 * 64 + which / 2 * 32 + lane % 4 * 8;
            int64_t at = ((expert * args.rows + row) * args.columns + column) / 8;
            ((uint32_t *)args.to)[i] = interleave_codes(((const uint32_t *)args.from)[at]);
        } else {
            uint32_t four = 0;
            int g = (word - 3 * 128) % 8, k = (word - 3 * 128) / 8;
            for (int which = 0; which < 4; which++) {
                int64_t row = row_of_strip(args, strip, g + which % 2 * 8);
                int64_t group = chunk * 6 + k * 2 + which / 2;
                four |= (uint32_t)((const uint8_t *)
                                       args.scales)[(expert * args.rows + row) * args.scale_stride + group]
                        << (8 * which);
            }
            ((uint32_t *)args.to)[i] = four;
        }
    }
}
