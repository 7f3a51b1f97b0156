/*
 * What gossamer bench has measured, and how it is shown. Measuring (bench_model.c, bench_kernel.c) fills a
 * report; bench_show.c and bench_json.c print it.
 */
#ifndef GS_CLI_BENCH_REPORT_H
#define GS_CLI_BENCH_REPORT_H

#include "backend/backend.h"
#include "backend/cpu/measure.h"
#include "cli/output.h"
#include "engine/measure.h"

#define GS_BENCH_MAX_ROWS 512
#define GS_BENCH_MAX_RUNS 1000

struct gs_bench_spread {
    double median, least, most;
};
struct gs_bench_spread gs_bench_spread(const double *values, size_t count);

/* A run's time by stage: the backend's, then what happens outside it. */
enum gs_bench_stage {
    GS_BENCH_SAMPLING = GS_TIME_COUNT,
    GS_BENCH_OUTSIDE, /* the rest: all stages add up to the time of the runs */
    GS_BENCH_STAGE_COUNT,
};
const char *gs_bench_stage_name(int stage); /* "norm" */

/* One line of the result. A run does the same work each time. */
struct gs_bench_row {
    char name[96]; /* "pp128", "tg16 @ d512", "8 x tg16", "moe_down_mxfp4_f32 x4 cold" */
    size_t n_threads;
    int64_t depth;
    int64_t n_streams; /* timelines that advance at once; all of them together have n_tokens */
    int64_t n_tokens;  /* a run; 0: a kernel */
    uint64_t bytes;    /* of weights that a run reads */
    uint64_t kv_bytes; /* of the cache that a run reads; 0: a prompt, whose parts share what they read */
    uint64_t command_buffers, encoders, dispatches; /* of a run, where a queue drives the device; else 0 */
    uint64_t products;                              /* multiplications of a run: of weights and activations */
    double bandwidth; /* bytes a second that as many threads read; 0: not known, as for peak */
    double peak;      /* multiplications a second that as many threads do, of the type that counts here */
    double *seconds;  /* [n_runs] */
    size_t n_runs;
    bool is_in_turn;       /* run r came in the same round as run r of row `first` */
    size_t first;          /* the same at the first depth */
    double cpu_seconds;    /* of all threads, over all runs: with other work going on, less than */
    double thread_seconds; /* how long the runs lasted, times the threads */
    bool has_profile;
    double stage_seconds[GS_BENCH_STAGE_COUNT]; /* over all runs */
};

/* Work over time of each run: `work` units of a run. */
struct gs_bench_spread gs_bench_rate(const struct gs_bench_row *row, double work);

/* `figure` as a share of a limit; negative if that is not known. */
double gs_bench_share(double figure, double limit);

/* Everything that a run reads. */
uint64_t gs_bench_row_bytes(const struct gs_bench_row *row);

/*
 * Of the processors' time that the row's threads asked for, the part that they got; negative for a row that
 * was too short to tell.
 */
double gs_bench_cpu_share(const struct gs_bench_row *row);

/* What the machine can do with so many threads, and how long the model took to open with them. */
struct gs_bench_limits {
    size_t n_threads;
    struct gs_bench_spread bytes_per_second;
    struct gs_bench_spread after; /* the same after the rows; all 0: not measured */
    uint64_t buffer_bytes;
    struct gs_bench_spread products_per_second[GS_MEASURE_TYPE_COUNT];
    double load_seconds; /* kernels: 0 */
    double
        first_token_seconds; /* opening, loading and the first token, pages in the cache; 0: not measured */
};

struct gs_bench_report {
    const char *kind;      /* "model" or "kernel" */
    const char *backend;   /* "cpu" */
    const char *precision; /* "exact" */
    const char *weights;   /* "native" */
    char isa[32];
    char model[200]; /* the last part of its path */
    struct gs_model_info info;
    bool has_info;
    struct gs_bench_limits *limits; /* [n_limits]: by number of threads */
    size_t n_limits;
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

/* The row's speed as a part of that of its first row, in each round; for a row that is_in_turn. */
struct gs_bench_spread gs_bench_of_first(const struct gs_bench_report *report,
                                         const struct gs_bench_row *row);

/* Measures what the machine can do with so many threads; appended to report->limits. */
gs_status gs_bench_measure_limits(struct gs_bench_report *report, size_t n_threads,
                                  struct gs_bench_limits **out, struct gs_error *error);

/* Measures the bandwidth once more, after the rows: limits->after. */
gs_status gs_bench_measure_again(struct gs_bench_limits *limits, struct gs_error *error);

/* By how much the bandwidth after the rows differs from that before, as a part of the smaller; 0: not known.
 */
double gs_bench_drift(const struct gs_bench_limits *limits);

/* What this process has used so far, all its threads together. */
double gs_bench_cpu_seconds(void);

/* Sets the resident high-water mark back to what is resident now, where the system can. */
void gs_bench_forget_peak(void);

/* Notes how much memory is resident now. */
void gs_bench_note_memory(struct gs_bench_report *report);

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

/* As a table for people, or in Markdown. */
void gs_bench_show(const struct gs_bench_report *report, const struct gs_bench_machine *machine,
                   bool markdown, struct gs_output *out);

/* A line of names, then a line a row. */
void gs_bench_show_csv(const struct gs_bench_report *report, struct gs_output *out);

/* With the words of the command as they were given. */
gs_status gs_bench_show_json(const struct gs_bench_report *report, const struct gs_bench_machine *machine,
                             const char *const *command, size_t n_command, struct gs_output *out,
                             struct gs_error *error);

#endif
