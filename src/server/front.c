#include "server/front.h"

#include "base/clock.h"
#include "base/status.h"
#include "base/system.h"
#include "server/head.h"
#include "server/refusal.h"
#include "server/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POLL_MS 100
#define PAUSE_SECONDS                                                                                        \
    0.02 /* before a head that has not grown is looked at again, where SO_RCVLOWAT does not help */
/* After an answer: closing at once would take it from a client that still sends. One that has announced a
 * body and reads nothing before all of it is sent has these bytes to come to the answer. */
#define DRAIN_SECONDS      2.0 /* without a byte */
#define DRAIN_ALL_SECONDS  2.0
#define DRAIN_BYTES        (1u << 20)
#define DRAIN_BODY_SECONDS 30.0
#define DRAIN_BODY_BYTES   (256u << 20)
#define ACCEPT_BURST       64
#define FLUSH_BLOCKS       64  /* of a relayed answer, when the server ends */
#define MAX_RELAYS         512 /* at once */

/* A connection whose head has not come whole, that is relayed, or that has been answered. */
struct caller {
    int socket;
    struct sockaddr_storage address;
    socklen_t length;
    double until;   /* then it is closed */
    double last;    /* drained: it is until then at the latest */
    double look_at; /* not before */
    size_t seen;    /* bytes of the head; drained: read since the answer */
    size_t most;    /* drained: of these */
    bool drained;
    enum gs_error_form errors; /* of the path that was asked for, once there is one */
    struct gs_relay *relay;    /* NULL: none */
    size_t poll_at;            /* in the front's polls */
};

struct gs_front {
    struct gs_front_options options;
    pthread_t thread;
    bool started;
    _Atomic bool quiet, stops;
    struct caller *callers; /* [n_caller], of max_callers */
    struct pollfd *polls;   /* [n_poll]: the listener, then one of each caller, or two where it is relayed */
    size_t n_caller, n_relay, n_poll;
    double accept_at; /* not before: descriptors or memory were out */
    char bytes[GS_HEAD_ENOUGH_BYTES];
};

/* ---------------------------------------------------------------- answers */

static void begin_draining(struct caller *caller, bool has_body)
{
    double now = gs_clock_seconds();
    shutdown(caller->socket, SHUT_WR);
    caller->drained = true;
    caller->seen = 0;
    caller->most = has_body ? DRAIN_BODY_BYTES : DRAIN_BYTES;
    caller->look_at = 0;
    caller->until = now + DRAIN_SECONDS;
    caller->last = now + (has_body ? DRAIN_BODY_SECONDS : DRAIN_ALL_SECONDS);
}

static void refuse(struct gs_front *front, struct caller *caller, const struct gs_api_error *error)
{
    struct gs_buffer out = {0};
    if (gs_refusal_print(&out, caller->errors, "", error) == GS_OK)
        send(caller->socket, out.data, out.size, GS_SYSTEM_NO_SIGNAL | MSG_DONTWAIT);
    front->options.refused(front->options.user, error->status, error->message);
    begin_draining(caller, error->status == 413);
    gs_buffer_free(&out);
}

/* ---------------------------------------------------------------- callers */

static void set_low_water(int socket, size_t bytes)
{
    int value = (int)bytes;
    setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof value);
}

/* Each returns whether the caller stays. */
static bool drain(struct gs_front *front, struct caller *caller)
{
    ssize_t count = recv(caller->socket, front->bytes, sizeof front->bytes, MSG_DONTWAIT);
    bool waits = count > 0 || (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
    if (count > 0) {
        double until = gs_clock_seconds() + DRAIN_SECONDS;
        caller->seen += (size_t)count;
        caller->until = until < caller->last ? until : caller->last;
    }
    if (waits && caller->seen <= caller->most)
        return true;
    close(caller->socket);
    return false;
}

/* The caller's request lies in `bytes`. */
static bool begin_relay(struct gs_front *front, struct caller *caller, const struct gs_head *head)
{
    struct gs_api_error failure;
    int inner;
    if (front->n_relay == MAX_RELAYS ||
        gs_relay_open(caller->socket, front->bytes, head, front->options.max_body, &caller->relay, &inner,
                      NULL) != GS_OK) {
        gs_api_fail(&failure, 503, "overloaded", "too many chunked requests at once: try again later");
        refuse(front, caller, &failure);
        return drain(front, caller);
    }
    front->n_relay++;
    caller->until = INFINITY;
    front->options.take(front->options.user, inner, (const struct sockaddr *)(const void *)&caller->address,
                        caller->length);
    return true;
}

static void end_relay(struct gs_front *front, struct caller *caller)
{
    if (caller->relay)
        front->n_relay--;
    gs_relay_close(caller->relay);
    caller->relay = NULL;
}

static bool run_relay(struct gs_front *front, struct caller *caller, const struct pollfd polls[2], double now)
{
    struct gs_api_error error;
    enum gs_relay_state state = gs_relay_run(caller->relay, polls, now, &error);
    if (state == GS_RELAY_GOES_ON)
        return true;
    bool has_more = gs_relay_has_more(caller->relay);
    end_relay(front, caller);
    if (state == GS_RELAY_BROKEN) {
        close(caller->socket);
        return false;
    }
    if (state == GS_RELAY_BAD)
        refuse(front, caller, &error);
    else
        begin_draining(caller, has_more);
    return drain(front, caller);
}

static bool look(struct gs_front *front, struct caller *caller, double now)
{
    struct gs_api_error error;
    struct gs_head head;
    ssize_t count = recv(caller->socket, front->bytes, sizeof front->bytes, MSG_PEEK | MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return true;
    if (count <= 0) {
        close(caller->socket);
        return false;
    }
    size_t size = (size_t)count;
    caller->errors = gs_head_errors(front->bytes, size);
    switch (gs_head_check(front->bytes, size, &head, &error)) {
    case GS_HEAD_WHOLE:
        if (caller->seen > 0)
            set_low_water(caller->socket, 1);
        if (head.length > front->options.max_body) {
            gs_refusal_of_length(front->options.max_body, &error);
            refuse(front, caller, &error);
            return drain(front, caller);
        }
        if (gs_relay_needed(&head))
            return begin_relay(front, caller, &head);
        front->options.take(front->options.user, caller->socket,
                            (const struct sockaddr *)(const void *)&caller->address, caller->length);
        return false;
    case GS_HEAD_BAD:
        if (caller->seen > 0)
            set_low_water(caller->socket, 1);
        refuse(front, caller, &error);
        return drain(front, caller);
    case GS_HEAD_PART:
        break;
    }
    if (size == caller->seen)
        caller->look_at = now + PAUSE_SECONDS;
    else
        set_low_water(caller->socket, size + 1);
    caller->seen = size;
    return true;
}

static bool prepare(int socket)
{
#if defined(SO_NOSIGPIPE)
    int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_NOSIGPIPE, &yes, sizeof yes);
#endif
    return fcntl(socket, F_SETFD, FD_CLOEXEC) == 0 && fcntl(socket, F_SETFL, O_NONBLOCK) == 0;
}

static bool is_same_peer(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    if (a->ss_family != b->ss_family)
        return false;
    if (a->ss_family == AF_INET6)
        return memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                      &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr,
                      sizeof(struct in6_addr)) == 0;
    return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr ==
           ((const struct sockaddr_in *)(const void *)b)->sin_addr.s_addr;
}

static size_t count_of_peer(const struct gs_front *front, const struct sockaddr_storage *address)
{
    size_t count = 0;
    for (size_t i = 0; i < front->n_caller; i++)
        count += is_same_peer(&front->callers[i].address, address);
    return count;
}

static void accept_callers(struct gs_front *front, double now)
{
    for (int i = 0; i < ACCEPT_BURST && front->n_caller < front->options.max_callers; i++) {
        struct caller caller = {.length = sizeof caller.address, .until = now + front->options.head_seconds};
        caller.socket =
            accept(front->options.listener, (struct sockaddr *)(void *)&caller.address, &caller.length);
        if (caller.socket < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                front->accept_at = now + 1e-3 * POLL_MS;
            if (errno == ECONNABORTED || errno == EINTR)
                continue;
            return;
        }
        if (!prepare(caller.socket) || count_of_peer(front, &caller.address) >= front->options.max_per_peer)
            close(caller.socket);
        else if (look(front, &caller, now))
            front->callers[front->n_caller++] = caller;
    }
}

/* ---------------------------------------------------------------- the thread */

static void list_polls(struct gs_front *front, double now)
{
    bool accepts = !atomic_load(&front->quiet) && now >= front->accept_at &&
                   front->n_caller < front->options.max_callers;
    front->polls[0] = (struct pollfd){.fd = accepts ? front->options.listener : -1, .events = POLLIN};
    front->n_poll = 1;
    for (size_t i = 0; i < front->n_caller; i++) {
        struct caller *caller = &front->callers[i];
        struct pollfd *polls = front->polls + front->n_poll;
        caller->poll_at = front->n_poll;
        if (caller->relay)
            gs_relay_list_polls(caller->relay, polls);
        else
            polls[0] = (struct pollfd){.fd = now >= caller->look_at ? caller->socket : -1,
                                       .events = POLLIN | GS_SYSTEM_POLL_LEFT};
        front->n_poll += caller->relay ? 2 : 1;
    }
}

/* Does the caller stay? One whose side is closed before its head is whole, or whose time is over, does not.
 */
static bool serve(struct gs_front *front, struct caller *caller, const struct pollfd *polls, double now)
{
    if (caller->relay)
        return run_relay(front, caller, polls, now);
    short events = polls[0].revents;
    size_t seen = caller->seen;
    bool was_drained = caller->drained;
    if (events != 0) {
        bool stays = was_drained ? drain(front, caller) : look(front, caller, now);
        if (!stays)
            return false;
    }
    bool ended = !was_drained && !caller->drained && caller->seen == seen &&
                 (events & (GS_SYSTEM_POLL_LEFT | POLLHUP | POLLERR));
    if (!ended && now < caller->until)
        return true;
    close(caller->socket);
    return false;
}

static void *run(void *user)
{
    struct gs_front *front = user;
    while (!atomic_load(&front->stops)) {
        double now = gs_clock_seconds();
        list_polls(front, now);
        poll(front->polls, (nfds_t)front->n_poll, POLL_MS);
        now = gs_clock_seconds();
        size_t n_polled = front->n_caller, kept = 0;
        for (size_t i = 0; i < n_polled; i++) {
            struct caller caller = front->callers[i];
            if (serve(front, &caller, front->polls + caller.poll_at, now))
                front->callers[kept++] = caller;
        }
        front->n_caller = kept;
        if (front->polls[0].revents != 0)
            accept_callers(front, now);
    }
    return NULL;
}

gs_status gs_front_open(const struct gs_front_options *options, struct gs_front **out, struct gs_error *error)
{
    *out = NULL;
    struct gs_front *front = calloc(1, sizeof *front);
    if (!front)
        return gs_fail_memory(error, sizeof *front);
    front->options = *options;
    front->callers = calloc(options->max_callers, sizeof *front->callers);
    front->polls = calloc(1 + options->max_callers + MAX_RELAYS, sizeof *front->polls);
    gs_status status = GS_OK;
    if (!front->callers || !front->polls) {
        status =
            gs_fail_memory(error, options->max_callers * (sizeof *front->callers + sizeof *front->polls));
    } else {
        front->started = pthread_create(&front->thread, NULL, run, front) == 0;
        if (!front->started)
            status = gs_fail(error, GS_OUT_OF_MEMORY, "cannot start a thread");
    }
    if (status == GS_OK)
        *out = front;
    else
        gs_front_close(front);
    return status;
}

void gs_front_quiesce(struct gs_front *front)
{
    atomic_store(&front->quiet, true);
}

/* What the last answer still has on its way. */
static void flush_relay(struct gs_relay *relay)
{
    static const struct pollfd nothing[2];
    struct gs_api_error error;
    for (int i = 0; relay && i < FLUSH_BLOCKS; i++)
        if (gs_relay_run(relay, nothing, 0.0, &error) != GS_RELAY_GOES_ON)
            return;
}

void gs_front_close(struct gs_front *front)
{
    if (!front)
        return;
    atomic_store(&front->stops, true);
    if (front->started)
        pthread_join(front->thread, NULL);
    for (size_t i = 0; i < front->n_caller; i++) {
        struct caller *caller = &front->callers[i];
        flush_relay(caller->relay);
        end_relay(front, caller);
        close(caller->socket);
    }
    free(front->callers);
    free(front->polls);
    free(front);
}
