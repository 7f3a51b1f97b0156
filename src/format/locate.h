/*
 * Which files a path means: looks at names only and opens nothing. The answers live in the caller's arena.
 */
#ifndef GS_FORMAT_LOCATE_H
#define GS_FORMAT_LOCATE_H

#include "base/arena.h"
#include "gossamer.h"

enum gs_location_kind {
    GS_LOCATION_FILE,  /* one .safetensors file, given as such */
    GS_LOCATION_INDEX, /* model.safetensors.index.json and its shards */
    GS_LOCATION_LOOSE, /* every *.safetensors of the folder (one of them where it is model.safetensors) */
    GS_LOCATION_GGUF,  /* one .gguf file, or all parts of a split one in their order */
};

struct gs_location {
    enum gs_location_kind kind;
    const char *folder;       /* where the weights are */
    const char *index;        /* path of the index; NULL unless GS_LOCATION_INDEX */
    const char *const *files; /* [n_file] paths; none for GS_LOCATION_INDEX */
    size_t n_file;
    bool confined; /* links out of the folder are refused: the files were found there, not named */
};

/*
 * `path` as gs_checkpoint_open takes it. GS_IO if nothing is there, GS_UNSUPPORTED for weights in another
 * format; the message says what was looked for and what was found.
 */
gs_status gs_locate(const char *path, struct gs_arena *arena, struct gs_location *out,
                    struct gs_error *error);

/* "folder/name"; NULL without memory. */
const char *gs_path_join(struct gs_arena *arena, const char *folder, const char *name);

/* The path of `name` in the folder, or else in the folder's parent; NULL if it is in neither. */
const char *gs_locate_beside(struct gs_arena *arena, const char *folder, const char *name);

/* Does the file's name say that it is one of several shards? */
bool gs_shard_of_many(const char *name);

/*
 * The GGUF file whose metadata describe `path`: itself, or the one in that folder; of several parts the
 * first. NULL if it means no GGUF, or memory is out.
 */
const char *gs_locate_gguf(const char *path, struct gs_arena *arena);

#endif
