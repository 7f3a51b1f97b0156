#include "engine/snapshot.h"

#include "base/checked.h"
#include "base/file_write.h"
#include "base/hash.h"
#include "base/status.h"
#include "engine/session.h"

#include <stdlib.h>
#include <string.h>

#define SUM_BLOCK    (1u << 20) /* bytes */
#define SAMPLE_BYTES 64

/* ---------------------------------------------------------------- hashes */

static uint64_t add_hash(uint64_t sum, const void *bytes, size_t size)
{
    return gs_hash_mix(sum ^ gs_hash_bytes(bytes, size), 0x9E3779B97F4A7C15u) + size;
}

/* Block by block, so that a sum of parts is the sum of the whole only if they are cut alike. */
static uint64_t add_sum(uint64_t sum, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    for (; size > SUM_BLOCK; at += SUM_BLOCK, size -= SUM_BLOCK)
        sum = add_hash(sum, at, SUM_BLOCK);
    return add_hash(sum, at, size);
}

static uint64_t add_config(uint64_t sum, const struct gs_config *c)
{
    const int64_t sizes[] = {c->n_layer,  c->d_model, c->d_head,  c->n_head, c->n_kv_head, c->n_expert,
                             c->n_active, c->d_ff,    c->n_vocab, c->window, c->max_ctx};
    const double numbers[] = {(double)c->rms_norm_eps, (double)c->swiglu_limit, (double)c->swiglu_alpha,
                              c->rope_theta,           c->rope_factor,          c->rope_beta_fast,
                              c->rope_beta_slow,       c->rope_original_ctx,    c->rope_truncate ? 1.0 : 0.0};
    sum = add_hash(sum, sizes, sizeof sizes);
    sum = add_hash(sum, numbers, sizeof numbers);
    return add_hash(sum, c->layer_is_window, (size_t)c->n_layer * sizeof *c->layer_is_window);
}

static uint64_t add_tensor(uint64_t sum, const struct gs_tensor *tensor)
{
    sum = add_hash(sum, tensor->name, strlen(tensor->name));
    sum = add_hash(sum, gs_dtype_name(tensor->dtype), strlen(gs_dtype_name(tensor->dtype)));
    sum = add_hash(sum, tensor->shape, tensor->rank * sizeof *tensor->shape);
    uint64_t size = tensor->bytes < SAMPLE_BYTES ? tensor->bytes : SAMPLE_BYTES;
    const uint64_t places[] = {0, (tensor->bytes - size) / 2, tensor->bytes - size};
    for (size_t i = 0; i < sizeof places / sizeof *places && size > 0; i++)
        sum = add_hash(sum, tensor->data + places[i], (size_t)size);
    return sum;
}

uint64_t gs_model_fingerprint(const struct gs_engine *engine)
{
    uint64_t sum = add_config(0, &engine->weights->config);
    for (size_t i = 0; i < gs_checkpoint_count(engine->checkpoint); i++)
        sum = add_tensor(sum, gs_checkpoint_tensor(engine->checkpoint, i));
    return sum;
}

uint64_t gs_engine_identity(const struct gs_engine *engine)
{
    const uint64_t how[] = {engine->precision, engine->weight_format, engine->kernels, GS_SNAPSHOT_VERSION};
    char found[256] = ""; /* processor and instruction set, or device */
    uint64_t sum = gs_model_fingerprint(engine);
    engine->backend->probe(found, sizeof found);
    sum = add_hash(sum, found, strlen(found));
    sum = add_hash(sum, engine->backend->name, strlen(engine->backend->name));
    sum = add_hash(sum, how, sizeof how);
    return add_hash(sum, gs_version(), strlen(gs_version()));
}

uint64_t gs_snapshot_sum(uint64_t sum, const void *bytes, size_t size)
{
    return add_sum(sum, bytes, size);
}

/* ---------------------------------------------------------------- writing */

static size_t padding_of(uint64_t n_tokens)
{
    return n_tokens % 2 ? sizeof(int32_t) : 0;
}

static uint64_t header_sum(const struct gs_snapshot_header *header)
{
    return add_hash(0, header, offsetof(struct gs_snapshot_header, header_sum));
}

static uint64_t body_sum(const void *tokens, uint64_t n_tokens, const void *payload, size_t payload_bytes)
{
    return add_sum(add_sum(0, tokens, (size_t)n_tokens * sizeof(int32_t)), payload, payload_bytes);
}

static struct gs_snapshot_header make_header(const struct gs_session *session)
{
    struct gs_snapshot_header header = {.magic = GS_SNAPSHOT_MAGIC,
                                        .version = GS_SNAPSHOT_VERSION,
                                        .byte_order = GS_SNAPSHOT_BYTE_ORDER,
                                        .model = gs_model_fingerprint(session->engine),
                                        .n_tokens = session->n_cached};
    strncpy(header.backend, session->engine->backend->name, sizeof header.backend - 1);
    return header;
}

gs_status gs_session_save(const struct gs_session *session, const char *path, struct gs_error *error)
{
    static const char zeros[sizeof(int32_t)];
    struct gs_file_write file = {.descriptor = -1};
    struct gs_buffer payload = {0};
    if (session->n_cached == 0)
        return gs_fail(error, GS_INVALID_ARGUMENT, "nothing to save: the session has run no tokens yet");
    struct gs_snapshot_header header = make_header(session);
    gs_status status = session->engine->backend->kv_export(session->kv, &payload, error);
    if (status != GS_OK)
        goto cleanup;
    header.payload_bytes = payload.size;
    header.body_sum = body_sum(session->tokens, header.n_tokens, payload.data, payload.size);
    header.header_sum = header_sum(&header);
    status = gs_file_write_begin(&file, path, error);
    if (status == GS_OK)
        status = gs_file_write_bytes(&file, &header, sizeof header, error);
    if (status == GS_OK)
        status =
            gs_file_write_bytes(&file, session->tokens, session->n_cached * sizeof *session->tokens, error);
    if (status == GS_OK)
        status = gs_file_write_bytes(&file, zeros, padding_of(header.n_tokens), error);
    if (status == GS_OK)
        status = gs_file_write_bytes(&file, payload.data, payload.size, error);
    status = gs_file_write_end(&file, status, error);
cleanup:
    gs_buffer_free(&payload);
    return status;
}

/* ---------------------------------------------------------------- reading */

static gs_status check_header(const struct gs_session *session, const struct gs_file_map *map,
                              const struct gs_snapshot_header *header, struct gs_error *error)
{
    const struct gs_quoted quoted = gs_quote(map->path);
    const char *name = quoted.text;
    if (memcmp(header->magic, GS_SNAPSHOT_MAGIC, sizeof header->magic) != 0)
        return gs_fail(error, GS_MALFORMED, "%s: is no snapshot of a session", name);
    if (header->byte_order != GS_SNAPSHOT_BYTE_ORDER || header->version != GS_SNAPSHOT_VERSION)
        return gs_fail(
            error, GS_UNSUPPORTED,
            "%s: a snapshot of version %u (byte order %08x) was found, version %u (%08x) is expected", name,
            header->version, header->byte_order, GS_SNAPSHOT_VERSION, GS_SNAPSHOT_BYTE_ORDER);
    if (header->header_sum != header_sum(header))
        return gs_fail(error, GS_MALFORMED, "%s: the snapshot is damaged: its header's checksum is wrong",
                       name);
    if (memcmp(header->backend, make_header(session).backend, sizeof header->backend) != 0)
        return gs_fail(error, GS_UNSUPPORTED, "%s: a snapshot of backend %.16s cannot go on on backend %s",
                       name,
                       gs_quote_bytes(header->backend, strnlen(header->backend, sizeof header->backend)).text,
                       session->engine->backend->name);
    if (header->model != gs_model_fingerprint(session->engine))
        return gs_fail(error, GS_UNSUPPORTED, "%s: the snapshot is of another model", name);
    if (header->n_tokens > (uint64_t)session->n_ctx)
        return gs_fail(error, GS_CONTEXT_FULL,
                       "%s: the snapshot holds %llu tokens, but the context only %lld", name,
                       (unsigned long long)header->n_tokens, (long long)session->n_ctx);
    uint64_t size = sizeof *header + header->n_tokens * sizeof(int32_t) + padding_of(header->n_tokens);
    if (header->n_tokens == 0 || !gs_add_u64(size, header->payload_bytes, &size) || size != map->size)
        return gs_fail(error, GS_MALFORMED,
                       "%s: the snapshot is damaged: it has %llu bytes, %llu are expected", name,
                       (unsigned long long)map->size, (unsigned long long)size);
    return GS_OK;
}

static gs_status check_ids(const struct gs_session *session, const char *path, const int32_t *tokens,
                           size_t count, struct gs_error *error)
{
    int64_t n_vocab = session->engine->info.n_vocab;
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= n_vocab)
            return gs_fail(error, GS_MALFORMED, "%s: token %zu of the snapshot has the id %d, not 0 ... %lld",
                           gs_quote(path).text, i, (int)tokens[i], (long long)n_vocab - 1);
    return GS_OK;
}

/* The backend takes its part; where it refuses, what it held is run again by the next sync. */
static gs_status take(struct gs_session *session, const int32_t *tokens, size_t count, const void *payload,
                      size_t payload_bytes, struct gs_error *error)
{
    const struct gs_backend *backend = session->engine->backend;
    gs_status status = backend->kv_import(session->kv, payload, payload_bytes, error);
    if (status == GS_OK && backend->kv_length(session->kv) != (int64_t)count)
        status = gs_fail(error, GS_MALFORMED, "the snapshot's cache holds %lld tokens, %zu are expected",
                         (long long)backend->kv_length(session->kv), count);
    if (status != GS_OK) {
        session->n_cached = (size_t)backend->kv_truncate(session->kv, 0);
        return status;
    }
    memcpy(session->tokens, tokens, count * sizeof *tokens);
    session->n_tokens = session->n_cached = count;
    session->has_logits = false;
    return GS_OK;
}

gs_status gs_session_export(const struct gs_session *session, struct gs_buffer *out, struct gs_error *error)
{
    if (session->n_cached != session->n_tokens || session->n_cached == 0)
        return gs_fail(error, GS_INVALID_ARGUMENT, "a session with all its tokens in the cache is expected");
    return session->engine->backend->kv_export(session->kv, out, error);
}

gs_status gs_session_import(struct gs_session *session, const int32_t *tokens, size_t count,
                            const void *bytes, size_t size, struct gs_error *error)
{
    if (count == 0 || count > (size_t)session->n_ctx)
        return gs_fail(error, GS_CONTEXT_FULL, "%zu tokens do not fit in the context of %lld", count,
                       (long long)session->n_ctx);
    gs_status status = check_ids(session, "an exported session", tokens, count, error);
    return status == GS_OK ? take(session, tokens, count, bytes, size, error) : status;
}

gs_status gs_session_load(struct gs_session *session, const char *path, struct gs_error *error)
{
    struct gs_file_map *map = NULL;
    struct gs_snapshot_header header;
    gs_status status = gs_file_map_open(path, NULL, &map, error);
    if (status != GS_OK)
        return status;
    if (map->size < sizeof header) {
        status = gs_fail(error, GS_MALFORMED, "%s: %llu bytes are too few for a snapshot of a session",
                         gs_quote(path).text, (unsigned long long)map->size);
        goto cleanup;
    }
    memcpy(&header, map->data, sizeof header);
    status = check_header(session, map, &header, error);
    if (status != GS_OK)
        goto cleanup;
    const int32_t *tokens = (const int32_t *)(const void *)(map->data + sizeof header);
    const unsigned char *payload = map->data + (map->size - header.payload_bytes);
    if (body_sum(tokens, header.n_tokens, payload, (size_t)header.payload_bytes) != header.body_sum)
        status = gs_fail(error, GS_MALFORMED, "%s: the snapshot is damaged: its checksum is wrong",
                         gs_quote(path).text);
    if (status == GS_OK)
        status = check_ids(session, path, tokens, (size_t)header.n_tokens, error);
    if (status == GS_OK)
        status = gs_file_map_check(map, error);
    if (status == GS_OK)
        status = take(session, tokens, (size_t)header.n_tokens, payload, (size_t)header.payload_bytes, error);
cleanup:
    gs_file_map_close(map);
    return status;
}
