/*
 * A strict pull reader for JSON files that are too large or too exact for a tree: a tokenizer.json of 27 MB,
 * and safetensors headers, whose numbers are u64. (Everything else goes through jansson.)
 *
 * It checks: RFC 8259 syntax, UTF-8, escapes (lone surrogates refused), depth and string length limits.
 * It does not check duplicate keys: the caller knows which objects have keys that matter.
 * Strings stay valid until the next event. No recursion; no allocation except for escaped strings.
 */
#ifndef GS_BASE_JSON_READER_H
#define GS_BASE_JSON_READER_H

#include "base/buffer.h"

enum gs_json_event {
    GS_JSON_OBJECT_BEGIN,
    GS_JSON_OBJECT_END,
    GS_JSON_ARRAY_BEGIN,
    GS_JSON_ARRAY_END,
    GS_JSON_KEY,    /* string */
    GS_JSON_STRING, /* string */
    GS_JSON_NUMBER, /* string: the number as written */
    GS_JSON_TRUE,
    GS_JSON_FALSE,
    GS_JSON_NULL,
    GS_JSON_END, /* the one value is complete and only blanks follow */
};

#define GS_JSON_MAX_DEPTH 64

struct gs_json_reader {
    const char *text;
    size_t size;
    size_t at;
    size_t max_string; /* bytes of a decoded string */
    unsigned max_depth;
    unsigned depth;
    bool in_object[GS_JSON_MAX_DEPTH + 1]; /* per open level */
    int state;
    struct gs_buffer scratch; /* the decoded string where it has escapes */
    /* of the last KEY, STRING or NUMBER */
    const char *string;
    size_t string_size;
};

/* max_depth <= GS_JSON_MAX_DEPTH. The text is borrowed. */
void gs_json_reader_init(struct gs_json_reader *reader, const char *text, size_t size, unsigned max_depth,
                         size_t max_string);
void gs_json_reader_free(struct gs_json_reader *reader);

/* GS_MALFORMED with "byte N: what is wrong" (the caller adds the file's name). */
gs_status gs_json_next(struct gs_json_reader *reader, enum gs_json_event *event, struct gs_error *error);

/* Skips the value whose first event is still to come (after KEY, or inside an array). */
gs_status gs_json_skip(struct gs_json_reader *reader, struct gs_error *error);

/* The last NUMBER as a u64: decimal digits only (no sign, point, exponent), no overflow; else false. */
bool gs_json_u64(const struct gs_json_reader *reader, uint64_t *value);

/* Does the last KEY or STRING equal `text`? */
bool gs_json_is(const struct gs_json_reader *reader, const char *text);

#endif
