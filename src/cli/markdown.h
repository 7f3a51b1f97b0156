/*
 * Light markdown for a terminal, as a stream: headings, bold, italics, code, lists, quotes and code blocks
 * with a frame, wrapped between words. What is not understood stays as it was written. Nothing is held back
 * but the word under way and the start of a line whose meaning is open.
 *
 * Text must be clean (clean.h) and come in whole characters. Zero-initialise and set the first part; without
 * `styled` the text passes as it is.
 */
#ifndef GS_CLI_MARKDOWN_H
#define GS_CLI_MARKDOWN_H

#include "base/buffer.h"

enum gs_markdown_block {
    GS_MARKDOWN_START, /* of a line: `held` may become anything */
    GS_MARKDOWN_TEXT,
    GS_MARKDOWN_FENCE, /* the line that opens a code block */
    GS_MARKDOWN_CODE,  /* a line of it */
};

struct gs_markdown {
    bool styled;
    bool utf8;
    int width; /* columns; 0: no wrapping */

    enum gs_markdown_block block;
    bool in_code;          /* a code block is open */
    char fence;            /* what opened it: '`' or '~' */
    struct gs_buffer held; /* the start of a line */
    struct gs_buffer word; /* under way, with its escape sequences */
    int word_width;        /* columns */
    int blanks;            /* before it */
    int column, indent;    /* of the line; where its continuation begins */
    bool quote;            /* the line is one */
    bool heading, bold, italic, code;
    int stars;    /* a run of them whose meaning is open */
    bool escaped; /* after a backslash */
    char before;  /* the last byte of text; 0 at the start of a line */
};

gs_status gs_markdown_feed(struct gs_markdown *markdown, const char *text, size_t size, struct gs_buffer *out,
                           struct gs_error *error);

/* Ends the text: all that was held back, every style off, the frame closed. Then as new. */
gs_status gs_markdown_finish(struct gs_markdown *markdown, struct gs_buffer *out, struct gs_error *error);
void gs_markdown_free(struct gs_markdown *markdown);

#endif
