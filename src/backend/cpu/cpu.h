/* The CPU backend's entry in the registry. */
#ifndef GS_BACKEND_CPU_CPU_H
#define GS_BACKEND_CPU_CPU_H

#include "backend/backend.h"

extern const struct gs_backend gs_backend_cpu;

#endif
