/* Figures for /metrics: counters and histograms, lock-free, without a word of what anybody asked. */
#ifndef GS_SERVER_METRICS_H
#define GS_SERVER_METRICS_H

#include "base/buffer.h"

#include <stdatomic.h>

#define GS_METRICS_BUCKETS 16

/* Of seconds. */
struct gs_histogram {
    _Atomic uint64_t buckets[GS_METRICS_BUCKETS]; /* not cumulated; the last one is +Inf */
    _Atomic uint64_t nanoseconds;                 /* the sum */
};

struct gs_metrics {
    _Atomic uint64_t requests, rejected, finished, failed, cancelled;
    _Atomic uint64_t prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens;
    _Atomic uint64_t prefix_hits; /* sequences that went on from a kept prefix */
    _Atomic uint64_t steps, step_tokens;
    _Atomic size_t running, waiting;
    _Atomic uint64_t kv_tokens, kv_capacity; /* of what runs */
    /* of the engine's thread: in the model, in drawing tokens, in all else */
    _Atomic uint64_t engine_nanoseconds, sampler_nanoseconds, server_nanoseconds;
    struct gs_histogram first_token, between_tokens, queue, request;
};

/* Of the prefix cache: what is in memory, what was read from files, what is in files. */
struct gs_cache_figures {
    size_t n_entry;
    uint64_t bytes, n_loaded;
    size_t n_file;
    uint64_t file_bytes;
};

void gs_histogram_add(struct gs_histogram *histogram, double seconds);

/* In Prometheus' text form. */
gs_status gs_metrics_write(struct gs_metrics *metrics, const struct gs_cache_figures *cache,
                           struct gs_buffer *out, struct gs_error *error);

#endif
