/*
 * The Hugging Face cache on disk, which other tools share:
 *
 *   CACHE/models--org--name/blobs/<hash>                 the contents, named by sha256 or git's blob hash
 *                           snapshots/<commit>/<file>    links to ../../blobs/<hash>
 *                           refs/<revision>              the commit that a branch or tag stood for
 *   CACHE/.locks/models--org--name/<hash>.lock           held with flock while a blob is written
 *
 * Needs no network and no library. CACHE is a path chosen by the caller.
 */
#ifndef GS_HUB_CACHE_H
#define GS_HUB_CACHE_H

#include "base/buffer.h"
#include "hub/name.h"

/*
 * Where is the model that a person named? An existing path is itself; "org/name[@revision]" is its snapshot
 * in `cache` (NULL: there is none); anything else comes back as it is, for the opener to complain about. A
 * name that is not in the cache is GS_IO, with the command that fetches it; so is a snapshot without
 * config.json (or a .gguf), which is half there. Replaces *path.
 */
gs_status gs_hub_find(const char *cache, const char *model, struct gs_buffer *path, struct gs_error *error);

/* One repository's folders while it is written. Zero-initialise; release with gs_hub_store_free. */
struct gs_hub_store {
    struct gs_buffer root;     /* CACHE/models--org--name */
    struct gs_buffer blobs;    /* root/blobs */
    struct gs_buffer snapshot; /* root/snapshots/<commit> */
    struct gs_buffer locks;    /* CACHE/.locks/models--org--name */
};

/* Names the folders; creates nothing. */
gs_status gs_hub_store_name(const char *cache, const struct gs_hub_name *name, const char *commit,
                            struct gs_hub_store *store, struct gs_error *error);

/* Creates those that are missing, except for the snapshot. */
gs_status gs_hub_store_create(const struct gs_hub_store *store, struct gs_error *error);
void gs_hub_store_free(struct gs_hub_store *store);

/*
 * The lock on a blob: *descriptor, closed by the caller to release it. GS_IO if another process holds it:
 * it is fetching the same file.
 */
gs_status gs_hub_store_lock(const struct gs_hub_store *store, const char *digest, int *descriptor,
                            struct gs_error *error);

/* Makes snapshot/<file> the link to the blob, replacing what is there; creates the folder. */
gs_status gs_hub_store_link(const struct gs_hub_store *store, const char *file, const char *digest,
                            struct gs_error *error);

/* Lets the revision stand for the commit from now on; nothing to do if it is that commit. */
gs_status gs_hub_store_refer(const struct gs_hub_store *store, const struct gs_hub_name *name,
                             const char *commit, struct gs_error *error);

/* Creates `path` and the folders above it. */
gs_status gs_make_folders(const char *path, struct gs_error *error);

/* The entries of a folder are on disk. */
gs_status gs_sync_folder(const char *path, struct gs_error *error);

#endif
