/* The checks of gs_verify, each appended to a report. For verify.c and verify_controls.c. */
#ifndef GS_ENGINE_VERIFY_CHECKS_H
#define GS_ENGINE_VERIFY_CHECKS_H

#include "engine/verify.h"
#include "engine/verify_golden.h"
#include "engine/verify_run.h"

/* Sets check.pass, counts a failure, appends. */
gs_status gs_check_add(struct gs_verify_report *report, struct gs_check check, struct gs_error *error);

/*
 * Every MXFP4 element as the backend dequantises it, against the format's definition evaluated here from its
 * bits by ldexp; with a complete golden (may be NULL) also against transformers' checksums, which see the
 * order of rows and elements.
 */
gs_status gs_check_mxfp4(struct gs_verify_report *report, const struct gs_subject *subject,
                         const struct gs_golden *golden, const struct gs_watch *watch,
                         struct gs_error *error);

/* The backend's frequencies, cosines and sines against float64, and against the golden (may be NULL). */
gs_status gs_check_rotary(struct gs_verify_report *report, const struct gs_subject *subject,
                          const struct gs_golden *golden, struct gs_error *error);

/*
 * The distances of a comparison against report->thresholds. A component that was expected and never seen
 * fails; one that was not expected, or has no position in common, is left out.
 */
gs_status gs_check_comparison(struct gs_verify_report *report, const struct gs_comparison *comparison,
                              struct gs_error *error);

/*
 * Two records of the same tokens: the same bits wherever both keep a position; what only one of them has seen
 * differs. `measure` names the check; without `promised` it is measured only.
 */
gs_status gs_check_same_bits(struct gs_verify_report *report, const struct gs_record *found,
                             const struct gs_record *expected, const char *measure, bool promised,
                             struct gs_error *error);

#endif
