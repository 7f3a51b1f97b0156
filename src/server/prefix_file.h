/*
 * A kept prefix as a file: a header, the token ids, a table of marks, the marks' rings and what the backend
 * exported of the cache, in the order of bytes of the machine that wrote it. Whatever is in such a file is
 * checked before it is believed; the checksums guard against damage, the folder's permissions against malice.
 */
#ifndef GS_SERVER_PREFIX_FILE_H
#define GS_SERVER_PREFIX_FILE_H

#include "engine/batch.h"
#include "format/file_map.h"

#define GS_PREFIX_MAGIC      "gsprefx"
#define GS_PREFIX_VERSION    1u
#define GS_PREFIX_BYTE_ORDER 0x01020304u
#define GS_PREFIX_MAX_MARKS  16

/* A place that a timeline can be cut back to although its own rings have gone on: the rings as they were. */
struct gs_prefix_mark {
    size_t count, least; /* tokens: these, or down to `least` of them */
    struct gs_buffer rings;
};

/* Whose prefixes these are: of which key, as a keyed hash; zeros: everybody's. */
struct gs_prefix_tag {
    unsigned char bytes[16];
};

struct gs_prefix_head {
    char magic[8];
    uint32_t version;
    uint32_t byte_order;
    uint64_t identity; /* gs_engine_identity */
    struct gs_prefix_tag tag;
    uint64_t n_tokens;
    uint64_t least; /* it can be cut back to this by itself */
    uint64_t n_mark;
    uint64_t body_bytes; /* of the rings and the export */
    uint64_t index_sum;  /* of the ids and the table */
    uint64_t body_sum;
    uint64_t head_sum; /* of all before it */
};

/* An entry of the table. */
struct gs_prefix_place {
    uint64_t count, least, bytes;
};

/* What a file is. */
enum gs_prefix_verdict {
    GS_PREFIX_GOOD,
    GS_PREFIX_OTHER,   /* whole as far as was looked, but of another identity or version */
    GS_PREFIX_DAMAGED, /* begins as one of ours and is not as it was written, or cannot be read */
    GS_PREFIX_FOREIGN, /* none of ours */
};

/* The part of a file that says what is in it. */
struct gs_prefix_index {
    struct gs_prefix_head head;
    int32_t *tokens;                                    /* [n_tokens] */
    struct gs_prefix_place places[GS_PREFIX_MAX_MARKS]; /* [n_mark] */
};

/* Reads it from an open file of `size` bytes; of GOOD ones alone `tokens` is set, which the caller frees. */
enum gs_prefix_verdict gs_prefix_index_read(int descriptor, uint64_t size, uint64_t identity,
                                            size_t max_tokens, struct gs_prefix_index *out);

/* The rest of the file, once its map has been found to be what the index says. */
struct gs_prefix_body {
    const char *rings[GS_PREFIX_MAX_MARKS]; /* of each place, [bytes] */
    const char *export;                     /* [export_bytes] */
    size_t export_bytes;
};
enum gs_prefix_verdict gs_prefix_body_find(const struct gs_file_map *map, const struct gs_prefix_index *index,
                                           struct gs_prefix_body *out);

struct gs_prefix_timeline {
    const struct gs_session *session; /* wholly cached */
    size_t least;
    const struct gs_prefix_mark *marks; /* [n_mark] */
    size_t n_mark;
};

/* Appends the file's bytes to `out`, sums left out; and the sums, on whatever thread has the time. */
gs_status gs_prefix_file_build(const struct gs_prefix_timeline *timeline, uint64_t identity,
                               struct gs_prefix_tag tag, struct gs_buffer *out, struct gs_error *error);
void gs_prefix_file_seal(struct gs_buffer *image);

#endif
