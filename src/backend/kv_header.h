/*
 * What the caches of all backends have in common: which positions a timeline with rings still holds, and the
 * header of an exported cache. How positions lie in memory is each backend's own.
 */
#ifndef GS_BACKEND_KV_HEADER_H
#define GS_BACKEND_KV_HEADER_H

#include "base/status.h"
#include "model/config.h"

struct gs_kv_header {
    char magic[8]; /* of the backend and its precision */
    int64_t length;
    int64_t ring_first; /* the first position that the rings hold */
    int64_t n_layer;
    int64_t n_kv_head;
    int64_t d_head;
    int64_t window;
};

/* Slots of a layer in a cache of `capacity` tokens that takes at most max_step in one forward. */
int64_t gs_kv_slot_count(const struct gs_config *config, int64_t layer, int64_t capacity, int64_t max_step);

/*
 * The first position that a layer holds. Not only rings lack early positions: a window layer that has room
 * for all may have been imported from one that had not.
 */
int64_t gs_kv_first_held(const struct gs_config *config, int64_t layer, int64_t ring_first);

/* Of positions first ... length-1 in n_slot slots, the first that stays; *ring_first is no earlier one. */
int64_t gs_kv_keep(int64_t first, int64_t length, int64_t n_slot, int64_t *ring_first);

/* A copy of `length` tokens where there is room for `capacity`; `alike`: of the same model and kind. */
gs_status gs_kv_check_copy(bool alike, int64_t capacity, int64_t length, struct gs_error *error);

/*
 * `held` tokens cut back to at most `length`: what remains, and *ring_first with it. 0 where the rings lack a
 * position that the next token would see: at `length` it sees window - 1 before it.
 */
int64_t gs_kv_cut(int64_t held, int64_t length, int64_t window, int64_t *ring_first);

struct gs_kv_header gs_kv_header_make(const char *magic, const struct gs_config *config, int64_t length,
                                      int64_t ring_first);

/*
 * Reads and checks the header of `size` untrusted bytes. `own`: of the cache that shall take them, which has
 * room for `capacity` tokens; position_bytes: of one layer's keys and values at a position, all heads.
 * GS_MALFORMED.
 */
gs_status gs_kv_header_read(const struct gs_kv_header *own, const struct gs_config *config, int64_t capacity,
                            uint64_t position_bytes, const void *bytes, size_t size, struct gs_kv_header *out,
                            struct gs_error *error);

#endif
