/*
 * A chunked body as it comes, a piece at a time: its frame is checked and written anew, so that whoever reads
 * behind sees only frames that have one meaning. Pure functions; relay.c calls them.
 */
#ifndef GS_SERVER_CHUNKED_H
#define GS_SERVER_CHUNKED_H

#include "server/api_error.h"

#define GS_CHUNKED_MAX_DIGITS    8u    /* of a size: 4 GiB less a byte */
#define GS_CHUNKED_MAX_EXTENSION 256u  /* bytes behind a size, passed over */
#define GS_CHUNKED_MAX_TRAILER   4096u /* bytes of the lines behind the last chunk, passed over */
#define GS_CHUNKED_LONGER        16u   /* what was written is never longer than what was read by more */

enum gs_chunked_state {
    GS_CHUNKED_SIZE,
    GS_CHUNKED_EXTENSION,
    GS_CHUNKED_SIZE_END, /* CR has come, LF has to */
    GS_CHUNKED_DATA,
    GS_CHUNKED_DATA_CR,
    GS_CHUNKED_DATA_LF,
    GS_CHUNKED_TRAILER,     /* at the beginning of a line */
    GS_CHUNKED_TRAILER_END, /* the same, CR has come */
    GS_CHUNKED_LINE,        /* within one */
    GS_CHUNKED_LINE_END,
    GS_CHUNKED_WHOLE,
};

/* Zero-initialise. */
struct gs_chunked {
    enum gs_chunked_state state;
    size_t n_digit, passed; /* of the size; of extension or trailer */
    uint64_t left;          /* of the chunk */
    uint64_t announced;     /* bytes of all chunks whose size has come */
};

/*
 * Reads what is of the body and writes it to `out` (room for size + GS_CHUNKED_LONGER); *written bytes are
 * there. Returns the bytes taken: `size`, or less where the body ends before, or is bad: `error` has status
 * 400 then.
 */
size_t gs_chunked_read(struct gs_chunked *body, const char *bytes, size_t size, char *out, size_t *written,
                       struct gs_api_error *error);

#endif
