/* The parts of gs_verify_controls that decide, apart from the runs that feed them: for verify_controls.c and
 * tests. */
#ifndef GS_ENGINE_VERIFY_CONTROLS_H
#define GS_ENGINE_VERIFY_CONTROLS_H

#include "engine/compare.h"
#include "engine/verify.h"

/*
 * The first position at which any component differs; INT64_MAX: none does. `upstream` names a component that
 * differs although it comes before the control acts; it is left as it is if there is none.
 */
int64_t gs_control_find_first(enum gs_control control, const struct gs_record *found,
                              const struct gs_record *expected, const struct gs_config *config,
                              char upstream[64]);

/* Sets `problem` and `behaves` from the rest of the result. */
void gs_control_judge(struct gs_control_result *result, const char *upstream);

#endif
