/*
 * libmicrohttpd's threads read requests and send what exchanges have; a connection with nothing to do is
 * suspended and costs no thread. It gets its connections from front.c, once their head is one, and closes
 * them behind the answer: what it would refuse by itself, in HTML, it never sees. http_watch.c looks for what
 * it does not. A waker resumes connections: each costs a system call, which the thread of the engine is
 * spared.
 */
#include "base/clock.h"
#include "base/status.h"
#include "server/front.h"
#include "server/head.h"
#include "server/http_state.h"
#include "server/listen.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define N_THREAD        2
#define MAX_CONNECTIONS 4000u
#define MAX_PER_PEER    2000u
#define CONNECTION_MEMORY                                                                                    \
    (48u << 10) /* of each: more than GS_HEAD_MAX_*, so that too much of those is told here */
/* Without a byte in either direction; more than a body has, which is answered before (http_watch.c). */
#define IDLE_SECONDS 45u
#define MAX_BODIES   8u  /* of the largest size, all requests under way together */
#define MAX_BEHIND   256 /* blocks that a client has sent behind its request */
#define STREAM_BLOCK 16384

/* ---------------------------------------------------------------- connections */

/* Bytes behind the request that are not read would take the answer from the client: closing is a reset then.
 */
static void drain(int socket)
{
    char bytes[4096];
    for (int i = 0; i < MAX_BEHIND && recv(socket, bytes, sizeof bytes, MSG_DONTWAIT) > 0; i++)
        continue;
}

static void notice_connection(void *user, struct MHD_Connection *connection, void **context,
                              enum MHD_ConnectionNotificationCode code)
{
    struct gs_http *http = user;
    struct gs_link *link = *context;
    pthread_mutex_lock(&http->mutex);
    if (code == MHD_CONNECTION_NOTIFY_STARTED && (link = calloc(1, sizeof *link))) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        *link = (struct gs_link){.after = http->links, .since = gs_clock_seconds()};
        link->number = ++http->n_link;
        http->n_open++;
        link->socket = info ? info->connect_fd : -1;
        if (link->after)
            link->after->before = link;
        http->links = link;
        *context = link;
    } else if (code == MHD_CONNECTION_NOTIFY_CLOSED && link) {
        *(link->before ? &link->before->after : &http->links) = link->after;
        if (link->after)
            link->after->before = link->before;
        http->n_open--;
        drain(link->socket);
        free(link);
        *context = NULL;
    }
    pthread_mutex_unlock(&http->mutex);
}

/* ---------------------------------------------------------------- heads */

struct head {
    struct gs_exchange *exchange;
    size_t bytes;
    bool too_many, out_of_memory;
};

static enum MHD_Result read_header(void *user, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct head *head = user;
    struct gs_exchange *exchange = head->exchange;
    (void)kind;
    head->bytes += strlen(name) + (value ? strlen(value) : 0) + 4;
    if (exchange->n_header == GS_MAX_HEADERS || head->bytes > GS_HEAD_MAX_BYTES) {
        head->too_many = true;
        return MHD_NO;
    }
    struct gs_pair pair = {gs_exchange_keep(exchange, name), gs_exchange_keep(exchange, value ? value : "")};
    if (!pair.name || !pair.value) {
        head->out_of_memory = true;
        return MHD_NO;
    }
    exchange->headers[exchange->n_header++] = pair;
    return MHD_YES;
}

static enum MHD_Result read_query(void *user, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct head *head = user;
    struct gs_exchange *exchange = head->exchange;
    (void)kind;
    if (!exchange->queries)
        exchange->queries = gs_arena_alloc_array(&exchange->arena, GS_MAX_HEADERS, sizeof *exchange->queries);
    if (!exchange->queries || exchange->n_query == GS_MAX_HEADERS)
        return MHD_NO;
    struct gs_pair pair = {gs_exchange_keep(exchange, name), gs_exchange_keep(exchange, value ? value : "")};
    if (pair.name && pair.value)
        exchange->queries[exchange->n_query++] = pair;
    return MHD_YES;
}

/* What head.c cannot know. */
static int check_head(const struct head *head, struct gs_api_error *error)
{
    if (head->out_of_memory)
        return gs_api_fail(error, 503, NULL, "memory is out");
    if (head->too_many)
        return gs_api_fail(error, 431, NULL, "the head is too long: at most %d lines and %u bytes are read",
                           GS_MAX_HEADERS, GS_HEAD_MAX_BYTES);
    return 0;
}

/* Of a network, where addresses are handed out by the network (IPv6: its first half). */
static size_t number_peer(const struct sockaddr *address, size_t key)
{
    uint64_t number = 14695981039346656037u + key;
    const uint8_t *bytes = NULL;
    size_t count = 0;
    if (address && address->sa_family == AF_INET) {
        bytes = (const uint8_t *)&((const struct sockaddr_in *)(const void *)address)->sin_addr;
        count = sizeof(struct in_addr);
    } else if (address && address->sa_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
        bool is_v4 = IN6_IS_ADDR_V4MAPPED(v6);
        bytes = v6->s6_addr + (is_v4 ? 12 : 0);
        count = is_v4 ? sizeof(struct in_addr) : sizeof *v6 / 2;
    }
    for (size_t i = 0; i < count; i++)
        number = (number ^ bytes[i]) * 1099511628211u;
    return (size_t)number;
}

static bool announces_body(const struct gs_exchange *exchange)
{
    const char *length = gs_exchange_header(exchange, "Content-Length");
    return gs_exchange_header(exchange, "Transfer-Encoding") ||
           (length && length[strspn(length, "0")] != '\0');
}

static struct gs_sender *begin(struct gs_http *http, struct MHD_Connection *connection, const char *url,
                               const char *method)
{
    struct gs_sender *sender = calloc(1, sizeof *sender);
    struct gs_exchange *exchange = sender ? gs_exchange_make(http->options.server) : NULL;
    if (!exchange) {
        free(sender);
        return NULL;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    sender->http = http;
    sender->connection = connection;
    sender->exchange = exchange;
    sender->heard = exchange->began;
    sender->link = info ? info->socket_context : NULL;
    exchange->method = gs_exchange_keep(exchange, method);
    exchange->path = gs_exchange_keep(exchange, url);
    struct head head = {.exchange = exchange};
    MHD_get_connection_values(connection, MHD_HEADER_KIND, read_header, &head);
    MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, read_query, &head);
    if (!exchange->method || !exchange->path)
        head.out_of_memory = true;
    if (check_head(&head, &sender->failure) == 0)
        gs_guard_check(http->options.guard, exchange, &sender->failure);
    sender->refused = sender->failure.status != 0 && announces_body(exchange);

    pthread_mutex_lock(&http->mutex);
    const union MHD_ConnectionInfo *address =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    exchange->peer = number_peer(address ? address->client_addr : NULL, exchange->key);
    exchange->number = ++http->n_exchange;
    sender->after = http->senders;
    if (sender->after)
        sender->after->before = sender;
    http->senders = sender;
    http->n_sender++;
    if (sender->link) {
        sender->link->busy = true;
        exchange->client = sender->link->number;
    }
    pthread_mutex_unlock(&http->mutex);
    return sender;
}

/* ---------------------------------------------------------------- replies */

/* The sender stays as it is until it is resumed: nobody else ends a suspended connection. */
static void resume(void *user)
{
    struct gs_sender *sender = user;
    struct gs_http *http = sender->http;
    pthread_mutex_lock(&http->wake_mutex);
    bool direct = http->waker_stops;
    if (!direct) {
        sender->woken = http->woken;
        http->woken = sender;
    }
    pthread_mutex_unlock(&http->wake_mutex);
    if (direct)
        MHD_resume_connection(sender->connection);
}

void gs_http_flush(struct gs_http *http)
{
    pthread_mutex_lock(&http->wake_mutex);
    if (http->woken) {
        http->flushes = true;
        pthread_cond_signal(&http->wakes);
    }
    pthread_mutex_unlock(&http->wake_mutex);
}

static void *wake_senders(void *user)
{
    struct gs_http *http = user;
    bool stops = false;
    while (!stops) {
        pthread_mutex_lock(&http->wake_mutex);
        while (!http->flushes && !http->waker_stops)
            pthread_cond_wait(&http->wakes, &http->wake_mutex);
        struct gs_sender *sender = http->woken;
        http->woken = NULL;
        http->flushes = false;
        stops = http->waker_stops;
        pthread_mutex_unlock(&http->wake_mutex);
        while (sender) {
            struct gs_sender *next = sender->woken; /* before it is resumed, and may go */
            MHD_resume_connection(sender->connection);
            sender = next;
        }
    }
    return NULL;
}

/*
 * An end with an error leaves the connection open in libmicrohttpd until something else wakes its thread. A
 * byte that cannot be sent any more closes it at once, and no client takes the stream for whole.
 */
static ssize_t break_off(const struct gs_sender *sender, char *buffer)
{
    if (!sender->link || sender->link->socket < 0)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    shutdown(sender->link->socket, SHUT_RDWR);
    buffer[0] = '\n';
    return 1;
}

static ssize_t read_stream(void *user, uint64_t position, char *buffer, size_t size)
{
    struct gs_sender *sender = user;
    struct gs_exchange *exchange = sender->exchange;
    ssize_t result = 0;
    (void)position;
    gs_exchange_fill(exchange);
    pthread_mutex_lock(&exchange->mutex);
    size_t left = exchange->out.size - exchange->out_at;
    if (atomic_load(&exchange->gone)) {
        result = break_off(sender, buffer);
    } else if (left > 0) {
        size_t count = left < size ? left : size;
        memcpy(buffer, exchange->out.data + exchange->out_at, count);
        exchange->out_at += count;
        if (exchange->out_at == exchange->out.size) {
            gs_buffer_clear(&exchange->out);
            exchange->out_at = 0;
        }
        result = (ssize_t)count;
    } else if (exchange->ended) {
        result = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        exchange->waiting = true;
        MHD_suspend_connection(sender->connection);
    }
    pthread_mutex_unlock(&exchange->mutex);
    return result;
}

static void add_headers(struct MHD_Response *response, const struct gs_exchange *exchange)
{
    MHD_add_response_header(response, "Content-Type", exchange->content_type);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (exchange->form == GS_REPLY_STREAM) {
        MHD_add_response_header(response, "Cache-Control", "no-cache");
        MHD_add_response_header(response, "X-Accel-Buffering", "no");
    }
    for (size_t i = 0; i < exchange->n_reply_header; i++)
        MHD_add_response_header(response, exchange->reply_headers[i].name, exchange->reply_headers[i].value);
}

/*
 * What it says goes to the connection. Without the exchange's mutex: libmicrohttpd locks a response here, and
 * holds that lock where it calls read_stream. An answer that has a form changes no more, but for the stream.
 */
static enum MHD_Result queue(struct gs_sender *sender)
{
    struct gs_exchange *exchange = sender->exchange;
    struct MHD_Response *response;
    if (exchange->form == GS_REPLY_STREAM) {
        response =
            MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, sender, NULL);
        if (response && strcmp(exchange->method, "HEAD") == 0) /* a last chunk would follow its head */
            MHD_set_response_options(response, MHD_RF_HTTP_VERSION_1_0_ONLY, MHD_RO_END);
    } else {
        response = MHD_create_response_from_buffer(exchange->out.size, exchange->out.data,
                                                   exchange->out.data ? MHD_RESPMEM_MUST_FREE
                                                                      : MHD_RESPMEM_PERSISTENT);
        if (response)
            exchange->out = (struct gs_buffer){0};
    }
    if (!response)
        return MHD_NO;
    add_headers(response, exchange);
    MHD_add_response_header(response, "Connection", "close");
    sender->status = exchange->status;
    enum MHD_Result result = MHD_queue_response(sender->connection, (unsigned)exchange->status, response);
    MHD_destroy_response(response);
    return result;
}

/* The answer, if there is one yet; else the connection sleeps until there is. */
static enum MHD_Result queue_or_wait(struct gs_sender *sender)
{
    struct gs_exchange *exchange = sender->exchange;
    pthread_mutex_lock(&exchange->mutex);
    exchange->wake = resume;
    exchange->wake_user = sender;
    bool gone = atomic_load(&exchange->gone), answered = exchange->form != GS_REPLY_NONE;
    if (!gone && !answered) { /* under the mutex: a wake-up has to come behind it */
        exchange->waiting = true;
        MHD_suspend_connection(sender->connection);
    }
    pthread_mutex_unlock(&exchange->mutex);
    return gone ? MHD_NO : answered ? queue(sender) : MHD_YES;
}

/* A piece of the body. */
static enum MHD_Result receive(struct gs_sender *sender, const char *bytes, size_t *size)
{
    struct gs_http *http = sender->http;
    struct gs_exchange *exchange = sender->exchange;
    uint64_t most = MAX_BODIES * http->options.max_body;
    if (atomic_fetch_add(&sender->received, *size) + *size > http->options.max_body)
        return MHD_NO; /* front.c and relay.c have let none such through */
    atomic_store(&sender->heard, gs_clock_seconds());
    if (sender->failure.status == 0) {
        sender->kept += *size;
        if (atomic_fetch_add(&http->body_bytes, *size) + *size > most) {
            gs_api_fail(&sender->failure, 503, "overloaded",
                        "too many long requests at once: try again later");
            sender->failure.retry_after = 1;
        }
    }
    if (sender->failure.status == 0 && gs_buffer_append(&exchange->body, bytes, *size, NULL) != GS_OK)
        gs_api_fail(&sender->failure, 503, NULL, "memory is out");
    if (sender->failure.status != 0) {
        gs_buffer_free(&exchange->body);
        atomic_fetch_sub(&http->body_bytes, sender->kept);
        sender->kept = 0;
    }
    *size = 0;
    return MHD_YES;
}

/* False: it was given up meanwhile (http_watch.c). */
static bool end_body(struct gs_sender *sender)
{
    pthread_mutex_lock(&sender->http->mutex);
    sender->whole = sender->told == 0.0;
    pthread_mutex_unlock(&sender->http->mutex);
    return sender->whole;
}

static enum MHD_Result answer(void *user, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *bytes, size_t *size,
                              void **state)
{
    struct gs_http *http = user;
    struct gs_sender *sender = *state;
    (void)version;
    if (!sender) {
        *state = sender = begin(http, connection, url, method);
        return sender ? MHD_YES : MHD_NO;
    }
    if (*size > 0)
        return receive(sender, bytes, size);
    if (!sender->whole && !end_body(sender))
        return MHD_NO;
    if (!sender->dispatched) {
        struct gs_exchange *exchange = sender->exchange;
        if (sender->failure.status == 0 && !(exchange->route->flags & GS_ROUTE_READY) &&
            !gs_server_ready(http->options.server)) {
            gs_api_fail(&sender->failure, 503, "not_ready",
                        "the model is not loaded, or hangs, or the server stops");
            sender->failure.retry_after = 1;
        }
        if (sender->failure.status != 0)
            gs_reply_error(exchange, &sender->failure);
        else
            exchange->route->fn(http->options.server, exchange);
        pthread_mutex_lock(&http->mutex);
        sender->dispatched = true;
        pthread_mutex_unlock(&http->mutex);
    }
    return queue_or_wait(sender);
}

static void complete(void *user, struct MHD_Connection *connection, void **state,
                     enum MHD_RequestTerminationCode code)
{
    struct gs_http *http = user;
    struct gs_sender *sender = *state;
    (void)connection;
    if (!sender)
        return;
    struct gs_exchange *exchange = sender->exchange;
    pthread_mutex_lock(&exchange->mutex);
    exchange->wake = NULL;
    exchange->waiting = false;
    pthread_mutex_unlock(&exchange->mutex);
    gs_exchange_leave(exchange);
    atomic_fetch_sub(&http->body_bytes, sender->kept);
    pthread_mutex_lock(&http->mutex);
    *(sender->before ? &sender->before->after : &http->senders) = sender->after;
    if (sender->after)
        sender->after->before = sender->before;
    http->n_sender--;
    if (sender->link) {
        sender->link->busy = false;
        sender->link->since = gs_clock_seconds();
    }
    pthread_mutex_unlock(&http->mutex);
    gs_server_log(
        http->options.server, "%zu %s %s %d %.1f ms%s", exchange->number, gs_quote(exchange->method).text,
        gs_quote(exchange->path).text, sender->status, (gs_clock_seconds() - exchange->began) * 1e3,
        code == MHD_REQUEST_TERMINATED_COMPLETED_OK || (sender->refused && sender->told > 0.0) ? ""
                                                                                               : ", cut");
    gs_exchange_release(exchange);
    free(sender);
    *state = NULL;
}

/* ---------------------------------------------------------------- the daemon */

/*
 * Options of TCP that a pair of sockets (relay.h) does not have, and what libmicrohttpd takes that for; and
 * that a connection is closed here, of which the request's own line tells.
 */
static bool is_no_news(const char *line)
{
    static const char *const begins[] = {"Setting TCP_", "Failed to push",
                                         "Application reported internal error"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(line, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

static void log_line(void *user, const char *format, va_list arguments)
{
    struct gs_http *http = user;
    char line[512];
    vsnprintf(line, sizeof line, format, arguments);
    if (is_no_news(line))
        return;
    gs_server_log(http->options.server, "http: %s", gs_quote(line).text);
}

static void take(void *user, int socket, const struct sockaddr *address, socklen_t length)
{
    struct gs_http *http = user;
    MHD_add_connection(http->daemon, socket, address, length); /* closes it where it refuses */
}

static void log_refused(void *user, int status, const char *message)
{
    struct gs_http *http = user;
    gs_server_log(http->options.server, "http: %d: %s", status, message);
}

static gs_status start_daemon(struct gs_http *http, struct gs_error *error)
{
    unsigned flags = MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC |
                     MHD_USE_ERROR_LOG | MHD_USE_NO_LISTEN_SOCKET;
    http->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, answer, http, MHD_OPTION_EXTERNAL_LOGGER, log_line, http,
        MHD_OPTION_THREAD_POOL_SIZE, (unsigned)N_THREAD, MHD_OPTION_CONNECTION_LIMIT, MAX_CONNECTIONS,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, MAX_PER_PEER, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_SECONDS,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_NOTIFY_COMPLETED, complete, http, MHD_OPTION_NOTIFY_CONNECTION, notice_connection, http,
        MHD_OPTION_END);
    return http->daemon ? GS_OK : gs_fail(error, GS_IO, "libmicrohttpd cannot start on port %d", http->port);
}

static gs_status start_front(struct gs_http *http, struct gs_error *error)
{
    struct gs_front_options options = {.listener = http->listener,
                                       .max_callers = MAX_CONNECTIONS,
                                       .max_per_peer = MAX_PER_PEER,
                                       .head_seconds = GS_HTTP_HEAD_SECONDS,
                                       .max_body = http->options.max_body,
                                       .take = take,
                                       .refused = log_refused,
                                       .user = http};
    return gs_front_open(&options, &http->front, error);
}

/*
 * Threads that are made by a thread which gives way do so too: when they are woken they take a processor that
 * is free, or wait for the end of a slice, instead of interrupting the model. Returns whether it was changed.
 */
static bool give_way(void)
{
#if defined(SCHED_BATCH)
    struct sched_param parameters;
    int policy;
    return pthread_getschedparam(pthread_self(), &policy, &parameters) == 0 && policy == SCHED_OTHER &&
           pthread_setschedparam(pthread_self(), SCHED_BATCH, &parameters) == 0;
#else
    return false;
#endif
}

static void give_way_no_more(bool gave)
{
    struct sched_param parameters;
    int policy;
    if (gave && pthread_getschedparam(pthread_self(), &policy, &parameters) == 0)
        pthread_setschedparam(pthread_self(), SCHED_OTHER, &parameters);
}

static gs_status start_threads(struct gs_http *http, struct gs_error *error)
{
    gs_status status = start_daemon(http, error);
    if (status == GS_OK) {
        http->has_waker = pthread_create(&http->waker, NULL, wake_senders, http) == 0;
        http->has_watcher = http->has_waker && pthread_create(&http->watcher, NULL, gs_http_watch, http) == 0;
        if (!http->has_watcher)
            status = gs_fail(error, GS_OUT_OF_MEMORY, "cannot start a thread");
    }
    return status == GS_OK ? start_front(http, error) : status;
}

gs_status gs_http_open(const struct gs_http_options *options, struct gs_http **out, struct gs_error *error)
{
    *out = NULL;
    struct gs_http *http = calloc(1, sizeof *http);
    if (!http)
        return gs_fail_memory(error, sizeof *http);
    http->options = *options;
    http->listener = -1;
    pthread_mutex_init(&http->mutex, NULL);
    pthread_mutex_init(&http->wake_mutex, NULL);
    pthread_cond_init(&http->wakes, NULL);
    gs_status status = gs_listen(options->host, options->port, &http->listener, &http->port, error);
    if (status == GS_OK) {
        bool gave = give_way();
        status = start_threads(http, error);
        give_way_no_more(gave);
    }
    if (status != GS_OK) {
        gs_http_close(http);
        return status;
    }
    *out = http;
    return GS_OK;
}

int gs_http_port(const struct gs_http *http)
{
    return http->port;
}

void gs_http_quiesce(struct gs_http *http)
{
    gs_front_quiesce(http->front);
}

size_t gs_http_pending(struct gs_http *http)
{
    pthread_mutex_lock(&http->mutex);
    size_t count = 0;
    for (const struct gs_sender *sender = http->senders; sender; sender = sender->after)
        count += sender->dispatched;
    pthread_mutex_unlock(&http->mutex);
    return count;
}

void gs_http_close(struct gs_http *http)
{
    if (!http)
        return;
    atomic_store(&http->stops, true);
    gs_front_close(http->front);
    if (http->has_watcher)
        pthread_join(http->watcher, NULL);
    pthread_mutex_lock(&http->mutex);
    for (struct gs_sender *sender = http->senders; sender; sender = sender->after)
        gs_exchange_leave(sender->exchange);
    pthread_mutex_unlock(&http->mutex);
    pthread_mutex_lock(&http->wake_mutex);
    http->waker_stops = true;
    pthread_cond_signal(&http->wakes);
    pthread_mutex_unlock(&http->wake_mutex);
    if (http->has_waker)
        pthread_join(http->waker, NULL);
    if (http->daemon)
        MHD_stop_daemon(http->daemon);
    if (http->listener >= 0)
        close(http->listener);
    pthread_cond_destroy(&http->wakes);
    pthread_mutex_destroy(&http->wake_mutex);
    pthread_mutex_destroy(&http->mutex);
    free(http);
}
