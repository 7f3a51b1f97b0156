/*
 * Sessions as files: gs_session_save and gs_session_load (gossamer.h). A file is the header below, the token
 * ids, zeros up to a multiple of 8 bytes, and what the backend exported of its cache; all in the order of
 * bytes of the machine that wrote it.
 *
 * The checksum guards against damage, not against malice: a file that was made up on purpose can give a wrong
 * conversation, never a wrong memory access (the backend checks sizes for itself).
 */
#ifndef GS_ENGINE_SNAPSHOT_H
#define GS_ENGINE_SNAPSHOT_H

#include "engine/engine.h"

#define GS_SNAPSHOT_MAGIC      "gssnaps"
#define GS_SNAPSHOT_VERSION    1u
#define GS_SNAPSHOT_BYTE_ORDER 0x01020304u

struct gs_snapshot_header {
    char magic[8];
    uint32_t version;
    uint32_t byte_order;
    uint64_t model;   /* gs_model_fingerprint */
    char backend[16]; /* its name, zero-padded */
    uint64_t n_tokens;
    uint64_t payload_bytes;
    uint64_t body_sum;   /* of everything after the header */
    uint64_t header_sum; /* of everything in the header before it */
};

/*
 * Which model this is: a hash of its configuration, of names, types and shapes of its tensors, and of a few
 * bytes of each, so that it takes no longer for a large model.
 */
uint64_t gs_model_fingerprint(const struct gs_engine *engine);

/*
 * Whose cached keys and values these are: the model, the backend, how it computes and on what, and this
 * version. Those of another identity must not be gone on from.
 */
uint64_t gs_engine_identity(const struct gs_engine *engine);

/* A checksum of bytes that follow those of `sum` (0: none). */
uint64_t gs_snapshot_sum(uint64_t sum, const void *bytes, size_t size);

/* What the backend says of a timeline that is wholly cached, appended to `out`. */
gs_status gs_session_export(const struct gs_session *session, struct gs_buffer *out, struct gs_error *error);

/*
 * Replaces the timeline by an exported one, without logits. GS_MALFORMED for bytes that do not hold it, or
 * ids that are none: the session is then empty or as it was.
 */
gs_status gs_session_import(struct gs_session *session, const int32_t *tokens, size_t count,
                            const void *bytes, size_t size, struct gs_error *error);

#endif
