#include "server/server.h"

#include "base/clock.h"
#include "base/status.h"
#include "engine/snapshot.h"
#include "server/http_daemon.h"
#include "server/prefix_store.h"
#include "server/response_store.h"
#include "server/server_state.h"
#include "server/steer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_REPLAY     (1u << 20)  /* tokens of past calls */
#define MAX_RESPONSES  (64u << 20) /* bytes of stored responses */
#define REST_SECONDS   30.0        /* of a prefix file that cannot be read now */
#define MANY_SEQUENCES 32
#define FEW_SEQUENCES  4     /* a shorter context is taken rather than fewer, but not */
#define AGENT_CTX      32768 /* below this */
#define SCRIPT_CTX     131072
#define SEND_SECONDS   3.0 /* for what is written when the time is over */
#define CACHE_SHARE    4   /* a quarter of what is free */

struct gs_server_config gs_server_defaults(void)
{
    return (struct gs_server_config){.host = "127.0.0.1",
                                     .port = 8080,
                                     .max_queue = 128,
                                     .max_choices = 16,
                                     .max_body = 32u << 20,
                                     .cache_bytes = UINT64_MAX,
                                     .cache_folder_bytes = UINT64_C(4) << 30,
                                     .cache_folder_seconds = 10.0};
}

/* ---------------------------------------------------------------- opening */

gs_status gs_server_open(const struct gs_server_config *config, struct gs_server **out,
                         struct gs_error *error)
{
    *out = NULL;
    struct gs_server *server = calloc(1, sizeof *server);
    if (!server)
        return gs_fail_memory(error, sizeof *server);
    server->config = *config;
    server->created = (int64_t)time(NULL);
    pthread_mutex_init(&server->replay_mutex, NULL);
    pthread_mutex_init(&server->log_mutex, NULL);
    pthread_mutex_init(&server->date_mutex, NULL);
    gs_status status = gs_guard_open(&server->config, &server->guard, error);
    if (status == GS_OK)
        status = gs_replay_open(MAX_REPLAY, &server->replay, error);
    if (status == GS_OK)
        status = gs_grammar_cache_open(&server->grammars, error);
    if (status == GS_OK)
        status = gs_response_store_open(MAX_RESPONSES, &server->responses, error);
    if (status == GS_OK) {
        const struct gs_http_options options = {.host = config->host,
                                                .port = config->port,
                                                .max_body = config->max_body,
                                                .guard = &server->guard,
                                                .server = server};
        status = gs_http_open(&options, &server->http, error);
    }
    if (status != GS_OK) {
        gs_server_close(server);
        return status;
    }
    *out = server;
    return GS_OK;
}

int gs_server_port(const struct gs_server *server)
{
    return gs_http_port(server->http);
}

/* How many sequences of the context fit in `bytes`. */
static size_t count_fitting(const struct gs_engine *engine, int64_t n_ctx, uint64_t bytes)
{
    uint64_t each = gs_session_bytes(engine, n_ctx);
    return each > 0 ? (size_t)(bytes / each) : MANY_SEQUENCES;
}

/* The context and how many sequences at once, from what was asked for and from the memory that is free. */
static gs_status plan_memory(struct gs_server *server, struct gs_error *error)
{
    const struct gs_server_config *config = &server->config;
    struct gs_memory_plan plan;
    int64_t n_ctx = config->n_ctx > 0 ? config->n_ctx : gs_engine_info(server->engine)->max_ctx;
    gs_status status = gs_engine_plan(server->engine, n_ctx, &plan, error);
    if (status != GS_OK)
        return status;
    bool known = plan.available_bytes > 0;
    uint64_t left = plan.available_bytes > plan.scratch_bytes ? plan.available_bytes - plan.scratch_bytes : 0;
    uint64_t cache =
        config->cache_bytes == UINT64_MAX ? (known ? left / CACHE_SHARE : 1u << 30) : config->cache_bytes;
    left = left > cache ? left - cache : 0;
    size_t wanted = config->n_parallel > 0 ? config->n_parallel : FEW_SEQUENCES;
    while (known && config->n_ctx == 0 && n_ctx > AGENT_CTX &&
           count_fitting(server->engine, n_ctx, left) < wanted)
        n_ctx = n_ctx / 2 > AGENT_CTX ? n_ctx / 2 : AGENT_CTX;
    if (known && config->n_ctx == 0 && n_ctx > plan.largest_n_ctx)
        n_ctx = plan.largest_n_ctx > 0 ? plan.largest_n_ctx : 1;
    size_t fitting = known ? count_fitting(server->engine, n_ctx, left) : FEW_SEQUENCES;
    if (known && n_ctx > plan.largest_n_ctx)
        return gs_fail(
            error, GS_INVALID_ARGUMENT,
            "a context of %lld tokens does not fit in the memory that is free: the largest that does "
            "is %lld",
            (long long)n_ctx, (long long)plan.largest_n_ctx);
    server->n_ctx = n_ctx;
    server->cache_bytes = cache;
    server->n_parallel = config->n_parallel > 0     ? config->n_parallel
                         : fitting > MANY_SEQUENCES ? MANY_SEQUENCES
                         : fitting > 0              ? fitting
                                                    : 1;
    size_t most = gs_batch_max_tokens(server->engine);
    if (config->n_parallel > most)
        return gs_fail(
            error, GS_INVALID_ARGUMENT,
            "--parallel %zu: at most %zu are taken, one for each token that a step of the model runs",
            config->n_parallel, most);
    if (server->n_parallel > most)
        server->n_parallel = most;
    return GS_OK;
}

static gs_status plan(struct gs_server *server, struct gs_error *error)
{
    const struct gs_server_config *config = &server->config;
    if (server->engine) {
        server->n_vocab = (size_t)gs_engine_info(server->engine)->n_vocab;
        return plan_memory(server, error);
    }
    server->n_vocab = gs_vocab_size(server->vocab);
    server->n_ctx = config->n_ctx > 0 ? config->n_ctx : SCRIPT_CTX;
    server->n_parallel = config->n_parallel > 0 ? config->n_parallel : MANY_SEQUENCES;
    return GS_OK;
}

static void log_of_store(void *user, const char *line)
{
    gs_server_log(user, "%s", line);
}

static gs_status open_store(struct gs_server *server, struct gs_error *error)
{
    const struct gs_server_config *config = &server->config;
    if (!config->cache_folder || !server->engine)
        return GS_OK;
    const struct gs_prefix_store_options options = {.folder = config->cache_folder,
                                                    .max_bytes = config->cache_folder_bytes,
                                                    .identity = gs_engine_identity(server->engine),
                                                    .max_tokens =
                                                        (size_t)gs_engine_info(server->engine)->max_ctx,
                                                    .keys = config->keys,
                                                    .n_key = config->n_key,
                                                    .rest_seconds = REST_SECONDS,
                                                    .log = log_of_store,
                                                    .log_user = server};
    return gs_prefix_store_open(&options, &server->store, error);
}

static void flush(void *user)
{
    struct gs_server *server = user;
    gs_http_flush(server->http);
}

gs_status gs_server_start(struct gs_server *server, struct gs_vocab *vocab, struct gs_engine *engine,
                          struct gs_error *error)
{
    struct gs_error unused;
    server->vocab = vocab;
    server->engine = engine;
    gs_status status = plan(server, error);
    if (status == GS_OK)
        status = open_store(server, error);
    if (status != GS_OK)
        return status;
    /* Without a trie formats are refused, nothing else. */
    if (gs_token_trie_open(vocab, server->n_vocab, &server->trie, &unused) != GS_OK)
        gs_server_log(server, "no output formats: %s", unused.message);
    const struct gs_scheduler_options options = {.vocab = vocab,
                                                 .engine = engine,
                                                 .script = server->config.script,
                                                 .script_step = server->config.script_step,
                                                 .script_seconds = server->config.script_seconds,
                                                 .n_vocab = server->n_vocab,
                                                 .n_ctx = server->n_ctx,
                                                 .n_parallel = server->n_parallel,
                                                 .max_queue = server->config.max_queue,
                                                 .cache_bytes = server->cache_bytes,
                                                 .store = server->store,
                                                 .store_seconds = server->config.cache_folder_seconds,
                                                 .metrics = &server->metrics,
                                                 .replay = server->replay,
                                                 .replay_mutex = &server->replay_mutex,
                                                 .flush = flush,
                                                 .flush_user = server};
    status = gs_scheduler_open(&options, &server->scheduler, error);
    if (status == GS_OK)
        atomic_store(&server->ready, true);
    return status;
}

/* ---------------------------------------------------------------- the end */

static void rest(unsigned milliseconds)
{
    struct timespec pause = {.tv_sec = milliseconds / 1000, .tv_nsec = (long)(milliseconds % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

bool gs_server_stop(struct gs_server *server, double seconds)
{
    double end = gs_clock_seconds() + seconds;
    bool ended = true;
    atomic_store(&server->ready, false);
    if (server->http)
        gs_http_quiesce(server->http);
    if (server->scheduler)
        ended = gs_scheduler_stop(server->scheduler, seconds);
    double least = gs_clock_seconds() + SEND_SECONDS;
    while (server->http && gs_http_pending(server->http) > 0) {
        double now = gs_clock_seconds();
        if (now >= least && (now >= end || atomic_load(&server->hurries)))
            break;
        rest(10);
    }
    return ended;
}

void gs_server_hurry(struct gs_server *server)
{
    atomic_store(&server->hurries, true);
    if (server->scheduler)
        gs_scheduler_hurry(server->scheduler);
}

void gs_server_close(struct gs_server *server)
{
    if (!server)
        return;
    atomic_store(&server->ready, false);
    while (server->scheduler && !gs_scheduler_stop(server->scheduler, 0.0)) /* a step would use the rest */
        continue;
    gs_http_close(server->http);
    gs_scheduler_close(server->scheduler);
    gs_prefix_store_close(server->store);
    gs_token_trie_close(server->trie);
    gs_grammar_cache_close(server->grammars);
    gs_replay_close(server->replay);
    gs_response_store_close(server->responses);
    gs_guard_close(&server->guard);
    gs_arena_free(&server->dates);
    pthread_mutex_destroy(&server->replay_mutex);
    pthread_mutex_destroy(&server->log_mutex);
    pthread_mutex_destroy(&server->date_mutex);
    free(server);
}

/* ---------------------------------------------------------------- for handlers */

const struct gs_server_config *gs_server_config(const struct gs_server *server)
{
    return &server->config;
}

struct gs_vocab *gs_server_vocab(const struct gs_server *server)
{
    return server->vocab;
}

struct gs_engine *gs_server_engine(const struct gs_server *server)
{
    return server->engine;
}

struct gs_scheduler *gs_server_scheduler(struct gs_server *server)
{
    return server->scheduler;
}

int64_t gs_server_n_ctx(const struct gs_server *server)
{
    return server->n_ctx;
}

size_t gs_server_n_vocab(const struct gs_server *server)
{
    return server->n_vocab;
}

size_t gs_server_n_parallel(const struct gs_server *server)
{
    return server->n_parallel;
}

int64_t gs_server_created(const struct gs_server *server)
{
    return server->created;
}

bool gs_server_ready(const struct gs_server *server)
{
    return atomic_load(&server->ready) && !gs_scheduler_is_stuck(server->scheduler);
}

bool gs_server_is_stuck(const struct gs_server *server)
{
    return atomic_load(&server->ready) && gs_scheduler_is_stuck(server->scheduler);
}

void gs_server_watch(struct gs_server *server)
{
    if (atomic_load(&server->ready))
        gs_scheduler_watch(server->scheduler);
}

struct gs_metrics *gs_server_metrics(struct gs_server *server)
{
    return &server->metrics;
}

/* Conversations borrow the text, so those of past days stay. */
const char *gs_server_date(struct gs_server *server)
{
    char today[32] = "";
    struct tm parts;
    time_t now = time(NULL);
    if (server->config.date)
        return server->config.date[0] ? server->config.date : NULL;
    if (localtime_r(&now, &parts))
        strftime(today, sizeof today, "%Y-%m-%d", &parts);
    pthread_mutex_lock(&server->date_mutex);
    if (!server->date || strcmp(server->date, today) != 0)
        server->date = gs_arena_copy(&server->dates, today, strlen(today));
    const char *date = server->date;
    pthread_mutex_unlock(&server->date_mutex);
    return date;
}

const char *gs_server_model(const struct gs_server *server)
{
    return server->config.model_name;
}

json_t *gs_server_model_json(const struct gs_server *server, struct gs_text named)
{
    return named.size > 0 ? json_stringn(named.bytes, named.size) : json_string(gs_server_model(server));
}

int gs_server_check_model(const struct gs_server *server, struct gs_text name, struct gs_api_error *error)
{
    if (!server->config.strict_model || !name.bytes || gs_text_is(name, server->config.model_name))
        return 0;
    gs_api_fail(error, 404, "model_not_found", "the model \"%s\" is not here: %s is",
                gs_quote_bytes(name.bytes, name.size).text, gs_quote(server->config.model_name).text);
    snprintf(error->param, sizeof error->param, "model");
    return error->status;
}

struct gs_response_store *gs_server_responses(struct gs_server *server)
{
    return server->responses;
}

struct gs_replay *gs_server_lock_replay(struct gs_server *server)
{
    pthread_mutex_lock(&server->replay_mutex);
    return server->replay;
}

void gs_server_unlock_replay(struct gs_server *server)
{
    pthread_mutex_unlock(&server->replay_mutex);
}

struct gs_steer_tools gs_server_steer_tools(struct gs_server *server)
{
    struct gs_steer_tools tools = {.vocab = server->vocab,
                                   .n_vocab = server->n_vocab,
                                   .trie = server->trie,
                                   .grammars = server->grammars};
    if (gs_markers_find(server->vocab, &tools.markers, NULL) != GS_OK)
        tools.trie = NULL;
    return tools;
}

void gs_server_log(struct gs_server *server, const char *format, ...)
{
    char line[1200];
    va_list arguments;
    if (!server->config.log)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&server->log_mutex);
    server->config.log(server->config.log_user, line);
    pthread_mutex_unlock(&server->log_mutex);
}

/* What is not enforced, in the ASCII that a header may hold. */
static void warn(struct gs_exchange *exchange, const char *text)
{
    char line[900];
    gs_format(line, sizeof line, "%s", text);
    for (char *at = line; *at; at++)
        if (*at < 0x20 || *at > 0x7E)
            *at = '?';
    gs_reply_header(exchange, "X-Gossamer-Warning", line);
}

void gs_server_submit(struct gs_server *server, struct gs_exchange *exchange, struct gs_request *request,
                      struct gs_sink sink)
{
    struct gs_api_error error;
    request->scope = server->config.cache_by_key ? gs_exchange_key(exchange) : 0;
    for (size_t i = 0; i < json_array_size(request->warnings) && i < 2; i++)
        warn(exchange, json_string_value(json_array_get(request->warnings, i)));
    bool stream = request->stream;
    gs_exchange_hold(exchange);
    const struct gs_client client = {.peer = exchange->peer, .connection = exchange->client};
    if (gs_scheduler_submit(server->scheduler, request, sink, exchange, client, &error) != 0)
        gs_reply_error(exchange, &error);
    else if (stream)
        gs_stream_begin(exchange);
    gs_exchange_release(exchange);
}
