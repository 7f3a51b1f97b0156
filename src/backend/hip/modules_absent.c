/* In place of the embedded kernels, in a build that was made without a clang for AMD GPUs. */
#include "backend/hip/modules.h"

const struct gs_hip_module gs_hip_modules[1] = {{NULL, NULL}};
const size_t gs_hip_module_count = 0;
