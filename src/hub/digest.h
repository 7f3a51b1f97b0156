/* The hashes by which the hub names contents: sha256 of large files, git's blob hash (sha1) of small ones. */
#ifndef GS_HUB_DIGEST_H
#define GS_HUB_DIGEST_H

#include "gossamer.h"

struct gs_digest;

struct gs_digest_text {
    char text[65]; /* lower-case hexadecimal */
};

/* Of `size` bytes to come; `expected` tells by its length (64 or 40 digits) which hash it is. */
gs_status gs_digest_open(const char *expected, uint64_t size, struct gs_digest **out, struct gs_error *error);
void gs_digest_close(struct gs_digest *digest);
gs_status gs_digest_add(struct gs_digest *digest, const void *bytes, size_t size, struct gs_error *error);
gs_status gs_digest_finish(struct gs_digest *digest, struct gs_digest_text *out, struct gs_error *error);

/*
 * Of a file's first `size` bytes, read from `descriptor`. `proceed` (may be NULL) is told how many are read,
 * after each MiB and at the end; where it says no, GS_CANCELLED. `path` is for messages.
 */
gs_status gs_digest_file(int descriptor, const char *path, const char *expected, uint64_t size,
                         bool (*proceed)(void *user, uint64_t done), void *user, struct gs_digest_text *out,
                         struct gs_error *error);

#endif
