/* What the tests of the HIP backend share: the stand-in for AMD's library beside the test, and this build's
 * kernels. */
#ifndef GS_TESTS_GPU_SIM_STAND_IN_H
#define GS_TESTS_GPU_SIM_STAND_IN_H

#include "tests/gpu_sim/hip.h"

/*
 * Opened first, the stand-in is what the backend's own opening by name finds. Returns its control; NULL with
 * the reason printed where this build has no stand-in or no code objects. Fails the test group's setup (-1 in
 * *status) where it should open and does not. `folder` [size] becomes the stand-in's.
 */
struct hip_sim_control *stand_in_open(char *folder, size_t size, int *status);

/*
 * The kinds of GPU that the stand-in's devices shall be, of those that this build has code objects for: one
 * with waves of 64 lanes, one with 32. Where it has none such, any: the stand-in runs kernels of its own, the
 * code object only has to be found.
 */
void stand_in_kinds(unsigned kinds[2]);

/* The name of the first code object for a kind: "gfx942". */
const char *stand_in_arch(unsigned kind);

#endif
