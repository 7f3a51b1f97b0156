#include "format/shard_index.h"

#include "base/json_reader.h"
#include "base/status.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static bool is_alphanumeric(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool gs_shard_name_valid(const char *name)
{
    static const char suffix[] = ".safetensors";
    size_t length = strlen(name), suffix_length = sizeof suffix - 1;
    if (length <= suffix_length || strcmp(name + length - suffix_length, suffix) != 0)
        return false;
    for (const char *c = name; *c; c++) {
        if (!is_alphanumeric(*c) && (c == name || !strchr("._-", *c)))
            return false;
    }
    return true;
}

/* The bounds that the tree builder, which recurses, does not have. */
static gs_status check_bounds(const char *path, const char *text, size_t size, struct gs_error *error)
{
    struct gs_json_reader reader;
    struct gs_error inner;
    enum gs_json_event event = GS_JSON_NULL;
    gs_status status = GS_OK;
    gs_json_reader_init(&reader, text, size, GS_SHARD_INDEX_MAX_DEPTH, GS_SHARD_INDEX_MAX_STRING);
    while (status == GS_OK && event != GS_JSON_END) {
        status = gs_json_next(&reader, &event, &inner);
        bool text_event = event == GS_JSON_KEY || event == GS_JSON_STRING;
        if (status == GS_OK && text_event && memchr(reader.string, '\0', reader.string_size))
            status = gs_fail(&inner, GS_MALFORMED, "byte %zu: a NUL in a name", reader.at);
    }
    gs_json_reader_free(&reader);
    return status == GS_OK ? GS_OK : gs_fail(error, status, "%s: %s", gs_quote(path).text, inner.message);
}

/* *weight_map is borrowed from `root`. */
static gs_status find_weight_map(const char *path, const json_t *root, json_t **weight_map,
                                 struct gs_error *error)
{
    *weight_map = json_object_get(root, "weight_map");
    if (!json_is_object(*weight_map))
        return gs_fail(error, GS_MALFORMED, "%s: needs an object weight_map of tensor names to file names",
                       gs_quote(path).text);
    if (json_object_size(*weight_map) == 0)
        return gs_fail(error, GS_MALFORMED, "%s: weight_map is empty; it must name at least one tensor",
                       gs_quote(path).text);
    const json_t *metadata = json_object_get(root, "metadata");
    if (metadata && !json_is_object(metadata))
        return gs_fail(error, GS_MALFORMED, "%s: metadata must be an object", gs_quote(path).text);
    const json_t *total = json_object_get(metadata, "total_size");
    if (total && !json_is_number(total))
        return gs_fail(error, GS_MALFORMED, "%s: metadata.total_size must be a number", gs_quote(path).text);
    return GS_OK;
}

/* One pair of the map, the file's name still beside it. */
struct pair {
    const char *tensor;
    const char *file;
};

static int compare_files(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    return strcmp(x->file, y->file);
}

static int compare_entries(const void *a, const void *b)
{
    const struct gs_shard_entry *x = a, *y = b;
    return strcmp(x->tensor, y->tensor);
}

static gs_status copy_pairs(const char *path, json_t *weight_map, struct gs_arena *arena, struct pair *pairs,
                            struct gs_error *error)
{
    const char *tensor;
    json_t *value;
    size_t n = 0;
    json_object_foreach(weight_map, tensor, value)
    {
        const char *file = json_string_value(value);
        if (!file)
            return gs_fail(error, GS_MALFORMED, "%s: %s: its weight_map value must be a file name, a string",
                           gs_quote(path).text, gs_quote(tensor).text);
        if (!gs_shard_name_valid(file))
            return gs_fail(error, GS_MALFORMED,
                           "%s: %s: name outside the folder, or no shard's: %s; it must be letters, digits "
                           "and . _ - and end in .safetensors",
                           gs_quote(path).text, gs_quote(tensor).text, gs_quote(file).text);
        pairs[n].tensor = gs_arena_copy(arena, tensor, strlen(tensor));
        pairs[n].file = file;
        if (!pairs[n++].tensor)
            return gs_fail_memory(error, strlen(tensor) + 1);
    }
    return GS_OK;
}

/* pairs [out->count], ascending by file: gives each file its number. */
static gs_status number_shards(const char *path, const struct pair *pairs, struct gs_arena *arena,
                               struct gs_shard_index *out, struct gs_error *error)
{
    struct gs_shard_entry *entries = gs_arena_alloc_array(arena, out->count, sizeof *entries);
    const char **shards = gs_arena_alloc_array(arena, GS_SHARD_INDEX_MAX_SHARDS, sizeof *shards);
    if (!entries || !shards)
        return gs_fail_memory(error, out->count * sizeof *entries);
    size_t n_shard = 0;
    for (size_t i = 0; i < out->count; i++) {
        if (i == 0 || strcmp(pairs[i].file, pairs[i - 1].file) != 0) {
            if (n_shard == GS_SHARD_INDEX_MAX_SHARDS)
                return gs_fail(error, GS_MALFORMED, "%s: more than %u different shards", gs_quote(path).text,
                               GS_SHARD_INDEX_MAX_SHARDS);
            shards[n_shard] = gs_arena_copy(arena, pairs[i].file, strlen(pairs[i].file));
            if (!shards[n_shard++])
                return gs_fail_memory(error, strlen(pairs[i].file) + 1);
        }
        entries[i] = (struct gs_shard_entry){.tensor = pairs[i].tensor, .shard = n_shard - 1};
    }
    qsort(entries, out->count, sizeof *entries, compare_entries);
    out->entries = entries;
    out->shards = shards;
    out->n_shard = n_shard;
    return GS_OK;
}

gs_status gs_shard_index_parse(const char *path, const char *text, size_t size, struct gs_arena *arena,
                               struct gs_shard_index *out, struct gs_error *error)
{
    *out = (struct gs_shard_index){0};
    struct pair *pairs = NULL;
    json_t *weight_map;
    json_t *root = NULL;
    json_error_t why;
    if (size > GS_SHARD_INDEX_MAX_BYTES)
        return gs_fail(error, GS_MALFORMED, "%s: %zu bytes, at most %u are allowed", gs_quote(path).text,
                       size, GS_SHARD_INDEX_MAX_BYTES);
    gs_status status = check_bounds(path, text, size, error);
    if (status != GS_OK)
        return status;
    root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        return gs_fail(error, GS_MALFORMED, "%s: byte %d: %s", gs_quote(path).text, why.position,
                       gs_quote(why.text).text);
    status = find_weight_map(path, root, &weight_map, error);
    if (status != GS_OK)
        goto cleanup;
    out->count = json_object_size(weight_map);
    pairs = calloc(out->count, sizeof *pairs);
    if (!pairs) {
        status = gs_fail_memory(error, out->count * sizeof *pairs);
        goto cleanup;
    }
    status = copy_pairs(path, weight_map, arena, pairs, error);
    if (status != GS_OK)
        goto cleanup;
    qsort(pairs, out->count, sizeof *pairs, compare_files);
    status = number_shards(path, pairs, arena, out, error);
cleanup:
    free(pairs);
    json_decref(root);
    if (status != GS_OK)
        *out = (struct gs_shard_index){0};
    return status;
}
