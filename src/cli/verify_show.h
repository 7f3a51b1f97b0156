/* The reports of gossamer verify, as tables for people and as JSON. */
#ifndef GS_CLI_VERIFY_SHOW_H
#define GS_CLI_VERIFY_SHOW_H

#include "cli/output.h"
#include "engine/verify.h"

/* What the reports themselves do not know. */
struct gs_verify_subject {
    const char *model;
    const char *golden; /* NULL: none */
    enum gs_control control;
    bool all_layers;              /* a line for each layer instead of the worst */
    const struct gs_vocab *vocab; /* for the decoded tokens; NULL: their ids are shown */
};

void gs_show_checks(const struct gs_verify_report *report, const struct gs_verify_subject *subject,
                    struct gs_output *out);
gs_status gs_show_checks_json(const struct gs_verify_report *report, const struct gs_verify_subject *subject,
                              struct gs_output *out, struct gs_error *error);

void gs_show_controls(const struct gs_controls_report *report, const struct gs_verify_subject *subject,
                      struct gs_output *out);
gs_status gs_show_controls_json(const struct gs_controls_report *report,
                                const struct gs_verify_subject *subject, struct gs_output *out,
                                struct gs_error *error);

void gs_show_thresholds(struct gs_output *out);
gs_status gs_show_thresholds_json(struct gs_output *out, struct gs_error *error);

#endif
