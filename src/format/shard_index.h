/*
 * model.safetensors.index.json: which file holds which tensor. Checks the index itself; that files and
 * index agree is checkpoint.c's business. Everything lives in the caller's arena.
 */
#ifndef GS_FORMAT_SHARD_INDEX_H
#define GS_FORMAT_SHARD_INDEX_H

#include "base/arena.h"
#include "gossamer.h"

#define GS_SHARD_INDEX_MAX_BYTES  67108864u /* of the file */
#define GS_SHARD_INDEX_MAX_DEPTH  8u
#define GS_SHARD_INDEX_MAX_STRING 65536u
#define GS_SHARD_INDEX_MAX_SHARDS 512u

struct gs_shard_entry {
    const char *tensor;
    size_t shard; /* in the list of shards */
};

struct gs_shard_index {
    const struct gs_shard_entry *entries; /* [count], ascending by tensor (strcmp) */
    size_t count;
    const char *const *shards; /* [n_shard] file names without a folder, ascending */
    size_t n_shard;
};

/* `text` [size]: the file's contents; `path` for messages. GS_MALFORMED for an index that breaks a rule. */
gs_status gs_shard_index_parse(const char *path, const char *text, size_t size, struct gs_arena *arena,
                               struct gs_shard_index *out, struct gs_error *error);

/* Is it ^[A-Za-z0-9][A-Za-z0-9._-]*\.safetensors$: a name that cannot leave its folder on any system? */
bool gs_shard_name_valid(const char *name);

#endif
