#include "backend/metal/measure.h"

#include "backend/metal/backend.h"
#include "backend/metal/device.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

#define READ_BYTES   (512u << 20) /* the largest cache of an Apple processor has 96 MiB */
#define SWIGLU_LIMIT 7.0f
#define SWIGLU_ALPHA 1.702f

struct gs_metal_measure {
    struct gs_device *device; /* opened, without a model */
    bool is_gate_up;
    struct gs_metal_args args;
    struct gs_metal_memory memories[GS_METAL_BUFFER_COUNT]; /* by index; empty where the kernel has none */
    struct gs_metal_memory words, sums;                     /* of the reading kernel */
};

static gs_status make(struct gs_metal_measure *measure, enum gs_metal_buffer index, uint64_t bytes,
                      struct gs_error *error)
{
    struct gs_metal_memory *memory = &measure->memories[index];
    gs_status status = gs_metal_memory_make(&measure->device->metal, bytes, "a measurement", memory, error);
    if (status == GS_OK)
        memset(memory->contents, 0, (size_t)bytes);
    return status;
}

/* Experts one after the other, in the form of safetensors. */
static void copy_experts(struct gs_metal_measure *measure, const struct gs_mxfp4_matrix *experts, size_t n)
{
    uint8_t *codes = measure->memories[GS_METAL_WEIGHT_0].contents;
    uint8_t *scales = measure->memories[GS_METAL_WEIGHT_1].contents;
    int64_t groups = experts->columns / GS_MXFP4_GROUP;
    for (size_t e = 0; e < n; e++)
        for (int64_t r = 0; r < experts[e].rows; r++) {
            struct gs_mxfp4_row row = gs_mxfp4_find_row(&experts[e], 0, r);
            for (int64_t g = 0; g < groups; g++, codes += GS_MXFP4_GROUP_BYTES, scales++)
                if (row.scales) {
                    memcpy(codes, row.blocks + g * GS_MXFP4_GROUP_BYTES, GS_MXFP4_GROUP_BYTES);
                    *scales = row.scales[g];
                } else {
                    gs_mxfp4_part_gguf(row.blocks + g * GS_MXFP4_BLOCK_BYTES, codes, scales);
                }
        }
}

static void fill(struct gs_metal_measure *measure, const struct gs_mxfp4_matrix *experts, size_t n,
                 const float *const *in)
{
    struct gs_metal_active *active = measure->memories[GS_METAL_ACTIVE].contents;
    size_t columns = (size_t)experts->columns;
    enum gs_metal_buffer input = measure->is_gate_up ? GS_METAL_NORMED : GS_METAL_ACTIVATED;
    float *to = measure->memories[input].contents;
    copy_experts(measure, experts, n);
    for (size_t e = 0; e < n; e++) {
        active[e] = (struct gs_metal_active){.expert = (int32_t)e, .weight = 1.0f};
        if (e == 0 || !measure->is_gate_up)
            memcpy(to + e * columns, in[e], columns * sizeof *to);
    }
}

static gs_status allocate(struct gs_metal_measure *measure, uint64_t rows, uint64_t columns, uint64_t n,
                          struct gs_error *error)
{
    uint64_t groups = n * rows * columns / GS_MXFP4_GROUP, f = sizeof(float);
    uint64_t model = measure->args.d_model, d_ff = measure->args.d_ff;
    gs_status status = make(measure, GS_METAL_WEIGHT_0, groups * GS_MXFP4_GROUP_BYTES, error);
    if (status == GS_OK)
        status = make(measure, GS_METAL_WEIGHT_1, groups, error);
    if (status == GS_OK)
        status = make(measure, GS_METAL_BIAS_0, n * rows * f, error);
    if (status == GS_OK)
        status = make(measure, GS_METAL_ACTIVE, n * sizeof(struct gs_metal_active), error);
    if (status == GS_OK)
        status = make(measure, GS_METAL_NORMED, model * f, error);
    if (status == GS_OK)
        status = make(measure, GS_METAL_ACTIVATED, n * d_ff * f, error);
    if (status == GS_OK)
        status = make(measure, GS_METAL_PROJECTED, model * f, error);
    if (status == GS_OK)
        status = make(measure, GS_METAL_HIDDEN, model * f, error);
    if (status == GS_OK)
        status = make(measure, GS_METAL_OUT, 16, error); /* a count that MOE_GATE_UP may write */
    return status;
}

gs_status gs_metal_measure_open(const struct gs_mxfp4_matrix *experts, size_t n, bool is_gate_up,
                                const float *const *in, const struct gs_levers *levers,
                                struct gs_metal_measure **out, struct gs_error *error)
{
    struct gs_device_options options = {.precision = GS_PRECISION_EXACT, .levers = *levers};
    *out = NULL;
    if (n == 0 || n > GS_METAL_MAX_ACTIVE)
        return gs_fail(error, GS_INVALID_ARGUMENT, "metal: %zu experts in a launch: must be 1 to %d", n,
                       GS_METAL_MAX_ACTIVE);
    struct gs_metal_measure *measure = calloc(1, sizeof *measure);
    if (!measure)
        return gs_fail_memory(error, sizeof *measure);
    measure->is_gate_up = is_gate_up;
    gs_status status = gs_backend_metal.open(&options, &measure->device, error);
    uint32_t rows = (uint32_t)experts->rows, columns = (uint32_t)experts->columns;
    measure->args = (struct gs_metal_args){.n_head = 1, /* of no account here, but divided by */
                                           .n_kv_head = 1,
                                           .d_model = is_gate_up ? columns : rows,
                                           .d_ff = is_gate_up ? rows / 2 : columns,
                                           .n_expert = (uint32_t)n,
                                           .swiglu_limit = SWIGLU_LIMIT,
                                           .swiglu_alpha = SWIGLU_ALPHA,
                                           .n_rows = 1,
                                           .n_split = 1};
    if (status == GS_OK)
        status = allocate(measure, rows, columns, n, error);
    if (status != GS_OK) {
        gs_metal_measure_close(measure);
        return status;
    }
    fill(measure, experts, n, in);
    *out = measure;
    return GS_OK;
}

void gs_metal_measure_close(struct gs_metal_measure *measure)
{
    if (!measure)
        return;
    if (measure->device) {
        struct gs_metal *metal = &measure->device->metal;
        for (size_t i = 0; i < GS_METAL_BUFFER_COUNT; i++)
            gs_metal_memory_release(metal, &measure->memories[i]);
        gs_metal_memory_release(metal, &measure->words);
        gs_metal_memory_release(metal, &measure->sums);
    }
    gs_backend_metal.close(measure->device);
    free(measure);
}

/* One dispatch, alone in its command buffer; its time on the GPU. */
static gs_status run(struct gs_metal_measure *measure, enum gs_metal_kernel kernel, double *seconds,
                     struct gs_error *error)
{
    struct gs_device *device = measure->device;
    struct gs_metal_launch launch = gs_metal_launch_of(kernel, &measure->args, &device->tuning);
    struct gs_metal_dispatch dispatch = {.kernel = gs_metal_kernel_name(kernel),
                                         .pipeline = &device->pipelines[kernel],
                                         .bytes = &measure->args,
                                         .n_bytes = sizeof measure->args,
                                         .threadgroup_bytes = launch.threadgroup_bytes,
                                         .grid = {launch.grid[0], launch.grid[1], launch.grid[2]},
                                         .threads = launch.threads};
    struct gs_metal_pass pass;
    gs_status status = gs_metal_pass_begin(&device->metal, &pass, error);
    if (status != GS_OK)
        return status;
    for (uint32_t i = 0; i < GS_METAL_BUFFER_COUNT; i++)
        if (measure->memories[i].object)
            gs_metal_pass_bind(&device->metal, &pass, i,
                               (struct gs_metal_place){measure->memories[i].object, 0});
    if (kernel == GS_METAL_READ) {
        gs_metal_pass_bind(&device->metal, &pass, GS_METAL_IN,
                           (struct gs_metal_place){measure->words.object, 0});
        gs_metal_pass_bind(&device->metal, &pass, GS_METAL_OUT,
                           (struct gs_metal_place){measure->sums.object, 0});
    }
    status = gs_metal_pass_dispatch(&device->metal, &pass, &dispatch, error);
    if (status == GS_OK) {
        gs_metal_pass_commit(&device->metal, &pass);
        status = gs_metal_pass_wait(&device->metal, &pass, error);
    }
    *seconds = status == GS_OK ? gs_metal_pass_seconds(&device->metal, &pass) : 0.0;
    gs_metal_pass_end(&device->metal, &pass);
    return status;
}

/* What the reading kernel reads and writes; made when it is first asked for. */
static gs_status make_words(struct gs_metal_measure *measure, struct gs_error *error)
{
    struct gs_metal *metal = &measure->device->metal;
    measure->args.n_words = READ_BYTES / 16;
    struct gs_metal_launch launch =
        gs_metal_launch_of(GS_METAL_READ, &measure->args, &measure->device->tuning);
    uint64_t sums = (uint64_t)launch.grid[0] * launch.threads * sizeof(uint32_t);
    gs_status status = gs_metal_memory_make(metal, READ_BYTES, "reading", &measure->words, error);
    if (status != GS_OK)
        return status;
    memset(measure->words.contents, 1, READ_BYTES); /* pages of their own, not one of zeros */
    return gs_metal_memory_make(metal, sums, "reading", &measure->sums, error);
}

gs_status gs_metal_measure_read(struct gs_metal_measure *measure, double *bytes_per_second,
                                struct gs_error *error)
{
    double seconds = 0.0;
    gs_status status = measure->sums.object ? GS_OK : make_words(measure, error);
    if (status == GS_OK)
        status = run(measure, GS_METAL_READ, &seconds, error);
    *bytes_per_second = seconds > 0.0 ? READ_BYTES / seconds : 0.0;
    return status;
}

gs_status gs_metal_measure_product(struct gs_metal_measure *measure, size_t n, double *seconds,
                                   struct gs_error *error)
{
    measure->args.n_active = measure->args.n_ranks = (uint32_t)n;
    return run(measure, measure->is_gate_up ? GS_METAL_MOE_GATE_UP : GS_METAL_MOE_DOWN, seconds, error);
}

const float *gs_metal_measure_result(const struct gs_metal_measure *measure)
{
    return measure->memories[measure->is_gate_up ? GS_METAL_ACTIVATED : GS_METAL_PROJECTED].contents;
}
