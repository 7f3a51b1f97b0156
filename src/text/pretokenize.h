/*
 * The o200k split: cuts text into the pieces that byte-pair encoding works on, as the seven alternatives of
 * the published pattern do under Perl's rules, but with one scan and no backtracking.
 */
#ifndef GS_TEXT_PRETOKENIZE_H
#define GS_TEXT_PRETOKENIZE_H

#include <stddef.h>

/* The end of the piece that starts at `start` < size. The text is valid UTF-8 [size bytes]. */
size_t gs_pretokenize_next(const char *text, size_t size, size_t start);

#endif
