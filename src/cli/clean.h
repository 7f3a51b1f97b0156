/*
 * Text from a model made harmless for a terminal, as a stream: control characters except newline and tab,
 * escape sequences whole (also where they are cut over several feeds) and the bidirectional embeddings,
 * overrides and isolates are removed; each ill-formed part of UTF-8 becomes U+FFFD.
 *
 * Zero-initialise. Nothing is kept back except an incomplete character. What the terminal would read as the
 * inside of a control string ends here at its terminator, at a newline, or after 4096 characters: a
 * model that forgets the terminator does not silence the rest of its answer.
 */
#ifndef GS_CLI_CLEAN_H
#define GS_CLI_CLEAN_H

#include "base/buffer.h"

enum gs_clean_state {
    GS_CLEAN_TEXT,
    GS_CLEAN_ESCAPE,        /* after ESC and its intermediates */
    GS_CLEAN_CONTROL,       /* in ESC [ ... */
    GS_CLEAN_STRING,        /* in ESC ] ... and the like */
    GS_CLEAN_STRING_ESCAPE, /* in such a string after ESC: its end, if a backslash follows */
};

struct gs_cleaner {
    enum gs_clean_state state;
    size_t n_removed; /* characters of the sequence under way */
    char partial[4];  /* the start of a character that is not complete yet */
    size_t n_partial;
};

/* Appends what is left of `bytes` [size]. GS_OUT_OF_MEMORY is the only failure. */
gs_status gs_cleaner_feed(struct gs_cleaner *cleaner, const char *bytes, size_t size, struct gs_buffer *out,
                          struct gs_error *error);

/* Ends the text: an incomplete character becomes U+FFFD. The cleaner is then as new. */
gs_status gs_cleaner_finish(struct gs_cleaner *cleaner, struct gs_buffer *out, struct gs_error *error);

#endif
