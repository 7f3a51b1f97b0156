/* The kernels of this build, embedded: one fat binary for each file of kernels. None without nvcc. */
#ifndef GS_BACKEND_CUDA_MODULES_H
#define GS_BACKEND_CUDA_MODULES_H

#include <stddef.h>

struct gs_cuda_module {
    const char *name; /* "simple" */
    const unsigned char *image;
};

extern const struct gs_cuda_module gs_cuda_modules[]; /* [gs_cuda_module_count] */
extern const size_t gs_cuda_module_count;
extern const int gs_cuda_toolkit; /* 13000 for 13.0: a driver of that major version, at least, is needed */

#endif
