#include "backend/gpu/measure.h"

#include "backend/gpu/simple.h"
#include "base/clock.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

#define COLD_BYTES   (UINT64_C(512) << 20) /* several times the largest cache: 256 MB on an MI300 */
#define MAX_LAUNCHES 64                    /* of a graph */
#define SWIGLU_LIMIT 7.0f                  /* gpt-oss's */
#define SWIGLU_ALPHA 1.702f

struct gs_gpu_measure {
    const struct gs_gpu_api *api;
    struct gs_gpu *gpu;
    struct gs_gpu_stream *stream;
    struct gs_gpu_graph *graph;
    size_t n_launch; /* in the graph */
    struct gs_gpu_args args;
    bool is_gate_up;
    size_t n, n_slot; /* experts that were given; places in memory: slot s holds expert s mod n */
    size_t n_chosen;
    struct gs_gpu_experts at;         /* slot 0 */
    uint64_t code_bytes, scale_bytes; /* of a slot */
    void *codes, *scales, *bias, *other, *small;
};

/* ---------------------------------------------------------------- memory */

static gs_status take(struct gs_gpu_measure *m, uint64_t bytes, void **out, struct gs_error *error)
{
    return m->api->alloc(m->gpu, bytes, "single experts", out, error);
}

static void choose_sizes(struct gs_gpu_measure *m, const struct gs_mxfp4_matrix *expert)
{
    uint64_t groups = (uint64_t)expert->columns / GS_MXFP4_GROUP, stride = (groups + 15) / 16 * 16;
    m->code_bytes = (uint64_t)expert->rows * groups * GS_MXFP4_GROUP_BYTES;
    m->scale_bytes = (uint64_t)expert->rows * stride;
    uint64_t slots = COLD_BYTES / m->code_bytes + 1, most = (uint64_t)MAX_LAUNCHES * m->n;
    slots = slots > 4 * m->n ? slots : 4 * m->n;
    m->n_slot = (size_t)(slots < most ? slots : most);
    m->at.rows = (int32_t)expert->rows;
    m->at.columns = (int32_t)expert->columns;
    m->at.scale_stride = (int32_t)stride;
}

/* In the form of safetensors, scales with their rows padded; `host` has room for both. */
static gs_status copy_expert(struct gs_gpu_measure *m, size_t slot, const struct gs_mxfp4_matrix *expert,
                             uint8_t *host, struct gs_error *error)
{
    size_t groups = (size_t)expert->columns / GS_MXFP4_GROUP, stride = (size_t)m->at.scale_stride;
    uint8_t *codes = host, *scales = host + m->code_bytes;
    for (int64_t r = 0; r < expert->rows; r++, scales += stride) {
        struct gs_mxfp4_row row = gs_mxfp4_find_row(expert, 0, r);
        for (size_t g = 0; g < groups; g++, codes += GS_MXFP4_GROUP_BYTES)
            if (row.scales) {
                memcpy(codes, row.blocks + g * GS_MXFP4_GROUP_BYTES, GS_MXFP4_GROUP_BYTES);
                scales[g] = row.scales[g];
            } else {
                gs_mxfp4_part_gguf(row.blocks + g * GS_MXFP4_BLOCK_BYTES, codes, &scales[g]);
            }
    }
    gs_status status = m->api->copy_in(m->gpu, m->stream, (char *)m->codes + slot * m->code_bytes, host,
                                       m->code_bytes, error);
    if (status == GS_OK)
        status = m->api->copy_in(m->gpu, m->stream, (char *)m->scales + slot * m->scale_bytes,
                                 host + m->code_bytes, m->scale_bytes, error);
    return status == GS_OK ? m->api->sync(m->gpu, m->stream, error) : status;
}

static gs_status fill_slots(struct gs_gpu_measure *m, const struct gs_mxfp4_matrix *experts,
                            struct gs_error *error)
{
    uint8_t *host = calloc(1, m->code_bytes + m->scale_bytes);
    gs_status status = host ? GS_OK : gs_fail_memory(error, m->code_bytes + m->scale_bytes);
    for (size_t s = 0; status == GS_OK && s < m->n_slot; s++) {
        char *codes = m->codes, *scales = m->scales;
        if (s < m->n) {
            status = copy_expert(m, s, &experts[s], host, error);
            continue;
        }
        status = m->api->copy(m->gpu, m->stream, codes + s * m->code_bytes, codes + s % m->n * m->code_bytes,
                              m->code_bytes, error);
        if (status == GS_OK)
            status = m->api->copy(m->gpu, m->stream, scales + s * m->scale_bytes,
                                  scales + s % m->n * m->scale_bytes, m->scale_bytes, error);
    }
    free(host);
    return status;
}

/* Activations, outputs, and a row that has all n experts: route k is expert k. */
static gs_status fill_small(struct gs_gpu_measure *m, const float *const *in, struct gs_error *error)
{
    size_t n = m->n, model = (size_t)m->args.dims.d_model, d_ff = (size_t)m->args.dims.d_ff;
    size_t columns = (size_t)m->at.columns, numbers = model + n * (d_ff + model) + 2 * n + 1;
    union {
        float f;
        int32_t i;
    } *host = calloc(numbers, sizeof *host);
    if (!host)
        return gs_fail_memory(error, numbers * sizeof *host);
    for (size_t e = 0; e < (m->is_gate_up ? 1 : n); e++)
        memcpy(host + (m->is_gate_up ? 0 : model + e * d_ff), in[e], columns * sizeof *host);
    for (size_t e = 0; e <= n; e++)
        host[numbers - 2 * n - 1 + e].i = (int32_t)e;
    for (size_t e = 0; e < n; e++)
        host[numbers - n + e].i = (int32_t)e;
    gs_status status = take(m, numbers * sizeof *host, &m->small, error);
    if (status == GS_OK)
        status = m->api->copy_in(m->gpu, m->stream, m->small, host, numbers * sizeof *host, error);
    if (status == GS_OK)
        status = m->api->sync(m->gpu, m->stream, error);
    float *at = m->small;
    m->args.s.normed = at;
    m->args.s.activated = at + model;
    m->args.s.expert_out = at + model + n * d_ff;
    m->args.s.route_first = (int32_t *)(void *)(at + numbers - 2 * n - 1);
    m->args.s.routes = (int32_t *)(void *)(at + numbers - n);
    free(host);
    return status;
}

static gs_status allocate(struct gs_gpu_measure *m, struct gs_error *error)
{
    uint64_t bias = (uint64_t)m->n * (uint64_t)m->at.rows * sizeof(float);
    gs_status status = take(m, m->n_slot * m->code_bytes, &m->codes, error);
    if (status == GS_OK)
        status = take(m, m->n_slot * m->scale_bytes, &m->scales, error);
    if (status == GS_OK)
        status = take(m, bias, &m->bias, error);
    if (status == GS_OK)
        status = m->api->zero(m->gpu, m->stream, m->bias, bias, error);
    m->at.bias = m->bias;
    return status;
}

gs_status gs_gpu_measure_open(const struct gs_gpu_api *api, int index, const struct gs_mxfp4_matrix *experts,
                              size_t n, bool is_gate_up, const float *const *in, struct gs_gpu_measure **out,
                              struct gs_error *error)
{
    *out = NULL;
    if (n == 0 || n > GS_GPU_MEASURE_EXPERTS)
        return gs_fail(error, GS_INVALID_ARGUMENT, "%s: %zu experts in a launch: must be 1 to %d", api->name,
                       n, GS_GPU_MEASURE_EXPERTS);
    struct gs_gpu_measure *m = calloc(1, sizeof *m);
    struct gs_gpu_machine machine;
    if (!m)
        return gs_fail_memory(error, sizeof *m);
    m->api = api;
    m->n = n;
    m->is_gate_up = is_gate_up;
    choose_sizes(m, experts);
    m->args.n_rows = 1;
    m->args.dims = (struct gs_gpu_dims){.d_model = is_gate_up ? m->at.columns : m->at.rows,
                                        .d_ff = is_gate_up ? m->at.rows / 2 : m->at.columns,
                                        .n_expert = (int32_t)n,
                                        .n_active = (int32_t)n,
                                        .swiglu_limit = SWIGLU_LIMIT,
                                        .swiglu_alpha = SWIGLU_ALPHA};
    gs_status status = api->open(index, &m->gpu, &machine, error);
    if (status == GS_OK)
        status = api->stream_open(m->gpu, &m->stream, error);
    if (status == GS_OK)
        status = allocate(m, error);
    if (status == GS_OK)
        status = fill_slots(m, experts, error);
    if (status == GS_OK)
        status = fill_small(m, in, error);
    if (status != GS_OK) {
        gs_gpu_measure_close(m);
        return status;
    }
    *out = m;
    return GS_OK;
}

void gs_gpu_measure_close(struct gs_gpu_measure *measure)
{
    if (!measure)
        return;
    void *const memories[] = {measure->codes, measure->scales, measure->bias, measure->other, measure->small};
    if (measure->graph)
        measure->api->graph_free(measure->gpu, measure->graph);
    for (size_t i = 0; i < sizeof memories / sizeof *memories; i++)
        if (memories[i])
            measure->api->release(measure->gpu, memories[i]);
    if (measure->stream)
        measure->api->stream_close(measure->gpu, measure->stream);
    if (measure->gpu)
        measure->api->close(measure->gpu);
    free(measure);
}

/* ---------------------------------------------------------------- products */

static gs_status launch(struct gs_gpu_measure *m, size_t slot, struct gs_error *error)
{
    struct gs_gpu_launch launch = {.kernel = m->is_gate_up ? "gs_simple_moe_in_1" : "gs_simple_moe_out_1",
                                   .block = GS_SIMPLE_THREADS};
    /* Enough warps for every row at 64 lanes a warp; at 32 half of them leave at once. */
    uint32_t rows = GS_SIMPLE_ROWS * (GS_SIMPLE_THREADS / 64);
    launch.grid[0] = ((uint32_t)m->at.rows + rows - 1) / rows;
    launch.grid[1] = (uint32_t)m->n_chosen;
    launch.grid[2] = 1;
    struct gs_gpu_experts experts = m->at;
    experts.codes = (const uint8_t *)m->codes + slot * m->code_bytes;
    experts.scales = (const uint8_t *)m->scales + slot * m->scale_bytes;
    *(m->is_gate_up ? &m->args.w.gate_up : &m->args.w.down) = experts;
    return m->api->launch(m->gpu, m->stream, &launch, &m->args, false, error);
}

gs_status gs_gpu_measure_choose(struct gs_gpu_measure *measure, size_t n, bool cold, struct gs_error *error)
{
    struct gs_gpu_measure *m = measure;
    if (n == 0 || n > m->n)
        return gs_fail(error, GS_INVALID_ARGUMENT, "%s: %zu experts in a launch, of %zu", m->api->name, n,
                       m->n);
    if (m->graph)
        m->api->graph_free(m->gpu, m->graph);
    m->graph = NULL;
    m->n_chosen = n;
    m->n_launch = m->n_slot / n < MAX_LAUNCHES ? m->n_slot / n : MAX_LAUNCHES;
    gs_status status = m->api->sync(m->gpu, m->stream, error);
    if (status == GS_OK)
        status = m->api->capture_begin(m->gpu, m->stream, error);
    if (status != GS_OK)
        return status;
    /* The last one is that of the first experts. */
    for (size_t i = m->n_launch; status == GS_OK && i-- > 0;)
        status = launch(m, cold ? i * n : 0, error);
    gs_status ended = m->api->capture_end(m->gpu, m->stream, &m->graph, status == GS_OK ? error : NULL);
    return status == GS_OK ? ended : status;
}

size_t gs_gpu_measure_launches(const struct gs_gpu_measure *measure)
{
    return measure->n_launch;
}

gs_status gs_gpu_measure_product(struct gs_gpu_measure *measure, double *seconds, struct gs_error *error)
{
    double start = gs_clock_seconds();
    gs_status status = measure->api->graph_launch(measure->gpu, measure->stream, measure->graph, error);
    if (status == GS_OK)
        status = measure->api->sync(measure->gpu, measure->stream, error);
    *seconds = (gs_clock_seconds() - start) / (double)measure->n_launch;
    return status;
}

gs_status gs_gpu_measure_copy(struct gs_gpu_measure *measure, double *bytes_per_second,
                              struct gs_error *error)
{
    struct gs_gpu_measure *m = measure;
    uint64_t bytes = m->n_slot * m->code_bytes;
    *bytes_per_second = 0.0;
    gs_status status = m->other ? GS_OK : take(m, bytes, &m->other, error);
    if (status == GS_OK)
        status = m->api->sync(m->gpu, m->stream, error);
    double start = gs_clock_seconds();
    if (status == GS_OK)
        status = m->api->copy(m->gpu, m->stream, m->other, m->codes, bytes, error);
    if (status == GS_OK)
        status = m->api->sync(m->gpu, m->stream, error);
    if (status == GS_OK)
        *bytes_per_second = 2.0 * (double)bytes / (gs_clock_seconds() - start);
    return status;
}

gs_status gs_gpu_measure_result(struct gs_gpu_measure *measure, float *out, struct gs_error *error)
{
    struct gs_gpu_measure *m = measure;
    size_t row = (size_t)(m->is_gate_up ? m->args.dims.d_ff : m->args.dims.d_model);
    const float *from = m->is_gate_up ? m->args.s.activated : m->args.s.expert_out;
    gs_status status = m->api->copy_out(m->gpu, m->stream, out, from, m->n_chosen * row * sizeof *out, error);
    return status == GS_OK ? m->api->sync(m->gpu, m->stream, error) : status;
}
