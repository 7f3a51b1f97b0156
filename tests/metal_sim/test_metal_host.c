/*
 * The Metal backend's host code on the stand-in: what it says to Metal, in which order, how much for a token,
 * and what it does when Metal says no, at whichever call. Most of it encodes only, and no kernel runs.
 */
#include "backend/metal/backend.h"
#include "backend/metal/device.h"
#include "engine/engine.h"
#include "tests/metal_sim/around.h"
#include "tests/support/loaded.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define N_VOCAB  128
#define CAPACITY 300

static const struct gs_backend *const metal = &gs_backend_metal;
static const struct gs_device_options exact = {.precision = GS_PRECISION_EXACT, .n_threads = 1};
static const struct gs_device_options fast = {.precision = GS_PRECISION_FAST, .n_threads = 1};

/* ---------------------------------------------------------------- devices */

static void no_device_is_told_in_one_line(void **state)
{
    (void)state;
    need_stand_in(true);
    char description[200];
    struct gs_device *device = NULL;
    struct gs_error error;
    assert_true(metal->probe(description, sizeof description));
    assert_non_null(strstr(description, "GiB"));
    metalsim_controls()->no_device = true;
    assert_false(metal->probe(description, sizeof description));
    assert_non_null(strstr(description, "no device"));
    assert_fails(metal->open(&exact, &device, &error), GS_UNSUPPORTED, "no device", &error);
    *metalsim_controls() = (struct metalsim_controls){.old_device = true};
    assert_fails(metal->open(&exact, &device, &error), GS_UNSUPPORTED, "must be Apple silicon", &error);
    assert_null(device);
    assert_nothing_left();
}

static void refusals_name_what_would_be_right(void **state)
{
    (void)state;
    need_stand_in(true);
    struct gs_device *device = NULL;
    struct gs_error error;
    struct gs_device_options second = {.index = 1}, three = {.levers = {.simdgroups = 3}};
    struct gs_device_options control = {.control = GS_CONTROL_SINKS, .precision = GS_PRECISION_FAST};
    assert_fails(metal->open(&second, &device, &error), GS_INVALID_ARGUMENT, "number 0", &error);
    assert_fails(metal->open(&three, &device, &error), GS_INVALID_ARGUMENT, "1, 2 or 4", &error);
    assert_fails(metal->open(&control, &device, &error), GS_UNSUPPORTED, "exact precision", &error);
    metalsim_controls()->max_threads = 64;
    assert_ok(metal->open(&exact, &device, &error), &error);
    metal->close(device);
    metalsim_controls()->width = 16;
    assert_fails(metal->open(&exact, &device, &error), GS_UNSUPPORTED, "16 threads, must be of 32", &error);
    assert_nothing_left();
}

/* The compiler's own words, in the one line. */
static void a_failed_compile_shows_the_message(void **state)
{
    (void)state;
    need_stand_in(true);
    static const char bad[] =
        "#include <metal_stdlib>\nkernel void gs_x(device float *a [[buffer(0)]]) { a[0] = y; }\n";
    struct gs_metal m;
    struct gs_metal_pipeline pipeline;
    struct gs_error error;
    assert_ok(gs_metal_open(&m, &error), &error);
    gs_status status = gs_metal_compile(&m, bad, sizeof bad - 1, &error);
    if (status == GS_OK) /* a stand-in may compile where the function is asked for */
        status = gs_metal_pipeline_make(&m, "gs_x", NULL, 0, NULL, &pipeline, &error);
    assert_int_equal(status, GS_UNSUPPORTED);
    assert_non_null(strstr(error.message, "'y'"));
    assert_null(strchr(error.message, '\n'));
    gs_metal_close(&m);
    assert_nothing_left();
}

/* ---------------------------------------------------------------- a model */

static struct loaded open_model(void)
{
    struct tiny_options options = tiny_options_default();
    options.n_layer = 2;
    options.n_vocab = N_VOCAB;
    struct tiny_model *model = tiny_model_make(&options);
    struct loaded loaded = loaded_open(model, 1);
    tiny_model_free(model);
    return loaded;
}

static gs_status open_metal(const struct gs_weights *weights, const struct gs_device_options *options,
                            struct gs_device **out, struct gs_error *error)
{
    gs_status status = metal->open(options, out, error);
    return status == GS_OK ? metal->load(*out, weights, NULL, NULL, error) : status;
}

/* The same where it must not fail. */
static struct gs_device *start(const struct gs_weights *weights, const struct gs_device_options *options)
{
    struct gs_device *device = NULL;
    struct gs_error error;
    assert_ok(open_metal(weights, options, &device, &error), &error);
    return device;
}

static struct gs_kv *new_kv(struct gs_device *device, int64_t capacity)
{
    struct gs_kv *kv = NULL;
    struct gs_error error;
    assert_ok(metal->kv_create(device, capacity, &kv, &error), &error);
    return kv;
}

/* The last of the device, and that nothing outlives it. */
static void stop(struct gs_device *device)
{
    metal->close(device);
    assert_nothing_left();
}

static gs_status step(struct gs_device *device, struct gs_kv *kv, size_t n, enum gs_want want,
                      struct gs_error *error)
{
    static const int32_t tokens[CAPACITY] = {1, 2, 3};
    struct gs_step one = {kv, tokens, n, want, NULL};
    int64_t before = metal->kv_length(kv);
    gs_status status = metal->forward(device, &one, 1, NULL, error);
    assert_int_equal(metal->kv_length(kv), before + (status == GS_OK ? (int64_t)n : 0));
    return status;
}

/* Everything once, until something fails. */
static gs_status run_all(const struct loaded *model, const struct gs_device_options *options,
                         struct gs_error *error)
{
    struct gs_device *device = NULL;
    struct gs_kv *kv = NULL, *other = NULL;
    int32_t chosen[4], token = 1;
    gs_status status = open_metal(model->weights, options, &device, error);
    if (status == GS_OK)
        status = metal->kv_create(device, CAPACITY, &kv, error);
    if (status == GS_OK)
        status = metal->kv_create(device, CAPACITY - 10, &other, error);
    if (status == GS_OK)
        status = step(device, kv, 70, GS_WANT_ALL, error);
    if (status == GS_OK)
        status = step(device, kv, 1, GS_WANT_LAST, error);
    if (status == GS_OK)
        status = step(device, other, 140, GS_WANT_NONE, error);
    struct gs_step both[2] = {{kv, &token, 1, GS_WANT_LAST, NULL}, {other, &token, 1, GS_WANT_NONE, NULL}};
    if (status == GS_OK)
        status = metal->forward(device, both, 2, NULL, error);
    if (status == GS_OK) {
        int64_t before = metal->kv_length(kv);
        status = metal->chain(device, kv, 5, NULL, chosen, 4, error);
        assert_int_equal(metal->kv_length(kv), before + (status == GS_OK ? 4 : 0));
    }
    metal->kv_free(kv);
    metal->kv_free(other);
    metal->close(device);
    return status;
}

static void any_call_may_fail(void **state)
{
    (void)state;
    need_stand_in(true);
    static const struct gs_device_options legacy = {.levers = {.decode = GS_DECODE_LEGACY}, .n_threads = 1};
    const struct gs_device_options *kinds[] = {&fast, &legacy};
    struct loaded model = open_model();
    struct gs_error error;
    for (size_t k = 0; k < 2; k++) {
        metalsim_reset_counts();
        assert_ok(run_all(&model, kinds[k], &error), &error);
        uint64_t n_calls = metalsim_counts().calls;
        assert_nothing_left();
        assert_true(n_calls > 60);
        for (uint64_t at = 1 + k; at <= n_calls; at += k == 0 ? 1 : 5) {
            memset(&error, 0, sizeof error);
            metalsim_reset_counts();
            metalsim_controls()->fail_at = at;
            gs_status status = run_all(&model, kinds[k], &error);
            metalsim_controls()->fail_at = 0;
            assert_int_not_equal(status, GS_OK);
            assert_true(strlen(error.message) > 10);
            assert_null(strchr(error.message, '\n'));
            if (!strstr(error.message, "metal: "))
                fail_msg("call %llu: %s", (unsigned long long)at, error.message);
            assert_nothing_left();
        }
        print_message("kind %zu: %llu calls\n", k, (unsigned long long)n_calls);
    }
    loaded_close(&model);
}

/* A device that is lost under way: the reason, and no timeline that has changed (see step). */
static void a_lost_device_is_told(void **state)
{
    (void)state;
    need_stand_in(true);
    struct loaded model = open_model();
    struct gs_error error = {0};
    metalsim_reset_counts();
    assert_ok(run_all(&model, &exact, &error), &error);
    uint64_t n = metalsim_counts().command_buffers;
    assert_true(n > 8);
    for (uint64_t at = 1; at <= n; at++) {
        metalsim_reset_counts();
        metalsim_controls()->lost_at = at;
        assert_int_equal(run_all(&model, &exact, &error), GS_IO);
        assert_non_null(strstr(error.message, "gave up a command buffer: "));
        assert_null(strchr(error.message, '\n'));
        assert_nothing_left();
        *metalsim_controls() = (struct metalsim_controls){.encode_only = true};
    }
    loaded_close(&model);
}

static void cancelled_steps_change_nothing(void **state)
{
    (void)state;
    need_stand_in(true);
    struct loaded model = open_model();
    struct gs_device *device = start(model.weights, &fast);
    struct gs_error error;
    _Atomic bool cancelled = true;
    int32_t tokens[200] = {0}, bad = N_VOCAB;
    assert_fails(metal->load(device, model.weights, NULL, NULL, &error), GS_INVALID_ARGUMENT, "already",
                 &error);
    struct gs_kv *kv = new_kv(device, 250);
    assert_ok(step(device, kv, 90, GS_WANT_LAST, &error), &error);
    assert_ok(metal->forward(device, NULL, 0, NULL, &error), &error);
    struct gs_step some = {kv, tokens, 150, GS_WANT_LAST, NULL}, over = {kv, tokens, 161, GS_WANT_LAST, NULL};
    struct gs_step wrong = {kv, &bad, 1, GS_WANT_LAST, NULL}, twice[2] = {some, some};
    assert_int_equal(metal->forward(device, &some, 1, &cancelled, &error), GS_CANCELLED);
    assert_fails(metal->forward(device, &over, 1, NULL, &error), GS_CONTEXT_FULL, "160 of 250", &error);
    assert_fails(metal->forward(device, &wrong, 1, NULL, &error), GS_INVALID_ARGUMENT, "token id 128",
                 &error);
    assert_fails(metal->forward(device, twice, 2, NULL, &error), GS_INVALID_ARGUMENT, "same timeline",
                 &error);
    assert_int_equal(metal->kv_length(kv), 90);
    metal->kv_free(kv);
    stop(device);
    loaded_close(&model);
}

/* Who named no backend gets the next one where this one cannot take the model, and its reason. */
static void auto_goes_on_without_it(void **state)
{
    (void)state;
    need_stand_in(true);
    struct loaded model = open_model();
    struct gs_engine *engine = NULL;
    struct gs_error error;
    struct gs_engine_options named = {.backend = "metal"}, any = {.backend = "auto"}, unnamed = {0};
    const struct gs_engine_options *free_choice[] = {&any, &unnamed};
    metalsim_controls()->working_set = 1 << 20;
    assert_fails(gs_engine_open(model.folder, &named, &engine, &error), GS_OUT_OF_MEMORY, "the GPU may use",
                 &error);
    assert_null(engine);
    for (size_t i = 0; i < 2; i++) {
        assert_ok(gs_engine_open(model.folder, free_choice[i], &engine, &error), &error);
        assert_string_equal(gs_engine_backend(engine), "cpu");
        assert_ptr_equal(engine->passed_over, metal);
        assert_non_null(strstr(engine->why.message, "the GPU may use"));
        gs_engine_close(engine);
    }
    *metalsim_controls() = (struct metalsim_controls){.encode_only = true};
    assert_ok(gs_engine_open(model.folder, &any, &engine, &error), &error);
    assert_string_equal(gs_engine_backend(engine), "metal");
    assert_null(engine->passed_over);
    gs_engine_close(engine);
    assert_nothing_left();
    loaded_close(&model);
}

/* A window layer's ring holds the window and a step: what is further back is gone. */
static void rings_say_how_far_back_they_reach(void **state)
{
    (void)state;
    need_stand_in(true);
    struct loaded model = open_model();
    struct gs_device *device = start(model.weights, &exact);
    struct gs_kv *kv = new_kv(device, 600), *copy = new_kv(device, 600), *small = new_kv(device, 100);
    struct gs_buffer bytes = {0};
    struct gs_error error;
    assert_ok(step(device, kv, 200, GS_WANT_NONE, &error), &error);
    assert_int_equal(metal->kv_truncate(kv, 150), 150); /* nothing of the ring was overwritten */
    assert_ok(step(device, kv, 250, GS_WANT_NONE, &error), &error);
    assert_ok(metal->kv_copy(copy, kv, &error), &error);
    assert_ok(metal->kv_export(kv, &bytes, &error), &error);
    assert_fails(metal->kv_copy(small, kv, &error), GS_INVALID_ARGUMENT, "400 tokens", &error);
    assert_fails(metal->kv_import(small, bytes.data, bytes.size, &error), GS_MALFORMED, "exported", &error);
    /* The ring has 16 + 256 slots: from position 128 on. */
    assert_int_equal(metal->kv_truncate(kv, 143), 143);
    assert_int_equal(metal->kv_truncate(kv, 142), 0);
    assert_int_equal(metal->kv_truncate(copy, 142), 0);
    assert_ok(metal->kv_import(copy, bytes.data, bytes.size, &error), &error);
    assert_int_equal(metal->kv_length(copy), 400);
    assert_int_equal(metal->kv_truncate(copy, 143), 143);
    gs_buffer_free(&bytes);
    metal->kv_free(kv);
    metal->kv_free(copy);
    metal->kv_free(small);
    stop(device);
    loaded_close(&model);
}

/* ---------------------------------------------------------------- memory */

static size_t count_log(const char *message)
{
    size_t n = 0;
    for (size_t i = 0; metalsim_log(i); i++)
        n += strstr(metalsim_log(i), message) != NULL;
    return n;
}

static void a_model_beyond_the_working_set_is_refused(void **state)
{
    (void)state;
    need_stand_in(true);
    struct loaded model = open_model();
    struct gs_device *device = NULL;
    struct gs_error error;
    metalsim_controls()->working_set = 1 << 20;
    assert_fails(open_metal(model.weights, &exact, &device, &error), GS_OUT_OF_MEMORY,
                 "the GPU may use 1.0 MiB", &error);
    metal->close(device);
    /* What is there is what is told, and caches come out of it. */
    metalsim_controls()->working_set = 64 << 20;
    device = start(model.weights, &exact);
    uint64_t before = metal->memory_available(device), cache = metal->kv_bytes(device, CAPACITY);
    assert_true(before > cache && before < 64u << 20);
    struct gs_kv *kv = new_kv(device, CAPACITY);
    assert_int_equal(metal->memory_available(device), before - cache);
    metal->kv_free(kv);
    stop(device);
    loaded_close(&model);
}

/* Weights are in the file's own pages, in buffers that are not longer than the device takes. */
static void buffers_are_split_where_they_must(void **state)
{
    (void)state;
    need_stand_in(false);
    struct loaded model = open_model();
    struct gs_error error;
    float expected[N_VOCAB], found[N_VOCAB];
    size_t n_windows[2];
    for (int small = 0; small < 2; small++) {
        *metalsim_controls() = (struct metalsim_controls){.log = true, .max_buffer = small ? 220 << 10 : 0};
        metalsim_clear_log();
        struct gs_device *device = start(model.weights, &exact);
        n_windows[small] = count_log("newBufferWithBytesNoCopy:");
        struct gs_kv *kv = new_kv(device, 100);
        assert_ok(step(device, kv, 3, GS_WANT_LAST, &error), &error);
        memcpy(small ? found : expected, metal->logits(device, 0), sizeof found);
        metal->kv_free(kv);
        metal->close(device);
    }
    print_message("%zu buffers over the file, %zu where they must be small\n", n_windows[0], n_windows[1]);
    assert_true(n_windows[0] >= 1 && n_windows[1] > n_windows[0]);
    assert_memory_equal(expected, found, sizeof found);
    struct gs_device *device = NULL;
    *metalsim_controls() = (struct metalsim_controls){.max_buffer = 16 << 10, .encode_only = true};
    assert_fails(open_metal(model.weights, &exact, &device, &error), GS_OUT_OF_MEMORY, "at most", &error);
    stop(device);
    loaded_close(&model);
}

/* ---------------------------------------------------------------- what a token takes */

/* The last message of the log that says so, as its index; -1: none. */
static long find_log(const char *message, bool last)
{
    long at = -1;
    for (size_t i = 0; metalsim_log(i) && (last || at < 0); i++)
        if (strstr(metalsim_log(i), message))
            at = (long)i;
    return at;
}

static void messages_come_in_order(void **state)
{
    (void)state;
    need_stand_in(true);
    struct loaded model = open_model();
    struct gs_device *device = start(model.weights, &exact);
    struct gs_kv *kv = new_kv(device, CAPACITY);
    struct gs_error error;
    metalsim_controls()->log = true;
    metalsim_clear_log();
    assert_ok(step(device, kv, 1, GS_WANT_LAST, &error), &error);
    long buffer = find_log(" commandBuffer", false), encoder = find_log(" computeCommandEncoder", false);
    long first = find_log(" setBuffer:", false), dispatch = find_log(" dispatchThreadgroups:", true);
    long end = find_log(" endEncoding", false), commit = find_log(" commit", false);
    long wait = find_log(" waitUntilCompleted", false), status = find_log(" status", false);
    assert_true(buffer >= 0 && buffer < encoder && encoder < first && first < dispatch && dispatch < end);
    assert_true(end < commit && commit < wait && wait < status);
    assert_int_equal(count_log(" commandBuffer"), 1);
    assert_int_equal(count_log(" computeCommandEncoder"), 1);
    assert_int_equal(count_log(" dispatchThreadgroups:"), 2 * 6 + 2);
    assert_int_equal(count_log(" setBytes:"), 2 * 6 + 2);
    assert_int_equal(count_log(" setComputePipelineState:"), 2 * 6 + 2);
    metal->kv_free(kv);
    stop(device);
    loaded_close(&model);
}

/* The shape of gpt-oss-20b over memory that is only reserved: as many zeros as one likes. */
struct shape {
    struct gs_weights weights;
    unsigned char *memory;
    size_t used;
};

#define SHAPE_BYTES ((size_t)16 << 30)

static const unsigned char *carve(struct shape *shape, int64_t bytes)
{
    const unsigned char *at = shape->memory + shape->used;
    shape->used += (size_t)bytes;
    assert_true(shape->used <= SHAPE_BYTES);
    return at;
}

static struct gs_matrix carve_matrix(struct shape *shape, int64_t rows, int64_t columns)
{
    return (struct gs_matrix){
        .data = carve(shape, rows * columns * 2), .type = GS_WEIGHT_BF16, .rows = rows, .columns = columns};
}

static struct gs_mxfp4_matrix carve_experts(struct shape *shape, int64_t rows, int64_t columns)
{
    int64_t n = shape->weights.config.n_expert, groups = n * rows * columns / 32;
    return (struct gs_mxfp4_matrix){.blocks = carve(shape, groups * 16),
                                    .scales = carve(shape, groups),
                                    .n_expert = n,
                                    .rows = rows,
                                    .columns = columns};
}

static struct shape *open_20b(void)
{
    struct shape *shape = calloc(1, sizeof *shape);
    struct gs_config *c = &shape->weights.config;
    *c = (struct gs_config){.n_layer = 24,
                            .d_model = 2880,
                            .d_head = 64,
                            .n_head = 64,
                            .n_kv_head = 8,
                            .n_expert = 32,
                            .n_active = 4,
                            .d_ff = 2880,
                            .n_vocab = 201088,
                            .window = 128,
                            .max_ctx = 131072,
                            .rms_norm_eps = 1e-5f,
                            .swiglu_limit = 7.0f,
                            .swiglu_alpha = 1.702f,
                            .rope_theta = 150000,
                            .rope_factor = 32,
                            .rope_beta_fast = 32,
                            .rope_beta_slow = 1,
                            .rope_original_ctx = 4096};
    shape->memory = mmap(NULL, SHAPE_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(shape->memory != MAP_FAILED);
    shape->weights.layers = calloc((size_t)c->n_layer, sizeof *shape->weights.layers);
    for (int64_t i = 0; i < c->n_layer; i++) {
        struct gs_layer_weights *w = &shape->weights.layers[i];
        c->layer_is_window[i] = i % 2 == 0;
        w->attention_norm = carve_matrix(shape, 1, 2880);
        w->q = carve_matrix(shape, 4096, 2880);
        w->k = carve_matrix(shape, 512, 2880);
        w->v = carve_matrix(shape, 512, 2880);
        w->q_bias = carve_matrix(shape, 1, 4096);
        w->k_bias = carve_matrix(shape, 1, 512);
        w->v_bias = carve_matrix(shape, 1, 512);
        w->sinks = carve_matrix(shape, 1, 64);
        w->o = carve_matrix(shape, 2880, 4096);
        w->o_bias = carve_matrix(shape, 1, 2880);
        w->mlp_norm = carve_matrix(shape, 1, 2880);
        w->router = carve_matrix(shape, 32, 2880);
        w->router_bias = carve_matrix(shape, 1, 32);
        w->gate_up = carve_experts(shape, 5760, 2880);
        w->gate_up_bias = carve_matrix(shape, 32, 5760);
        w->down = carve_experts(shape, 2880, 2880);
        w->down_bias = carve_matrix(shape, 32, 2880);
    }
    shape->weights.embedding = carve_matrix(shape, 201088, 2880);
    shape->weights.norm = carve_matrix(shape, 1, 2880);
    shape->weights.head = carve_matrix(shape, 201088, 2880);
    shape->weights.bytes = shape->used;
    return shape;
}

static void close_20b(struct shape *shape)
{
    munmap(shape->memory, SHAPE_BYTES);
    free(shape->weights.layers);
    free(shape);
}

struct taken {
    uint64_t command_buffers, encoders, dispatches, bytes;
};

static struct taken since(struct gs_device *device, const struct gs_backend_stats *before)
{
    struct gs_backend_stats now;
    metal->stats(device, &now);
    return (struct taken){now.n_command_buffers - before->n_command_buffers,
                          now.n_encoders - before->n_encoders, now.n_dispatches - before->n_dispatches,
                          now.weight_bytes - before->weight_bytes};
}

/* A token at a position, its counts by our own figures; the stand-in's must be the same. */
static struct taken decode_one(struct gs_device *device, struct gs_kv *kv, int64_t position)
{
    struct gs_backend_stats before;
    struct gs_error error;
    kv->length = position;
    metal->stats(device, &before);
    metalsim_reset_counts();
    assert_ok(step(device, kv, 1, GS_WANT_LAST, &error), &error);
    struct taken taken = since(device, &before);
    struct metalsim_counts seen = metalsim_counts();
    assert_int_equal(seen.command_buffers, taken.command_buffers);
    assert_int_equal(seen.encoders, taken.encoders);
    assert_int_equal(seen.dispatches, taken.dispatches);
    return taken;
}

/* Attention and router in bfloat16, four experts of 17 bytes a group of 32, the head. */
#define BYTES_20B                                                                                            \
    (24ull * ((4096 + 512 + 512 + 4096 + 32) * 2880 * 2 + 4 * (5760ull + 2880) * 2880 / 32 * 17) +           \
     201088ull * 2880 * 2)

static void a_token_of_the_20b_takes_so_much(void **state)
{
    (void)state;
    need_stand_in(true);
    struct shape *shape = open_20b();
    static const char *const names[] = {"fused", "legacy", "serial", "staged"};
    for (int decode = 0; decode < GS_DECODE_COUNT; decode++) {
        bool many = decode == GS_DECODE_LEGACY || decode == GS_DECODE_STAGED;
        bool sequence = decode == GS_DECODE_LEGACY || decode == GS_DECODE_SERIAL;
        struct gs_device_options options = exact;
        options.levers.decode = (enum gs_decode)decode;
        struct gs_device *device = start(&shape->weights, &options);
        assert_true(device->mapped_bytes > 12ull << 30 && device->copied_bytes < 64 << 20);
        struct gs_kv *kv = new_kv(device, 600);
        struct taken near = decode_one(device, kv, 10), far = decode_one(device, kv, 500);
        print_message("%s: %llu command buffers, %llu encoders, %llu dispatches (%llu at 500), %.4f GB\n",
                      names[decode], (unsigned long long)near.command_buffers,
                      (unsigned long long)near.encoders, (unsigned long long)near.dispatches,
                      (unsigned long long)far.dispatches, (double)near.bytes / 1e9);
        assert_int_equal(near.command_buffers, many ? 49 : 1);
        assert_int_equal(near.encoders, near.command_buffers);
        /* Six stages a layer, a seventh in full layers whose keys are split; a product a stage an expert. */
        assert_int_equal(near.dispatches, 24 * (sequence ? 4 + 2 * 4 : 6) + 2);
        assert_int_equal(far.dispatches, near.dispatches + 12);
        assert_true(sequence || far.dispatches <= 8 * 24 + 2);
        assert_int_equal(near.bytes, BYTES_20B);
        assert_int_equal(far.command_buffers, near.command_buffers);
        metal->kv_free(kv);
        metal->close(device);
    }
    assert_nothing_left();
    close_20b(shape);
}

static void a_chain_of_the_20b_takes_a_buffer_a_token(void **state)
{
    (void)state;
    need_stand_in(true);
    enum { N = 16 };
    struct shape *shape = open_20b();
    struct gs_device *device = start(&shape->weights, &exact);
    struct gs_kv *kv = new_kv(device, 300);
    struct gs_error error;
    struct gs_backend_stats before;
    int32_t out[N];
    metal->stats(device, &before);
    assert_ok(metal->chain(device, kv, 1, NULL, out, N, &error), &error);
    struct taken taken = since(device, &before);
    assert_int_equal(taken.command_buffers, N);
    assert_int_equal(taken.encoders, N);
    assert_int_equal(taken.dispatches, N * (24 * 6 + 3));
    assert_int_equal(taken.bytes, N * BYTES_20B);
    metal->kv_free(kv);
    stop(device);
    close_20b(shape);
}

/* Few rows: weights are asked for once, whatever their number; attention is a timeline's own. */
static void a_batch_of_the_20b_reads_weights_once(void **state)
{
    (void)state;
    need_stand_in(true);
    enum { N = 8 };
    static const int32_t token = 1;
    struct shape *shape = open_20b();
    struct gs_device *device = start(&shape->weights, &fast);
    struct gs_kv *kv[N];
    struct gs_step steps[N];
    struct gs_error error;
    struct gs_backend_stats before;
    uint64_t threadgroups[2];
    for (size_t i = 0; i < N; i++) {
        kv[i] = new_kv(device, 300);
        steps[i] = (struct gs_step){.kv = kv[i], .tokens = &token, .n_tokens = 1, .want = GS_WANT_LAST};
    }
    for (size_t k = 0; k < 2; k++) {
        size_t n = k == 0 ? 2 : N;
        metal->stats(device, &before);
        metalsim_reset_counts();
        assert_ok(metal->forward(device, steps, n, NULL, &error), &error);
        struct taken taken = since(device, &before);
        threadgroups[k] = metalsim_counts().threadgroups;
        assert_int_equal(taken.command_buffers, 1);
        /* norm, q, k, v; rotation and attention of each timeline; o, router, sort, gate and up, down, sum */
        assert_int_equal(taken.dispatches, 24 * (10 + 2 * n) + 3);
    }
    /* More rows bring threadgroups that are rows or experts' routes, none that reads a dense matrix again. */
    uint64_t rows = N - 2,
             tiles = gs_metal_max_tiles(&device->args, N) - gs_metal_max_tiles(&device->args, 2);
    uint64_t added = 24 * (rows * (1 + 1 + 8 + 1 + 1) + tiles * (5760 + 2880) / 32) + 2 * rows;
    assert_int_equal(threadgroups[1] - threadgroups[0], added);
    for (size_t i = 0; i < N; i++)
        metal->kv_free(kv[i]);
    stop(device);
    close_20b(shape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_device_is_told_in_one_line),
        cmocka_unit_test(refusals_name_what_would_be_right),
        cmocka_unit_test(a_failed_compile_shows_the_message),
        cmocka_unit_test(any_call_may_fail),
        cmocka_unit_test(a_lost_device_is_told),
        cmocka_unit_test(cancelled_steps_change_nothing),
        cmocka_unit_test(auto_goes_on_without_it),
        cmocka_unit_test(rings_say_how_far_back_they_reach),
        cmocka_unit_test(a_model_beyond_the_working_set_is_refused),
        cmocka_unit_test(buffers_are_split_where_they_must),
        cmocka_unit_test(messages_come_in_order),
        cmocka_unit_test(a_token_of_the_20b_takes_so_much),
        cmocka_unit_test(a_chain_of_the_20b_takes_a_buffer_a_token),
        cmocka_unit_test(a_batch_of_the_20b_reads_weights_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
