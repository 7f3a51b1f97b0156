/* gossamer run: its settings, and the chat turn that it is without --raw. */
#ifndef GS_CLI_RUN_TURN_H
#define GS_CLI_RUN_TURN_H

#include "cli/output.h"
#include "cli/setup.h"

struct gs_run_settings {
    struct gs_setup_settings setup;
    const char *prompt, *file, *system, *effort, *tools, *date;
    bool from_stdin, special;
    bool dry_run, ignore_stop, show_special, keep_control, json, stats, raw;
    bool show_reasoning, no_date;
    int64_t n_logprobs; /* -1: none */
};

/* One turn: the answer, or with --json the whole message, goes to `output`. Loads the model. */
gs_status gs_run_turn(const struct gs_run_settings *settings, struct gs_setup *setup,
                      struct gs_output *output, struct gs_error *error);

#endif
