/* The kernels of this build, embedded: one code object for each kind of device. None without clang. */
#ifndef GS_BACKEND_HIP_MODULES_H
#define GS_BACKEND_HIP_MODULES_H

#include <stddef.h>

struct gs_hip_module {
    const char *arch; /* "gfx942" */
    const unsigned char *image;
};

extern const struct gs_hip_module gs_hip_modules[]; /* [gs_hip_module_count] */
extern const size_t gs_hip_module_count;

#endif
