#include "cli/clean.h"

#include "base/utf8.h"

#include <string.h>

#define MAX_SEQUENCE 4096 /* characters */
#define ESCAPE       0x1Bu
#define REPLACEMENT  0xFFFDu

/* Embeddings, overrides and isolates: they reorder what stands around them. */
static bool is_bidi_control(uint32_t c)
{
    return (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

static bool is_control(uint32_t c)
{
    return c < 0x20 || (c >= 0x7F && c <= 0x9F);
}

/* The two-byte form of a C1 control: ESC [ for U+009B. 0 if the character is no C1 control. */
static uint32_t escape_form(uint32_t c)
{
    return c >= 0x80 && c <= 0x9F ? c - 0x40 : 0;
}

/* Where the character after ESC leads. */
static enum gs_clean_state after_escape(uint32_t c)
{
    if (c == '[')
        return GS_CLEAN_CONTROL;
    if (c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_')
        return GS_CLEAN_STRING;
    return c >= 0x20 && c <= 0x2F ? GS_CLEAN_ESCAPE : GS_CLEAN_TEXT;
}

/* A character outside a sequence; does it stay? */
static bool keep_in_text(struct gs_cleaner *cleaner, uint32_t c)
{
    cleaner->n_removed = 0;
    cleaner->state = GS_CLEAN_TEXT;
    if (c == '\n' || c == '\t')
        return true;
    if (c == ESCAPE)
        cleaner->state = GS_CLEAN_ESCAPE;
    else if (escape_form(c))
        cleaner->state = after_escape(escape_form(c));
    return !is_control(c) && !is_bidi_control(c);
}

/* Does this character stay? */
static bool keep(struct gs_cleaner *cleaner, uint32_t c)
{
    bool aborts = c == '\n' || c == 0x18 || c == 0x1A || ++cleaner->n_removed > MAX_SEQUENCE;
    if (cleaner->state == GS_CLEAN_TEXT || aborts)
        return keep_in_text(cleaner, c);

    switch (cleaner->state) {
    case GS_CLEAN_ESCAPE:
        if (c < 0x20 || c > 0x7E)
            return keep_in_text(cleaner, c);
        cleaner->state = after_escape(c);
        return false;
    case GS_CLEAN_CONTROL:
        if (c == ESCAPE || c > 0x7F)
            return keep_in_text(cleaner, c);
        if (c >= 0x40 && c <= 0x7E)
            cleaner->state = GS_CLEAN_TEXT;
        return false;
    case GS_CLEAN_STRING:
        if (c == ESCAPE)
            cleaner->state = GS_CLEAN_STRING_ESCAPE;
        else if (c == 0x07 || c == 0x9C)
            cleaner->state = GS_CLEAN_TEXT;
        return false;
    default: /* GS_CLEAN_STRING_ESCAPE: any other character than a backslash begins another sequence */
        if (c == ESCAPE || c < 0x20 || c > 0x7E)
            return keep_in_text(cleaner, c);
        cleaner->state = c == '\\' ? GS_CLEAN_TEXT : after_escape(c);
        return false;
    }
}

static gs_status pass(struct gs_cleaner *cleaner, uint32_t c, struct gs_buffer *out, struct gs_error *error)
{
    char bytes[4];
    if (!keep(cleaner, c))
        return GS_OK;
    return gs_buffer_append(out, bytes, gs_utf8_encode(c, bytes), error);
}

/* One character at bytes[0 ... size-1], size >= 1; *length 0 if it is not complete. */
static gs_status pass_first(struct gs_cleaner *cleaner, const char *bytes, size_t size, size_t *length,
                            struct gs_buffer *out, struct gs_error *error)
{
    uint32_t c = gs_utf8_decode(bytes, size, length);
    if (c == GS_UTF8_INCOMPLETE) {
        *length = 0;
        return GS_OK;
    }
    return pass(cleaner, c == GS_UTF8_INVALID ? REPLACEMENT : c, out, error);
}

gs_status gs_cleaner_feed(struct gs_cleaner *cleaner, const char *bytes, size_t size, struct gs_buffer *out,
                          struct gs_error *error)
{
    gs_status status = GS_OK;
    size_t at = 0, length;
    while (status == GS_OK && cleaner->n_partial > 0 && at < size) {
        cleaner->partial[cleaner->n_partial++] = bytes[at++];
        /* A byte that ends an ill-formed part is a character of its own, or the start of one. */
        do {
            status = pass_first(cleaner, cleaner->partial, cleaner->n_partial, &length, out, error);
            cleaner->n_partial -= length;
            memmove(cleaner->partial, cleaner->partial + length, cleaner->n_partial);
        } while (status == GS_OK && length > 0 && cleaner->n_partial > 0);
    }
    while (status == GS_OK && at < size) {
        status = pass_first(cleaner, bytes + at, size - at, &length, out, error);
        if (length == 0) {
            cleaner->n_partial = size - at; /* at most 3: four bytes are complete or ill-formed */
            memcpy(cleaner->partial, bytes + at, cleaner->n_partial);
            length = cleaner->n_partial;
        }
        at += length;
    }
    return status;
}

gs_status gs_cleaner_finish(struct gs_cleaner *cleaner, struct gs_buffer *out, struct gs_error *error)
{
    gs_status status = cleaner->n_partial > 0 ? pass(cleaner, REPLACEMENT, out, error) : GS_OK;
    *cleaner = (struct gs_cleaner){0};
    return status;
}
