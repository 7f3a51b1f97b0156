/* The words by which commands call precisions and weight formats. */
#ifndef GS_CLI_NUMBER_NAMES_H
#define GS_CLI_NUMBER_NAMES_H

#include "gossamer.h"

const char *gs_precision_name(enum gs_precision precision);             /* "exact", "fast" */
const char *gs_weight_format_name(enum gs_weight_format weight_format); /* "native", "q8" */

/*
 * --decode and --scalar-load as given, and GOSSAMER_SIMDGROUPS of the environment. GS_INVALID_ARGUMENT says
 * what there is. `decode` NULL: the default.
 */
gs_status gs_parse_levers(const char *decode, bool scalar_load, struct gs_levers *out,
                          struct gs_error *error);

/* GS_INVALID_ARGUMENT lists the words. `text` NULL: *out stays. */
gs_status gs_parse_precision(const char *text, enum gs_precision *out, struct gs_error *error);
gs_status gs_parse_weight_format(const char *text, enum gs_weight_format *out, struct gs_error *error);

#endif
