#include "chat/harmony_parse.h"

#include "base/status.h"
#include "base/utf8.h"
#include "chat/markers.h"

#include <stdlib.h>
#include <string.h>

enum state {
    BETWEEN, /* a message may start */
    HEADER,
    BODY,
};

/* Text without a header that <|end|> closed: what it is depends on what follows. */
struct held {
    bool is_set;
    struct gs_buffer text;
    size_t begin, end;
};

struct gs_harmony_parser {
    const struct gs_vocab *vocab;
    struct gs_markers markers;
    struct gs_harmony_options options;
    enum state state;
    bool stopped; /* by the last token that meant anything */
    bool has_final;
    bool has_call;
    size_t n_fed;     /* tokens */
    size_t n_message; /* messages begun */
    size_t begin;     /* the first token of this message */
    /* HEADER */
    struct gs_header_parts parts;
    struct gs_buffer header;
    struct held held;
    /* BODY */
    enum gs_message_kind kind;
    char pending[4]; /* the start of a character */
    size_t n_pending;
};

const char *gs_finish_name(enum gs_finish finish)
{
    static const char *const names[] = {"stop", "length", "tool_calls"};
    return names[finish];
}

gs_status gs_harmony_parser_open(const struct gs_vocab *vocab, const struct gs_harmony_options *options,
                                 struct gs_harmony_parser **out, struct gs_error *error)
{
    struct gs_markers markers;
    *out = NULL;
    gs_status status = gs_markers_find(vocab, &markers, error);
    if (status != GS_OK)
        return status;
    struct gs_harmony_parser *parser = calloc(1, sizeof *parser);
    if (!parser)
        return gs_fail_memory(error, sizeof *parser);
    parser->vocab = vocab;
    parser->markers = markers;
    parser->options = *options;
    parser->state = options->no_preset ? BETWEEN : HEADER;
    *out = parser;
    return GS_OK;
}

void gs_harmony_parser_close(struct gs_harmony_parser *parser)
{
    if (!parser)
        return;
    gs_buffer_free(&parser->header);
    gs_buffer_free(&parser->held.text);
    free(parser);
}

bool gs_harmony_in_body(const struct gs_harmony_parser *parser)
{
    return parser->state == BODY;
}

enum gs_message_kind gs_harmony_body_kind(const struct gs_harmony_parser *parser)
{
    return parser->kind;
}

/* ---------------------------------------------------------------- events */

static gs_status send(struct gs_harmony_parser *p, struct gs_harmony_event event, struct gs_error *error)
{
    event.message = p->n_message;
    return p->options.fn(p->options.user, &event, error);
}

static gs_status send_text(struct gs_harmony_parser *p, enum gs_message_kind kind, struct gs_text text,
                           struct gs_error *error)
{
    if (text.size == 0)
        return GS_OK;
    return send(p, (struct gs_harmony_event){.event = GS_HARMONY_TEXT, .kind = kind, .text = text}, error);
}

static gs_status send_message(struct gs_harmony_parser *p, enum gs_message_kind kind, size_t begin,
                              size_t end, bool cut, struct gs_error *error)
{
    gs_status status =
        send(p,
             (struct gs_harmony_event){
                 .event = GS_HARMONY_MESSAGE, .kind = kind, .cut = cut, .begin = begin, .end = end},
             error);
    p->n_message++;
    p->has_final |= kind == GS_MESSAGE_FINAL;
    p->has_call |= kind == GS_MESSAGE_CALL;
    return status;
}

static gs_status send_call(struct gs_harmony_parser *p, const struct gs_header *header,
                           struct gs_error *error)
{
    if (header->kind != GS_MESSAGE_CALL)
        return GS_OK;
    return send(p,
                (struct gs_harmony_event){.event = GS_HARMONY_CALL,
                                          .kind = GS_MESSAGE_CALL,
                                          .text = header->name,
                                          .type = header->type,
                                          .builtin = header->builtin},
                error);
}

/* ---------------------------------------------------------------- text as characters */

/*
 * Sends `bytes` as text of this message: each ill-formed part as U+FFFD, an incomplete character at the end
 * not at all; *left is its size.
 */
static gs_status send_characters(struct gs_harmony_parser *p, enum gs_message_kind kind, const char *bytes,
                                 size_t size, size_t *left, struct gs_error *error)
{
    static const struct gs_text replacement = {"\xEF\xBF\xBD", 3};
    gs_status status = GS_OK;
    size_t plain = 0, at = 0;
    *left = 0;
    while (at < size && status == GS_OK) {
        size_t length;
        uint32_t c = gs_utf8_decode(bytes + at, size - at, &length);
        if (c <= 0x10FFFF) {
            at += length;
            continue;
        }
        status = send_text(p, kind, (struct gs_text){bytes + plain, at - plain}, error);
        plain = at;
        if (c == GS_UTF8_INCOMPLETE) {
            *left = length;
            return status;
        }
        if (status == GS_OK)
            status = send_text(p, kind, replacement, error);
        plain = at += length;
    }
    return status == GS_OK ? send_text(p, kind, (struct gs_text){bytes + plain, at - plain}, error) : status;
}

/* A text that is complete. */
static gs_status send_whole(struct gs_harmony_parser *p, enum gs_message_kind kind, struct gs_text text,
                            struct gs_error *error)
{
    size_t left;
    gs_status status = send_characters(p, kind, text.bytes, text.size, &left, error);
    return status == GS_OK && left > 0 ? send_text(p, kind, gs_text_of("\xEF\xBF\xBD"), error) : status;
}

/* More bytes of the body, after those of a character that is not complete. */
static gs_status feed_body(struct gs_harmony_parser *p, const char *bytes, size_t size,
                           struct gs_error *error)
{
    gs_status status = GS_OK;
    size_t left;
    while (p->n_pending > 0 && size > 0 && status == GS_OK) {
        size_t length;
        p->pending[p->n_pending++] = *bytes++;
        size--;
        uint32_t c = gs_utf8_decode(p->pending, p->n_pending, &length);
        if (c == GS_UTF8_INCOMPLETE)
            continue;
        size_t n = p->n_pending;
        p->n_pending = 0;
        if (c == GS_UTF8_INVALID && length < n) { /* the last byte is none of it */
            status = send_text(p, p->kind, gs_text_of("\xEF\xBF\xBD"), error);
            bytes--;
            size++;
        } else {
            status = send_text(p, p->kind, (struct gs_text){p->pending, n}, error);
        }
    }
    if (status != GS_OK || size == 0)
        return status;
    status = send_characters(p, p->kind, bytes, size, &left, error);
    memcpy(p->pending, bytes + size - left, left);
    p->n_pending = left;
    return status;
}

/* ---------------------------------------------------------------- messages */

static void begin_header(struct gs_harmony_parser *p, bool starts)
{
    gs_buffer_clear(&p->header);
    p->parts = (struct gs_header_parts){.starts = starts};
    p->state = HEADER;
    p->begin = p->n_fed;
}

static gs_status close_body(struct gs_harmony_parser *p, size_t end, bool cut, struct gs_error *error)
{
    gs_status status = GS_OK;
    if (p->n_pending > 0)
        status = send_text(p, p->kind, gs_text_of("\xEF\xBF\xBD"), error);
    p->n_pending = 0;
    p->state = BETWEEN;
    return status == GS_OK ? send_message(p, p->kind, p->begin, end, cut, error) : status;
}

static const struct gs_header_parts *header_parts(struct gs_harmony_parser *p)
{
    p->parts.text = (struct gs_text){p->header.data ? p->header.data : "", p->header.size};
    return &p->parts;
}

static void read_header(struct gs_harmony_parser *p, struct gs_header *header)
{
    gs_header_read(header_parts(p), &p->options.tools, header);
}

/* <|message|>: the header is complete. */
static gs_status open_body(struct gs_harmony_parser *p, struct gs_error *error)
{
    struct gs_header header;
    p->parts.has_message = true;
    read_header(p, &header);
    p->state = BODY;
    p->kind = header.kind;
    p->n_pending = 0;
    return send_call(p, &header, error);
}

/* The text that was held back is now known to be reasoning, or to be the answer. */
static gs_status release(struct gs_harmony_parser *p, enum gs_message_kind kind, struct gs_error *error)
{
    struct held *held = &p->held;
    if (!held->is_set)
        return GS_OK;
    held->is_set = false;
    gs_status status = send_whole(p, kind, (struct gs_text){held->text.data, held->text.size}, error);
    return status == GS_OK ? send_message(p, kind, held->begin, held->end, false, error) : status;
}

static gs_status hold(struct gs_harmony_parser *p, struct gs_text text, size_t end, struct gs_error *error)
{
    p->held.begin = p->begin;
    p->held.end = end;
    gs_buffer_clear(&p->held.text);
    p->held.is_set = true;
    return gs_buffer_append(&p->held.text, text.bytes, text.size, error);
}

/* A header gives way to another one; running text before it was a message of its own. */
static gs_status restart_header(struct gs_harmony_parser *p, bool starts, struct gs_error *error)
{
    gs_status status = GS_OK;
    if (gs_header_is_text(header_parts(p))) {
        status = hold(p, p->parts.text, p->n_fed, error);
        if (status == GS_OK)
            status = release(p, GS_MESSAGE_REASONING, error);
    }
    begin_header(p, starts);
    return status;
}

/* ---------------------------------------------------------------- messages without <|message|> */

static size_t count_words(struct gs_text text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.size; i++) {
        bool blank = text.bytes[i] == ' ' || (text.bytes[i] >= '\t' && text.bytes[i] <= '\r');
        bool after_blank =
            i == 0 || text.bytes[i - 1] == ' ' || (text.bytes[i - 1] >= '\t' && text.bytes[i - 1] <= '\r');
        count += !blank && after_blank;
    }
    return count;
}

/* A call, or an answer after its channel: what remains of the header is the body. `end`: no token closed it.
 */
static gs_status close_short(struct gs_harmony_parser *p, const struct gs_header *header, int32_t closer,
                             size_t end, struct gs_error *error)
{
    bool at_end = closer < 0, has_body;
    if (header->has_recipient)
        has_body = header->rest.size > 0 || closer == p->markers.call;
    else
        has_body = header->known_channel && header->rest.size > 0;
    /* At the end of the tokens this may be a header that was cut off; a sentence is none. */
    if (at_end && (count_words(header->rest) < 2 || p->parts.has_constrain))
        has_body = false;
    if (header->kind == GS_MESSAGE_REASONING)
        has_body = false;
    if (!has_body)
        return GS_OK;
    gs_status status = send_call(p, header, error);
    if (status == GS_OK)
        status = send_whole(p, header->kind, header->rest, error);
    return status == GS_OK ? send_message(p, header->kind, p->begin, end, at_end, error) : status;
}

/* Text before any marker. */
static gs_status close_text(struct gs_harmony_parser *p, const struct gs_header *header, int32_t closer,
                            size_t end, struct gs_error *error)
{
    struct gs_text text = p->parts.text;
    bool at_end = closer < 0;
    bool after_role = header->behind.bytes > text.bytes;
    bool role_only = after_role && count_words(header->behind) == 0;
    if (header->kind == GS_MESSAGE_HIDDEN && p->parts.starts)
        return GS_OK;
    if (p->parts.starts) /* a role stands in front, or should */
        text = header->behind;
    while (p->parts.starts && text.size > 0 && (*text.bytes == ' ' || *text.bytes == '\n')) {
        text.bytes++;
        text.size--;
    }
    size_t n_word = count_words(text);
    if (n_word == 0 || role_only || (at_end && gs_header_is_stub(text)) ||
        (at_end && p->parts.starts && n_word < 2))
        return GS_OK;
    gs_status status = hold(p, text, end, error);
    if (status != GS_OK || closer == p->markers.end)
        return status;
    return release(p, p->has_final ? GS_MESSAGE_REASONING : GS_MESSAGE_FINAL, error);
}

/* closer: <|end|> or a stop id; -1 at the end of the tokens. `end`: one past the message's last token. */
static gs_status close_header(struct gs_harmony_parser *p, int32_t closer, size_t end, struct gs_error *error)
{
    struct gs_header header;
    read_header(p, &header);
    p->state = BETWEEN;
    if (p->parts.has_channel || header.has_recipient)
        return close_short(p, &header, closer, end, error);
    return close_text(p, &header, closer, end, error);
}

/* ---------------------------------------------------------------- tokens */

static gs_status feed_closer(struct gs_harmony_parser *p, int32_t id, struct gs_error *error)
{
    gs_status status = GS_OK;
    bool stops = gs_markers_is_stop(&p->markers, id);
    if (p->state == BODY)
        status = close_body(p, p->n_fed + 1, false, error);
    else if (p->state == HEADER)
        status = close_header(p, id, p->n_fed + 1, error);
    p->stopped |= stops;
    if (status == GS_OK && stops)
        status = release(p, p->has_final ? GS_MESSAGE_REASONING : GS_MESSAGE_FINAL, error);
    return status;
}

/* <|start|> and <|channel|> begin a header wherever they stand. */
static gs_status feed_opener(struct gs_harmony_parser *p, int32_t id, struct gs_error *error)
{
    gs_status status = GS_OK;
    bool starts = id == p->markers.start;
    if (p->state == BODY)
        status = close_body(p, p->n_fed, false, error);
    if (p->state == BETWEEN)
        begin_header(p, starts);
    else if (starts || p->parts.has_channel || gs_header_is_text(header_parts(p)))
        status = restart_header(p, starts, error);
    if (starts)
        return status;
    p->parts.has_channel = true;
    p->parts.channel_at = p->header.size;
    return status;
}

/* A token that is neither opener nor closer, inside a header. */
static gs_status feed_header(struct gs_harmony_parser *p, int32_t id, const char *bytes, size_t size,
                             struct gs_error *error)
{
    if (id == p->markers.message)
        return open_body(p, error);
    if (id == p->markers.constrain) {
        if (!p->parts.has_constrain)
            p->parts.constrain_at = p->header.size;
        p->parts.has_constrain = true;
        return GS_OK;
    }
    return bytes ? gs_buffer_append(&p->header, bytes, size, error) : GS_OK;
}

static gs_status feed_one(struct gs_harmony_parser *p, int32_t id, struct gs_error *error)
{
    size_t size = 0;
    bool marker = gs_vocab_is_special(p->vocab, id);
    if (marker && (id == p->markers.end || gs_markers_is_stop(&p->markers, id)))
        return feed_closer(p, id, error);
    gs_status status = release(p, GS_MESSAGE_REASONING, error); /* more follows */
    p->stopped = false;
    if (status != GS_OK)
        return status;
    if (marker && (id == p->markers.start || id == p->markers.channel))
        return feed_opener(p, id, error);
    const char *bytes = marker ? NULL : gs_vocab_bytes(p->vocab, id, &size);
    if (!marker && !bytes) { /* no such token: something that cannot be read */
        bytes = "\xFF";
        size = 1;
    }
    if (p->state == BODY) /* a marker without a meaning there is no text either */
        return bytes ? feed_body(p, bytes, size, error) : GS_OK;
    if (p->state == BETWEEN)
        begin_header(p, false);
    return feed_header(p, id, bytes, size, error);
}

gs_status gs_harmony_feed(struct gs_harmony_parser *parser, const int32_t *ids, size_t count,
                          struct gs_error *error)
{
    gs_status status = GS_OK;
    for (size_t i = 0; i < count && status == GS_OK; i++) {
        status = feed_one(parser, ids[i], error);
        parser->n_fed++;
    }
    return status;
}

gs_status gs_harmony_finish(struct gs_harmony_parser *parser, struct gs_error *error)
{
    gs_status status = GS_OK;
    if (parser->state == BODY)
        status = close_body(parser, parser->n_fed, true, error);
    else if (parser->state == HEADER)
        status = close_header(parser, -1, parser->n_fed, error);
    if (status == GS_OK)
        status = release(parser, parser->has_final ? GS_MESSAGE_REASONING : GS_MESSAGE_FINAL, error);
    parser->state = BETWEEN;
    enum gs_finish finish = !parser->stopped   ? GS_FINISH_LENGTH
                            : parser->has_call ? GS_FINISH_TOOL_CALLS
                                               : GS_FINISH_STOP;
    if (status == GS_OK)
        status = send(parser, (struct gs_harmony_event){.event = GS_HARMONY_TURN, .finish = finish}, error);
    return status;
}
