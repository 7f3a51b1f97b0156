/*
 * The GPU backend's host code without a GPU: a driver that keeps device memory in host memory, runs no
 * kernel, and fails at one of its calls. Whichever that is: one line, nothing left behind, no timeline
 * changed.
 */
#include "backend/gpu/backend.h"
#include "backend/gpu/device.h"
#include "backend/gpu/simple.h"
#include "base/status.h"
#include "tests/support/check.h"
#include "tests/support/loaded.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAPACITY 100
#define N_VOCAB  128
#define MAX_READ 64

/* ---------------------------------------------------------------- a driver */

struct gs_gpu {
    char unused;
};

struct gs_gpu_stream {
    bool recording, converts;
};

struct gs_gpu_graph {
    char unused;
};

/* One test at a time: the calls that were made, the one that fails, and what is held. */
static struct {
    atomic_size_t calls, held;
    size_t fail_at;      /* 0: never */
    uint64_t free_bytes; /* of the device's memory */
    uint64_t allocated;  /* since free_bytes was asked for */
    size_t n_allocated;  /* likewise */
    /* What conversions that were launched, and not waited for yet, read; did a copy write over it? */
    const void *read[MAX_READ];
    size_t n_read;
    atomic_bool overwrites;
} driver;

static gs_status call(struct gs_error *error, const char *name)
{
    if (atomic_fetch_add(&driver.calls, 1) + 1 == driver.fail_at)
        return gs_fail(error, GS_IO, "made to fail: %s", name);
    return GS_OK;
}

/* Memory or a handle, counted until it is given back. */
static gs_status hold(size_t bytes, void **out, const char *name, struct gs_error *error)
{
    gs_status status = call(error, name);
    *out = status == GS_OK ? malloc(bytes > 0 ? bytes : 1) : NULL;
    if (*out)
        atomic_fetch_add(&driver.held, 1);
    return status;
}

static void drop(void *held)
{
    if (held)
        atomic_fetch_sub(&driver.held, 1);
    free(held);
}

static gs_status fake_open(int index, struct gs_gpu **out, struct gs_gpu_machine *machine,
                           struct gs_error *error)
{
    void *memory;
    gs_status status = hold(sizeof **out, &memory, "open", error);
    (void)index;
    *machine = (struct gs_gpu_machine){
        .n_sm = 132, .shared_bytes = 227 * 1024, .capability = 90, .l2_bytes = 50 << 20};
    *out = memory;
    return status;
}

static void fake_close(struct gs_gpu *gpu)
{
    drop(gpu);
}

static gs_status fake_memory(struct gs_gpu *gpu, uint64_t *free_bytes, uint64_t *total_bytes,
                             struct gs_error *error)
{
    (void)gpu;
    *free_bytes = *total_bytes = driver.free_bytes;
    driver.allocated = 0;
    driver.n_allocated = 0;
    return call(error, "memory");
}

static gs_status fake_alloc(struct gs_gpu *gpu, uint64_t bytes, const char *what, void **out,
                            struct gs_error *error)
{
    (void)gpu;
    driver.allocated += bytes;
    driver.n_allocated++;
    return hold((size_t)bytes, out, what, error);
}

static void fake_release(struct gs_gpu *gpu, void *memory)
{
    (void)gpu;
    /* The first tensor of a raw area lies at its start. */
    for (size_t i = 0; i < driver.n_read; i++)
        assert_ptr_not_equal(driver.read[i], memory);
    drop(memory);
}

static gs_status fake_host_alloc(struct gs_gpu *gpu, uint64_t bytes, void **out, struct gs_error *error)
{
    (void)gpu;
    return hold((size_t)bytes, out, "host_alloc", error);
}

static gs_status fake_stream_open(struct gs_gpu *gpu, struct gs_gpu_stream **out, struct gs_error *error)
{
    void *memory;
    (void)gpu;
    gs_status status = hold(sizeof **out, &memory, "stream_open", error);
    *out = memory;
    if (*out)
        **out = (struct gs_gpu_stream){0};
    return status;
}

static void fake_stream_close(struct gs_gpu *gpu, struct gs_gpu_stream *stream)
{
    (void)gpu;
    assert_true(!stream || !stream->recording);
    drop(stream);
}

static gs_status fake_copy_in(struct gs_gpu *gpu, struct gs_gpu_stream *stream, void *device,
                              const void *host, uint64_t bytes, struct gs_error *error)
{
    gs_status status = call(error, "copy_in");
    (void)gpu;
    (void)stream;
    if (status == GS_OK)
        memcpy(device, host, (size_t)bytes);
    for (size_t i = 0; i < driver.n_read; i++)
        if ((uintptr_t)driver.read[i] - (uintptr_t)device < bytes)
            atomic_store(&driver.overwrites, true);
    return status;
}

/* No kernel wrote what is read here: zeros stand for it. */
static gs_status fake_copy_out(struct gs_gpu *gpu, struct gs_gpu_stream *stream, void *host,
                               const void *device, uint64_t bytes, struct gs_error *error)
{
    (void)gpu;
    (void)stream;
    (void)device;
    memset(host, 0, (size_t)bytes);
    return call(error, "copy_out");
}

static gs_status fake_zero(struct gs_gpu *gpu, struct gs_gpu_stream *stream, void *device, uint64_t bytes,
                           struct gs_error *error)
{
    (void)gpu;
    (void)stream;
    (void)device;
    (void)bytes;
    return call(error, "zero");
}

static gs_status fake_sync(struct gs_gpu *gpu, struct gs_gpu_stream *stream, struct gs_error *error)
{
    (void)gpu;
    if (stream && stream->converts)
        driver.n_read = 0;
    return call(error, "sync");
}

static gs_status fake_launch(struct gs_gpu *gpu, struct gs_gpu_stream *stream,
                             const struct gs_gpu_launch *launch, const void *args, bool overlap,
                             struct gs_error *error)
{
    const struct gs_convert *conversion = args;
    (void)gpu;
    (void)overlap;
    if (strncmp(launch->kernel, "gs_convert_", 11) == 0 && strcmp(launch->kernel, "gs_convert_rope") != 0 &&
        strcmp(launch->kernel, "gs_convert_bf16") != 0) {
        assert_true(driver.n_read < MAX_READ);
        driver.read[driver.n_read++] = conversion->from;
        stream->converts = true;
    }
    assert_true(launch->grid[0] > 0 && launch->grid[1] > 0 && launch->grid[2] > 0 && launch->block > 0);
    assert_true(launch->block <= 1024 && launch->shared_bytes <= 227 * 1024);
    return call(error, launch->kernel);
}

static gs_status fake_capture_begin(struct gs_gpu *gpu, struct gs_gpu_stream *stream, struct gs_error *error)
{
    gs_status status = call(error, "capture_begin");
    (void)gpu;
    stream->recording = status == GS_OK;
    return status;
}

static gs_status fake_capture_end(struct gs_gpu *gpu, struct gs_gpu_stream *stream, struct gs_gpu_graph **out,
                                  struct gs_error *error)
{
    void *memory;
    (void)gpu;
    gs_status status = hold(sizeof **out, &memory, "capture_end", error);
    stream->recording = false;
    *out = memory;
    return status;
}

static gs_status fake_graph_launch(struct gs_gpu *gpu, struct gs_gpu_stream *stream,
                                   const struct gs_gpu_graph *graph, struct gs_error *error)
{
    (void)gpu;
    assert_non_null(graph);
    assert_false(stream->recording);
    return call(error, "graph_launch");
}

static void fake_graph_free(struct gs_gpu *gpu, struct gs_gpu_graph *graph)
{
    (void)gpu;
    drop(graph);
}

static const struct gs_gpu_api fake = {
    .name = "fake",
    .open = fake_open,
    .close = fake_close,
    .memory = fake_memory,
    .alloc = fake_alloc,
    .release = fake_release,
    .host_alloc = fake_host_alloc,
    .host_release = fake_release,
    .stream_open = fake_stream_open,
    .stream_close = fake_stream_close,
    .copy_in = fake_copy_in,
    .copy_out = fake_copy_out,
    .copy = NULL, /* not used by the host's code */
    .zero = fake_zero,
    .sync = fake_sync,
    .launch = fake_launch,
    .capture_begin = fake_capture_begin,
    .capture_end = fake_capture_end,
    .graph_launch = fake_graph_launch,
    .graph_free = fake_graph_free,
};

#if defined(__SANITIZE_ADDRESS__) /* which take a minute for every call: all are failed without them */
#define STRIDE 4
#else
#define STRIDE 1
#endif

static void reset(size_t fail_at, uint64_t free_bytes)
{
    atomic_store(&driver.calls, 0);
    atomic_store(&driver.held, 0);
    driver.fail_at = fail_at;
    driver.free_bytes = free_bytes;
    driver.n_read = 0;
}

/* ---------------------------------------------------------------- scenarios */

/* A shape that the fast kernels take. */
static struct loaded open_model(void)
{
    struct tiny_options options = tiny_options_default();
    options.n_vocab = N_VOCAB;
    options.d_model = 384;
    options.d_head = 64;
    options.n_head = 16;
    options.n_kv_head = 2;
    options.n_expert = 8;
    options.n_active = 4;
    options.d_ff = 192;
    options.window = 16;
    struct tiny_model *model = tiny_model_make(&options);
    struct loaded loaded = loaded_open(model, 1);
    tiny_model_free(model);
    return loaded;
}

static gs_status open_fake(const struct loaded *model, const struct gs_device_options *options,
                           struct gs_device **out, struct gs_error *error)
{
    gs_status status = gs_gpu_open(&fake, options, out, error);
    if (status == GS_OK)
        status = gs_gpu_load(*out, model->weights, NULL, NULL, error);
    /* A layer is converted while the next one is read: not into what is still to be converted. */
    assert_false(atomic_load(&driver.overwrites));
    return status;
}

static gs_status step(struct gs_device *device, struct gs_kv *kv, size_t n, enum gs_want want,
                      struct gs_error *error)
{
    static const int32_t tokens[CAPACITY] = {1, 2, 3};
    struct gs_step one = {kv, tokens, n, want, NULL};
    int64_t before = gs_gpu_kv_length(kv);
    gs_status status = gs_gpu_forward(device, &one, 1, NULL, error);
    assert_int_equal(gs_gpu_kv_length(kv), before + (status == GS_OK ? (int64_t)n : 0));
    return status;
}

static gs_status move_caches(struct gs_kv *kv, struct gs_kv *other, struct gs_error *error)
{
    struct gs_buffer bytes = {0};
    gs_status status = gs_gpu_kv_copy(other, kv, error);
    assert_int_equal(gs_gpu_kv_length(other), status == GS_OK ? gs_gpu_kv_length(kv) : 0);
    if (status == GS_OK)
        status = gs_gpu_kv_export(kv, &bytes, error);
    if (status == GS_OK) {
        status = gs_gpu_kv_import(other, bytes.data, bytes.size, error);
        assert_int_equal(gs_gpu_kv_length(other), status == GS_OK ? gs_gpu_kv_length(kv) : 0);
    }
    if (status == GS_OK) {
        int64_t length = gs_gpu_kv_length(other);
        assert_fails(gs_gpu_kv_import(other, bytes.data, bytes.size - 1, error), GS_MALFORMED, "exported",
                     error);
        assert_int_equal(gs_gpu_kv_length(other), length);
    }
    gs_buffer_free(&bytes);
    return status;
}

/* Everything once, until something fails. */
static gs_status run_all(const struct loaded *model, const struct gs_device_options *options,
                         struct gs_error *error)
{
    struct gs_device *device = NULL;
    struct gs_kv *kv = NULL, *other = NULL;
    static const struct gs_draw draws[2] = {{0.3, 1.0f}, {0.6, 1.0f}};
    int32_t chosen[4];
    gs_status status = open_fake(model, options, &device, error);
    if (status == GS_OK)
        status = gs_gpu_kv_create(device, CAPACITY, &kv, error);
    if (status == GS_OK)
        status = gs_gpu_kv_create(device, CAPACITY - 10, &other, error);
    if (status == GS_OK)
        status = step(device, kv, 70, GS_WANT_ALL, error);
    if (status == GS_OK)
        status = step(device, kv, 1, GS_WANT_LAST, error);
    if (status == GS_OK)
        status = step(device, kv, 3, GS_WANT_NONE, error);
    if (status == GS_OK)
        status = step(device, other, 5, GS_WANT_NONE, error);
    if (status == GS_OK)
        status = move_caches(kv, other, error);
    if (status == GS_OK)
        status = gs_gpu_chain(device, kv, 5, NULL, chosen, 4, error);
    if (status == GS_OK)
        status = gs_gpu_chain(device, kv, 5, draws, chosen, 2, error);
    if (status == GS_OK)
        status = step(device, kv, 1, GS_WANT_TOKEN, error);
    if (status == GS_OK)
        assert_int_equal(gs_gpu_kv_truncate(kv, 60), 60);
    gs_gpu_kv_free(kv);
    gs_gpu_kv_free(other);
    gs_gpu_close(device);
    return status;
}

static const struct gs_device_options kinds[] = {
    {.precision = GS_PRECISION_EXACT},
    {.precision = GS_PRECISION_FAST},
    {.precision = GS_PRECISION_FAST, .weights = GS_WEIGHTS_Q8},
};

static void any_call_may_fail(void **state)
{
    (void)state;
    struct loaded model = open_model();
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        size_t fail_at = 1, n_calls;
        do {
            struct gs_error error = {.message = ""};
            reset(fail_at, UINT64_MAX);
            gs_status status = run_all(&model, &kinds[kind], &error);
            n_calls = atomic_load(&driver.calls);
            assert_int_equal(atomic_load(&driver.held), 0);
            if (status != GS_OK) {
                assert_int_equal(status, GS_IO);
                assert_non_null(strstr(error.message, "made to fail"));
            }
            /* That kind has every path of the others. */
            fail_at += (kinds[kind].weights == GS_WEIGHTS_Q8 ? 1u : 3u) * STRIDE;
        } while (fail_at <= n_calls + 3 * STRIDE);
        print_message("kind %zu: %zu calls\n", kind, n_calls);
        assert_true(n_calls > 100);
    }
    loaded_close(&model);
}

/* What load takes is known before it takes the first of it: copies for the fast kernels included. */
static void memory_is_foreseen(void **state)
{
    (void)state;
    struct loaded model = open_model();
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        struct gs_device *device = NULL;
        struct gs_error error;
        reset(0, UINT64_MAX);
        assert_ok(open_fake(&model, &kinds[kind], &device, &error), &error);
        uint64_t taken = driver.allocated;
        gs_gpu_close(device);
        device = NULL;
        reset(0, taken - 4096); /* the table of frequencies is not counted */
        assert_fails(open_fake(&model, &kinds[kind], &device, &error), GS_OUT_OF_MEMORY, "the weights need",
                     &error);
        assert_int_equal(driver.n_allocated, 0);
        gs_gpu_close(device);
        device = NULL;
        reset(0, taken);
        assert_ok(open_fake(&model, &kinds[kind], &device, &error), &error);
        gs_gpu_close(device);
        assert_int_equal(atomic_load(&driver.held), 0);
    }
    loaded_close(&model);
}

/* What bench prints of a token: a graph that is captured counts when it is launched, not when it is made. */
static void launches_are_counted(void **state)
{
    (void)state;
    struct loaded model = open_model();
    struct gs_device *device = NULL;
    struct gs_kv *kv = NULL;
    struct gs_error error;
    struct gs_backend_stats stats[4];
    reset(0, UINT64_MAX);
    assert_ok(open_fake(&model, &kinds[1], &device, &error), &error);
    assert_ok(gs_gpu_kv_create(device, CAPACITY, &kv, &error), &error);
    for (int i = 0; i < 4; i++) {
        gs_gpu_stats(device, &stats[i]);
        assert_ok(step(device, kv, 1, GS_WANT_LAST, &error), &error);
    }
    uint64_t first = stats[1].n_dispatches - stats[0].n_dispatches;
    assert_true(first > 10);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(stats[i].n_command_buffers - stats[i - 1].n_command_buffers, 1);
        assert_int_equal(stats[i].n_dispatches - stats[i - 1].n_dispatches, first);
    }
    gs_gpu_kv_free(kv);
    gs_gpu_close(device);
    loaded_close(&model);
}

static void refusals_change_nothing(void **state)
{
    (void)state;
    struct loaded model = open_model();
    struct gs_device *device = NULL;
    struct gs_kv *kv = NULL;
    struct gs_error error;
    int32_t chosen[CAPACITY], bad = N_VOCAB;
    _Atomic bool cancelled = true;
    reset(0, UINT64_MAX);
    assert_ok(open_fake(&model, &kinds[1], &device, &error), &error);
    assert_fails(gs_gpu_load(device, model.weights, NULL, NULL, &error), GS_INVALID_ARGUMENT, "already",
                 &error);
    assert_ok(gs_gpu_kv_create(device, CAPACITY, &kv, &error), &error);
    assert_ok(step(device, kv, 90, GS_WANT_LAST, &error), &error);
    assert_ok(gs_gpu_forward(device, NULL, 0, NULL, &error), &error);
    struct gs_step over = {kv, chosen, 11, GS_WANT_LAST, NULL}, wrong = {kv, &bad, 1, GS_WANT_LAST, NULL};
    assert_fails(gs_gpu_forward(device, &over, 1, NULL, &error), GS_CONTEXT_FULL, "10 of 100", &error);
    assert_fails(gs_gpu_forward(device, &wrong, 1, NULL, &error), GS_INVALID_ARGUMENT, "token id 128",
                 &error);
    assert_fails(gs_gpu_chain(device, kv, bad, NULL, chosen, 2, &error), GS_INVALID_ARGUMENT, "token id 128",
                 &error);
    assert_fails(gs_gpu_chain(device, kv, 1, NULL, chosen, 11, &error), GS_INVALID_ARGUMENT, "must be 1 to",
                 &error);
    bad = 0;
    assert_int_equal(gs_gpu_forward(device, &wrong, 1, &cancelled, &error), GS_CANCELLED);
    assert_int_equal(gs_gpu_kv_length(kv), 90);
    gs_gpu_kv_free(kv);
    gs_gpu_close(device);
    assert_int_equal(atomic_load(&driver.held), 0);
    loaded_close(&model);
}

/* Hundreds of devices are opened in turn: each takes what the one before gave back, without a detour to the
 * system. */
static void keep_memory(void)
{
#ifdef M_TRIM_THRESHOLD
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
#endif
}

int main(void)
{
    keep_memory();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_call_may_fail),
        cmocka_unit_test(memory_is_foreseen),
        cmocka_unit_test(launches_are_counted),
        cmocka_unit_test(refusals_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
