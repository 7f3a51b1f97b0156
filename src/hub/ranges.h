/*
 * Which bytes of a file are there: it is cut into pieces that are fetched side by side, each from its begin
 * on. The state is kept in a small text file beside the partial contents, so that a later run goes on.
 */
#ifndef GS_HUB_RANGES_H
#define GS_HUB_RANGES_H

#include "gossamer.h"

struct gs_piece {
    uint64_t begin, end; /* in the file */
    uint64_t done;       /* bytes from `begin` on that are there */
    unsigned failures;   /* in a row, without a byte */
    bool busy;           /* being fetched */
};

/* Zero-initialise. */
struct gs_ranges {
    struct gs_piece *pieces; /* [count], ascending, tiling 0 ... size-1 */
    size_t count;
    uint64_t size;
};

/* Pieces of `piece_bytes`, larger ones if there would be too many. Nothing is there. */
gs_status gs_ranges_init(struct gs_ranges *ranges, uint64_t size, uint64_t piece_bytes,
                         struct gs_error *error);
void gs_ranges_free(struct gs_ranges *ranges);

/* Bytes that are there. */
uint64_t gs_ranges_done(const struct gs_ranges *ranges);

/* The first piece that lacks bytes and is not busy; NULL if there is none. */
struct gs_piece *gs_ranges_next(const struct gs_ranges *ranges);

/*
 * Reads the state that was saved at `path`, believing nothing beyond `present`, the size of the partial
 * contents. A state that is missing, damaged or of another size is none.
 */
gs_status gs_ranges_load(struct gs_ranges *ranges, const char *path, uint64_t present,
                         struct gs_error *error);

/* Replaces the file at `path` as a whole. */
gs_status gs_ranges_save(const struct gs_ranges *ranges, const char *path, struct gs_error *error);

#endif
