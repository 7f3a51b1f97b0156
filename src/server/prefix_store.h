/*
 * Prefixes in a folder, for the next start of the server: one file each (prefix_file.h), written whole or not
 * at all by a thread of its own, readable by the owner alone. An index of all is kept in memory. The least
 * recently used files go when the folder's budget is spent. Files of another model, or of another way to
 * compute, are left alone as long as there is room; what is damaged is removed, and what is none of ours is
 * never touched.
 *
 * A file is of a scope. That of a key is written as a hash, keyed with a secret of the folder: another order
 * of the keys at the next start gives nobody what was another's, and a file does not give away its key.
 */
#ifndef GS_SERVER_PREFIX_STORE_H
#define GS_SERVER_PREFIX_STORE_H

#include "server/prefix_file.h"

#define GS_PREFIX_NAME_BYTES 21 /* of "p-0123456789abcdef.kv" */

struct gs_prefix_store;

struct gs_prefix_store_options {
    const char *folder; /* made if it is not there */
    uint64_t max_bytes;
    uint64_t identity;
    size_t max_tokens;       /* of a timeline */
    const char *const *keys; /* [n_key]: scope i is of keys[i - 1], scope 0 of all; borrowed */
    size_t n_key;
    double rest_seconds; /* of a file that cannot be opened, or was given back: it is not read meanwhile */
    void (*log)(void *user, const char *line); /* may be NULL */
    void *log_user;
};

/*
 * Reads what is there. GS_INVALID_ARGUMENT for a folder that others may write to, or that another server
 * uses; GS_IO where it cannot be made.
 */
gs_status gs_prefix_store_open(const struct gs_prefix_store_options *options, struct gs_prefix_store **out,
                               struct gs_error *error);

/* Ends what is being written first. */
void gs_prefix_store_close(struct gs_prefix_store *store);

/* A file that has been found whole. */
struct gs_prefix_loaded {
    char name[GS_PREFIX_NAME_BYTES + 1]; /* in the folder */
    struct gs_file_map *map;
    struct gs_prefix_index index;
    struct gs_prefix_body body;
};

/* How many of tokens [count] the best file would give. */
size_t gs_prefix_store_find(struct gs_prefix_store *store, size_t scope, const int32_t *tokens, size_t count);

/* That file, which then counts as used; false if it is gone, damaged or cannot be opened. */
bool gs_prefix_store_load(struct gs_prefix_store *store, size_t scope, const int32_t *tokens, size_t count,
                          struct gs_prefix_loaded *out);
void gs_prefix_loaded_close(struct gs_prefix_loaded *loaded);

/* It was of no use, for want of memory: it rests. */
void gs_prefix_store_rest(struct gs_prefix_store *store, const struct gs_prefix_loaded *loaded);

/* The file of exactly these tokens, if there is one, counts as used. */
void gs_prefix_store_touch(struct gs_prefix_store *store, size_t scope, const int32_t *tokens, size_t count);

enum gs_prefix_store_state {
    GS_STORE_IDLE,
    GS_STORE_BUSY,   /* writing */
    GS_STORE_FAILED, /* what was handed over last was not written; said once */
};
enum gs_prefix_store_state gs_prefix_store_poll(struct gs_prefix_store *store);

/* Until it is not busy. */
void gs_prefix_store_wait(struct gs_prefix_store *store);

/*
 * Hands a timeline over to be written, if nothing is being written: it may change as soon as this returns.
 * Files whose every use the new one has go when it is there. false: memory is out, or it is busy.
 */
bool gs_prefix_store_save(struct gs_prefix_store *store, size_t scope,
                          const struct gs_prefix_timeline *timeline);

/* From any thread. */
void gs_prefix_store_figures(struct gs_prefix_store *store, size_t *n_file, uint64_t *bytes);

#endif
