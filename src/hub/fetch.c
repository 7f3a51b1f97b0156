#include "hub/fetch.h"

#include "base/clock.h"
#include "base/status.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES 262144L
#define SAVE_SECONDS 1.0
#define SHOW_SECONDS 0.05
#define POLL_MS      100

enum fault {
    FAULT_NONE,
    FAULT_WHOLE, /* the server sends the whole file where a part was asked for */
    FAULT_SIZE,  /* it has another size than the hub's list says */
    FAULT_WRITE, /* the disk */
};

struct run;

/* One connection: a piece on its way. */
struct slot {
    struct run *run;
    CURL *handle; /* NULL: idle */
    struct curl_slist *headers;
    struct gs_http_request request;
    struct gs_reply reply;
    struct gs_piece *piece;
    uint64_t got; /* bytes in this try */
    bool accepted;
    enum fault fault;
    uint64_t other_size; /* FAULT_SIZE: what the server says */
    int write_error;     /* FAULT_WRITE: errno */
};

struct run {
    const struct gs_fetch *fetch;
    struct gs_ranges *ranges;
    CURLM *multi;
    struct slot slots[GS_FETCH_MAX_CONNECTIONS];
    char *location;               /* where the contents are now; NULL: to be asked */
    unsigned redirects, renewals; /* without a byte since */
    bool whole;                   /* no parts: one piece, from zero at every try */
    double not_before;            /* no new try until then */
    double saved, shown;
};

/* ---------------------------------------------------------------- bytes that arrive */

/* At the first byte, and at the end of an empty answer: are these the bytes that were asked for? */
static enum fault inspect_reply(struct slot *slot)
{
    const struct gs_reply *reply = &slot->reply;
    uint64_t size = slot->run->ranges->size;
    if (reply->status == 206) {
        slot->other_size = reply->range_total;
        bool good = reply->has_range && reply->range_begin == slot->request.begin;
        return reply->has_range && reply->range_total != size ? FAULT_SIZE : good ? FAULT_NONE : FAULT_WHOLE;
    }
    slot->other_size = reply->length;
    if (reply->has_length && reply->length != size)
        return FAULT_SIZE;
    return slot->request.begin == 0 && slot->request.end == size ? FAULT_NONE : FAULT_WHOLE;
}

static bool write_bytes(struct slot *slot, const char *bytes, size_t size)
{
    struct gs_piece *piece = slot->piece;
    while (size > 0) {
        ssize_t n = pwrite(slot->run->fetch->descriptor, bytes, size, (off_t)(piece->begin + piece->done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            slot->write_error = n < 0 ? errno : EIO;
            slot->fault = FAULT_WRITE;
            return false;
        }
        piece->done += (uint64_t)n;
        slot->got += (uint64_t)n;
        bytes += n;
        size -= (size_t)n;
    }
    return true;
}

static bool take_bytes(void *user, const char *bytes, size_t size)
{
    struct slot *slot = user;
    curl_easy_getinfo(slot->handle, CURLINFO_RESPONSE_CODE, &slot->reply.status);
    if (slot->reply.status != 200 && slot->reply.status != 206)
        return true; /* the text of an error */
    if (!slot->accepted)
        slot->fault = inspect_reply(slot);
    slot->accepted = true;
    uint64_t room = slot->piece->end - slot->piece->begin - slot->piece->done;
    if (slot->fault == FAULT_NONE && size > room) {
        slot->other_size = slot->piece->end + (size - room);
        slot->fault = FAULT_SIZE;
    }
    return slot->fault == FAULT_NONE && write_bytes(slot, bytes, size);
}

/* ---------------------------------------------------------------- tries */

static void release_slot(struct slot *slot)
{
    if (slot->handle) {
        curl_multi_remove_handle(slot->run->multi, slot->handle);
        curl_easy_cleanup(slot->handle);
        curl_slist_free_all(slot->headers);
        slot->piece->busy = false;
    }
    gs_reply_free(&slot->reply);
    *slot = (struct slot){.run = slot->run};
}

static gs_status start_piece(struct run *run, struct slot *slot, struct gs_piece *piece,
                             struct gs_error *error)
{
    if (run->whole)
        piece->done = 0;
    uint64_t begin = piece->begin + piece->done;
    slot->piece = piece;
    slot->request = (struct gs_http_request){.url = run->location,
                                             .ranged = begin > 0 || piece->end < run->ranges->size,
                                             .begin = begin,
                                             .end = piece->end,
                                             .sink = take_bytes,
                                             .user = slot};
    slot->handle = gs_http_prepare(run->fetch->http, &slot->request, &slot->reply, &slot->headers);
    if (!slot->handle)
        return gs_fail_memory(error, sizeof *slot);
    piece->busy = true;
    curl_easy_setopt(slot->handle, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    curl_easy_setopt(slot->handle, CURLOPT_PRIVATE, slot);
    return curl_multi_add_handle(run->multi, slot->handle) == CURLM_OK
               ? GS_OK
               : gs_fail(error, GS_OUT_OF_MEMORY, "libcurl takes no further connection");
}

/* Asks the hub where the contents are, and whether it still means the same file. */
static gs_status locate(struct run *run, struct gs_error *error)
{
    const struct gs_hub_file *file = run->fetch->file;
    struct gs_reply reply = {0};
    gs_status status =
        gs_http_locate(run->fetch->http, run->fetch->url, file->name, &run->location, &reply, error);
    if (status == GS_OK && reply.linked_size > 0 && reply.linked_size != file->size)
        status = gs_fail(error, GS_MALFORMED, "%s: the server has %llu bytes of it, the hub's list says %llu",
                         gs_quote(file->name).text, (unsigned long long)reply.linked_size,
                         (unsigned long long)file->size);
    if (status == GS_OK && strlen(reply.linked_digest) == strlen(file->digest) &&
        strcmp(reply.linked_digest, file->digest) != 0)
        status = gs_fail(error, GS_MALFORMED, "%s: the server's hash of it is %s, the hub's list says %s",
                         gs_quote(file->name).text, gs_quote(reply.linked_digest).text, file->digest);
    gs_reply_free(&reply);
    return status;
}

/* Fills idle connections with pieces. */
static gs_status start_pieces(struct run *run, struct gs_error *error)
{
    gs_status status = GS_OK;
    if (gs_clock_seconds() < run->not_before)
        return GS_OK;
    for (size_t i = 0; status == GS_OK && i < run->fetch->n_connections; i++) {
        struct gs_piece *piece = run->slots[i].handle ? NULL : gs_ranges_next(run->ranges);
        if (!piece)
            continue;
        if (!run->location)
            status = locate(run, error);
        if (status == GS_OK)
            status = start_piece(run, &run->slots[i], piece, error);
    }
    return status;
}

/* From now on one connection, without ranges. */
static gs_status go_whole(struct run *run, struct gs_error *error)
{
    unsigned failures = 0;
    for (size_t i = 0; i < run->fetch->n_connections; i++)
        release_slot(&run->slots[i]);
    for (size_t i = 0; i < run->ranges->count; i++)
        if (run->ranges->pieces[i].failures > failures)
            failures = run->ranges->pieces[i].failures;
    run->whole = true;
    gs_status status = gs_ranges_init(run->ranges, run->ranges->size, run->ranges->size, error);
    if (status == GS_OK)
        run->ranges->pieces[0].failures = failures;
    return status;
}

/* A try that did not finish its piece and may be repeated. */
static gs_status count_failure(struct run *run, struct slot *slot, struct gs_error *error)
{
    const struct gs_http_options *http = run->fetch->http;
    struct gs_piece *piece = slot->piece;
    if (gs_http_is_cancelled(http))
        return gs_fail(error, GS_CANCELLED, "interrupted");
    piece->failures = slot->got > 0 && !run->whole ? 0 : piece->failures + 1;
    if (piece->failures >= http->max_failures)
        return gs_http_fail(http, &slot->reply, run->fetch->file->name, error);
    double delay = gs_http_delay(http, &slot->reply, piece->failures > 0 ? piece->failures : 1);
    run->not_before = gs_clock_seconds() + delay;
    if (http->waiting)
        http->waiting(http->user, gs_http_reason(&slot->reply).text, delay);
    return GS_OK;
}

static gs_status follow(struct run *run, struct slot *slot, struct gs_error *error)
{
    const char *name = run->fetch->file->name;
    if (!gs_http_is_allowed(run->fetch->http, slot->reply.location))
        return gs_fail(error, GS_MALFORMED, "%s: the hub redirects to what is not https",
                       gs_quote(name).text);
    if (++run->redirects > GS_HTTP_MAX_REDIRECTS * GS_FETCH_MAX_CONNECTIONS) /* all may meet the same one */
        return gs_fail(error, GS_MALFORMED, "%s: more than %d redirects", gs_quote(name).text,
                       GS_HTTP_MAX_REDIRECTS);
    free(run->location);
    run->location = slot->reply.location;
    slot->reply.location = NULL;
    return GS_OK;
}

static gs_status fail_fault(struct run *run, const struct slot *slot, struct gs_error *error)
{
    if (slot->fault == FAULT_WRITE)
        return gs_fail_io(error, slot->write_error, "write", run->fetch->path);
    return gs_fail(error, GS_MALFORMED, "%s: the server has %llu bytes of it, the hub's list says %llu",
                   gs_quote(run->fetch->file->name).text, (unsigned long long)slot->other_size,
                   (unsigned long long)run->ranges->size);
}

/* What follows from a finished transfer. */
static gs_status judge(struct run *run, struct slot *slot, CURLcode code, struct gs_error *error)
{
    struct gs_reply *reply = &slot->reply;
    gs_http_conclude(slot->handle, code, reply);
    bool answered = reply->status == 200 || reply->status == 206;
    if (answered && !slot->accepted && code == CURLE_OK)
        slot->fault = inspect_reply(slot);
    if (slot->fault == FAULT_SIZE || slot->fault == FAULT_WRITE)
        return fail_fault(run, slot, error);
    if (slot->got > 0)
        run->redirects = run->renewals = 0;
    if (slot->fault == FAULT_WHOLE && !run->whole)
        return go_whole(run, error);
    if (slot->piece->begin + slot->piece->done == slot->piece->end) {
        slot->piece->failures = 0;
        return GS_OK;
    }
    if (code == CURLE_OK && reply->location)
        return follow(run, slot, error);
    if (code == CURLE_OK && answered) {
        static const char text[] = "the connection ended early";
        reply->code = CURLE_PARTIAL_FILE;
        memcpy(reply->reason, text, sizeof text);
    }
    /* A signed address expires; 416 too may mean that it is an old one. */
    long s = reply->status;
    bool expired = code == CURLE_OK && (s == 401 || s == 403 || s == 404 || s == 410 || s == 416) &&
                   !gs_http_same_origin(run->location, run->fetch->http->endpoint);
    if (expired) {
        for (size_t i = 0; i < run->fetch->n_connections; i++)
            if (&run->slots[i] != slot)
                release_slot(&run->slots[i]);
        free(run->location);
        run->location = NULL;
    }
    if (expired ? ++run->renewals >= run->fetch->http->max_failures : !gs_http_is_passing(reply))
        return gs_http_fail(run->fetch->http, reply, run->fetch->file->name, error);
    return count_failure(run, slot, error);
}

/* ---------------------------------------------------------------- the loop */

static gs_status finish_transfers(struct run *run, struct gs_error *error)
{
    CURLMsg *message;
    int left;
    gs_status status = GS_OK;
    while (status == GS_OK && (message = curl_multi_info_read(run->multi, &left))) {
        char *private = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &private);
        struct slot *slot = (struct slot *)(void *)private;
        status = judge(run, slot, code, error);
        release_slot(slot);
    }
    return status;
}

static gs_status tell(struct run *run, struct gs_error *error)
{
    const struct gs_http_options *http = run->fetch->http;
    double now = gs_clock_seconds();
    if (gs_http_is_cancelled(http))
        return gs_fail(error, GS_CANCELLED, "interrupted");
    if (run->fetch->progress && now - run->shown >= SHOW_SECONDS) {
        run->shown = now;
        run->fetch->progress(run->fetch->user, gs_ranges_done(run->ranges));
    }
    if (now - run->saved < SAVE_SECONDS)
        return GS_OK;
    run->saved = now;
    return gs_ranges_save(run->ranges, run->fetch->state_path, error);
}

static gs_status loop(struct run *run, struct gs_error *error)
{
    gs_status status = GS_OK;
    while (status == GS_OK && gs_ranges_done(run->ranges) < run->ranges->size) {
        int running = 0;
        status = start_pieces(run, error);
        if (status == GS_OK && curl_multi_perform(run->multi, &running) != CURLM_OK)
            status = gs_fail(error, GS_IO, "libcurl gave up");
        if (status == GS_OK)
            status = finish_transfers(run, error);
        if (status == GS_OK)
            status = tell(run, error);
        if (status == GS_OK && running > 0)
            curl_multi_poll(run->multi, NULL, 0, POLL_MS, NULL);
        double pause = run->not_before - gs_clock_seconds();
        if (status == GS_OK && running == 0 && pause > 0.0)
            status = gs_http_wait(run->fetch->http, pause, error);
    }
    return status;
}

gs_status gs_fetch_run(const struct gs_fetch *fetch, struct gs_ranges *ranges, struct gs_error *error)
{
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        return gs_fail_memory(error, sizeof *run);
    gs_status status = GS_OK;
    run->fetch = fetch;
    run->ranges = ranges;
    for (size_t i = 0; i < GS_FETCH_MAX_CONNECTIONS; i++)
        run->slots[i].run = run;
    if (!(run->multi = curl_multi_init()))
        status = gs_fail_memory(error, sizeof *run);
    if (status == GS_OK)
        status = loop(run, error);
    for (size_t i = 0; i < GS_FETCH_MAX_CONNECTIONS; i++)
        release_slot(&run->slots[i]);
    if (run->multi)
        curl_multi_cleanup(run->multi);
    /* An earlier failure is the one to report; without a state the next run merely starts anew. */
    gs_status saved = gs_ranges_save(ranges, fetch->state_path, status == GS_OK ? error : NULL);
    free(run->location);
    free(run);
    return status != GS_OK ? status : saved;
}
