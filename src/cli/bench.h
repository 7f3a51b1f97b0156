/* What gossamer bench is asked for, and the kinds of measurement, each in a file of its own. */
#ifndef GS_CLI_BENCH_H
#define GS_CLI_BENCH_H

#include "cli/bench_report.h"

#define GS_BENCH_MAX_LIST    16
#define GS_BENCH_MAX_STREAMS 256

struct gs_bench_list {
    int64_t values[GS_BENCH_MAX_LIST];
    size_t count;
};

struct gs_bench_settings {
    const char *model;               /* path */
    struct gs_engine_options engine; /* but its threads and progress */
    struct gs_bench_list prompt;     /* tokens of each prompt row */
    struct gs_bench_list generate;   /* tokens of each generation row */
    struct gs_bench_list streams;    /* timelines that a generation row advances at once */
    struct gs_bench_list depth;      /* tokens in the context before */
    struct gs_bench_list threads;
    bool chain;        /* generation rows run as chains on the device */
    bool is_frontier;  /* the reading of the contexts is a row too */
    bool in_turn;      /* a run of each row, then the next of each */
    bool profile;      /* time by stage; generation samples */
    int64_t n_prompts; /* of the row of several greedy continuations; 0: none */
    int64_t n_runs;    /* 0: the kind's default */

    const struct gs_measure_kernel *kernel; /* NULL: measure the model */
    int64_t layer;
    int64_t expert;
    struct gs_bench_list experts; /* of a launch */
    bool scalar_load;
};

gs_status gs_bench_model(const struct gs_bench_settings *settings, struct gs_bench_report *report,
                         struct gs_error *error);
gs_status gs_bench_kernel(const struct gs_bench_settings *settings, struct gs_bench_report *report,
                          struct gs_error *error);

/* Runs the command of a campaign file on the model at this path, and prints the outcome. */
gs_status gs_bench_gate(const char *path, const char *model, bool json, struct gs_output *out,
                        struct gs_error *error);

#endif
