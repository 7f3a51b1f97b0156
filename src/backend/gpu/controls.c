#include "backend/gpu/controls.h"

#include "backend/control_config.h"
#include "base/status.h"

#include <string.h>

/* Far below any score, and finite: its weight is 0. */
#define NO_SINK (-1e30f)

static bool has(enum gs_control control)
{
    switch (control) {
    case GS_CONTROL_NONE:
    case GS_CONTROL_SINKS:
    case GS_CONTROL_WINDOW:
    case GS_CONTROL_YARN:
    case GS_CONTROL_YARN_ROUNDED_BOUNDS:
    case GS_CONTROL_EXPERT_BIAS:
    case GS_CONTROL_NIBBLE_ORDER:
    case GS_CONTROL_GATE_UP_ORDER:
    case GS_CONTROL_SCALE_MINUS_ONE:
        return true;
    default:
        return false;
    }
}

gs_status gs_gpu_control_check(const char *backend, const struct gs_device_options *options,
                               struct gs_error *error)
{
    if (!has(options->control))
        return gs_fail(error, GS_UNSUPPORTED,
                       "the %s backend does not have this one of the controls: the cpu backend has all",
                       backend);
    if (options->control != GS_CONTROL_NONE && options->precision != GS_PRECISION_EXACT)
        return gs_fail(error, GS_UNSUPPORTED, "controls are of exact precision");
    return GS_OK;
}

/* ---------------------------------------------------------------- copies */

struct spoiler {
    enum gs_control control;
    struct gs_arena *arena;
    gs_status status;
    struct gs_error *error;
};

static void *take(struct spoiler *s, size_t bytes)
{
    void *at = s->status == GS_OK ? gs_arena_alloc(s->arena, bytes) : NULL;
    if (!at && s->status == GS_OK)
        s->status = gs_fail_memory(s->error, bytes);
    return at;
}

/* A matrix of float32 in place of `m`; its elements are to be filled in. NULL: there is no memory. */
static float *replace(struct spoiler *s, struct gs_matrix *m)
{
    union {
        float *floats;
        unsigned char *bytes;
    } to = {.floats = take(s, (size_t)(m->rows * m->columns) * sizeof(float))};
    if (to.floats)
        *m = (struct gs_matrix){
            .data = to.bytes, .type = GS_WEIGHT_F32, .rows = m->rows, .columns = m->columns};
    return to.floats;
}

/* The row whose place row `row` of [n_rows] of gate and up takes: halves where the rows alternate. */
static int64_t row_of_halves(int64_t row, int64_t n_rows)
{
    return row % 2 == 0 ? row / 2 : n_rows / 2 + row / 2;
}

static void exchange_nibbles(uint8_t *codes, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        codes[i] = (uint8_t)(codes[i] >> 4 | codes[i] << 4);
}

/* One row in the form of safetensors: codes [groups][16], scales [groups]. */
static void copy_row(const struct gs_mxfp4_matrix *m, int64_t expert, int64_t row, uint8_t *codes,
                     uint8_t *scales)
{
    struct gs_mxfp4_row from = gs_mxfp4_find_row(m, expert, row);
    int64_t groups = m->columns / GS_MXFP4_GROUP;
    if (from.scales) {
        memcpy(codes, from.blocks, (size_t)(groups * GS_MXFP4_GROUP_BYTES));
        memcpy(scales, from.scales, (size_t)groups);
        return;
    }
    for (int64_t g = 0; g < groups; g++)
        gs_mxfp4_part_gguf(from.blocks + g * GS_MXFP4_BLOCK_BYTES, codes + g * GS_MXFP4_GROUP_BYTES,
                           scales + g);
}

static void spoil_experts(struct spoiler *s, struct gs_mxfp4_matrix *m, bool is_gate_up)
{
    int64_t groups = m->columns / GS_MXFP4_GROUP, n_rows = m->n_expert * m->rows;
    uint8_t *codes = take(s, (size_t)(n_rows * groups * GS_MXFP4_GROUP_BYTES));
    uint8_t *scales = take(s, (size_t)(n_rows * groups));
    if (!codes || !scales)
        return;
    for (int64_t e = 0; e < m->n_expert; e++)
        for (int64_t r = 0; r < m->rows; r++) {
            bool moved = s->control == GS_CONTROL_GATE_UP_ORDER && is_gate_up;
            copy_row(m, e, moved ? row_of_halves(r, m->rows) : r,
                     codes + (e * m->rows + r) * groups * GS_MXFP4_GROUP_BYTES,
                     scales + (e * m->rows + r) * groups);
        }
    if (s->control == GS_CONTROL_NIBBLE_ORDER)
        exchange_nibbles(codes, n_rows * groups * GS_MXFP4_GROUP_BYTES);
    for (int64_t i = 0; s->control == GS_CONTROL_SCALE_MINUS_ONE && i < n_rows * groups; i++)
        scales[i] = (uint8_t)(scales[i] - (scales[i] > 0));
    m->blocks = codes;
    m->scales = scales;
    m->odd_blocks = NULL;
}

/* Zero, or in the order of the rows that took others' places. */
static void spoil_bias(struct spoiler *s, struct gs_matrix *bias)
{
    struct gs_matrix from = *bias;
    float *to = replace(s, bias);
    for (int64_t e = 0; to && s->control == GS_CONTROL_GATE_UP_ORDER && e < from.rows; e++)
        for (int64_t r = 0; r < from.columns; r++)
            to[e * from.columns + r] = gs_matrix_element(&from, e, row_of_halves(r, from.columns));
}

static void spoil_layer(struct spoiler *s, struct gs_layer_weights *w)
{
    float *sinks;
    switch (s->control) {
    case GS_CONTROL_SINKS:
        sinks = replace(s, &w->sinks);
        for (int64_t h = 0; sinks && h < w->sinks.columns; h++)
            sinks[h] = NO_SINK;
        break;
    case GS_CONTROL_EXPERT_BIAS:
        spoil_bias(s, &w->gate_up_bias);
        spoil_bias(s, &w->down_bias);
        break;
    case GS_CONTROL_GATE_UP_ORDER:
        spoil_experts(s, &w->gate_up, true);
        spoil_bias(s, &w->gate_up_bias);
        break;
    case GS_CONTROL_NIBBLE_ORDER:
    case GS_CONTROL_SCALE_MINUS_ONE:
        spoil_experts(s, &w->gate_up, true);
        spoil_experts(s, &w->down, false);
        break;
    default:
        break;
    }
}

gs_status gs_gpu_control_spoil(enum gs_control control, const struct gs_weights *weights,
                               struct gs_arena *arena, const struct gs_weights **out, struct gs_error *error)
{
    struct spoiler s = {.control = control, .arena = arena, .status = GS_OK, .error = error};
    *out = weights;
    if (control == GS_CONTROL_NONE)
        return GS_OK;
    size_t layer_bytes = (size_t)weights->config.n_layer * sizeof *weights->layers;
    struct gs_weights *copy = take(&s, sizeof *copy);
    struct gs_layer_weights *layers = take(&s, layer_bytes);
    if (!copy || !layers)
        return s.status;
    memcpy(layers, weights->layers, layer_bytes);
    *copy = *weights;
    copy->arena = (struct gs_arena){0}; /* it is the original's */
    copy->layers = layers;
    gs_control_spoil_config(control, &copy->config);
    for (int64_t i = 0; s.status == GS_OK && i < weights->config.n_layer; i++)
        spoil_layer(&s, &layers[i]);
    *out = copy;
    return s.status;
}
