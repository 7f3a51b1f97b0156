#include "server/metrics.h"

static const double bounds[GS_METRICS_BUCKETS - 1] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                      0.5,   1,      2.5,   5,    10,    30,   60};

void gs_histogram_add(struct gs_histogram *histogram, double seconds)
{
    size_t bucket = 0;
    while (bucket < GS_METRICS_BUCKETS - 1 && seconds > bounds[bucket])
        bucket++;
    atomic_fetch_add(&histogram->buckets[bucket], 1);
    atomic_fetch_add(&histogram->nanoseconds, (uint64_t)(seconds * 1e9));
}

struct out {
    struct gs_buffer *buffer;
    struct gs_error *error;
    gs_status status;
};

static void write_value(struct out *out, const char *name, const char *type, const char *help, double value)
{
    if (out->status == GS_OK)
        out->status = gs_buffer_print(out->buffer, out->error,
                                      "# HELP gossamer_%s %s\n# TYPE gossamer_%s %s\ngossamer_%s %.17g\n",
                                      name, help, name, type, name, value);
}

static void write_histogram(struct out *out, const char *name, const char *help,
                            struct gs_histogram *histogram)
{
    uint64_t total = 0;
    if (out->status == GS_OK)
        out->status =
            gs_buffer_print(out->buffer, out->error, "# HELP gossamer_%s %s\n# TYPE gossamer_%s histogram\n",
                            name, help, name);
    for (size_t i = 0; i < GS_METRICS_BUCKETS && out->status == GS_OK; i++) {
        total += atomic_load(&histogram->buckets[i]);
        out->status = i < GS_METRICS_BUCKETS - 1
                          ? gs_buffer_print(out->buffer, out->error, "gossamer_%s_bucket{le=\"%g\"} %llu\n",
                                            name, bounds[i], (unsigned long long)total)
                          : gs_buffer_print(out->buffer, out->error, "gossamer_%s_bucket{le=\"+Inf\"} %llu\n",
                                            name, (unsigned long long)total);
    }
    if (out->status == GS_OK)
        out->status = gs_buffer_print(
            out->buffer, out->error, "gossamer_%s_sum %.9g\ngossamer_%s_count %llu\n", name,
            (double)atomic_load(&histogram->nanoseconds) / 1e9, name, (unsigned long long)total);
}

#define COUNTER(member, help)                                                                                \
    write_value(&to, #member "_total", "counter", help, (double)atomic_load(&metrics->member))
#define GAUGE(member, help) write_value(&to, #member, "gauge", help, (double)atomic_load(&metrics->member))

gs_status gs_metrics_write(struct gs_metrics *metrics, const struct gs_cache_figures *cache,
                           struct gs_buffer *out, struct gs_error *error)
{
    struct out to = {out, error, GS_OK};
    COUNTER(requests, "Generations that were asked for.");
    COUNTER(rejected, "Of these, refused because the queue was full.");
    COUNTER(finished, "Of these, ended as they should.");
    COUNTER(failed, "Of these, ended by an error.");
    COUNTER(cancelled, "Of these, ended because the client left.");
    COUNTER(prompt_tokens, "Tokens of prompts.");
    COUNTER(cached_tokens, "Of these, taken from the prefix cache.");
    COUNTER(prefix_hits, "Sequences that went on from a kept prefix.");
    COUNTER(completion_tokens, "Tokens generated.");
    COUNTER(reasoning_tokens, "Of these, in reasoning.");
    COUNTER(steps, "Steps of the model.");
    COUNTER(step_tokens, "Tokens run by these.");
    GAUGE(running, "Sequences under way.");
    GAUGE(waiting, "Requests in the queue.");
    GAUGE(kv_tokens, "Tokens in the caches of what is under way.");
    GAUGE(kv_capacity, "Tokens that these caches could hold.");
    write_value(&to, "prefix_cache_bytes", "gauge", "Bytes of the prefix cache.", (double)cache->bytes);
    write_value(&to, "prefix_cache_entries", "gauge", "Timelines in it.", (double)cache->n_entry);
    write_value(&to, "prefix_files", "gauge", "Timelines in the cache folder.", (double)cache->n_file);
    write_value(&to, "prefix_file_bytes", "gauge", "Bytes of the cache folder.", (double)cache->file_bytes);
    write_value(&to, "prefix_files_read_total", "counter", "Timelines that were read from it.",
                (double)cache->n_loaded);
    write_value(&to, "model_seconds_total", "counter", "Time of the engine's thread inside the model.",
                (double)atomic_load(&metrics->engine_nanoseconds) / 1e9);
    write_value(&to, "sampler_seconds_total", "counter", "Time of the engine's thread in drawing tokens.",
                (double)atomic_load(&metrics->sampler_nanoseconds) / 1e9);
    write_value(&to, "server_seconds_total", "counter", "Time of the engine's thread in everything else.",
                (double)atomic_load(&metrics->server_nanoseconds) / 1e9);
    write_histogram(&to, "time_to_first_token_seconds", "From the request to its first token.",
                    &metrics->first_token);
    write_histogram(&to, "time_between_tokens_seconds", "Between two tokens of a sequence.",
                    &metrics->between_tokens);
    write_histogram(&to, "queue_seconds", "From the request to its start.", &metrics->queue);
    write_histogram(&to, "request_seconds", "From the request to its end.", &metrics->request);
    return to.status;
}
