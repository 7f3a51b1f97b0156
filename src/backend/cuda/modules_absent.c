/* In place of the embedded kernels, in a build that was made without nvcc. */
#include "backend/cuda/modules.h"

const struct gs_cuda_module gs_cuda_modules[1] = {{NULL, NULL}};
const size_t gs_cuda_module_count = 0;
const int gs_cuda_toolkit = 0;
