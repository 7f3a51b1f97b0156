#include "backend/control_config.h"

#include <string.h>

void gs_control_spoil_config(enum gs_control control, struct gs_config *config)
{
    if (control == GS_CONTROL_WINDOW)
        memset(config->layer_is_window, 0, sizeof config->layer_is_window);
    if (control == GS_CONTROL_YARN)
        config->rope_factor = 1.0;
    if (control == GS_CONTROL_YARN_ROUNDED_BOUNDS)
        config->rope_truncate = true;
}
