/*
 * What the parts of gossamer bench share: the settings, and the report that measuring fills and
 * bench_show.c prints. Each kind of measurement has a file of its own: bench_model.c, bench_kernel.c.
 */
#ifndef GS_CLI_BENCH_H
#define GS_CLI_BENCH_H

#include "cli/output.h"
#include "engine/measure.h"

#define GS_BENCH_MAX_LIST 16
#define GS_BENCH_MAX_ROWS 512
#define GS_BENCH_MAX_RUNS 1000

struct gs_bench_list {
    int64_t values[GS_BENCH_MAX_LIST];
    size_t count;
};

struct gs_bench_settings {
    const char *model; /* path */
    const char *backend;
    struct gs_bench_list prompt;   /* tokens of each prompt row */
    struct gs_bench_list generate; /* tokens of each generation row */
    struct gs_bench_list depth;    /* tokens in the context before */
    struct gs_bench_list threads;
    int64_t n_prompts; /* of the row of several greedy continuations; 0: none */
    int64_t n_runs;    /* 0: the kind's default */

    const struct gs_measure_kernel *kernel; /* NULL: measure the model */
    int64_t layer;
    int64_t expert;
    struct gs_bench_list experts; /* of a launch */
    bool scalar_load;
};

struct gs_bench_spread {
    double median, least, most;
};
struct gs_bench_spread gs_bench_spread(const double *values, size_t count);

/* One line of the result. A run does the same work each time. */
struct gs_bench_row {
    char name[96]; /* "pp128", "tg16 @ d512", "moe_down_mxfp4_f32 x4 cold" */
    size_t n_threads;
    int64_t depth;
    int64_t n_tokens;  /* a run; 0: a kernel */
    uint64_t bytes;    /* of weights that a run reads */
    uint64_t products; /* multiplications of a run: of weights and activations */
    double bandwidth;  /* bytes a second that as many threads read */
    double *seconds;   /* [n_runs] */
    size_t n_runs;
    double cpu_seconds;    /* of all threads, over all runs: with other work going on, less than */
    double thread_seconds; /* how long the runs lasted, times the threads */
};

struct gs_bench_bandwidth {
    size_t n_threads;
    struct gs_bench_spread bytes_per_second;
    uint64_t buffer_bytes;
    double load_seconds; /* opening the model with so many threads; kernels: 0 */
};

struct gs_bench_report {
    const char *kind;    /* "model" or "kernel" */
    const char *backend; /* "cpu" */
    char isa[32];
    char model[200]; /* the last part of its path */
    struct gs_model_info info;
    bool has_info;
    struct gs_bench_bandwidth *machine; /* [n_machine]: by number of threads */
    size_t n_machine;
    struct gs_bench_row *rows; /* [n_rows] */
    size_t n_rows;
    struct gs_measure_expert *experts; /* [n_experts]: of the largest launch; kernels only */
    size_t n_experts;
    char shards[GS_MEASURE_MAX_SLICES][200]; /* the files of their slices */
    int64_t layer;
    uint64_t peak_bytes;      /* resident high-water mark, mapped weights included; 0: unknown */
    uint64_t anonymous_bytes; /* of it what is not mapped from files, the most seen; 0: unknown */
};
void gs_bench_report_free(struct gs_bench_report *report);

/* Appends an empty row with room for n_runs; its memory belongs to the report. */
gs_status gs_bench_row_add(struct gs_bench_report *report, size_t n_runs, struct gs_bench_row **out,
                           struct gs_error *error);

/* The machine's read bandwidth with so many threads, appended to report->machine. */
gs_status gs_bench_measure_bandwidth(struct gs_bench_report *report, size_t n_threads,
                                     struct gs_bench_bandwidth **out, struct gs_error *error);

/* What this process has used so far, all its threads together. */
double gs_bench_cpu_seconds(void);

/* Sets the resident high-water mark back to what is resident now, where the system can. */
void gs_bench_forget_peak(void);

/* Notes how much memory is resident now. */
void gs_bench_note_memory(struct gs_bench_report *report);

gs_status gs_bench_model(const struct gs_bench_settings *settings, struct gs_bench_report *report,
                         struct gs_error *error);
gs_status gs_bench_kernel(const struct gs_bench_settings *settings, struct gs_bench_report *report,
                          struct gs_error *error);

/* The machine as the system describes it. */
struct gs_bench_machine {
    char processor[128];
    char system[128]; /* "Linux 6.1.0 x86_64" */
    char build[128];  /* "gcc 12.2.0, optimised" */
    char when[32];    /* "2026-11-29T16:49:00Z" */
    int64_t n_processors;
    uint64_t memory_bytes;
    uint64_t cache_bytes; /* last level; 0: unknown */
    double load[3];       /* 1, 5 and 15 minutes; all 0: unknown */
};
struct gs_bench_machine gs_bench_machine(void);

/* As a table for people, or in Markdown; as JSON, with the words of the command as they were given. */
void gs_bench_show(const struct gs_bench_report *report, const struct gs_bench_machine *machine,
                   bool markdown, struct gs_output *out);
gs_status gs_bench_show_json(const struct gs_bench_report *report, const struct gs_bench_machine *machine,
                             const char *const *command, size_t n_command, struct gs_output *out,
                             struct gs_error *error);

/* Runs the command of a campaign file on the model at this path, and prints the outcome. */
gs_status gs_bench_gate(const char *path, const char *model, bool json, struct gs_output *out,
                        struct gs_error *error);

#endif
