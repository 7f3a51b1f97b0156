#include "backend/metal/controls.h"

#include "base/status.h"

#include <string.h>

/* Far below any score, and finite: its weight is 0. */
#define NO_SINK (-1e30f)

gs_status gs_metal_control_check(const struct gs_device_options *options, struct gs_error *error)
{
    if ((unsigned)options->control >= GS_CONTROL_COUNT)
        return gs_fail(error, GS_INVALID_ARGUMENT, "control %d: there are controls 0 to %d",
                       (int)options->control, GS_CONTROL_COUNT - 1);
    if (options->control != GS_CONTROL_NONE && options->precision != GS_PRECISION_EXACT)
        return gs_fail(error, GS_UNSUPPORTED, "controls are of exact precision");
    return GS_OK;
}

enum gs_metal_control gs_metal_control_of(enum gs_control control)
{
    switch (control) {
    case GS_CONTROL_ROUTER_SOFTMAX:
        return GS_METAL_CONTROL_ROUTER_SOFTMAX;
    case GS_CONTROL_SWIGLU_CLAMP:
        return GS_METAL_CONTROL_SWIGLU_CLAMP;
    case GS_CONTROL_SWIGLU_PLUS_ONE:
        return GS_METAL_CONTROL_SWIGLU_PLUS_ONE;
    case GS_CONTROL_KV_RING:
        return GS_METAL_CONTROL_KV_RING;
    case GS_CONTROL_ROPE_PAIRS:
        return GS_METAL_CONTROL_ROPE_PAIRS;
    default:
        return GS_METAL_CONTROL_NONE; /* what is spoilt is what the kernels are given */
    }
}

bool gs_metal_control_copies_experts(enum gs_control control)
{
    return control == GS_CONTROL_NIBBLE_ORDER || control == GS_CONTROL_GATE_UP_ORDER ||
           control == GS_CONTROL_SCALE_MINUS_ONE;
}

/*
 * Rotating neighbours is rotating halves of rows that were put in another order. The kernel puts what it has
 * turned back in its own place, so that products of q and k are summed in their usual order: position 0,
 * which is not turned, has the bits that it has without the control.
 */
int64_t gs_metal_control_paired_row(const struct gs_device *device, int64_t row)
{
    int64_t d_head = device->config.d_head, half = d_head / 2, j = row % d_head;
    return row - j + (j < half ? 2 * j : 2 * (j - half) + 1);
}

int64_t gs_metal_control_gate_up_row(enum gs_control control, int64_t row, int64_t n_rows)
{
    if (control != GS_CONTROL_GATE_UP_ORDER)
        return row;
    return row % 2 == 0 ? row / 2 : n_rows / 2 + row / 2;
}

void gs_metal_control_spoil_row(enum gs_control control, uint8_t *codes, uint8_t *scales, int64_t groups)
{
    if (control == GS_CONTROL_NIBBLE_ORDER)
        for (int64_t i = 0; i < groups * GS_MXFP4_GROUP_BYTES; i++)
            codes[i] = (uint8_t)(codes[i] >> 4 | codes[i] << 4);
    if (control == GS_CONTROL_SCALE_MINUS_ONE)
        for (int64_t i = 0; i < groups; i++)
            scales[i] = (uint8_t)(scales[i] - (scales[i] > 0));
}

void gs_metal_control_spoil_bias(enum gs_control control, const struct gs_matrix *from, bool is_gate_up,
                                 float *bias)
{
    for (int64_t e = 0; e < from->rows; e++, bias += from->columns) {
        if (control == GS_CONTROL_EXPERT_BIAS)
            memset(bias, 0, (size_t)from->columns * sizeof *bias);
        for (int64_t r = 0; control == GS_CONTROL_GATE_UP_ORDER && is_gate_up && r < from->columns; r++)
            bias[r] = gs_matrix_element(from, e, gs_metal_control_gate_up_row(control, r, from->columns));
    }
}

void gs_metal_control_spoil_sinks(const struct gs_device *device, float *sinks)
{
    if (device->control == GS_CONTROL_SINKS)
        for (int64_t h = 0; h < device->config.n_head; h++)
            sinks[h] = NO_SINK;
}
