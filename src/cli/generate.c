#include "cli/generate.h"

#include "base/clock.h"
#include "base/status.h"
#include "chat/token_json.h"
#include "cli/interrupt.h"
#include "cli/json_text.h"

#include <jansson.h>

#define JSON_FORM (JSON_COMPACT | JSON_REAL_PRECISION(9))

const char *gs_end_reason_name(enum gs_end_reason reason)
{
    switch (reason) {
    case GS_END_STOP:
        return "stop";
    case GS_END_LIMIT:
    case GS_END_EXHAUSTED:
        return "length";
    case GS_END_INTERRUPTED:
        return "interrupted";
    case GS_END_OUTPUT:
        return "output";
    default:
        return "error";
    }
}

static bool is_stop(const struct gs_generation *g, int32_t id)
{
    for (size_t i = 0; i < g->n_stop_ids; i++)
        if (g->stop_ids[i] == id)
            return true;
    return false;
}

static gs_status add_logprobs(const struct gs_generation *g, int32_t id, json_t *line, struct gs_error *error)
{
    struct gs_logprob top[GS_MAX_TOP_LOGPROBS];
    float logprob;
    const float *logits = gs_source_logits(g->source);
    if (!logits)
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "--logprobs: a script of ids has no logits; a line \"logits: ...\" has");
    size_t n_top = (size_t)g->n_logprobs < g->n_vocab ? (size_t)g->n_logprobs : g->n_vocab;
    gs_status status = gs_logprobs(logits, g->n_vocab, id, &logprob, top, n_top, error);
    if (status != GS_OK)
        return status;
    json_object_set_new(line, "logprob", json_real((double)logprob));
    json_t *list = json_array();
    for (size_t i = 0; i < n_top; i++)
        json_array_append_new(list, json_pack("{s:i, s:o, s:f}", "id", (int)top[i].id, "bytes",
                                              gs_token_bytes_json(g->vocab, top[i].id), "logprob",
                                              (double)top[i].logprob));
    json_object_set_new(line, "top", list);
    return GS_OK;
}

static gs_status write_json(const struct gs_generation *g, int32_t id, const char *text, size_t size,
                            struct gs_error *error)
{
    json_t *line = json_pack("{s:s, s:i, s:s%, s:o}", "type", "token", "id", (int)id, "text", text, size,
                             "bytes", gs_token_bytes_json(g->vocab, id));
    gs_status status = line ? GS_OK : gs_fail_memory(error, size);
    if (status == GS_OK && g->n_logprobs >= 0)
        status = add_logprobs(g, id, line, error);
    if (status != GS_OK) {
        json_decref(line);
        return status;
    }
    status = gs_json_print(line, JSON_FORM, g->output, error);
    gs_output_flush(g->output);
    return status;
}

static gs_status write_token(const struct gs_generation *g, struct gs_detokenizer *detokenizer, int32_t id,
                             struct gs_error *error)
{
    const char *text = "";
    size_t size = 0;
    gs_status status = GS_OK;
    /* A model has rows for more ids than there are tokens; those, like special tokens, have no text. */
    bool has_text =
        gs_vocab_is_special(g->vocab, id) ? g->show_special : gs_vocab_bytes(g->vocab, id, &size) != NULL;
    size = 0;
    if (has_text)
        status = gs_detokenizer_feed(detokenizer, id, &text, &size, error);
    if (status == GS_OK && g->json)
        return write_json(g, id, text, size, error);
    if (status == GS_OK && size > 0) {
        gs_output_append(g->output, text, size);
        gs_output_flush(g->output);
    }
    return status;
}

/* The next token into *id, timed; false where the generation ends (g->reason is set) or failed. */
static bool next_token(struct gs_generation *g, int32_t *id, gs_status *status, struct gs_error *error)
{
    if (g->n_tokens == g->limit) {
        g->reason = GS_END_LIMIT;
        return false;
    }
    double began = gs_clock_seconds();
    *status = gs_source_next(g->source, id, error);
    /* The first token is drawn from the logits that the prompt left: no step of the model. */
    if (*status == GS_OK && *id >= 0 && g->n_tokens > 0) {
        g->seconds += gs_clock_seconds() - began;
        g->n_steps++;
    }
    if (gs_interrupted()) {
        *status = GS_OK;
        g->reason = GS_END_INTERRUPTED;
    } else if (*status != GS_OK) {
        g->reason = GS_END_ERROR;
    } else if (*id < 0) {
        g->reason = GS_END_EXHAUSTED;
    } else if (is_stop(g, *id)) {
        g->reason = GS_END_STOP;
        g->stop_id = *id;
    } else {
        return true;
    }
    return false;
}

gs_status gs_generate(struct gs_generation *g, struct gs_error *error)
{
    struct gs_detokenizer *detokenizer = NULL;
    int32_t id;
    g->stop_id = -1;
    g->n_tokens = g->n_steps = 0;
    g->seconds = 0.0;
    g->reason = GS_END_ERROR;
    gs_status status = gs_detokenizer_open(g->vocab, &detokenizer, error);
    if (status != GS_OK)
        return status;
    if (g->n_logprobs < 0)
        gs_source_run_ahead(g->source, g->limit);
    while (next_token(g, &id, &status, error)) {
        status = write_token(g, detokenizer, id, error);
        if (status != GS_OK || !gs_output_ok(g->output)) {
            g->reason = status != GS_OK ? GS_END_ERROR : GS_END_OUTPUT;
            break;
        }
        g->n_tokens++;
    }
    gs_source_run_ahead(g->source, 0);
    const char *tail = "";
    size_t size = 0;
    if (status == GS_OK)
        status = gs_detokenizer_finish(detokenizer, &tail, &size, error);
    g->broken_tail = status == GS_OK && size > 0;
    if (g->broken_tail && !g->json)
        gs_output_append(g->output, tail, size);
    gs_detokenizer_close(detokenizer);
    return status;
}
