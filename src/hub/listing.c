#include "hub/listing.h"

#include "base/status.h"
#include "format/shard_index.h"

#include <jansson.h>
#include <string.h>

#define MAX_FILE_BYTES (UINT64_C(1) << 50)
#define MAX_FILES      1024 /* that a model could need; the index allows half as many shards */

static bool is_hex(const char *text, size_t size)
{
    return text && strlen(text) == size && strspn(text, "0123456789abcdef") == size;
}

/* A file of the root that a model could need, whether this one does or not: the others are passed over. */
static bool is_wanted(const char *name)
{
    static const char *const names[] = {"config.json", "generation_config.json", "tokenizer.json",
                                        "tokenizer_config.json", GS_HUB_INDEX_NAME};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return gs_shard_name_valid(name);
}

static gs_status read_file(const json_t *entry, const char *name, struct gs_arena *arena,
                           struct gs_hub_file *file, struct gs_error *error)
{
    const json_t *lfs = json_object_get(entry, "lfs");
    bool is_lfs = json_is_object(lfs);
    const json_t *size = json_object_get(entry, "size");
    const char *digest =
        json_string_value(is_lfs ? json_object_get(lfs, "sha256") : json_object_get(entry, "blobId"));
    if (!json_is_integer(size) || !is_hex(digest, is_lfs ? 64 : 40))
        return gs_fail(error, GS_MALFORMED,
                       "the hub's list: %s has no size and hash (siblings with size and blobId or "
                       "lfs.sha256 are expected)",
                       gs_quote(name).text);
    if (json_integer_value(size) < 1 || (uint64_t)json_integer_value(size) > MAX_FILE_BYTES)
        return gs_fail(error, GS_MALFORMED, "the hub's list: %s has a size of %lld bytes",
                       gs_quote(name).text, (long long)json_integer_value(size));
    const json_t *lfs_size = json_object_get(lfs, "size");
    if (is_lfs && lfs_size && json_integer_value(lfs_size) != json_integer_value(size))
        return gs_fail(error, GS_MALFORMED, "the hub's list: %s has two sizes, %lld and %lld bytes",
                       gs_quote(name).text, (long long)json_integer_value(size),
                       (long long)json_integer_value(lfs_size));
    *file = (struct gs_hub_file){.name = gs_arena_copy(arena, name, strlen(name)),
                                 .size = (uint64_t)json_integer_value(size)};
    memcpy(file->digest, digest, strlen(digest) + 1);
    return file->name ? GS_OK : gs_fail_memory(error, strlen(name) + 1);
}

static gs_status read_files(const json_t *siblings, struct gs_arena *arena, struct gs_hub_listing *out,
                            struct gs_error *error)
{
    size_t n = json_array_size(siblings);
    struct gs_hub_file *files = gs_arena_alloc_array(arena, n > 0 ? n : 1, sizeof *files);
    if (!files)
        return gs_fail_memory(error, n * sizeof *files);
    out->files = files;
    for (size_t i = 0; i < n; i++) {
        const json_t *entry = json_array_get(siblings, i);
        const char *name = json_string_value(json_object_get(entry, "rfilename"));
        if (!name)
            return gs_fail(error, GS_MALFORMED, "the hub's list: siblings[%zu] has no rfilename", i);
        if (!is_wanted(name))
            continue;
        if (gs_hub_listing_find(out, name))
            return gs_fail(error, GS_MALFORMED, "the hub's list has %s twice", gs_quote(name).text);
        if (out->count == MAX_FILES)
            return gs_fail(error, GS_MALFORMED, "the hub's list has more than %d files of weights",
                           MAX_FILES);
        gs_status status = read_file(entry, name, arena, &files[out->count], error);
        if (status != GS_OK)
            return status;
        out->count++;
    }
    return GS_OK;
}

gs_status gs_hub_listing_parse(const char *text, size_t size, struct gs_arena *arena,
                               struct gs_hub_listing *out, struct gs_error *error)
{
    json_error_t where;
    *out = (struct gs_hub_listing){0};
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return gs_fail(error, GS_MALFORMED, "the hub's list is no JSON: %s (byte %d)",
                       gs_quote(where.text).text, where.position);
    const char *commit = json_string_value(json_object_get(root, "sha"));
    const json_t *siblings = json_object_get(root, "siblings");
    gs_status status;
    if (!is_hex(commit, 40) || !json_is_array(siblings)) {
        status = gs_fail(error, GS_MALFORMED,
                         "the hub's list has no commit (sha) or no files (siblings): is the endpoint a hub?");
    } else {
        memcpy(out->commit, commit, sizeof out->commit);
        status = read_files(siblings, arena, out, error);
    }
    json_decref(root);
    return status;
}

const struct gs_hub_file *gs_hub_listing_find(const struct gs_hub_listing *listing, const char *name)
{
    for (size_t i = 0; i < listing->count; i++)
        if (strcmp(listing->files[i].name, name) == 0)
            return &listing->files[i];
    return NULL;
}

/* Adds `name`; if it is not there and `must` be, GS_UNSUPPORTED. */
static gs_status add(const struct gs_hub_listing *listing, const char *name, bool must,
                     const struct gs_hub_file **files, size_t *count, struct gs_error *error)
{
    const struct gs_hub_file *file = gs_hub_listing_find(listing, name);
    if (file)
        files[(*count)++] = file;
    else if (must)
        return gs_fail(error, GS_UNSUPPORTED,
                       "the repository has no %s in its root: gossamer takes models laid out as "
                       "openai/gpt-oss-20b is",
                       gs_quote(name).text);
    return GS_OK;
}

gs_status gs_hub_select(const struct gs_hub_listing *listing, const char *index, size_t index_size,
                        struct gs_arena *arena, const struct gs_hub_file ***files, size_t *count,
                        struct gs_error *error)
{
    static const struct {
        const char *name;
        bool must;
    } small[] = {{"config.json", true},
                 {"generation_config.json", false},
                 {"tokenizer_config.json", false},
                 {"tokenizer.json", true},
                 {GS_HUB_INDEX_NAME, false}};
    const size_t n_small = sizeof small / sizeof *small;
    struct gs_shard_index shards = {0};
    gs_status status = GS_OK;
    *count = 0;
    if (index)
        status = gs_shard_index_parse(GS_HUB_INDEX_NAME, index, index_size, arena, &shards, error);
    if (status != GS_OK)
        return status;
    size_t most = n_small + shards.n_shard + 1;
    if (!(*files = gs_arena_alloc_array(arena, most, sizeof **files)))
        return gs_fail_memory(error, most * sizeof **files);
    for (size_t i = 0; status == GS_OK && i < n_small; i++)
        status = add(listing, small[i].name, small[i].must, *files, count, error);
    for (size_t i = 0; status == GS_OK && i < shards.n_shard; i++)
        status = add(listing, shards.shards[i], true, *files, count, error);
    if (status == GS_OK && !index)
        status = add(listing, "model.safetensors", true, *files, count, error);
    return status;
}
