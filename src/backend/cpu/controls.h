/*
 * The negative controls of the exact CPU backend (enum gs_control): where possible the unchanged reference
 * gets spoilt weights; where the arithmetic itself must differ, one stage or the MXFP4 kernel is replaced.
 * Decided once, at load; without a control nothing here runs.
 */
#ifndef GS_BACKEND_CPU_CONTROLS_H
#define GS_BACKEND_CPU_CONTROLS_H

#include "backend/cpu/device.h"

/*
 * Spoils a device that has its weights but nothing derived from them yet, as device->control says. The
 * weights themselves stay as they are: device->weights becomes a copy in the device's arena.
 */
gs_status gs_cpu_control_apply(struct gs_device *device, struct gs_error *error);

#endif
