/* The Metal backend: Apple silicon, through the Objective-C runtime opened at run time. docs/metal.md. */
#ifndef GS_BACKEND_METAL_BACKEND_H
#define GS_BACKEND_METAL_BACKEND_H

#include "backend/backend.h"

extern const struct gs_backend gs_backend_metal;

#endif
