#include "server/relay.h"

#include "base/clock.h"
#include "base/status.h"
#include "base/system.h"
#include "server/chunked.h"
#include "server/refusal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BLOCK         (16u << 10)
#define STUCK_SECONDS 30.0 /* a client that takes nothing of what is there for it */

/* What libmicrohttpd says to "Expect: 100-continue"; no answer yet. */
#define INTERIM "HTTP/1.1 100 Continue\r\n\r\n"

/* Bytes on their way. */
struct load {
    size_t at, size;
    char bytes[GS_HEAD_ENOUGH_BYTES]; /* more than BLOCK + GS_CHUNKED_LONGER */
};

struct gs_relay {
    int client, inner;
    uint64_t left; /* of a body that is not chunked */
    uint64_t max_body;
    bool chunked;
    struct gs_chunked body;
    struct load request, answer;
    size_t n_interim;  /* bytes of INTERIM that have come before it */
    bool answers;      /* a byte of it has come */
    double taken_when; /* the last time the client took something, or nothing was there for it */
};

static bool would_wait(ssize_t count)
{
    return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

bool gs_relay_needed(const struct gs_head *head)
{
    return head->chunked || head->has_cookie;
}

gs_status gs_relay_open(int client, const char *bytes, const struct gs_head *head, uint64_t max_body,
                        struct gs_relay **out, int *inner, struct gs_error *error)
{
    int ends[2];
    *out = NULL;
    struct gs_relay *relay = calloc(1, sizeof *relay);
    if (!relay)
        return gs_fail_memory(error, sizeof *relay);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
        free(relay);
        return gs_fail(error, GS_IO, "no descriptor is left");
    }
    for (int i = 0; i < 2; i++) {
        fcntl(ends[i], F_SETFD, FD_CLOEXEC);
        fcntl(ends[i], F_SETFL, O_NONBLOCK);
#if defined(SO_NOSIGPIPE)
        int yes = 1;
        setsockopt(ends[i], SOL_SOCKET, SO_NOSIGPIPE, &yes, sizeof yes);
#endif
    }
    relay->client = client;
    relay->inner = ends[0];
    relay->left = head->length;
    relay->max_body = max_body;
    relay->chunked = head->chunked;
    gs_head_drop_cookies(bytes, head->size, relay->request.bytes, &relay->request.size);
    for (size_t left = head->size; left > 0;) { /* it is there */
        ssize_t count = recv(client, relay->answer.bytes, left, 0);
        if (count <= 0)
            break;
        left -= (size_t)count;
    }
    relay->taken_when = gs_clock_seconds();
    *inner = ends[1];
    *out = relay;
    return GS_OK;
}

void gs_relay_close(struct gs_relay *relay)
{
    if (!relay)
        return;
    close(relay->inner);
    free(relay);
}

bool gs_relay_has_more(const struct gs_relay *relay)
{
    return relay->chunked ? relay->body.state != GS_CHUNKED_WHOLE : relay->left > 0;
}

static bool wants_request(const struct gs_relay *relay)
{
    return relay->request.size == 0 && gs_relay_has_more(relay);
}

void gs_relay_list_polls(const struct gs_relay *relay, struct pollfd polls[2])
{
    short in = wants_request(relay) ? POLLIN : 0, out = relay->answer.size > 0 ? POLLOUT : 0;
    polls[0] = (struct pollfd){.fd = relay->client, .events = (short)(in | out | GS_SYSTEM_POLL_LEFT)};
    in = relay->answer.size == 0 ? POLLIN : 0;
    out = relay->request.size > 0 ? POLLOUT : 0;
    /* One that wants nothing would still be told that the other end is closed, again and again. */
    polls[1] = (struct pollfd){.fd = in | out ? relay->inner : -1, .events = (short)(in | out)};
}

/* Each returns false where its socket is no more. */
static bool send_load(int socket, struct load *load)
{
    ssize_t count = load->size > load->at
                        ? send(socket, load->bytes + load->at, load->size - load->at, GS_SYSTEM_NO_SIGNAL)
                        : 0;
    if (count > 0)
        load->at += (size_t)count;
    if (load->at == load->size)
        load->at = load->size = 0;
    return count >= 0 || would_wait(count);
}

static bool read_request(struct gs_relay *relay, struct gs_api_error *error)
{
    char bytes[BLOCK];
    struct load *load = &relay->request;
    if (!wants_request(relay))
        return true;
    size_t most = relay->chunked || relay->left > BLOCK ? BLOCK : (size_t)relay->left;
    ssize_t count = recv(relay->client, relay->chunked ? bytes : load->bytes, most, 0);
    if (count > 0 && relay->chunked) {
        gs_chunked_read(&relay->body, bytes, (size_t)count, load->bytes, &load->size, error);
        if (error->status == 0 && relay->body.announced > relay->max_body)
            gs_refusal_of_length(relay->max_body, error);
    } else if (count > 0) {
        load->size = (size_t)count;
        relay->left -= (size_t)count;
    }
    return count > 0 || would_wait(count);
}

/* Of what has come for the client: does an answer begin in it? */
static void look_for_answer(struct gs_relay *relay, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count && !relay->answers; i++)
        if (relay->n_interim < strlen(INTERIM) && bytes[i] == INTERIM[relay->n_interim])
            relay->n_interim++;
        else
            relay->answers = true;
}

/* Can the client still be given another answer than libmicrohttpd's? */
static bool is_open(const struct gs_relay *relay)
{
    bool half = relay->n_interim > 0 && relay->n_interim < strlen(INTERIM);
    return !relay->answers && !half && relay->answer.at == 0;
}

/* *ended: libmicrohttpd has closed; a reset says so too where it left some of the request unread. */
static bool read_answer(struct gs_relay *relay, bool *ended)
{
    if (relay->answer.size > 0)
        return true;
    ssize_t count = recv(relay->inner, relay->answer.bytes, BLOCK, 0);
    if (count > 0) {
        relay->answer.size = (size_t)count;
        look_for_answer(relay, relay->answer.bytes, (size_t)count);
    }
    *ended = count == 0 || (count < 0 && errno == ECONNRESET);
    return count >= 0 || *ended || would_wait(count);
}

enum gs_relay_state gs_relay_run(struct gs_relay *relay, const struct pollfd polls[2], double now,
                                 struct gs_api_error *error)
{
    bool ended = false;
    *error = (struct gs_api_error){0};
    if (polls[0].revents & (GS_SYSTEM_POLL_LEFT | POLLHUP | POLLERR))
        return GS_RELAY_BROKEN;
    if (!read_request(relay, error))
        return GS_RELAY_BROKEN;
    if (error->status != 0)
        return is_open(relay) ? GS_RELAY_BAD : GS_RELAY_BROKEN;
    bool takes = send_load(relay->inner, &relay->request);
    size_t at = relay->answer.at;
    if (!read_answer(relay, &ended) || !send_load(relay->client, &relay->answer))
        return GS_RELAY_BROKEN;
    if (relay->answer.size == 0 || relay->answer.at != at)
        relay->taken_when = now;
    if (ended)
        return relay->answers ? GS_RELAY_ANSWERED : GS_RELAY_BROKEN;
    if (!takes) /* closed: what it had said before comes first */
        relay->request.at = relay->request.size = 0;
    return now - relay->taken_when > STUCK_SECONDS ? GS_RELAY_BROKEN : GS_RELAY_GOES_ON;
}
