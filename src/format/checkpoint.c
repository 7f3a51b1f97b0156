#include "format/checkpoint.h"

#include "base/arena.h"
#include "base/status.h"
#include "format/locate.h"
#include "format/safetensors.h"
#include "format/shard_index.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HF_EMBEDDING       "model.embed_tokens.weight"
#define ORIGINAL_EMBEDDING "embedding.weight"

struct gs_checkpoint {
    struct gs_arena arena;
    enum gs_layout layout;
    struct gs_location location;
    struct gs_gguf *gguf;          /* of the first file; NULL unless the layout is GGUF's */
    const char *config;            /* NULL if absent */
    const char *generation_config; /* NULL if absent */
    struct gs_file_map **maps;     /* [n_map] */
    size_t n_map;
    struct gs_tensor *tensors;        /* [count], file after file, each in the order of its data */
    const struct gs_tensor **by_name; /* [count], ascending */
    size_t count;
};

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---------------------------------------------------------------- files to tensors */

/* What the parts of a split GGUF say of themselves must agree with their names. */
static gs_status check_split(const struct gs_file_map *map, const struct gs_gguf *gguf, size_t number,
                             size_t n_file, struct gs_error *error)
{
    int64_t count = 1, at = 0;
    const struct gs_gguf_entry *count_entry = gs_gguf_find(gguf, "split.count");
    const struct gs_gguf_entry *number_entry = gs_gguf_find(gguf, "split.no");
    if ((count_entry && !gs_gguf_integer(count_entry, 0, &count)) ||
        (number_entry && !gs_gguf_integer(number_entry, 0, &at)))
        return gs_fail(error, GS_MALFORMED, "%s: split.count and split.no must be integers",
                       gs_quote(map->path).text);
    if (count == 0)
        count = 1; /* what was split once and joined again */
    if (count != (int64_t)n_file || at != (int64_t)number)
        return gs_fail(error, GS_MALFORMED,
                       "%s: is part %lld of %lld by its metadata, but %zu of %zu by its name (which must be "
                       "...-00001-of-0000N.gguf)",
                       gs_quote(map->path).text, (long long)at + 1, (long long)count, number + 1, n_file);
    return GS_OK;
}

/* File `number` of several, already mapped. */
static gs_status parse_file(struct gs_checkpoint *checkpoint, size_t number, size_t n_file,
                            struct gs_safetensors *part, struct gs_error *error)
{
    const struct gs_file_map *map = checkpoint->maps[number];
    if (checkpoint->location.kind != GS_LOCATION_GGUF)
        return gs_safetensors_parse(map, &checkpoint->arena, part, error);
    struct gs_gguf *gguf = gs_arena_alloc(&checkpoint->arena, sizeof *gguf);
    if (!gguf)
        return gs_fail_memory(error, sizeof *gguf);
    gs_status status = gs_gguf_parse(map, &checkpoint->arena, gguf, error);
    if (status == GS_OK)
        status = check_split(map, gguf, number, n_file, error);
    if (number == 0)
        checkpoint->gguf = gguf;
    part->tensors = gguf->tensors;
    part->count = gguf->count;
    return status;
}

/* Maps the files and joins their tensors to one list. */
static gs_status read_files(struct gs_checkpoint *checkpoint, const char *const *files, size_t n_file,
                            const char *confinement, struct gs_error *error)
{
    gs_status status = GS_OK;
    size_t count = 0;
    struct gs_safetensors *parts = calloc(n_file, sizeof *parts);
    checkpoint->maps = gs_arena_alloc_array(&checkpoint->arena, n_file, sizeof *checkpoint->maps);
    if (!parts || !checkpoint->maps) {
        status = gs_fail_memory(error, n_file * sizeof *parts);
        goto cleanup;
    }
    for (size_t i = 0; i < n_file; i++) {
        status = gs_file_map_open(files[i], confinement, &checkpoint->maps[i], error);
        if (status != GS_OK)
            goto cleanup;
        checkpoint->n_map = i + 1;
        status = parse_file(checkpoint, i, n_file, &parts[i], error);
        if (status != GS_OK)
            goto cleanup;
        count += parts[i].count;
    }
    checkpoint->tensors = gs_arena_alloc_array(&checkpoint->arena, count, sizeof *checkpoint->tensors);
    if (!checkpoint->tensors) {
        status = gs_fail_memory(error, count * sizeof *checkpoint->tensors);
        goto cleanup;
    }
    for (size_t i = 0; i < n_file; i++) {
        if (parts[i].count > 0)
            memcpy(checkpoint->tensors + checkpoint->count, parts[i].tensors,
                   parts[i].count * sizeof *checkpoint->tensors);
        checkpoint->count += parts[i].count;
    }
cleanup:
    free(parts);
    return status;
}

static int compare_tensors(const void *a, const void *b)
{
    const struct gs_tensor *const *x = a, *const *y = b;
    int order = strcmp((*x)->name, (*y)->name);
    if (order != 0)
        return order;
    return *x < *y ? -1 : *x > *y; /* equal names in the order of their files, for the message */
}

/* Sorts for gs_checkpoint_find, and refuses a name that stands in two files. */
static gs_status sort_tensors(struct gs_checkpoint *checkpoint, struct gs_error *error)
{
    size_t count = checkpoint->count;
    const struct gs_tensor **by_name = gs_arena_alloc_array(&checkpoint->arena, count, sizeof(void *));
    if (!by_name)
        return gs_fail_memory(error, count * sizeof(void *));
    for (size_t i = 0; i < count; i++)
        by_name[i] = &checkpoint->tensors[i];
    if (count > 1)
        qsort(by_name, count, sizeof(void *), compare_tensors);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(by_name[i - 1]->name, by_name[i]->name) == 0)
            return gs_fail(error, GS_MALFORMED, "%s: is in two files, %s and %s; it must be in one",
                           gs_quote(by_name[i]->name).text, gs_quote(by_name[i - 1]->file->path).text,
                           gs_quote(by_name[i]->file->path).text);
    }
    checkpoint->by_name = by_name;
    return GS_OK;
}

/* ---------------------------------------------------------------- shards and their index */

/* Every tensor of the index is in the shard it names, and there is no other. Both lists ascend. */
static gs_status compare_with_index(const struct gs_checkpoint *checkpoint,
                                    const struct gs_shard_index *index, struct gs_error *error)
{
    size_t at = 0; /* in by_name */
    for (size_t i = 0; i < index->count || at < checkpoint->count;) {
        const struct gs_shard_entry *entry = i < index->count ? &index->entries[i] : NULL;
        const struct gs_tensor *tensor = at < checkpoint->count ? checkpoint->by_name[at] : NULL;
        int order = !entry ? 1 : !tensor ? -1 : strcmp(entry->tensor, tensor->name);
        if (order < 0)
            return gs_fail(error, GS_MALFORMED, "%s: %s: the index has it in %s, but it is not there",
                           gs_quote(checkpoint->location.index).text, gs_quote(entry->tensor).text,
                           index->shards[entry->shard]);
        if (order > 0)
            return gs_fail(error, GS_MALFORMED, "%s: %s: is in %s, but the index does not list it",
                           gs_quote(checkpoint->location.index).text, gs_quote(tensor->name).text,
                           gs_quote(file_name(tensor->file->path)).text);
        if (tensor->file != checkpoint->maps[entry->shard])
            return gs_fail(error, GS_MALFORMED, "%s: %s: the index has it in %s, but it is in %s",
                           gs_quote(checkpoint->location.index).text, gs_quote(entry->tensor).text,
                           index->shards[entry->shard], gs_quote(file_name(tensor->file->path)).text);
        i++;
        at++;
    }
    return GS_OK;
}

/* Says how many shards are missing, before any of them is read. */
static gs_status check_shards_exist(const char *const *files, size_t n_file, struct gs_error *error)
{
    size_t n_missing = 0;
    const char *first = NULL;
    for (size_t i = 0; i < n_file; i++) {
        if (access(files[i], F_OK) == 0)
            continue;
        n_missing++;
        first = first ? first : files[i];
    }
    if (n_missing == 0)
        return GS_OK;
    return gs_fail(error, GS_IO, "%s: missing; the index names %zu shards, of which %zu cannot be found",
                   gs_quote(first).text, n_file, n_missing);
}

static gs_status read_index(struct gs_checkpoint *checkpoint, struct gs_shard_index *index,
                            struct gs_error *error)
{
    const struct gs_location *location = &checkpoint->location;
    struct gs_file_map *map;
    gs_status status = gs_file_map_open(location->index, location->folder, &map, error);
    if (status != GS_OK)
        return status;
    if (map->size == 0)
        status = gs_fail(error, GS_MALFORMED, "%s: the file is empty", gs_quote(map->path).text);
    else if (map->size > GS_SHARD_INDEX_MAX_BYTES)
        status = gs_fail(error, GS_MALFORMED, "%s: %llu bytes, at most %u are allowed",
                         gs_quote(map->path).text, (unsigned long long)map->size, GS_SHARD_INDEX_MAX_BYTES);
    else
        status = gs_shard_index_parse(map->path, (const char *)map->data, (size_t)map->size,
                                      &checkpoint->arena, index, error);
    gs_file_map_close(map);
    return status;
}

static gs_status open_shards(struct gs_checkpoint *checkpoint, struct gs_error *error)
{
    struct gs_shard_index index;
    const char *folder = checkpoint->location.folder;
    gs_status status = read_index(checkpoint, &index, error);
    if (status != GS_OK)
        return status;
    const char **files = gs_arena_alloc_array(&checkpoint->arena, index.n_shard, sizeof *files);
    if (!files)
        return gs_fail_memory(error, index.n_shard * sizeof *files);
    for (size_t i = 0; i < index.n_shard; i++) {
        files[i] = gs_path_join(&checkpoint->arena, folder, index.shards[i]);
        if (!files[i])
            return gs_fail_memory(error, strlen(folder) + strlen(index.shards[i]) + 2);
    }
    status = check_shards_exist(files, index.n_shard, error);
    if (status == GS_OK)
        status = read_files(checkpoint, files, index.n_shard, folder, error);
    if (status == GS_OK)
        status = sort_tensors(checkpoint, error);
    return status == GS_OK ? compare_with_index(checkpoint, &index, error) : status;
}

/* ---------------------------------------------------------------- the whole */

static gs_status find_layout(struct gs_checkpoint *checkpoint, struct gs_error *error)
{
    const struct gs_location *location = &checkpoint->location;
    if (checkpoint->gguf) {
        checkpoint->layout = GS_LAYOUT_GGUF;
        return checkpoint->count > 0 ? GS_OK
                                     : gs_fail(error, GS_UNSUPPORTED, "%s: holds no tensors",
                                               gs_quote(location->files[0]).text);
    }
    bool hugging_face = gs_checkpoint_find(checkpoint, HF_EMBEDDING) != NULL;
    bool original = gs_checkpoint_find(checkpoint, ORIGINAL_EMBEDDING) != NULL;
    const char *first = location->index ? location->index : location->files[0];
    if (hugging_face && original)
        return gs_fail(error, GS_MALFORMED,
                       "%s: holds both " HF_EMBEDDING " and " ORIGINAL_EMBEDDING "; a model has one layout",
                       gs_quote(location->folder).text);
    if (hugging_face || original) {
        checkpoint->layout = hugging_face ? GS_LAYOUT_HUGGING_FACE : GS_LAYOUT_ORIGINAL;
        return GS_OK;
    }
    if (checkpoint->count == 0)
        return gs_fail(error, GS_UNSUPPORTED, "%s: holds no tensors", gs_quote(first).text);
    return gs_fail(error, GS_UNSUPPORTED,
                   "%s: no gpt-oss model: neither " HF_EMBEDDING
                   " (Hugging Face layout) nor " ORIGINAL_EMBEDDING
                   " (original layout) is among its %zu tensors; one of them is %s",
                   gs_quote(first).text, checkpoint->count, gs_quote(checkpoint->tensors[0].name).text);
}

/* In Hugging Face layout nothing but the index tells whether all shards are there. */
static gs_status check_loose(const struct gs_checkpoint *checkpoint, struct gs_error *error)
{
    const struct gs_location *location = &checkpoint->location;
    bool sharded = location->n_file > 1 || gs_shard_of_many(file_name(location->files[0]));
    if (checkpoint->layout == GS_LAYOUT_ORIGINAL || !sharded)
        return GS_OK;
    return gs_fail(
        error, GS_IO,
        "%s: %zu .safetensors files, but no model.safetensors.index.json, which must say what is in "
        "them",
        gs_quote(location->folder).text, location->n_file);
}

static gs_status open_loose(struct gs_checkpoint *checkpoint, struct gs_error *error)
{
    /* A file that was named outright may be a link to anywhere; one found in a folder may not. */
    const struct gs_location *location = &checkpoint->location;
    const char *confinement = location->confined ? location->folder : NULL;
    gs_status status = read_files(checkpoint, location->files, location->n_file, confinement, error);
    return status == GS_OK ? sort_tensors(checkpoint, error) : status;
}

gs_status gs_checkpoint_open(const char *path, struct gs_checkpoint **out, struct gs_error *error)
{
    *out = NULL;
    struct gs_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    if (!checkpoint)
        return gs_fail_memory(error, sizeof *checkpoint);
    gs_status status = gs_locate(path, &checkpoint->arena, &checkpoint->location, error);
    if (status != GS_OK)
        goto cleanup;
    if (checkpoint->location.kind == GS_LOCATION_INDEX)
        status = open_shards(checkpoint, error);
    else
        status = open_loose(checkpoint, error);
    if (status == GS_OK)
        status = find_layout(checkpoint, error);
    if (status == GS_OK && checkpoint->location.kind == GS_LOCATION_LOOSE)
        status = check_loose(checkpoint, error);
    if (status != GS_OK)
        goto cleanup;
    const char *folder = checkpoint->location.folder;
    if (checkpoint->layout != GS_LAYOUT_GGUF) {
        checkpoint->config = gs_locate_beside(&checkpoint->arena, folder, "config.json");
        checkpoint->generation_config =
            gs_locate_beside(&checkpoint->arena, folder, "generation_config.json");
    }
    *out = checkpoint;
    checkpoint = NULL;
cleanup:
    gs_checkpoint_close(checkpoint);
    return status;
}

void gs_checkpoint_close(struct gs_checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    for (size_t i = 0; i < checkpoint->n_map; i++)
        gs_file_map_close(checkpoint->maps[i]);
    gs_arena_free(&checkpoint->arena);
    free(checkpoint);
}

enum gs_layout gs_checkpoint_layout(const struct gs_checkpoint *checkpoint)
{
    return checkpoint->layout;
}

const struct gs_gguf *gs_checkpoint_gguf(const struct gs_checkpoint *checkpoint)
{
    return checkpoint->gguf;
}

const char *gs_checkpoint_folder(const struct gs_checkpoint *checkpoint)
{
    return checkpoint->location.folder;
}

const char *gs_checkpoint_config(const struct gs_checkpoint *checkpoint)
{
    return checkpoint->config;
}

const char *gs_checkpoint_generation_config(const struct gs_checkpoint *checkpoint)
{
    return checkpoint->generation_config;
}

size_t gs_checkpoint_count(const struct gs_checkpoint *checkpoint)
{
    return checkpoint->count;
}

const struct gs_tensor *gs_checkpoint_tensor(const struct gs_checkpoint *checkpoint, size_t index)
{
    return &checkpoint->tensors[index];
}

static int compare_name(const void *name, const void *tensor)
{
    return strcmp(name, (*(const struct gs_tensor *const *)tensor)->name);
}

const struct gs_tensor *gs_checkpoint_find(const struct gs_checkpoint *checkpoint, const char *name)
{
    if (checkpoint->count == 0)
        return NULL;
    const struct gs_tensor **found =
        bsearch(name, checkpoint->by_name, checkpoint->count, sizeof(void *), compare_name);
    return found ? *found : NULL;
}

gs_status gs_checkpoint_check(const struct gs_checkpoint *checkpoint, struct gs_error *error)
{
    for (size_t i = 0; i < checkpoint->n_map; i++) {
        gs_status status = gs_file_map_check(checkpoint->maps[i], error);
        if (status != GS_OK)
            return status;
    }
    return GS_OK;
}

bool gs_checkpoint_damaged(const struct gs_checkpoint *checkpoint)
{
    for (size_t i = 0; i < checkpoint->n_map; i++) {
        if (gs_file_map_damaged(checkpoint->maps[i]))
            return true;
    }
    return false;
}
