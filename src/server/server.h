/*
 * The server: a model behind HTTP. It opens the port at once and answers /health with 503 until the model is
 * there. It prints nothing: what it has to say goes to the log function, one line at a time, escaped, and
 * without what anybody asked or was answered.
 */
#ifndef GS_SERVER_SERVER_H
#define GS_SERVER_SERVER_H

#include "chat/replay.h"
#include "server/http.h"
#include "server/random_id.h"
#include "server/scheduler.h"

struct gs_server;
struct gs_response_store;

typedef void gs_log_fn(void *user, const char *line);

struct gs_server_config {
    const char *host;                 /* an address; "127.0.0.1" */
    int port;                         /* 0: any free one */
    const char *const *allowed_hosts; /* [n_allowed_host]: names for the Host header beside loopback's */
    size_t n_allowed_host;
    const char *const *keys; /* [n_key]; none: no key is asked for */
    size_t n_key;
    const char *model_name;      /* what /v1/models says */
    bool strict_model;           /* 404 for any other name */
    const char *script;          /* tokens from this file stand in for the model; NULL: none */
    double script_seconds;       /* and how long such a step takes */
    size_t script_step;          /* tokens that one step of a script delivers; 0: one */
    const char *date;            /* of the system message; NULL: today's; "": none */
    const char *identity;        /* NULL: the usual line */
    int64_t n_ctx;               /* of a request; 0: the largest that fits */
    size_t n_parallel;           /* sequences that run at once; 0: as many as fit */
    size_t max_queue;            /* requests that wait */
    size_t max_choices;          /* n of a request */
    uint64_t max_body;           /* bytes */
    uint64_t cache_bytes;        /* of the prefix cache; UINT64_MAX: what is left; 0: none */
    const char *cache_folder;    /* for prefixes that outlive the server; NULL: none */
    uint64_t cache_folder_bytes; /* its budget */
    double cache_folder_seconds; /* after which a prefix is written */
    bool cache_by_key;           /* requests share prefixes only with those of the same key */
    gs_log_fn *log;
    void *log_user;
};

struct gs_server_config gs_server_defaults(void);

/* Opens the port and answers; the model follows. The config's texts are borrowed. */
gs_status gs_server_open(const struct gs_server_config *config, struct gs_server **out,
                         struct gs_error *error);
int gs_server_port(const struct gs_server *server);

/* From now on requests are served. engine NULL: config.script stands in. Both are borrowed. */
gs_status gs_server_start(struct gs_server *server, struct gs_vocab *vocab, struct gs_engine *engine,
                          struct gs_error *error);

/*
 * No new requests from now on; those that run have `seconds` to end, then they are cut with a proper last
 * event. Returns when all is sent or the time (and three seconds for sending) is over; false: a step of the
 * model did not end GS_LAST_STEP_SECONDS after that (scheduler.h). Its thread still uses what it was given,
 * so nothing may be closed: the process has to end.
 */
bool gs_server_stop(struct gs_server *server, double seconds);

/* Meanwhile, from another thread: there is no more time. It returns within four seconds, false if the
 * engine's thread was still at something. */
void gs_server_hurry(struct gs_server *server);
void gs_server_close(struct gs_server *server); /* waits for a step that is under way */

/* ---------------------------------------------------------------- for handlers */

const struct gs_server_config *gs_server_config(const struct gs_server *server);
struct gs_vocab *gs_server_vocab(const struct gs_server *server);   /* NULL until it is started */
struct gs_engine *gs_server_engine(const struct gs_server *server); /* NULL also for a script */
struct gs_scheduler *gs_server_scheduler(struct gs_server *server);

/* Some times a second, until the connections are closed: gs_scheduler_watch, once there is a scheduler. */
void gs_server_watch(struct gs_server *server);
int64_t gs_server_n_ctx(const struct gs_server *server);
size_t gs_server_n_vocab(const struct gs_server *server); /* of the logits */
size_t gs_server_n_parallel(const struct gs_server *server);
int64_t gs_server_created(const struct gs_server *server); /* seconds since 1970, of the start */
bool gs_server_ready(const struct gs_server *server);

/* Was it ready before a step of the model that does not end? */
bool gs_server_is_stuck(const struct gs_server *server);
struct gs_metrics *gs_server_metrics(struct gs_server *server);

/* "YYYY-MM-DD", the same the whole day; NULL: no line. */
const char *gs_server_date(struct gs_server *server);

/* 404 model_not_found for a name that is not served; 0 else. A single model answers to any unless strict. */
int gs_server_check_model(const struct gs_server *server, struct gs_text name, struct gs_api_error *error);

/* What an answer says its model is. */
const char *gs_server_model(const struct gs_server *server);

/* The same as JSON; the name that the request has for it (`named`) goes before. NULL: memory is out. */
json_t *gs_server_model_json(const struct gs_server *server, struct gs_text named);

/* Responses that can be gone back to (response_store.h). */
struct gs_response_store *gs_server_responses(struct gs_server *server);

/* Turns with tool calls, by call id (chat/replay.h). Lock it around both. */
struct gs_replay *gs_server_lock_replay(struct gs_server *server);
void gs_server_unlock_replay(struct gs_server *server);

/* One line; what came from outside is quoted by the caller, and never a prompt or an answer. */
__attribute__((format(printf, 2, 3))) void gs_server_log(struct gs_server *server, const char *format, ...);

/*
 * A handler's last step: submits, and where that fails replies the error. The exchange is held by the
 * scheduler until the sink is released.
 */
void gs_server_submit(struct gs_server *server, struct gs_exchange *exchange, struct gs_request *request,
                      struct gs_sink sink);

#endif
