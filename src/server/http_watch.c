/*
 * What libmicrohttpd does not look for: clients that leave while their connection is suspended, heads that
 * arrive a byte at a time, bodies that do not come in time, and bodies that are sent in vain, since the head
 * is refused. To these it could only close: it takes no answer between the first byte of a body and the last.
 * So that answer is written beside it, while it has nothing to say itself.
 */
#include "base/clock.h"
#include "base/system.h"
#include "server/http_state.h"
#include "server/refusal.h"
#include "server/server.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define WATCH_MS      100
#define LATE_SECONDS  2.0 /* to read that it was too late */
#define EARLY_SECONDS 0.1 /* from a head that is refused: a body that is there by then comes first */

static void close_slow_heads(struct gs_http *http, double now)
{
    for (struct gs_link *link = http->links; link; link = link->after) {
        if (!link->busy && link->socket >= 0 && now - link->since > GS_HTTP_HEAD_SECONDS) {
            shutdown(link->socket, SHUT_RDWR);
            link->since = now;
        }
    }
}

/* ---------------------------------------------------------------- bodies that do not come, or in vain */

/* All that HEAD is answered. */
static size_t size_of_head(const char *answer)
{
    static const char end[] = "\r\n\r\n";
    return (size_t)(strstr(answer, end) - answer) + strlen(end);
}

/* Under the mutex: libmicrohttpd says nothing more than this to the client, and reads on what still comes. */
static void refuse(struct gs_sender *sender, const struct gs_api_error *error)
{
    const struct gs_exchange *exchange = sender->exchange;
    bool answers_head = exchange->method && strcmp(exchange->method, "HEAD") == 0;
    struct gs_buffer lines = {0}, out = {0};
    gs_status status = gs_buffer_append(&lines, "", 0, NULL);
    for (size_t i = 0; i < exchange->n_reply_header && status == GS_OK; i++)
        status = gs_buffer_print(&lines, NULL, "%s: %s\r\n", exchange->reply_headers[i].name,
                                 exchange->reply_headers[i].value);
    if (status == GS_OK)
        status = gs_refusal_print(&out, exchange->route ? exchange->route->errors : GS_ERROR_OPENAI,
                                  lines.data, error);
    if (status == GS_OK)
        send(sender->link->socket, out.data, answers_head ? size_of_head(out.data) : out.size,
             GS_SYSTEM_NO_SIGNAL | MSG_DONTWAIT);
    shutdown(sender->link->socket, SHUT_WR);
    sender->status = error->status;
    gs_buffer_free(&lines);
    gs_buffer_free(&out);
}

static void tell(struct gs_sender *sender, double now)
{
    struct gs_api_error late = {0};
    if (!sender->refused)
        gs_api_fail(
            &late, 408, "request_timeout",
            "the body has not come in time: it has %.0f seconds, and one more for each %u bytes that come",
            GS_HTTP_BODY_SECONDS, GS_HTTP_MIN_RATE);
    refuse(sender, sender->refused ? &sender->failure : &late);
    sender->told = now;
}

/* Under the mutex. */
static void look_for_late(struct gs_http *http, double now)
{
    for (struct gs_sender *sender = http->senders; sender; sender = sender->after) {
        if (!sender->link || sender->link->socket < 0 || sender->whole)
            continue;
        double allowed =
            GS_HTTP_BODY_SECONDS + (double)atomic_load(&sender->received) / (double)GS_HTTP_MIN_RATE;
        bool is_over = now - sender->exchange->began > allowed ||
                       now - atomic_load(&sender->heard) > GS_HTTP_IDLE_SECONDS;
        /* Who sends in vain, and looks for the answer only when all is sent, has the time for it. */
        if (sender->told > 0.0 && now - sender->told > LATE_SECONDS && (is_over || !sender->refused))
            shutdown(sender->link->socket, SHUT_RDWR);
        else if (sender->told == 0.0 &&
                 (is_over || (sender->refused && now - sender->exchange->began > EARLY_SECONDS)))
            tell(sender, now);
    }
}

/* ---------------------------------------------------------------- clients that leave */

struct watched {
    struct pollfd *polls;           /* [count] */
    struct gs_exchange **exchanges; /* [count], held */
    size_t count, capacity;
};

/* Under the mutex: the senders whose answers are under way. */
static void list_watched(struct gs_http *http, struct watched *watched)
{
    watched->count = 0;
    if (http->n_sender > watched->capacity) {
        size_t capacity = 2 * http->n_sender;
        struct pollfd *polls = realloc(watched->polls, capacity * sizeof *polls);
        if (polls)
            watched->polls = polls;
        struct gs_exchange **exchanges = realloc(watched->exchanges, capacity * sizeof(void *));
        if (exchanges)
            watched->exchanges = exchanges;
        if (!polls || !exchanges)
            return;
        watched->capacity = capacity;
    }
    for (struct gs_sender *sender = http->senders; sender; sender = sender->after) {
        if (!sender->dispatched || !sender->link || gs_exchange_gone(sender->exchange))
            continue;
        watched->polls[watched->count] =
            (struct pollfd){.fd = sender->link->socket, .events = GS_SYSTEM_POLL_LEFT};
        watched->exchanges[watched->count++] = gs_exchange_hold(sender->exchange);
    }
}

/*
 * Under the mutex. libmicrohttpd can miss that a client closes while its body is still coming, or just before
 * its answer, and would keep the socket until its own idle time is over: a few thousand such clients would be
 * all that there is room for. Both directions shut is an event that it does not miss.
 */
static void close_left(struct gs_http *http, struct pollfd **polls, size_t *capacity)
{
    size_t count = 0;
    if (http->n_open > *capacity) {
        struct pollfd *more = realloc(*polls, 2 * http->n_open * sizeof *more);
        if (!more)
            return;
        *polls = more;
        *capacity = 2 * http->n_open;
    }
    for (struct gs_link *link = http->links; link; link = link->after)
        link->watched = false;
    for (struct gs_sender *sender = http->senders; sender; sender = sender->after)
        if (sender->link)
            sender->link->watched = sender->dispatched && !gs_exchange_gone(sender->exchange);
    for (struct gs_link *link = http->links; link; link = link->after)
        (*polls)[count++] =
            (struct pollfd){.fd = link->watched ? -1 : link->socket, .events = GS_SYSTEM_POLL_LEFT};
    if (poll(*polls, (nfds_t)count, 0) <= 0)
        return;
    count = 0;
    for (struct gs_link *link = http->links; link; link = link->after)
        if ((*polls)[count++].revents & (GS_SYSTEM_POLL_LEFT | POLLHUP | POLLERR))
            shutdown(link->socket, SHUT_RDWR);
}

void *gs_http_watch(void *user)
{
    struct gs_http *http = user;
    struct watched watched = {0};
    struct pollfd *polls = NULL;
    size_t capacity = 0;
    double swept = 0.0;
    while (!atomic_load(&http->stops)) {
        double now = gs_clock_seconds();
        pthread_mutex_lock(&http->mutex);
        list_watched(http, &watched);
        if (now - swept >= 1e-3 * WATCH_MS) {
            close_slow_heads(http, now);
            look_for_late(http, now);
            close_left(http, &polls, &capacity);
            swept = now;
        }
        pthread_mutex_unlock(&http->mutex);
        int ready = poll(watched.polls, (nfds_t)watched.count, WATCH_MS);
        for (size_t i = 0; i < watched.count; i++) {
            if (ready > 0 && (watched.polls[i].revents & (GS_SYSTEM_POLL_LEFT | POLLHUP | POLLERR)))
                gs_exchange_leave(watched.exchanges[i]);
            gs_exchange_release(watched.exchanges[i]);
        }
        gs_server_watch(http->options.server);
        gs_http_flush(http);
    }
    free(watched.polls);
    free(watched.exchanges);
    free(polls);
    return NULL;
}
