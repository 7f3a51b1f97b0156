/*
 * What the hub says about a revision, GET /api/models/<repo>/revision/<revision>?blobs=true: its commit and
 * its files; and which of them a model needs. Everything in it is untrusted; what comes out of
 * gs_hub_select is safe to use as paths and sizes. Texts live in the caller's arena.
 */
#ifndef GS_HUB_LISTING_H
#define GS_HUB_LISTING_H

#include "base/arena.h"
#include "gossamer.h"

#define GS_HUB_INDEX_NAME  "model.safetensors.index.json"
#define GS_HUB_MAX_LISTING (16u << 20) /* bytes of the answer */

struct gs_hub_file {
    const char *name;
    uint64_t size;   /* at least 1 */
    char digest[65]; /* hexadecimal: 64 digits are a sha256, 40 git's blob hash (sha1) */
};

struct gs_hub_listing {
    char commit[41];
    const struct gs_hub_file *files; /* [count], of the root folder */
    size_t count;
};

gs_status gs_hub_listing_parse(const char *text, size_t size, struct gs_arena *arena,
                               struct gs_hub_listing *out, struct gs_error *error);

/* NULL if the listing has no such file. */
const struct gs_hub_file *gs_hub_listing_find(const struct gs_hub_listing *listing, const char *name);

/*
 * The files that running the model needs: config.json, other small ones, the index and the shards.
 * `index` [index_size] is the text of the index, or NULL if the listing has none. GS_UNSUPPORTED if the
 * repository lacks one of them. files[count] is allocated in the arena.
 */
gs_status gs_hub_select(const struct gs_hub_listing *listing, const char *index, size_t index_size,
                        struct gs_arena *arena, const struct gs_hub_file ***files, size_t *count,
                        struct gs_error *error);

#endif
