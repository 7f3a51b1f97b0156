/*
 * Fuzzes src/base/json_reader.c, which must accept what jansson accepts and nothing else, and
 * src/format/shard_index.c, which is built on both. Input: the text.
 */
#include "base/json_reader.h"
#include "base/utf8.h"
#include "format/shard_index.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

/* Reads all events, or skips the values of the outermost level. */
static gs_status read_all(const char *text, size_t size, unsigned max_depth, bool skip)
{
    struct gs_json_reader reader;
    struct gs_error error = {0};
    enum gs_json_event event = GS_JSON_NULL;
    gs_status status = GS_OK;
    gs_json_reader_init(&reader, text, size, max_depth, size);
    for (size_t n = 0; status == GS_OK && event != GS_JSON_END; n++) {
        check(n <= 2 * size + 2);
        status = gs_json_next(&reader, &event, &error);
        check(reader.depth <= max_depth && reader.at <= size);
        if (status == GS_OK && (event == GS_JSON_KEY || event == GS_JSON_STRING))
            check(gs_utf8_valid(reader.string, reader.string_size));
        uint64_t value;
        if (status == GS_OK && event == GS_JSON_NUMBER && gs_json_u64(&reader, &value))
            check(reader.string_size <= 20);
        if (status == GS_OK && event == GS_JSON_KEY && skip)
            status = gs_json_skip(&reader, &error);
    }
    check(status == GS_OK || (status == GS_MALFORMED && error.code == status));
    gs_json_reader_free(&reader);
    return status;
}

/* For a text that is not nested too deeply. */
static void compare_with_jansson(const char *text, size_t size, gs_status ours)
{
    json_error_t why;
    json_t *root = json_loadb(text, size, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
    if (memchr(text, '\0', size)) {
        check(ours != GS_OK); /* jansson passes over a NUL after a number */
    } else if (root) {
        check(ours == GS_OK);
    } else if (ours == GS_OK) {
        enum json_error_code code = json_error_code(&why);
        check(code == json_error_null_byte_in_key || code == json_error_numeric_overflow);
    }
    json_decref(root);
}

/* How deep do the brackets outside strings go? */
static size_t depth_of(const char *text, size_t size)
{
    size_t depth = 0, deepest = 0;
    bool in_string = false;
    for (size_t i = 0; i < size; i++) {
        if (in_string && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            in_string = !in_string;
        else if (!in_string && (text[i] == '[' || text[i] == '{'))
            deepest = ++depth > deepest ? depth : deepest;
        else if (!in_string && (text[i] == ']' || text[i] == '}') && depth > 0)
            depth--;
    }
    return deepest;
}

static void parse_index(const char *text, size_t size)
{
    struct gs_arena arena = {0};
    struct gs_shard_index index;
    struct gs_error error;
    if (gs_shard_index_parse("fuzz", text, size, &arena, &index, &error) == GS_OK) {
        check(index.count > 0 && index.n_shard > 0);
        for (size_t i = 0; i < index.count; i++) {
            check(index.entries[i].shard < index.n_shard);
            check(i == 0 || strcmp(index.entries[i - 1].tensor, index.entries[i].tensor) < 0);
        }
        for (size_t i = 0; i < index.n_shard; i++)
            check(gs_shard_name_valid(index.shards[i]) && !strchr(index.shards[i], '/'));
    } else {
        check(error.code == GS_MALFORMED && !strpbrk(error.message, "\n\r\033"));
    }
    gs_arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    const char *text = (const char *)input;
    if (size == 0)
        return 0;
    gs_status status = read_all(text, size, GS_JSON_MAX_DEPTH, false);
    if (depth_of(text, size) <= GS_JSON_MAX_DEPTH) {
        check((read_all(text, size, GS_JSON_MAX_DEPTH, true) == GS_OK) == (status == GS_OK));
        compare_with_jansson(text, size, status);
    } else {
        check(status != GS_OK);
    }
    read_all(text, size, 2, false);
    parse_index(text, size);
    return 0;
}
