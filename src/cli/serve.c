/* gossamer serve: a model behind HTTP, until SIGINT or SIGTERM. */
#include "server/request.h"
#include "server/scheduler.h"
#include "server/server.h"

#include "backend/registry.h"
#include "base/status.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/dialog.h"
#include "cli/input.h"
#include "cli/report.h"
#include "cli/setup.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define MAX_KEYS    256
#define MAX_HOSTS   64
#define DONE_SIGNAL SIGUSR1 /* of the thread that loads, or stops, to the main one */

struct settings {
    struct gs_setup_settings setup;
    const char *host, *key_file, *name, *allow_host, *date, *identity, *parallel;
    const char *cache_folder;
    int64_t port, max_queue, max_choices, max_body_mib, cache_mib, cache_folder_mib, cache_folder_seconds,
        stop_seconds;
    int64_t script_step, script_pause;
    bool no_date, strict_model, cache_by_key, quiet;
};

#define AT(field) offsetof(struct settings, field)

static const struct gs_option options[] = {
    GS_HEADING_ROW("The port:"),
    GS_TEXT_ROW("host", "ADDRESS", AT(host),
                "where to listen (default 127.0.0.1: this machine alone); any other\naddress needs a key"),
    GS_INTEGER_ROW("port", "N", AT(port), 0, 65535, "0 takes a free one (default 8080)"),
    GS_TEXT_ROW("api-key-file", "FILE", AT(key_file),
                "keys that clients must show, one a line; GOSSAMER_API_KEY in the\nenvironment is one more"),
    GS_TEXT_ROW("allow-host", "NAMES", AT(allow_host),
                "names under which clients may ask (Host header), separated by\ncommas, beside those of this "
                "machine"),

    GS_HEADING_ROW("What is served:"),
    GS_TEXT_ROW("name", "NAME", AT(name), "of the model, for clients (default: the last part of MODEL)"),
    GS_FLAG_ROW("strict-model", AT(strict_model), "requests for a model of another name are refused"),
    GS_DATE_ROW(AT(date)),
    GS_FLAG_ROW("no-date", AT(no_date), "no date for the model"),
    GS_TEXT_ROW("identity", "TEXT", AT(identity),
                "the first line of the system message, in place of the usual one"),

    GS_HEADING_ROW("How much:"),
    GS_TEXT_ROW(
        "parallel", "N", AT(parallel),
        "answers that are written at once; auto: as many as fit in memory,\n32 at most (default auto)"),
    GS_INTEGER_ROW("max-choices", "N", AT(max_choices), 1, GS_MAX_CHOICES,
                   "the largest n of a request (default 16)"),
    GS_INTEGER_ROW("queue", "N", AT(max_queue), 1, 100000,
                   "requests that may wait; more get status 429 (default 128)"),
    GS_INTEGER_ROW("cache-mib", "N", AT(cache_mib), 0, 1e7,
                   "memory for prefixes of past requests; 0: none (default: a quarter\nof what is free)"),
    GS_TEXT_ROW("cache-dir", "FOLDER", AT(cache_folder),
                "prefixes are kept there too, for the next start (default: none are)"),
    GS_INTEGER_ROW("cache-dir-mib", "N", AT(cache_folder_mib), 1, 1e8,
                   "how large that folder may get (default 4096)"),
    GS_INTEGER_ROW("cache-dir-seconds", "N", AT(cache_folder_seconds), 0, 86400,
                   "a prefix is written when it has not grown for so long (default 10)"),
    GS_FLAG_ROW("cache-by-key", AT(cache_by_key), "requests share prefixes only with those of the same key"),
    GS_INTEGER_ROW("max-body-mib", "N", AT(max_body_mib), 1, 1024, "the largest request (default 32)"),
    GS_INTEGER_ROW("stop-seconds", "N", AT(stop_seconds), 0, 3600,
                   "after SIGTERM or Ctrl-C, until answers under way are cut; a second\none cuts them at "
                   "once (default 10)"),
    GS_FLAG_ROW("quiet", AT(quiet), "no line for each request"),

    GS_SETUP_MACHINE_OPTIONS(struct settings, setup),
    GS_SETUP_SCRIPT_OPTIONS(struct settings, setup),
    {.kind = GS_OPTION_TEXT, .name = "script", .value = "FILE", .offset = AT(setup.script), .hidden = true},
    {.kind = GS_OPTION_INTEGER,
     .name = "script-step",
     .value = "N",
     .offset = AT(script_step),
     .least = 1,
     .most = 1e6,
     .hidden = true},
    {.kind = GS_OPTION_INTEGER,
     .name = "script-pause",
     .value = "MILLISECONDS",
     .offset = AT(script_pause),
     .most = 1e6,
     .hidden = true},
    {.kind = GS_OPTION_END},
};

struct serve {
    struct settings settings;
    struct gs_setup setup;
    struct gs_server_config config;
    struct gs_server *server;
    struct gs_buffer keys_text, hosts_text, name;
    const char *keys[MAX_KEYS], *hosts[MAX_HOSTS];
    struct gs_date date;
    pthread_t main_thread;
    gs_status load_status;
    struct gs_error load_error;
    bool has_ended; /* all that the model was at, when it was stopped */
};

/* ---------------------------------------------------------------- the log */

static void log_line(void *user, const char *line)
{
    char when[32] = "";
    struct tm parts;
    time_t now = time(NULL);
    (void)user;
    if (localtime_r(&now, &parts))
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &parts);
    fprintf(stderr, "%s %s\n", when, line);
}

/* ---------------------------------------------------------------- settings */

/* Splits a text in place; the parts without blanks around them that are not empty. */
static gs_status split(char *text, const char *separators, const char **list, size_t most, size_t *count,
                       const char *what, struct gs_error *error)
{
    char *rest = NULL;
    for (char *part = strtok_r(text, separators, &rest); part; part = strtok_r(NULL, separators, &rest)) {
        part += strspn(part, " \t");
        size_t size = strlen(part);
        while (size > 0 && strchr(" \t", part[size - 1]))
            size--;
        part[size] = '\0';
        if (size == 0)
            continue;
        if (*count == most)
            return gs_fail(error, GS_INVALID_ARGUMENT, "%s: at most %zu are taken", what, most);
        list[(*count)++] = part;
    }
    return GS_OK;
}

static gs_status read_keys(struct serve *serve, struct gs_error *error)
{
    const char *environment = getenv("GOSSAMER_API_KEY"), *file = serve->settings.key_file;
    gs_status status = file ? gs_input_read(file, &serve->keys_text, error) : GS_OK;
    if (status == GS_OK && environment)
        status = gs_buffer_print(&serve->keys_text, error, "\n%s", environment);
    if (status == GS_OK && serve->keys_text.size > 0) {
        if (memchr(serve->keys_text.data, '\0', serve->keys_text.size))
            return gs_fail(error, GS_INVALID_ARGUMENT, "--api-key-file %s: lines of text are expected",
                           gs_quote(file).text);
        status = split(serve->keys_text.data, "\r\n", serve->keys, MAX_KEYS, &serve->config.n_key,
                       "--api-key-file", error);
    }
    if (status == GS_OK && file && serve->config.n_key == 0)
        return gs_fail(error, GS_INVALID_ARGUMENT, "--api-key-file %s: there is no key in it",
                       gs_quote(file).text);
    serve->config.keys = serve->keys;
    return status;
}

static gs_status read_hosts(struct serve *serve, struct gs_error *error)
{
    if (!serve->settings.allow_host)
        return GS_OK;
    gs_status status = gs_buffer_append_text(&serve->hosts_text, serve->settings.allow_host, error);
    if (status == GS_OK)
        status = split(serve->hosts_text.data, ", ", serve->hosts, MAX_HOSTS, &serve->config.n_allowed_host,
                       "--allow-host", error);
    if (status == GS_OK && serve->config.n_allowed_host == 0)
        return gs_fail(error, GS_INVALID_ARGUMENT, "--allow-host: a name is expected, not \"%s\"",
                       gs_quote(serve->settings.allow_host).text);
    serve->config.allowed_hosts = serve->hosts;
    return status;
}

/* "gpt-oss-20b" of "openai/gpt-oss-20b", "models/gpt-oss-20b/" and "gpt-oss-20b.gguf". */
static gs_status read_name(struct serve *serve, const char *model, struct gs_error *error)
{
    if (serve->settings.name && serve->settings.name[0] == '\0')
        return gs_fail(error, GS_INVALID_ARGUMENT, "--name: a name is expected, not \"\"");
    if (serve->settings.name) {
        serve->config.model_name = serve->settings.name;
        return GS_OK;
    }
    size_t end = strlen(model);
    while (end > 1 && model[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && model[begin - 1] != '/')
        begin--;
    gs_status status = gs_buffer_append(&serve->name, model + begin, end - begin, error);
    if (status != GS_OK)
        return status;
    char *dot = strrchr(serve->name.data, '.');
    if (dot && (strcmp(dot, ".gguf") == 0 || strcmp(dot, ".safetensors") == 0))
        *dot = '\0';
    serve->config.model_name = serve->name.data;
    return GS_OK;
}

static gs_status read_parallel(struct serve *serve, struct gs_error *error)
{
    const char *text = serve->settings.parallel;
    int64_t count = 0;
    if (!text || strcmp(text, "auto") == 0)
        return GS_OK;
    gs_status status = gs_parse_integer("--parallel", text, 1, 4096, &count, error);
    serve->config.n_parallel = (size_t)count;
    return status;
}

static gs_status read_date(struct serve *serve, struct gs_error *error)
{
    const struct settings *s = &serve->settings;
    if (s->date || s->no_date)
        serve->config.date = serve->date.text;
    return gs_date_choose(s->date, s->no_date, &serve->date, error);
}

/* Options that say more of a folder do nothing without one. */
static gs_status check_cache_folder(const struct settings *s, struct gs_error *error)
{
    const char *idle = s->cache_folder_mib >= 0       ? "--cache-dir-mib"
                       : s->cache_folder_seconds >= 0 ? "--cache-dir-seconds"
                                                      : NULL;
    if (s->cache_folder && s->cache_folder[0] == '\0')
        return gs_fail(error, GS_INVALID_ARGUMENT, "--cache-dir: a folder is expected, not \"\"");
    if (idle && !s->cache_folder)
        return gs_fail(error, GS_INVALID_ARGUMENT, "%s needs --cache-dir FOLDER", idle);
    return GS_OK;
}

static gs_status configure(struct serve *serve, const char *model, struct gs_error *error)
{
    const struct settings *s = &serve->settings;
    struct gs_server_config *c = &serve->config;
    *c = gs_server_defaults();
    if (s->host && s->host[0] == '\0')
        return gs_fail(error, GS_INVALID_ARGUMENT, "--host: an address is expected, not \"\"");
    if (s->host)
        c->host = s->host;
    c->port = (int)s->port;
    c->strict_model = s->strict_model;
    c->script = s->setup.script;
    c->script_step = (size_t)s->script_step;
    c->script_seconds = (double)s->script_pause * 1e-3;
    c->identity = s->identity;
    c->n_ctx = s->setup.n_ctx;
    c->max_queue = (size_t)s->max_queue;
    c->max_choices = (size_t)s->max_choices;
    c->max_body = (uint64_t)s->max_body_mib << 20;
    c->cache_by_key = s->cache_by_key;
    c->cache_folder = s->cache_folder;
    if (s->cache_folder_mib >= 0)
        c->cache_folder_bytes = (uint64_t)s->cache_folder_mib << 20;
    if (s->cache_folder_seconds >= 0)
        c->cache_folder_seconds = (double)s->cache_folder_seconds;
    if (s->cache_mib >= 0)
        c->cache_bytes = (uint64_t)s->cache_mib << 20;
    c->log = s->quiet ? NULL : log_line;
    gs_status status = check_cache_folder(s, error);
    if (status == GS_OK)
        status = read_keys(serve, error);
    if (status == GS_OK && s->cache_by_key && c->n_key == 0)
        status = gs_fail(error, GS_INVALID_ARGUMENT,
                         "--cache-by-key needs keys: --api-key-file FILE, or GOSSAMER_API_KEY");
    if (status == GS_OK)
        status = read_hosts(serve, error);
    if (status == GS_OK)
        status = read_name(serve, model, error);
    if (status == GS_OK && !gs_utf8_valid(c->model_name, strlen(c->model_name))) /* it stands in answers */
        status =
            gs_fail(error, GS_INVALID_ARGUMENT, "--name: \"%s\" is not UTF-8, which a model's name has to be",
                    gs_quote(c->model_name).text);
    if (status == GS_OK)
        status = read_parallel(serve, error);
    return status == GS_OK ? read_date(serve, error) : status;
}

/* ---------------------------------------------------------------- running */

/* Thousands of connections are thousands of descriptors. */
static void raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Loading on a thread of its own, so that a signal is heeded meanwhile. */
static void *load(void *user)
{
    struct serve *serve = user;
    serve->load_status = gs_setup_load(&serve->setup, &serve->load_error);
    if (serve->load_status == GS_OK)
        serve->load_status =
            gs_server_start(serve->server, serve->setup.vocab, serve->setup.engine, &serve->load_error);
    pthread_kill(serve->main_thread, DONE_SIGNAL);
    return NULL;
}

/* What can be refused has been by now; until now /health said that the model is being loaded. */
static void say_ready(const struct serve *serve)
{
    const char *host = serve->config.host;
    bool v6 = strchr(host, ':') != NULL;
    printf("listening on http://%s%s%s:%d\n", v6 ? "[" : "", host, v6 ? "]" : "",
           gs_server_port(serve->server));
    fflush(stdout);
    fprintf(stderr, "gossamer: %s is served: context %lld, %zu at once%s\n",
            gs_quote(serve->config.model_name).text, (long long)gs_server_n_ctx(serve->server),
            gs_server_n_parallel(serve->server), serve->setup.engine ? "" : ", from a script");
}

static void *stop(void *user)
{
    struct serve *serve = user;
    serve->has_ended = gs_server_stop(serve->server, (double)serve->settings.stop_seconds);
    pthread_kill(serve->main_thread, DONE_SIGNAL);
    return NULL;
}

/* On a thread of its own, so that a second signal is heeded meanwhile. Leaves a device behind that hangs. */
static void stop_or_leave(struct serve *serve, const sigset_t *signals)
{
    pthread_t stopper;
    int signal = 0;
    bool hurries = false, threaded;
    fprintf(stderr, "gossamer: stopping; answers under way have %lld seconds\n",
            (long long)serve->settings.stop_seconds);
    threaded = pthread_create(&stopper, NULL, stop, serve) == 0;
    if (!threaded)
        stop(serve);
    while (sigwait(signals, &signal) == 0 && signal != DONE_SIGNAL) {
        hurries = true;
        gs_server_hurry(serve->server);
    }
    if (threaded)
        pthread_join(stopper, NULL);
    if (serve->has_ended)
        return;
    if (hurries)
        fprintf(stderr, "gossamer: leaving at the second signal, before the model's thread has ended\n");
    else
        fprintf(stderr,
                "gossamer: a step of the model did not end within %.0f seconds after all answers were cut: "
                "the device hangs, leaving without it\n",
                GS_LAST_STEP_SECONDS);
    _exit(GS_EXIT_FAILURE);
}

/* Until a signal ends it; GS_OK then. */
static gs_status run(struct serve *serve, const sigset_t *signals, struct gs_error *error)
{
    pthread_t loader;
    int signal = 0;
    serve->main_thread = pthread_self();
    if (pthread_create(&loader, NULL, load, serve) != 0)
        return gs_fail(error, GS_OUT_OF_MEMORY, "cannot start a thread");
    sigwait(signals, &signal);
    if (signal != DONE_SIGNAL) /* nothing has been promised yet */
        _exit(GS_EXIT_INTERRUPTED);
    pthread_join(loader, NULL);
    if (serve->load_status != GS_OK) {
        *error = serve->load_error;
        return serve->load_status;
    }
    say_ready(serve);
    sigwait(signals, &signal);
    stop_or_leave(serve, signals);
    return GS_OK;
}

/* A backend that was asked for by name and cannot work here is told before a port is. */
static gs_status check_backend(const struct gs_setup_settings *settings, struct gs_error *error)
{
    const struct gs_backend *backend;
    char why[200] = "";
    if (settings->script || !settings->backend || strcmp(settings->backend, GS_BACKEND_AUTO) == 0)
        return GS_OK;
    gs_status status = gs_backend_find(settings->backend, &backend, error);
    if (status == GS_OK && !backend->probe(why, sizeof why))
        status = gs_fail(error, GS_UNSUPPORTED, "backend %s does not work here: %s", backend->name, why);
    return status;
}

static int run_main(const struct gs_command *command, int argc, char **argv)
{
    struct serve serve = {.settings = {.setup = GS_SETUP_DEFAULTS,
                                       .port = 8080,
                                       .max_queue = 128,
                                       .max_choices = 16,
                                       .max_body_mib = 32,
                                       .cache_mib = -1,
                                       .cache_folder_mib = -1,
                                       .cache_folder_seconds = -1,
                                       .stop_seconds = 10,
                                       .script_step = 1}};
    struct gs_operands operands = {0};
    struct gs_error error = {0};
    sigset_t signals;
    gs_status status = gs_options_parse(command, argc, argv, &serve.settings, &operands, &error);
    serve.setup.settings = &serve.settings.setup;
    if (status == GS_OK && operands.help) {
        gs_options_help(command, stdout);
        return GS_EXIT_OK;
    }
    if (status == GS_OK && operands.count != 1)
        status = gs_fail(&error, GS_INVALID_ARGUMENT,
                         "serve needs a MODEL: a folder, a file or a name; gossamer serve --help says more");
    if (status == GS_OK)
        status = configure(&serve, operands.list[0], &error);
    if (status == GS_OK) {
        serve.settings.setup.model = operands.list[0];
        status = check_backend(&serve.settings.setup, &error);
    }
    if (status == GS_OK)
        status = gs_setup_open(&serve.setup, &serve.settings.setup, &error);
    if (status == GS_OK) {
        sigemptyset(&signals);
        sigaddset(&signals, SIGINT);
        sigaddset(&signals, SIGTERM);
        sigaddset(&signals, DONE_SIGNAL);
        pthread_sigmask(SIG_BLOCK, &signals, NULL);
        signal(SIGXFSZ, SIG_IGN); /* a limit of file sizes is a full disk like any other */
        raise_descriptors();
        status = gs_server_open(&serve.config, &serve.server, &error);
    }
    if (status == GS_OK)
        status = run(&serve, &signals, &error);
    gs_server_close(serve.server);
    gs_setup_close(&serve.setup);
    gs_buffer_free(&serve.keys_text);
    gs_buffer_free(&serve.hosts_text);
    gs_buffer_free(&serve.name);
    return status == GS_OK ? GS_EXIT_OK : gs_report(status, &error);
}

const struct gs_command gs_command_serve = {
    .name = "serve",
    .usage = "MODEL [options]",
    .summary = "A server that speaks the APIs of OpenAI and Anthropic.",
    .options = options,
    .max_operands = 1,
    .run = run_main,
};
