/*
 * The ways in which the decode kernels hand shared memory from thread to thread, each alone in a small
 * kernel, to know what compute-sanitizer's racecheck says of what is right, and whether it sees what is
 * wrong: docs/gpu-decode.md has its answers. Needs a device of compute capability 9.0; exit code 0: the sums
 * are right.
 *
 *   compute-sanitizer --tool racecheck racecheck_shapes SHAPE
 *       vector     C's: thread 0 alone initializes the barriers and, later, starts the copy; a barrier of the
 *                  block; every thread waits for the copy and reads it
 *       split      the same, with a barrier of the block between initialization and start too
 *       ring       a warp's: one elected lane initializes, fills, and fills again after all lanes have read
 *       pieces     F's: a thread a barrier, a barrier of the block, the copies started by whichever lane
 *       no-barrier control, a race: the vector without the barrier of the block
 *       no-wait    control, a race: one elected lane initializes and starts the copy in one branch; all lanes
 *                  read before they wait
 */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/gpu/decode_stream.cuh"

#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        cudaError_t status_ = (call);                                                                        \
        if (status_ != cudaSuccess) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status_));                 \
            exit(2);                                                                                         \
        }                                                                                                    \
    } while (0)

#define BYTES  2048 /* of a piece; a warp's ring has SLOTS of them */
#define SLOTS  3
#define PIECES WARPS
#define ROUNDS 7 /* pieces that a warp streams */
#define WORDS  (BYTES / 4)

struct shapes_shared {
    uint64_t bars[WARPS * SLOTS + PIECES];
    __align__(128) unsigned char data[WARPS * SLOTS * BYTES];
};

extern __shared__ __align__(128) unsigned char shared[];

/* A thread's part of the sum of a piece, all of whose words a warp reads. */
GS_DEVICE uint32_t sum_of_piece(uint32_t at)
{
    uint32_t sum = 0;
#pragma unroll 1
    for (uint32_t i = (uint32_t)lane_of_thread(); i < WORDS; i += 32)
        sum += load_shared_4(at + 4 * i);
    return sum;
}

GS_DEVICE void leave(uint32_t *out, uint32_t sum)
{
    atomicAdd(out, sum);
}

/* Each warp reads a piece of a vector of PIECES. */
template <bool SPLIT, bool BARRIER> GS_DEVICE void vector_shape(const uint8_t *from, uint32_t *out)
{
    struct shapes_shared *block = (struct shapes_shared *)shared;
    uint32_t bar = shared_address(block->bars), data = shared_address(block->data);
    if (gs_thread() == 0) {
        barrier_init(bar);
        barrier_init(bar + 8);
        barrier_init_fence();
    }
    if (SPLIT)
        gs_sync();
    if (gs_thread() == 0)
        copy_start(data, from, PIECES * BYTES, bar);
    if (BARRIER)
        gs_sync();
    barrier_wait(bar, 0);
    leave(out, sum_of_piece(data + (uint32_t)warp_of_thread() * BYTES));
}

__global__ void shape_vector(const uint8_t *from, uint32_t *out)
{
    vector_shape<false, true>(from, out);
}

__global__ void shape_split(const uint8_t *from, uint32_t *out)
{
    vector_shape<true, true>(from, out);
}

/* Thread 0's warp reads what it copied; the others may look at the barrier before it is one. */
__global__ void shape_no_barrier(const uint8_t *from, uint32_t *out)
{
    if (warp_of_thread() > 0) /* late enough that the barrier is there: the race does not hang */
        __nanosleep(100000);
    vector_shape<false, false>(from, out);
}

/* A warp's pieces one after another, by the functions of the kernels. */
__global__ void shape_ring(const uint8_t *from, uint32_t *out)
{
    struct shapes_shared *block = (struct shapes_shared *)shared;
    uint32_t warp = (uint32_t)warp_of_thread(), sum = 0;
    uint32_t ring = shared_address(block->data) + warp * SLOTS * BYTES,
             bars = shared_address(block->bars + warp * SLOTS);
    struct contiguous<BYTES> next = {
        from + warp *ROUNDS *BYTES
    };
    stream_prepare<SLOTS>(bars);
    stream_fill<BYTES>(ring, bars, 0, SLOTS, ROUNDS, policy_read_once(), next);
    stream_run<SLOTS, BYTES>(ring, bars, ROUNDS, policy_read_once(), next,
                             [&](uint32_t at) { sum += sum_of_piece(at); });
    leave(out, sum);
}

__global__ void shape_no_wait(const uint8_t *from, uint32_t *out)
{
    struct shapes_shared *block = (struct shapes_shared *)shared;
    uint32_t warp = (uint32_t)warp_of_thread();
    uint32_t at = shared_address(block->data) + warp * BYTES, bar = shared_address(block->bars + warp);
    if (elect_lane()) {
        barrier_init(bar);
        barrier_init_fence();
        copy_start(at, from + warp * BYTES, BYTES, bar);
    }
    __syncwarp();
    uint32_t sum = sum_of_piece(at); /* the race */
    barrier_wait(bar, 0);
    leave(out, sum - sum + sum_of_piece(at));
}

/* A barrier a piece, each initialized by a thread of its own; warp w starts the copy of piece w + 1. */
__global__ void shape_pieces(const uint8_t *from, uint32_t *out)
{
    struct shapes_shared *block = (struct shapes_shared *)shared;
    uint32_t bars = shared_address(block->bars), data = shared_address(block->data);
    if (gs_thread() < PIECES) {
        barrier_init(bars + 8 * (uint32_t)gs_thread());
        barrier_init_fence();
    }
    gs_sync();
    uint32_t piece = (uint32_t)(warp_of_thread() + 1) % PIECES;
    if (lane_of_thread() == 0)
        copy_start(data + piece * BYTES, from + piece * BYTES, BYTES, bars + 8 * piece);
    for (uint32_t i = 0; i < PIECES; i++) {
        uint32_t at = (piece + i) % PIECES;
        barrier_wait(bars + 8 * at, 0);
        if (at == (uint32_t)warp_of_thread())
            leave(out, sum_of_piece(data + at * BYTES));
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*kernel)(const uint8_t *, uint32_t *);
        uint32_t pieces;
    } shapes[] = {
        {"vector", shape_vector, PIECES},         {"split", shape_split, PIECES},
        {"ring", shape_ring, WARPS * ROUNDS},     {"pieces", shape_pieces, PIECES},
        {"no-barrier", shape_no_barrier, PIECES}, {"no-wait", shape_no_wait, PIECES},
    };
    for (const auto &shape : shapes) {
        if (argc != 2 || strcmp(argv[1], shape.name) != 0)
            continue;
        uint32_t n = shape.pieces * WORDS, expected = 0, *out, sum, *host = (uint32_t *)malloc(n * 4);
        uint8_t *from;
        for (uint32_t i = 0; i < n; i++)
            expected += host[i] = i * 2654435761u;
        CHECK(cudaMalloc(&from, n * 4));
        CHECK(cudaMalloc(&out, 4));
        CHECK(cudaMemset(out, 0, 4));
        CHECK(cudaMemcpy(from, host, n * 4, cudaMemcpyHostToDevice));
        CHECK(cudaFuncSetAttribute(shape.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   (int)sizeof(struct shapes_shared)));
        shape.kernel<<<1, THREADS, sizeof(struct shapes_shared)>>>(from, out);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(&sum, out, 4, cudaMemcpyDeviceToHost));
        printf("%s: %s\n", shape.name, sum == expected ? "right" : "WRONG");
        free(host);
        return sum != expected;
    }
    fprintf(stderr, "usage: racecheck_shapes vector|split|ring|pieces|no-barrier|no-wait\n");
    return 2;
}
