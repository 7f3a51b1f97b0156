#include "base/json_reader.h"

#include "base/status.h"
#include "base/utf8.h"

#include <string.h>

/* What may come next. */
enum state {
    STATE_VALUE,        /* a value */
    STATE_VALUE_OR_END, /* the first value of an array, or its end */
    STATE_KEY,          /* a key (after a comma) */
    STATE_KEY_OR_END,   /* the first key of an object, or its end */
    STATE_COMMA_OR_END, /* after a value inside an array or object */
    STATE_DONE,         /* only blanks */
};

void gs_json_reader_init(struct gs_json_reader *reader, const char *text, size_t size, unsigned max_depth,
                         size_t max_string)
{
    *reader = (struct gs_json_reader){0};
    reader->text = text;
    reader->size = size;
    reader->max_depth = max_depth < GS_JSON_MAX_DEPTH ? max_depth : GS_JSON_MAX_DEPTH;
    reader->max_string = max_string;
    reader->state = STATE_VALUE;
}

void gs_json_reader_free(struct gs_json_reader *reader)
{
    if (reader)
        gs_buffer_free(&reader->scratch);
}

static gs_status fail(const struct gs_json_reader *reader, const char *what, struct gs_error *error)
{
    return gs_fail(error, GS_MALFORMED, "byte %zu: %s", reader->at, what);
}

static void skip_blanks(struct gs_json_reader *reader)
{
    while (reader->at < reader->size) {
        char c = reader->text[reader->at];
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r')
            break;
        reader->at++;
    }
}

static void value_done(struct gs_json_reader *reader)
{
    reader->state = reader->depth == 0 ? STATE_DONE : STATE_COMMA_OR_END;
}

/* Four hexadecimal digits at `at`; -1 if they are not that. */
static int32_t read_hex4(const struct gs_json_reader *reader, size_t at)
{
    if (reader->size - at < 4)
        return -1;
    int32_t value = 0;
    for (size_t i = 0; i < 4; i++) {
        char c = reader->text[at + i];
        int digit;
        if (c >= '0' && c <= '9')
            digit = c - '0';
        else if (c >= 'a' && c <= 'f')
            digit = c - 'a' + 10;
        else if (c >= 'A' && c <= 'F')
            digit = c - 'A' + 10;
        else
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* The escape whose backslash is at reader->at; appends what it stands for. */
static gs_status read_escape(struct gs_json_reader *reader, struct gs_error *error)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    size_t at = reader->at + 1;
    char c = at < reader->size ? reader->text[at] : '\0';
    const char *letter = c ? strchr(letters, c) : NULL;
    if (letter) {
        reader->at = at + 1;
        return gs_buffer_append(&reader->scratch, &meanings[letter - letters], 1, error);
    }
    if (c != 'u')
        return fail(reader, "unknown escape in a string", error);
    int32_t unit = read_hex4(reader, at + 1);
    if (unit < 0)
        return fail(reader, "\\u needs four hexadecimal digits", error);
    uint32_t code_point = (uint32_t)unit;
    at += 5;
    if (unit >= 0xD800 && unit <= 0xDFFF) {
        int32_t low = -1;
        if (unit <= 0xDBFF && reader->size - at >= 6 && reader->text[at] == '\\' &&
            reader->text[at + 1] == 'u')
            low = read_hex4(reader, at + 2);
        if (low < 0xDC00 || low > 0xDFFF)
            return fail(reader, "lone surrogate in a string", error);
        code_point = 0x10000 + (((uint32_t)unit & 0x3FF) << 10 | ((uint32_t)low & 0x3FF));
        at += 6;
    }
    char utf8[4];
    size_t length = gs_utf8_encode(code_point, utf8);
    reader->at = at;
    return gs_buffer_append(&reader->scratch, utf8, length, error);
}

/* Bytes from reader->at that are plain: printable ASCII but quote and backslash, or valid UTF-8. */
static gs_status scan_plain(struct gs_json_reader *reader, struct gs_error *error)
{
    const char *text = reader->text;
    while (reader->at < reader->size) {
        unsigned char c = (unsigned char)text[reader->at];
        if (c == '"' || c == '\\')
            return GS_OK;
        if (c < 0x20)
            return fail(reader, "control character in a string", error);
        if (c < 0x80) {
            reader->at++;
            continue;
        }
        size_t length;
        if (gs_utf8_decode(text + reader->at, reader->size - reader->at, &length) > 0x10FFFF)
            return fail(reader, "not UTF-8", error);
        reader->at += length;
    }
    return fail(reader, "the text ends inside a string", error);
}

/* The string whose opening quote is at reader->at. */
static gs_status read_string(struct gs_json_reader *reader, struct gs_error *error)
{
    size_t start = ++reader->at;
    gs_status status = scan_plain(reader, error);
    if (status != GS_OK)
        return status;
    if (reader->text[reader->at] == '"') {
        reader->string = reader->text + start;
        reader->string_size = reader->at - start;
        reader->at++;
    } else {
        gs_buffer_clear(&reader->scratch);
        while (reader->text[reader->at] != '"') {
            status = gs_buffer_append(&reader->scratch, reader->text + start, reader->at - start, error);
            if (status == GS_OK)
                status = read_escape(reader, error);
            if (status != GS_OK)
                return status;
            start = reader->at;
            status = scan_plain(reader, error);
            if (status != GS_OK)
                return status;
            if (reader->scratch.size > reader->max_string)
                break; /* too long already: the rest is not decoded */
        }
        status = gs_buffer_append(&reader->scratch, reader->text + start, reader->at - start, error);
        if (status != GS_OK)
            return status;
        reader->string = reader->scratch.data;
        reader->string_size = reader->scratch.size;
        reader->at++;
    }
    if (reader->string_size > reader->max_string)
        return gs_fail(error, GS_MALFORMED,
                       "byte %zu: a string of over %zu bytes, which is the most that is allowed", reader->at,
                       reader->max_string);
    return GS_OK;
}

static size_t skip_digits(const struct gs_json_reader *reader, size_t at)
{
    while (at < reader->size && reader->text[at] >= '0' && reader->text[at] <= '9')
        at++;
    return at;
}

static gs_status read_number(struct gs_json_reader *reader, struct gs_error *error)
{
    const char *text = reader->text;
    size_t start = reader->at, at = start;
    if (text[at] == '-')
        at++;
    size_t digits = skip_digits(reader, at);
    bool well_formed = digits > at && (text[at] != '0' || digits == at + 1);
    at = digits;
    if (well_formed && at < reader->size && text[at] == '.') {
        digits = skip_digits(reader, at + 1);
        well_formed = digits > at + 1;
        at = digits;
    }
    if (well_formed && at < reader->size && (text[at] == 'e' || text[at] == 'E')) {
        at++;
        if (at < reader->size && (text[at] == '+' || text[at] == '-'))
            at++;
        digits = skip_digits(reader, at);
        well_formed = digits > at;
        at = digits;
    }
    if (!well_formed)
        return fail(reader, "malformed number", error);
    reader->string = text + start;
    reader->string_size = at - start;
    reader->at = at;
    value_done(reader);
    return GS_OK;
}

static gs_status read_word(struct gs_json_reader *reader, const char *word, struct gs_error *error)
{
    size_t length = strlen(word);
    if (reader->size - reader->at < length || memcmp(reader->text + reader->at, word, length) != 0)
        return fail(reader, "expected a value", error);
    reader->at += length;
    value_done(reader);
    return GS_OK;
}

static gs_status open_level(struct gs_json_reader *reader, bool object, struct gs_error *error)
{
    if (reader->depth == reader->max_depth)
        return gs_fail(error, GS_MALFORMED, "byte %zu: nested deeper than %u levels", reader->at,
                       reader->max_depth);
    reader->in_object[++reader->depth] = object;
    reader->state = object ? STATE_KEY_OR_END : STATE_VALUE_OR_END;
    reader->at++;
    return GS_OK;
}

static void close_level(struct gs_json_reader *reader)
{
    reader->depth--;
    reader->at++;
    value_done(reader);
}

static gs_status read_value(struct gs_json_reader *reader, enum gs_json_event *event, struct gs_error *error)
{
    char c = reader->text[reader->at];
    gs_status status;
    switch (c) {
    case '{':
        *event = GS_JSON_OBJECT_BEGIN;
        return open_level(reader, true, error);
    case '[':
        *event = GS_JSON_ARRAY_BEGIN;
        return open_level(reader, false, error);
    case '"':
        *event = GS_JSON_STRING;
        status = read_string(reader, error);
        if (status == GS_OK)
            value_done(reader);
        return status;
    case 't':
        *event = GS_JSON_TRUE;
        return read_word(reader, "true", error);
    case 'f':
        *event = GS_JSON_FALSE;
        return read_word(reader, "false", error);
    case 'n':
        *event = GS_JSON_NULL;
        return read_word(reader, "null", error);
    default:
        *event = GS_JSON_NUMBER;
        if (c != '-' && (c < '0' || c > '9'))
            return fail(reader, "expected a value", error);
        return read_number(reader, error);
    }
}

static gs_status read_key(struct gs_json_reader *reader, struct gs_error *error)
{
    if (reader->text[reader->at] != '"')
        return fail(reader, "expected a key", error);
    gs_status status = read_string(reader, error);
    if (status != GS_OK)
        return status;
    skip_blanks(reader);
    if (reader->at == reader->size || reader->text[reader->at] != ':')
        return fail(reader, "expected ':' after a key", error);
    reader->at++;
    reader->state = STATE_VALUE;
    return GS_OK;
}

gs_status gs_json_next(struct gs_json_reader *reader, enum gs_json_event *event, struct gs_error *error)
{
    skip_blanks(reader);
    bool at_end = reader->at == reader->size;
    char c = at_end ? '\0' : reader->text[reader->at];
    if (reader->state == STATE_DONE) {
        *event = GS_JSON_END;
        return at_end ? GS_OK : fail(reader, "text after the end of the JSON value", error);
    }
    if (at_end)
        return fail(reader, "the text ends too early", error);

    bool object = reader->in_object[reader->depth];
    bool may_end = reader->state == STATE_COMMA_OR_END || reader->state == STATE_VALUE_OR_END ||
                   reader->state == STATE_KEY_OR_END;
    if (may_end && c == (object ? '}' : ']')) {
        *event = object ? GS_JSON_OBJECT_END : GS_JSON_ARRAY_END;
        close_level(reader);
        return GS_OK;
    }
    if (reader->state == STATE_COMMA_OR_END) {
        if (c != ',')
            return fail(reader, object ? "expected ',' or '}'" : "expected ',' or ']'", error);
        reader->at++;
        skip_blanks(reader);
        if (reader->at == reader->size)
            return fail(reader, "the text ends too early", error);
        reader->state = object ? STATE_KEY : STATE_VALUE;
    }
    if (reader->state == STATE_KEY || reader->state == STATE_KEY_OR_END) {
        *event = GS_JSON_KEY;
        return read_key(reader, error);
    }
    return read_value(reader, event, error);
}

gs_status gs_json_skip(struct gs_json_reader *reader, struct gs_error *error)
{
    unsigned depth = reader->depth;
    do {
        enum gs_json_event event;
        gs_status status = gs_json_next(reader, &event, error);
        if (status != GS_OK)
            return status;
    } while (reader->depth > depth);
    return GS_OK;
}

bool gs_json_u64(const struct gs_json_reader *reader, uint64_t *value)
{
    uint64_t result = 0;
    for (size_t i = 0; i < reader->string_size; i++) {
        char c = reader->string[i];
        if (c < '0' || c > '9')
            return false;
        if (__builtin_mul_overflow(result, 10u, &result) ||
            __builtin_add_overflow(result, (uint64_t)(c - '0'), &result))
            return false;
    }
    *value = result;
    return reader->string_size > 0;
}

bool gs_json_is(const struct gs_json_reader *reader, const char *text)
{
    return strlen(text) == reader->string_size && memcmp(reader->string, text, reader->string_size) == 0;
}
