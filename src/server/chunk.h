/*
 * The chunks that tokens bring in a stream of completions: alike but for their text, so what stands before it
 * is written once. Everything else in a stream goes through gs_stream_json; the texts are the same either
 * way.
 */
#ifndef GS_SERVER_CHUNK_H
#define GS_SERVER_CHUNK_H

#include "chat/writer.h"
#include "server/http.h"

#include <jansson.h>

/* Of one stream. Zero-initialise; gs_chunk_free releases. */
struct gs_chunk {
    struct gs_buffer head; /* up to the number of the choice; empty: not begun */
    bool has_usage;        /* ends in "usage":null */
};

/* What stands before the text in its choice, and behind it. */
struct gs_chunk_form {
    const char *open;   /* ",\"delta\":{\"content\":" */
    const char *second; /* a name under which the text comes again; NULL: it does not */
    const char *close;  /* "}" */
};

bool gs_chunk_begun(const struct gs_chunk *chunk);

/* `object` (taken; NULL counts as memory that is out): what every chunk of the stream begins with. */
gs_status gs_chunk_begin(struct gs_chunk *chunk, json_t *object, bool has_usage);

/* Where memory is out the stream is cut. */
void gs_chunk_send(struct gs_chunk *chunk, struct gs_exchange *exchange, size_t choice,
                   const struct gs_chunk_form *form, struct gs_text text);

void gs_chunk_free(struct gs_chunk *chunk);

#endif
