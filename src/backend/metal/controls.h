/*
 * The negative controls of exact precision (enum gs_control): the same kernels get spoilt weights or sizes;
 * where the arithmetic itself must differ, the kernels are compiled for it (GS_METAL_CONSTANT_CONTROL).
 * Without a control each of these leaves what it is given as it is.
 */
#ifndef GS_BACKEND_METAL_CONTROLS_H
#define GS_BACKEND_METAL_CONTROLS_H

#include "backend/metal/device.h"

/* GS_UNSUPPORTED outside exact precision. */
gs_status gs_metal_control_check(const struct gs_device_options *options, struct gs_error *error);

/* What the kernels are compiled to do wrongly. */
enum gs_metal_control gs_metal_control_of(enum gs_control control);

/* Are the experts spoilt, so that they cannot stay in the file? */
bool gs_metal_control_copies_experts(enum gs_control control);

/* The row that takes the place of row `row` of q or k, under GS_CONTROL_ROPE_PAIRS. */
int64_t gs_metal_control_paired_row(const struct gs_device *device, int64_t row);

/* The row that takes the place of row `row` of [n_rows] of gate and up. */
int64_t gs_metal_control_gate_up_row(enum gs_control control, int64_t row, int64_t n_rows);

/* A copied row of an expert: codes [groups][16], scales [groups]. */
void gs_metal_control_spoil_row(enum gs_control control, uint8_t *codes, uint8_t *scales, int64_t groups);

/* The experts' biases, copied from a matrix [n_expert][rows], and a layer's sinks [n_head]. */
void gs_metal_control_spoil_bias(enum gs_control control, const struct gs_matrix *from, bool is_gate_up,
                                 float *bias);
void gs_metal_control_spoil_sinks(const struct gs_device *device, float *sinks);

#endif
