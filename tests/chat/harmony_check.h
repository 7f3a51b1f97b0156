/*
 * What must hold for any sequence of ids whatever, by a simple second account of where the bytes went. Shared
 * by the random test and the fuzz target: harmony_check returns NULL, or what does not hold.
 */
#ifndef TESTS_CHAT_HARMONY_CHECK_H
#define TESTS_CHAT_HARMONY_CHECK_H

#include "base/utf8.h"
#include "chat/harmony_parse.h"
#include "chat/markers.h"

#include <stdio.h>
#include <string.h>

struct harmony_account {
    const struct gs_declared_tools *tools;
    struct gs_buffer trace;   /* neighbouring texts joined, so that it does not depend on chunks */
    struct gs_buffer body;    /* bytes of ordinary tokens in the open body */
    struct gs_buffer headers; /* bytes of ordinary tokens outside of bodies; NUL for a marker */
    struct gs_buffer pieces;  /* the same, and NUL for <|constrain|> too */
    struct gs_buffer text;    /* texts of the events of this message */
    bool body_open;           /* a body was seen since the last MESSAGE */
    bool in_call, turn, keeps_bytes;
    size_t last_message, last_end, n_fed;
    const char *fault;
};

static inline void account_fault(struct harmony_account *a, bool ok, const char *what)
{
    if (!ok && !a->fault)
        a->fault = what;
}

static inline void account_append(struct harmony_account *a, struct gs_buffer *to, const void *bytes,
                                  size_t size)
{
    account_fault(a, gs_buffer_append(to, bytes, size, NULL) == GS_OK, "memory");
}

/* `bytes` with U+FFFD for each ill-formed part. */
static inline void append_lossy(struct harmony_account *a, struct gs_buffer *to, const char *bytes,
                                size_t size)
{
    for (size_t at = 0, length; at < size; at += length) {
        uint32_t c = gs_utf8_decode(bytes + at, size - at, &length);
        if (c > 0x10FFFF)
            account_append(a, to, "\xEF\xBF\xBD", 3);
        else
            account_append(a, to, bytes + at, length);
    }
}

static inline bool is_good_name(const struct gs_declared_tools *tools, struct gs_text name)
{
    for (size_t i = 0; i < tools->n_function; i++)
        if (gs_text_equal(tools->functions[i], name))
            return true;
    for (size_t i = 0; i < name.size; i++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-", name.bytes[i]) ||
            name.bytes[i] == '\0')
            return false;
    return name.size > 0;
}

/* Every byte of a body is delivered, once and in order; other texts stood in headers as they are. */
static inline void account_message(struct harmony_account *a, const struct gs_harmony_event *event)
{
    struct gs_buffer expected = {0};
    account_append(a, &expected, "", 0);
    account_append(a, &a->text, "", 0);
    if (!a->keeps_bytes) {
        a->n_fed = event->end; /* not known better */
    } else if (a->body_open) {
        append_lossy(a, &expected, a->body.data, a->body.size);
        account_fault(a,
                      gs_text_equal((struct gs_text){expected.data, expected.size},
                                    (struct gs_text){a->text.data, a->text.size}),
                      "the text of a message is not the bytes of its body");
    } else {
        append_lossy(a, &expected, a->headers.data, a->headers.size);
        account_append(a, &expected, "", 1);
        append_lossy(a, &expected, a->pieces.data, a->pieces.size);
        account_fault(a,
                      a->text.size == 0 || memmem(expected.data, expected.size, a->text.data, a->text.size),
                      "a text that is in no header");
    }
    account_fault(a, event->begin >= a->last_end && event->end >= event->begin && event->end <= a->n_fed + 1,
                  "the tokens of a message");
    a->last_end = event->end;
    a->body_open = false;
    gs_buffer_clear(&a->body);
    gs_buffer_clear(&a->text);
    gs_buffer_free(&expected);
}

static inline gs_status account_event(void *user, const struct gs_harmony_event *event,
                                      struct gs_error *error)
{
    struct harmony_account *a = user;
    char line[64];
    (void)error;
    account_fault(a, !a->turn, "an event after the turn's end");
    account_fault(a, event->message >= a->last_message, "message numbers");
    a->last_message = event->message;
    switch (event->event) {
    case GS_HARMONY_TEXT:
        account_fault(a, event->text.size > 0 && gs_utf8_valid(event->text.bytes, event->text.size),
                      "a text that is empty or no UTF-8");
        account_fault(a, event->kind != GS_MESSAGE_CALL || a->in_call, "arguments without a call");
        account_append(a, &a->text, event->text.bytes, event->text.size);
        account_append(a, &a->trace, event->text.bytes, event->text.size);
        return GS_OK;
    case GS_HARMONY_CALL:
        account_fault(a, is_good_name(a->tools, event->text), "a call's name");
        account_fault(a, !a->in_call && a->text.size == 0, "a call inside a message");
        a->in_call = true;
        account_append(a, &a->trace, "\ncall ", 6);
        account_append(a, &a->trace, event->text.bytes, event->text.size);
        account_append(a, &a->trace, "\n", 1);
        return GS_OK;
    case GS_HARMONY_MESSAGE:
        account_fault(a, a->in_call == (event->kind == GS_MESSAGE_CALL), "a call without its name");
        a->in_call = false;
        account_message(a, event);
        break;
    case GS_HARMONY_TURN:
        a->turn = true;
        break;
    }
    int size = snprintf(line, sizeof line, "\n%d %d %d %zu %zu\n", (int)event->event, (int)event->kind,
                        (int)event->finish, event->begin, event->end);
    account_append(a, &a->trace, line, (size_t)size);
    return GS_OK;
}

static inline void account_token(struct harmony_account *a, const struct gs_vocab *vocab,
                                 const struct gs_harmony_parser *parser, int32_t id)
{
    size_t size = 0;
    bool special = gs_vocab_is_special(vocab, id);
    const char *bytes = gs_vocab_bytes(vocab, id, &size);
    if (gs_harmony_in_body(parser))
        a->body_open = true;
    struct gs_text text = {special ? bytes : "", special ? size : 0};
    bool constrains = gs_text_is(text, "<|constrain|>");
    bool separates = special && !constrains && !gs_text_begins(text, "<|reserved") &&
                     !gs_text_is(text, "<|startoftext|>") && !gs_text_is(text, "<|endofprompt|>");
    if (separates)
        account_append(a, &a->headers, "", 1);
    if (separates || constrains)
        account_append(a, &a->pieces, "", 1);
    if (special)
        return;
    if (!bytes) {
        bytes = "\xFF";
        size = 1;
    }
    account_append(a, gs_harmony_in_body(parser) ? &a->body : &a->headers, bytes, size);
    if (!gs_harmony_in_body(parser))
        account_append(a, &a->pieces, bytes, size);
}

static inline void account_free(struct harmony_account *a)
{
    gs_buffer_free(&a->trace);
    gs_buffer_free(&a->body);
    gs_buffer_free(&a->headers);
    gs_buffer_free(&a->pieces);
    gs_buffer_free(&a->text);
}

/* One run over the ids, in pieces of `step`; the account of bytes is only kept for single tokens. */
static inline void account_run(struct harmony_account *a, const struct gs_vocab *vocab, const int32_t *ids,
                               size_t count, size_t step, bool no_preset)
{
    struct gs_harmony_parser *parser = NULL;
    struct gs_error error;
    const struct gs_harmony_options options = {
        .tools = *a->tools, .no_preset = no_preset, .fn = account_event, .user = a};
    account_fault(a, gs_harmony_parser_open(vocab, &options, &parser, &error) == GS_OK, "open");
    a->keeps_bytes = step == 1;
    for (size_t at = 0; at < count && !a->fault; at += step) {
        size_t n = count - at < step ? count - at : step;
        if (step == 1)
            account_token(a, vocab, parser, ids[at]);
        account_fault(a, gs_harmony_feed(parser, ids + at, n, &error) == GS_OK, "feed");
        a->n_fed += n;
        if (gs_harmony_in_body(parser))
            a->body_open = true;
    }
    account_fault(a, gs_harmony_finish(parser, &error) == GS_OK, "finish");
    account_fault(a, a->turn || a->fault, "no end of the turn");
    gs_harmony_parser_close(parser);
}

static inline const char *harmony_check(const struct gs_vocab *vocab, const struct gs_declared_tools *tools,
                                        const int32_t *ids, size_t count, size_t step, bool no_preset)
{
    struct harmony_account one = {.tools = tools}, many = {.tools = tools};
    account_run(&one, vocab, ids, count, 1, no_preset);
    account_run(&many, vocab, ids, count, step > 1 ? step : 2, no_preset);
    account_fault(&one, !many.fault, many.fault);
    account_fault(&one,
                  gs_text_equal((struct gs_text){one.trace.data, one.trace.size},
                                (struct gs_text){many.trace.data, many.trace.size}),
                  "other events for other chunks");
    account_free(&one);
    account_free(&many);
    return one.fault;
}

#endif
