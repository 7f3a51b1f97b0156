/*
 * The persistent kernel's barrier of all blocks, and a warp's ring: the stream of weights that goes on over
 * barriers. A freed slot takes the next chunk of the stage, and after its last one the first of the stage
 * that follows, as long as it is known which these are.
 */
#ifndef GS_TESTS_GPU_PERSISTENT_RING_CUH
#define GS_TESTS_GPU_PERSISTENT_RING_CUH

#include "backend/gpu/decode_stream.cuh"

/* ---------------------------------------------------------------- barriers */

#define SPINS                                                                                                \
    (1u << 21) /* some seconds: longer than any wait, and the end of a wait for what never comes             \
                */

/* What the thread saw and wrote before is seen by whoever awaits the sum. */
GS_DEVICE void signal_one(uint32_t *counter)
{
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

/* One thread. False: the others have not come. */
GS_DEVICE bool await(const uint32_t *counter, uint32_t target)
{
#pragma unroll 1
    for (uint32_t i = 0; i < SPINS; i++) {
        uint32_t value;
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
        if ((int32_t)(value - target) >= 0)
            return true;
    }
    return false;
}

/* A hint: these bytes will be wanted. */
GS_DEVICE void want_in_l2(const void *from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

/* ---------------------------------------------------------------- the ring */

struct ring {
    uint32_t data, bars;
    int in, out, free; /* slots; in and free count in lane 0 alone */
    uint32_t phase;
    uint64_t policy;
};

/* The chunks of a stage that are not yet asked for. next() gives their addresses. */
template <class Next> struct cursor {
    Next next;
    int left;
};

/* No stage follows, or none that is known. */
struct nothing {
    __device__ __forceinline__ const uint8_t *operator()()
    {
        return nullptr;
    }
};

template <int SLOT> GS_DEVICE void issue(struct ring *r, int slots, const uint8_t *from, uint32_t bytes)
{
    copy_start_once(r->data + (uint32_t)r->in * SLOT, from, bytes, r->bars + 8 * (uint32_t)r->in, r->policy);
    r->in = r->in + 1 == slots ? 0 : r->in + 1;
    r->free--;
}

/* Free slots are filled with chunks of `mine`, then of `following`. */
template <int SLOT, int SLOTS, int BYTES, int NEXT_BYTES, class Mine, class Following>
GS_DEVICE void ring_fill(struct ring *r, cursor<Mine> &mine, cursor<Following> &following)
{
    if (lane_of_thread() == 0) {
#pragma unroll 1
        for (; r->free > 0 && mine.left > 0; mine.left--)
            issue<SLOT>(r, SLOTS, mine.next(), BYTES);
#pragma unroll 1
        for (; r->free > 0 && following.left > 0; following.left--)
            issue<SLOT>(r, SLOTS, following.next(), NEXT_BYTES);
    }
    __syncwarp();
}

template <int SLOTS> GS_DEVICE void ring_step(struct ring *r)
{
    r->out++;
    if (r->out == SLOTS) {
        r->out = 0;
        r->phase ^= 1;
    }
}

/* work(address) for the `count` chunks of a stage. */
template <int SLOT, int SLOTS, int BYTES, int NEXT_BYTES, class Mine, class Following, class Work>
GS_DEVICE void ring_run(struct ring *r, int count, cursor<Mine> &mine, cursor<Following> &following,
                        Work work)
{
#pragma unroll 1
    for (int i = 0; i < count; i++) {
        barrier_wait(r->bars + 8 * (uint32_t)r->out, r->phase);
        work(r->data + (uint32_t)r->out * SLOT);
        __syncwarp();
        if (lane_of_thread() == 0) {
            r->free++;
            if (mine.left > 0) {
                issue<SLOT>(r, SLOTS, mine.next(), BYTES);
                mine.left--;
            } else if (following.left > 0) {
                issue<SLOT>(r, SLOTS, following.next(), NEXT_BYTES);
                following.left--;
            }
        }
        ring_step<SLOTS>(r);
    }
}

/* Copies under way must end before the block does. */
template <int SLOTS> GS_DEVICE void ring_drain(struct ring *r)
{
    int left = __shfl_sync(0xffffffffu, SLOTS - r->free, 0);
    for (; left > 0; left--) {
        barrier_wait(r->bars + 8 * (uint32_t)r->out, r->phase);
        ring_step<SLOTS>(r);
    }
}

#endif
