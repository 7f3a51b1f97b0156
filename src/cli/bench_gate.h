/*
 * Campaign files (bench/campaign/README.md): a prediction and its thresholds, written before the run. This
 * module reads them and judges a figure; bench_gate_run.c runs them.
 */
#ifndef GS_CLI_BENCH_GATE_H
#define GS_CLI_BENCH_GATE_H

#include "base/buffer.h"

#define GS_GATE_MAX_RUNS  100
#define GS_GATE_MAX_WORDS 40
#define GS_GATE_MAX_BYTES 65536 /* of a file */

enum gs_gate_key {
    GS_GATE_HYPOTHESIS,
    GS_GATE_MACHINE,
    GS_GATE_MODEL,
    GS_GATE_COMMAND,
    GS_GATE_RUNS,
    GS_GATE_ROW,
    GS_GATE_FIGURE,
    GS_GATE_OVER,
    GS_GATE_PREDICTED,
    GS_GATE_BASIS,
    GS_GATE_CONTINUE,
    GS_GATE_STRONG,
    GS_GATE_CLOSE_OUT,
    GS_GATE_NOTE,
    GS_GATE_KEY_COUNT,
};

enum gs_gate_outcome {
    GS_GATE_IS_STRONG,
    GS_GATE_IS_CONTINUE,
    GS_GATE_IS_UNDECIDED, /* between continue and close-out */
    GS_GATE_IS_CLOSE_OUT,
};

struct gs_gate {
    struct gs_buffer values[GS_GATE_KEY_COUNT]; /* as text, one line each; empty: an optional key left out */
    char *words[GS_GATE_MAX_WORDS + 1];         /* of the command, into `command`; ends with NULL */
    size_t n_words;
    char *command;
    int64_t n_runs;
    double predicted;
    double at_continue, at_strong, at_close_out;
    bool less_is_better;
};

/*
 * GS_MALFORMED with the file, the line, what is wrong and what would be right; *out needs gs_gate_free in
 * any case.
 */
gs_status gs_gate_read(const char *path, struct gs_gate *out, struct gs_error *error);
void gs_gate_free(struct gs_gate *gate);

enum gs_gate_outcome gs_gate_judge(const struct gs_gate *gate, double figure);
const char *gs_gate_outcome_name(enum gs_gate_outcome outcome); /* "strong" */
const char *gs_gate_key_name(enum gs_gate_key key);             /* "close-out" */

#endif
