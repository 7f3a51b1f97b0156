/* The two forms of dense weights as operand A of mma.m16n8k16, from a chunk in shared memory. */
#ifndef GS_BACKEND_GPU_BATCH_FORMS_CUH
#define GS_BACKEND_GPU_BATCH_FORMS_CUH

#include "backend/gpu/batch.cuh"

/* A chunk of bfloat16 in shared memory: operand A of a block of 32 columns, two k16 steps. */
struct form_bf16 {
    static const int CHUNK = GS_DECODE_DENSE_CHUNK;
    uint32_t a0[4], a1[4];
    __device__ __forceinline__ void load(uint32_t chunk, int block)
    {
        uint32_t at = chunk + (uint32_t)(block * 1024 + lane_of_thread() * 16);
        struct u32x4 w0 = load_shared_16(at), w1 = load_shared_16(at + 512);
        a0[0] = w0.x, a0[1] = w0.y, a0[2] = w0.z, a0[3] = w0.w;
        a1[0] = w1.x, a1[1] = w1.y, a1[2] = w1.z, a1[3] = w1.w;
    }
    __device__ __forceinline__ void multiply(float sum[4], struct u32x4 b) const
    {
        mma_bf16(sum, a0, b.x, b.y);
        mma_bf16(sum, a1, b.z, b.w);
    }
};

/* The same in 8 bits: sign and magnitude, and a scale for each row. */
struct form_q8 {
    static const int CHUNK = GS_DECODE_Q8_CHUNK;
    uint32_t a0[4], a1[4];
    float s0, s1;
    __device__ __forceinline__ void load(uint32_t chunk, int block)
    {
        struct u32x4 w = load_shared_16(chunk + (uint32_t)(block * 512 + lane_of_thread() * 16));
        uint32_t scale = load_shared_4(chunk + (uint32_t)(1024 + lane_of_thread() / 4 * 8 + block * 4));
        decode_bytes(w.x, &a0[0], &a0[2]);
        decode_bytes(w.z, &a0[1], &a0[3]);
        decode_bytes(w.y, &a1[0], &a1[2]);
        decode_bytes(w.w, &a1[1], &a1[3]);
        s0 = gs_float_of_f16((uint16_t)scale), s1 = gs_float_of_f16((uint16_t)(scale >> 16));
    }
    __device__ __forceinline__ void multiply(float sum[4], struct u32x4 b) const
    {
        float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        mma_bf16(c, a0, b.x, b.y);
        mma_bf16(c, a1, b.z, b.w);
        sum[0] += s0 * c[0];
        sum[1] += s0 * c[1];
        sum[2] += s1 * c[2];
        sum[3] += s1 * c[3];
    }
};

#endif
