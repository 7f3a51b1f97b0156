/* Where generated tokens come from: a session with its sampler, or a script that stands in for both. */
#include "engine/source.h"

#include "base/clock.h"
#include "base/status.h"
#include "engine/batch.h"
#include "engine/engine.h"
#include "engine/sample.h"
#include "engine/session.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNNAMED_LOGIT -1e9f /* of the ids that a scripted row does not name */

struct gs_source {
    /* a model's */
    struct gs_session *session;
    struct gs_sampler *sampler;
    int32_t pending; /* the token to append before the next draw; -1 at the start */

    /* of one that runs ahead */
    int64_t most; /* tokens that are still to be taken; -1: not known; 0: it does not run ahead */
    int32_t chosen[GS_AHEAD_TOKENS];
    struct gs_draw draws[GS_AHEAD_TOKENS];
    size_t n_chosen, n_taken; /* of the chain; those not taken yet are in the timeline, but for the last */
    size_t before;            /* tokens of the timeline before the chain */
    size_t length;            /* of the next chain */
    double patience;          /* seconds that it may take */
    bool in_doubt;            /* the token after these has to be drawn from logits */

    /* a script's */
    char *line;     /* one generation; NULL for a model */
    const char *at; /* in line */
    bool rows;      /* the line holds rows of logits */
    size_t generation;
    size_t n_vocab;
    float *logits; /* [n_vocab]: of the row under way */
    struct gs_tokens drawn;
};

static gs_status check_sampler(const struct gs_sampler *sampler, size_t n_vocab, struct gs_error *error)
{
    if (gs_sampler_vocab(sampler) == n_vocab)
        return GS_OK;
    return gs_fail(error, GS_INVALID_ARGUMENT, "a sampler of %zu tokens cannot draw from rows of %zu",
                   gs_sampler_vocab(sampler), n_vocab);
}

gs_status gs_source_open_model(struct gs_session *session, struct gs_sampler *sampler, struct gs_source **out,
                               struct gs_error *error)
{
    *out = NULL;
    if (!gs_session_logits(session))
        return gs_fail(error, GS_INVALID_ARGUMENT, "the session has no logits: sync a prompt first");
    gs_status status = check_sampler(sampler, gs_session_vocab(session), error);
    if (status != GS_OK)
        return status;
    struct gs_source *source = calloc(1, sizeof *source);
    if (!source)
        return gs_fail_memory(error, sizeof *source);
    source->session = session;
    source->sampler = sampler;
    source->pending = -1;
    source->length = 1;
    source->patience = GS_AHEAD_SECONDS;
    *out = source;
    return GS_OK;
}

/* Line number `wanted` of the file, without its end; NULL and GS_OK if there are fewer. */
static gs_status read_line(const char *path, size_t wanted, char **line, struct gs_error *error)
{
    *line = NULL;
    FILE *file = fopen(path, "r");
    if (!file)
        return gs_fail_io(error, errno, "open", path);
    size_t capacity = 0;
    ssize_t length = 0;
    for (size_t n = 0; n <= wanted && length >= 0; n++)
        length = getline(line, &capacity, file);
    bool failed = ferror(file) != 0;
    fclose(file);
    if (length < 0) {
        free(*line);
        *line = NULL;
    }
    return failed ? gs_fail_io(error, EIO, "read", path) : GS_OK;
}

gs_status gs_source_open_script(const char *path, size_t generation, struct gs_sampler *sampler,
                                size_t n_vocab, struct gs_source **out, struct gs_error *error)
{
    static const char rows_mark[] = "logits:";
    *out = NULL;
    struct gs_source *source = calloc(1, sizeof *source);
    if (!source)
        return gs_fail_memory(error, sizeof *source);
    source->sampler = sampler;
    source->generation = generation;
    source->n_vocab = n_vocab;
    gs_status status = read_line(path, generation, &source->line, error);
    if (status == GS_OK && !source->line)
        status = gs_fail(error, GS_INVALID_ARGUMENT, "%s: has no line %zu for generation %zu",
                         gs_quote(path).text, generation + 1, generation);
    if (status != GS_OK)
        goto cleanup;
    source->at = source->line;
    if (strncmp(source->line, rows_mark, strlen(rows_mark)) == 0) {
        source->rows = true;
        source->at += strlen(rows_mark);
        source->logits = malloc(n_vocab * sizeof *source->logits);
        if (!source->logits)
            status = gs_fail_memory(error, n_vocab * sizeof *source->logits);
        else if (!sampler)
            status = gs_fail(error, GS_INVALID_ARGUMENT, "%s: line %zu holds logits, which need a sampler",
                             gs_quote(path).text, generation + 1);
        else
            status = check_sampler(sampler, n_vocab, error);
    }
    if (status == GS_OK) {
        *out = source;
        source = NULL;
    }
cleanup:
    gs_source_close(source);
    return status;
}

/* The timeline as it would be without running ahead. One that was changed behind the source is left alone. */
static void settle(struct gs_source *source)
{
    size_t count, ahead = source->n_chosen - source->n_taken;
    if (ahead > 0) {
        gs_session_tokens(source->session, &count);
        if (count == source->before + source->n_chosen)
            gs_session_truncate(source->session, source->before + source->n_taken, NULL);
    }
    source->n_chosen = source->n_taken = 0;
}

void gs_source_close(struct gs_source *source)
{
    if (!source)
        return;
    settle(source);
    free(source->drawn.ids);
    free(source->logits);
    free(source->line);
    free(source);
}

static void skip_separators(struct gs_source *source)
{
    source->at += strspn(source->at, ", \t\r\n");
}

static gs_status fail_script(const struct gs_source *source, const char *what, struct gs_error *error)
{
    return gs_fail(error, GS_MALFORMED, "script line %zu, column %zu: %s", source->generation + 1,
                   (size_t)(source->at - source->line) + 1, what);
}

static gs_status read_id(struct gs_source *source, int32_t *id, struct gs_error *error)
{
    char *end;
    errno = 0;
    long value = strtol(source->at, &end, 10);
    if (end == source->at || errno != 0 || value < 0 || (size_t)value >= source->n_vocab)
        return fail_script(source, "expected a token id of the vocabulary", error);
    source->at = end;
    *id = (int32_t)value;
    return GS_OK;
}

/* "id=value id=value ... ;" */
static gs_status read_row(struct gs_source *source, struct gs_error *error)
{
    for (size_t i = 0; i < source->n_vocab; i++)
        source->logits[i] = UNNAMED_LOGIT;
    for (skip_separators(source); *source->at != '\0' && *source->at != ';'; skip_separators(source)) {
        int32_t id;
        gs_status status = read_id(source, &id, error);
        if (status != GS_OK)
            return status;
        if (*source->at != '=')
            return fail_script(source, "expected '=' after an id", error);
        char *end;
        float value = strtof(++source->at, &end);
        if (end == source->at)
            return fail_script(source, "expected a number after '='", error);
        source->at = end;
        source->logits[id] = value;
    }
    if (*source->at == ';')
        source->at++;
    return GS_OK;
}

static gs_status remember(struct gs_tokens *tokens, int32_t id, struct gs_error *error)
{
    if (tokens->count == tokens->capacity) {
        size_t capacity = tokens->capacity ? 2 * tokens->capacity : 64;
        int32_t *ids = realloc(tokens->ids, capacity * sizeof *ids);
        if (!ids)
            return gs_fail_memory(error, capacity * sizeof *ids);
        tokens->ids = ids;
        tokens->capacity = capacity;
    }
    tokens->ids[tokens->count++] = id;
    return GS_OK;
}

static gs_status next_of_script(struct gs_source *source, const uint64_t *allowed, int32_t *token,
                                struct gs_error *error)
{
    skip_separators(source);
    if (*source->at == '\0')
        return GS_OK;
    if (!source->rows)
        return read_id(source, token, error);
    gs_status status = read_row(source, error);
    if (status == GS_OK)
        status = gs_sampler_draw_masked(source->sampler, source->logits, allowed, source->drawn.ids,
                                        source->drawn.count, token, error);
    if (status == GS_OK)
        status = remember(&source->drawn, *token, error);
    return status;
}

/* ---------------------------------------------------------------- running ahead */

void gs_source_run_ahead(struct gs_source *source, int64_t most)
{
    source->most = source->line ? 0 : most;
    if (most == 0)
        settle(source);
}

void gs_source_set_patience(struct gs_source *source, double seconds)
{
    source->patience = seconds;
}

static bool runs_ahead(const struct gs_source *source, const uint64_t *allowed)
{
    return source->most != 0 && !allowed && source->pending >= 0 && !source->in_doubt &&
           gs_sampler_is_plain(source->sampler) &&
           gs_engine_has_chains(source->session->engine, !gs_sampler_is_greedy(source->sampler));
}

size_t gs_ahead_length(size_t n, double seconds, double patience)
{
    double fits = patience * (double)n / (seconds > 1e-9 ? seconds : 1e-9);
    size_t length = 2 * n < GS_AHEAD_TOKENS ? 2 * n : GS_AHEAD_TOKENS;
    return fits >= (double)length ? length : fits < 1.0 ? 1 : (size_t)fits;
}

/* A chain from the pending token on; what it gave may be nothing. The context has room for one token. */
static gs_status run_chain(struct gs_source *source, struct gs_error *error)
{
    size_t n = source->length, room;
    gs_session_tokens(source->session, &source->before);
    room = (size_t)gs_session_n_ctx(source->session) - source->before;
    n = n < room ? n : room;
    if (source->most > 0 && (int64_t)n > source->most)
        n = (size_t)source->most;
    for (size_t i = 0; i < n; i++)
        source->draws[i] = gs_sampler_ahead(source->sampler, i);
    double began = gs_clock_seconds();
    source->n_taken = 0;
    gs_status status = gs_session_chain(source->session, source->pending,
                                        gs_sampler_is_greedy(source->sampler) ? NULL : source->draws,
                                        source->chosen, n, &source->n_chosen, error);
    source->length = gs_ahead_length(n, gs_clock_seconds() - began, source->patience);
    source->in_doubt = status == GS_OK && source->n_chosen < n;
    return status;
}

/* A token that was chosen ahead; a cancel comes between any two tokens. */
static gs_status take_chosen(struct gs_source *source, int32_t *token, struct gs_error *error)
{
    if (atomic_exchange(&source->session->cancelled, false))
        return gs_fail(error, GS_CANCELLED, "cancelled");
    *token = source->pending = source->chosen[source->n_taken++];
    gs_sampler_count(source->sampler);
    source->most -= source->most > 0;
    return GS_OK;
}

/* ---------------------------------------------------------------- the next token */

static gs_status next_of_model(struct gs_source *source, const uint64_t *allowed, int32_t *token,
                               struct gs_error *error)
{
    size_t n_seen;
    if (allowed)
        settle(source);
    if (source->n_taken < source->n_chosen)
        return take_chosen(source, token, error);
    const int32_t *seen = gs_session_tokens(source->session, &n_seen);
    if (runs_ahead(source, allowed) && (int64_t)n_seen < gs_session_n_ctx(source->session)) {
        gs_status status = run_chain(source, error);
        if (status != GS_OK || source->n_chosen > 0)
            return status != GS_OK ? status : take_chosen(source, token, error);
        seen = gs_session_tokens(source->session, &n_seen);
    }
    if (source->pending >= 0) {
        if ((int64_t)n_seen == gs_session_n_ctx(source->session))
            return GS_OK;
        gs_status status = gs_session_append(source->session, &source->pending, 1, error);
        if (status != GS_OK)
            return status;
        source->pending = -1;
        seen = gs_session_tokens(source->session, &n_seen);
    }
    if (!gs_session_logits(source->session))
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "the session has no logits: it was changed behind its source");
    gs_status status = gs_sampler_draw_masked(source->sampler, gs_session_logits(source->session), allowed,
                                              seen, n_seen, token, error);
    source->pending = *token;
    source->in_doubt = false;
    source->most -= status == GS_OK && source->most > 0;
    return status;
}

gs_status gs_source_next(struct gs_source *source, int32_t *token, struct gs_error *error)
{
    return gs_source_next_masked(source, NULL, token, error);
}

gs_status gs_source_next_masked(struct gs_source *source, const uint64_t *allowed, int32_t *token,
                                struct gs_error *error)
{
    *token = -1;
    return source->line ? next_of_script(source, allowed, token, error)
                        : next_of_model(source, allowed, token, error);
}

const float *gs_source_logits(const struct gs_source *source)
{
    if (!source->line)
        return gs_session_logits(source->session);
    return source->drawn.count > 0 ? source->logits : NULL;
}
