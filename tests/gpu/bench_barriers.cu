/*
 * What a barrier of all blocks costs, in several forms; what handing a vector over costs, by a barrier and by
 * data that is its own flag; and how fast a token's bytes stream through a persistent kernel without any
 * arithmetic, when barriers, hand-overs and the wait for the experts' choice come in one after another. Cold:
 * as many bytes as the 20b's token has. Medians of launches. A device of compute capability 9.0.
 */
#include <algorithm>
#include <vector>

#include "decode_fixture.cuh"
#include "persistent_ring.cuh"

#define REPEAT 7
#define ROUNDS 2000

__device__ static bool is_late; /* a wait had no end */

GS_DEVICE uint32_t look(const uint32_t *at)
{
    uint32_t value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

/* ---------------------------------------------------------------- barriers */

enum kind {
    COUNTER,     /* one thread adds with release and looks with acquire */
    FLAGS,       /* each block has a word, a warp looks at all */
    PAIRS,       /* clusters of two blocks, one of which counts */
    TREE,        /* a counter for twelve blocks, a warp looks at all counters */
    WARPS_COUNT, /* as COUNTER, by every warp for itself: no barrier of the block */
};

/* One thread: until every of the 32 lanes' words is there. */
template <class Done> GS_DEVICE void look_until(Done done)
{
    uint32_t i = 0;
    while (!__all_sync(0xffffffffu, done()) && ++i < SPINS)
        ;
    is_late = is_late || i == SPINS;
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

template <kind KIND> GS_DEVICE void all_blocks(uint32_t *words, uint32_t epoch)
{
    uint32_t n = gridDim.x, t = threadIdx.x;
    if (KIND == WARPS_COUNT) {
        __syncwarp();
        if (t % 32 == 0) {
            signal_one(words);
            is_late = !await(words, epoch * n * (blockDim.x / 32)) || is_late;
        }
        __syncwarp();
        return;
    }
    if (KIND == PAIRS)
        asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
    else
        __syncthreads();
    if (KIND == COUNTER && t == 0) {
        signal_one(words);
        is_late = !await(words, epoch * n) || is_late;
    }
    if (KIND == PAIRS && t == 0 && blockIdx.x % 2 == 0) {
        signal_one(words);
        is_late = !await(words, epoch * (n / 2)) || is_late;
    }
    if (KIND == FLAGS && t < 32) {
        if (t == 0)
            asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(words + blockIdx.x), "r"(epoch)
                         : "memory");
        look_until([&]() {
            bool all = true;
            for (uint32_t b = t; b < n; b += 32)
                all = all && (int32_t)(look(words + b) - epoch) >= 0;
            return all;
        });
    }
    if (KIND == TREE && t < 32) {
        if (t == 0)
            signal_one(words + 32 * (blockIdx.x / 12));
        look_until([&]() {
            uint32_t size = 12 * t < n ? min(12u, n - 12 * t) : 0;
            return size == 0 || (int32_t)(look(words + 32 * t) - epoch * size) >= 0;
        });
    }
    if (KIND == PAIRS)
        asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
    else
        __syncthreads();
}

template <kind KIND> __global__ static void __launch_bounds__(THREADS, 1) meet(uint32_t *words)
{
    for (uint32_t i = 0; i < ROUNDS; i++)
        all_blocks<KIND>(words, i + 1);
}

/* ---------------------------------------------------------------- hand-over */

#define N_VALUE 2880

/* Every block writes its share of a vector and reads all of it, and so on: by a barrier. */
__global__ static void __launch_bounds__(THREADS, 1) hand_by_barrier(uint32_t *words, float *data)
{
    __shared__ float all[N_VALUE];
    int first, n, t = (int)threadIdx.x;
    float value = (float)t;
    share_of(N_VALUE, (int)blockIdx.x, (int)gridDim.x, &first, &n);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        float *to = data + i % 2 * 65536;
        if (t < n)
            to[first + t] = value;
        all_blocks<COUNTER>(words, i + 1);
        for (int j = t; j < N_VALUE; j += THREADS)
            all[j] = load_fresh(to + j);
        __syncthreads();
        value = all[t * 7 % N_VALUE] * 0.5f;
    }
}

/* The same without a barrier: a value comes with the number of its round, and readers look until it has. */
__global__ static void __launch_bounds__(THREADS, 1) hand_by_data(uint2 *data)
{
    __shared__ float all[N_VALUE];
    int first, n, t = (int)threadIdx.x;
    float value = (float)t;
    share_of(N_VALUE, (int)blockIdx.x, (int)gridDim.x, &first, &n);
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        uint2 *to = data + i % 2 * 32768;
        if (t < n)
            asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1,%2};" ::"l"(to + first + t),
                         "r"(__float_as_uint(value)), "r"(i)
                         : "memory");
        for (int j = t; j < N_VALUE; j += THREADS) {
            uint2 v;
            uint32_t spins = 0;
            do
                asm volatile("ld.relaxed.gpu.global.v2.u32 {%0,%1}, [%2];"
                             : "=r"(v.x), "=r"(v.y)
                             : "l"(to + j)
                             : "memory");
            while (v.y != i && ++spins < SPINS);
            is_late = is_late || spins == SPINS;
            all[j] = __uint_as_float(v.x);
        }
        __syncthreads();
        value = all[t * 7 % N_VALUE] * 0.5f;
        __syncthreads();
    }
}

/* ---------------------------------------------------------------- a token's bytes */

#define SLOT    2048
#define N_SLOT  6
#define N_STAGE 4 /* of a layer that stream weights: A, C, E, F */

struct stream_plan {
    const uint8_t *weights;
    int64_t layer_bytes, offset[N_STAGE + 1];                          /* the last: of the head, in all */
    int n_chunk[N_STAGE + 1], bytes[N_STAGE + 1], handed[N_STAGE + 1]; /* floats read when a stage begins */
    int n_layer, n_token;
    int barriers, hands, chooses; /* what comes in */
    uint32_t *words;
    float *data;
};

struct stage_chunks {
    const uint8_t *at;
    int bytes;
    __device__ __forceinline__ const uint8_t *operator()()
    {
        const uint8_t *chunk = at;
        at += bytes;
        return chunk;
    }
};

GS_DEVICE cursor<stage_chunks> chunks_of(const struct stream_plan &p, int i)
{
    int per = N_STAGE * p.n_layer + 1, k = i % per, stage = k == per - 1 ? N_STAGE : k % N_STAGE, first, n;
    share_of(p.n_chunk[stage], gs_block() * WARPS + warp_of_thread(), gs_n_block() * WARPS, &first, &n);
    int64_t at = p.offset[stage] + (stage == N_STAGE ? 0 : k / N_STAGE * p.layer_bytes);
    return {{p.weights + at + (int64_t)first * p.bytes[stage], p.bytes[stage]}, n};
}

/* ring_fill, of chunks of any size. */
GS_DEVICE void fill(struct ring *r, cursor<stage_chunks> &own, cursor<stage_chunks> &following)
{
    if (lane_of_thread() == 0) {
        for (; r->free > 0 && own.left > 0; own.left--)
            issue<SLOT>(r, N_SLOT, own.next(), (uint32_t)own.next.bytes);
        for (; r->free > 0 && following.left > 0; following.left--)
            issue<SLOT>(r, N_SLOT, following.next(), (uint32_t)following.next.bytes);
    }
    __syncwarp();
}

/* A stage's chunks go through the ring, and then the next one's, if it may be known which these are. */
__global__ static void __launch_bounds__(THREADS, 1)
    stream_token(const __grid_constant__ struct stream_plan p)
{
    extern __shared__ __align__(128) unsigned char rings[];
    __shared__ uint64_t bars[WARPS * N_SLOT];
    struct ring r = {shared_address(rings) + (uint32_t)(warp_of_thread() * N_SLOT * SLOT),
                     shared_address(bars + warp_of_thread() * N_SLOT),
                     0,
                     0,
                     N_SLOT,
                     0,
                     policy_read_once()};
    int per = N_STAGE * p.n_layer + 1, total = per * p.n_token;
    uint32_t sum = 0;
    stream_prepare<N_SLOT>(r.bars);
    cursor<stage_chunks> own = chunks_of(p, 0);
    for (int i = 0; i < total; i++) {
        int k = i % per, stage = k == per - 1 ? N_STAGE : k % N_STAGE, first, count;
        bool knows = i + 1 < total && !(p.chooses && stage == 1); /* E follows C, and depends on it */
        cursor<stage_chunks> following = chunks_of(p, i + 1);
        if (!knows)
            following.left = 0;
        share_of(p.n_chunk[stage], gs_block() * WARPS + warp_of_thread(), gs_n_block() * WARPS, &first,
                 &count);
        if (p.barriers && i > 0)
            all_blocks<COUNTER>(p.words, (uint32_t)i);
        for (int j = gs_thread(); p.hands && j < p.handed[stage]; j += THREADS)
            sum += __float_as_uint(load_fresh(p.data + j));
        __syncthreads();
        fill(&r, own, following);
        for (int c = 0; c < count; c++) {
            barrier_wait(r.bars + 8 * (uint32_t)r.out, r.phase);
            for (int at = lane_of_thread() * 16; at < p.bytes[stage]; at += 512)
                sum ^= load_shared_16(r.data + (uint32_t)(r.out * SLOT + at)).x;
            __syncwarp();
            r.free += lane_of_thread() == 0;
            fill(&r, own, following);
            ring_step<N_SLOT>(&r);
        }
        if (gs_thread() < 24)
            p.data[gs_block() * 32 + gs_thread()] = 1.0f;
        own = knows || i + 1 == total ? following : chunks_of(p, i + 1);
    }
    if (sum == 0x12345678u)
        p.words[0] = sum;
}

/* ---------------------------------------------------------------- timing */

static uint32_t *words;
static float *data;
static int n_sm;

static double time_kernel(const void *kernel, void **parameters, size_t bytes, unsigned cluster)
{
    std::vector<double> times;
    cudaEvent_t begin, end;
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attributes[2] = {};
    config.gridDim = dim3((unsigned)n_sm), config.blockDim = dim3(THREADS), config.dynamicSmemBytes = bytes;
    config.attrs = attributes, config.numAttrs = 2;
    attributes[0].id = cudaLaunchAttributeCooperative, attributes[0].val.cooperative = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = cluster;
    attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    for (int i = 0; i < REPEAT; i++) {
        float ms;
        CHECK(cudaMemset(words, 0, 1 << 16));
        CHECK(cudaMemset(data, 0, 1 << 20));
        CHECK(cudaEventRecord(begin));
        CHECK(cudaLaunchKernelExC(&config, kernel, parameters));
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        times.push_back(1000.0 * ms);
    }
    bool late;
    CHECK(cudaMemcpyFromSymbol(&late, is_late, sizeof late));
    if (late) {
        fprintf(stderr, "a block waited too long for the others\n");
        exit(1);
    }
    std::sort(times.begin(), times.end());
    return times[REPEAT / 2];
}

static void report_round(const char *what, const void *kernel, void **parameters, unsigned cluster)
{
    printf("%-52s %7.3f us\n", what, time_kernel(kernel, parameters, 120 * 1024, cluster) / ROUNDS);
}

static void report_stream(const char *name, int dense)
{
    const char *const what[] = {"no barrier", "barriers", "and hand-overs", "and the choice"};
    const int n_chunk[] = {320 * 45, 180 * 64, 4 * 360 * 15, 4 * 180 * 15, 12568 * 45};
    const int handed[] = {5760, 12288, 5760 + 132 * 32, 17280, 5760};
    struct stream_plan p = {};
    int64_t next = 0;
    p.n_layer = 24, p.n_token = 8, p.words = words, p.data = data;
    for (int i = 0; i <= N_STAGE; i++) {
        bool is_expert = i == 2 || i == 3;
        p.n_chunk[i] = n_chunk[i], p.handed[i] = handed[i];
        p.bytes[i] = is_expert ? GS_DECODE_EXPERT_CHUNK : dense;
        p.offset[i] = i == N_STAGE ? p.n_layer * next : next;
        p.layer_bytes = i < N_STAGE ? next + (int64_t)n_chunk[i] * p.bytes[i] : next;
        next = p.layer_bytes;
    }
    double token = (double)p.offset[N_STAGE] + (double)n_chunk[N_STAGE] * dense;
    p.weights = (const uint8_t *)device_bytes((size_t)token);
    for (int i = 0; i < 4; i++) {
        void *parameters[] = {&p};
        p.barriers = i > 0, p.hands = i > 1, p.chooses = i > 2;
        double us = time_kernel((const void *)stream_token, parameters, WARPS * N_SLOT * SLOT, 1) / p.n_token;
        printf("%s, %-44s %8.1f us  %7.1f tokens/s  %5.0f GB/s\n", name, what[i], us, 1e6 / us,
               token / us * 1e-3);
    }
    CHECK(cudaFree((void *)p.weights));
}

int main(void)
{
    n_sm = machine_here().n_sm;
    words = (uint32_t *)device_bytes(1 << 16);
    data = (float *)device_bytes(1 << 20);
    void *one[] = {&words}, *two[] = {&words, &data}, *tagged[] = {&data};
    report_round("barrier: a counter", (const void *)meet<COUNTER>, one, 1);
    report_round("barrier: a flag for each block", (const void *)meet<FLAGS>, one, 1);
    report_round("barrier: clusters of two, a counter", (const void *)meet<PAIRS>, one, 2);
    report_round("barrier: a counter for twelve blocks", (const void *)meet<TREE>, one, 1);
    report_round("barrier: a counter, each warp for itself", (const void *)meet<WARPS_COUNT>, one, 1);
    report_round("2,880 floats: barrier, then loads", (const void *)hand_by_barrier, two, 1);
    report_round("2,880 floats: each with its round's number", (const void *)hand_by_data, tagged, 1);
    report_stream("native", GS_DECODE_DENSE_CHUNK);
    report_stream("q8", GS_DECODE_Q8_CHUNK);
    return 0;
}
