/* Controls that are a wrong configuration, the same on every backend. */
#ifndef GS_BACKEND_CONTROL_CONFIG_H
#define GS_BACKEND_CONTROL_CONFIG_H

#include "backend/backend.h"

/* GS_CONTROL_WINDOW, GS_CONTROL_YARN and GS_CONTROL_YARN_ROUNDED_BOUNDS; others leave it alone. */
void gs_control_spoil_config(enum gs_control control, struct gs_config *config);

#endif
