#include "server/status.h"

#include "base/status.h"
#include "chat/json_path.h"
#include "server/server.h"
#include "text/tokens.h"

#include <stdlib.h>
#include <string.h>

static void reply_memory(struct gs_exchange *exchange)
{
    struct gs_api_error error;
    gs_api_fail(&error, 503, "out_of_memory", "memory is out");
    gs_reply_error(exchange, &error);
}

void gs_get_health(struct gs_server *server, struct gs_exchange *exchange)
{
    bool stuck = gs_server_is_stuck(server), ready = !stuck && gs_server_ready(server);
    gs_reply_json(exchange, ready ? 200 : 503,
                  json_pack("{s:s}", "status",
                            ready   ? "ok"
                            : stuck ? "stuck"
                                    : "loading"));
}

void gs_get_version(struct gs_server *server, struct gs_exchange *exchange)
{
    (void)server;
    gs_reply_json(exchange, 200, json_pack("{s:s}", "version", gs_version()));
}

/* ---------------------------------------------------------------- models */

static json_t *model_json(const struct gs_server *server)
{
    json_int_t n_ctx = gs_server_n_ctx(server), trained = n_ctx;
    if (gs_server_engine(server))
        trained = gs_engine_info(gs_server_engine(server))->max_ctx;
    return json_pack("{s:s, s:s, s:I, s:s, s:I, s:I, s:{s:I, s:I}}", "id", gs_server_model(server), "object",
                     "model", "created", (json_int_t)gs_server_created(server), "owned_by", "openai",
                     "context_length", n_ctx, "max_model_len", n_ctx, "meta", "n_ctx", n_ctx, "n_ctx_train",
                     trained);
}

void gs_get_models(struct gs_server *server, struct gs_exchange *exchange)
{
    gs_reply_json(exchange, 200, json_pack("{s:s, s:[o]}", "object", "list", "data", model_json(server)));
}

void gs_get_model(struct gs_server *server, struct gs_exchange *exchange)
{
    struct gs_api_error error;
    const char *name = gs_exchange_tail(exchange);
    if (strcmp(name, gs_server_model(server)) == 0) {
        gs_reply_json(exchange, 200, model_json(server));
        return;
    }
    gs_api_fail(&error, 404, "model_not_found", "the model \"%s\" is not here: %s is", gs_quote(name).text,
                gs_quote(gs_server_model(server)).text);
    gs_format(error.param, sizeof error.param, "model");
    gs_reply_error(exchange, &error);
}

/* ---------------------------------------------------------------- figures */

void gs_get_metrics(struct gs_server *server, struct gs_exchange *exchange)
{
    struct gs_buffer text = {0};
    struct gs_cache_figures cache = gs_scheduler_cache_figures(gs_server_scheduler(server));
    if (gs_metrics_write(gs_server_metrics(server), &cache, &text, NULL) == GS_OK)
        gs_reply_bytes(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", text.data, text.size);
    else
        reply_memory(exchange);
    gs_buffer_free(&text);
}

static json_t *slot_json(const struct gs_slot *slot)
{
    return json_pack("{s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:f}", "request", (json_int_t)slot->request,
                     "choice", (json_int_t)slot->choice, "state", slot->decodes ? "decode" : "prefill",
                     "prompt_tokens", (json_int_t)slot->n_prompt, "prompt_tokens_done",
                     (json_int_t)slot->n_prompt_done, "cached_tokens", (json_int_t)slot->n_cached,
                     "generated_tokens", (json_int_t)slot->n_generated, "n_ctx", (json_int_t)slot->n_ctx,
                     "seconds", slot->seconds);
}

void gs_get_slots(struct gs_server *server, struct gs_exchange *exchange)
{
    struct gs_api_error error;
    if (gs_server_config(server)->n_key == 0) {
        gs_api_fail(&error, 404, "not_found", "/slots is answered where a key is asked for: --api-key-file");
        gs_reply_error(exchange, &error);
        return;
    }
    size_t most = gs_server_n_parallel(server);
    struct gs_slot *slots = calloc(most, sizeof *slots);
    json_t *list = json_array();
    if (!slots || !list) {
        reply_memory(exchange);
    } else {
        size_t count = gs_scheduler_slots(gs_server_scheduler(server), slots, most);
        for (size_t i = 0; i < count; i++)
            json_array_append_new(list, slot_json(&slots[i]));
        gs_reply_json(exchange, 200, json_pack("{s:I, s:O}", "n_parallel", (json_int_t)most, "slots", list));
    }
    json_decref(list);
    free(slots);
}

/* ---------------------------------------------------------------- tokens */

void gs_post_tokenize(struct gs_server *server, struct gs_exchange *exchange)
{
    struct gs_api_error failure = {0};
    struct gs_error error;
    struct gs_tokens tokens = {0};
    struct gs_text text = {0};
    json_t *body = gs_exchange_json(exchange), *list = NULL;
    if (!body)
        return;
    int status = gs_read_text(body, "content", &text, &failure);
    if (status == 0 && !text.bytes)
        status = gs_read_text(body, "prompt", &text, &failure);
    if (status == 0 && !text.bytes)
        status = gs_api_bad(&failure, "content", "content: a string is expected, not nothing");
    if (status == 0) {
        gs_status encoded = gs_vocab_encode(gs_server_vocab(server), text.bytes, text.size, &tokens, &error);
        if (encoded != GS_OK)
            status = gs_api_error_from(&failure, encoded, &error);
    }
    if (status == 0 && (list = json_array())) {
        for (size_t i = 0; i < tokens.count; i++)
            json_array_append_new(list, json_integer(tokens.ids[i]));
        gs_reply_json(exchange, 200,
                      json_pack("{s:o, s:I, s:I}", "tokens", list, "count", (json_int_t)tokens.count,
                                "max_model_len", (json_int_t)gs_server_n_ctx(server)));
    } else if (status == 0) {
        reply_memory(exchange);
    } else {
        gs_reply_error(exchange, &failure);
    }
    gs_tokens_free(&tokens);
    json_decref(body);
}

/* The text of ids, special tokens as their names. */
static int decode(struct gs_server *server, const json_t *list, struct gs_buffer *text,
                  struct gs_api_error *failure)
{
    struct gs_detokenizer *detokenizer = NULL;
    const struct gs_vocab *vocab = gs_server_vocab(server);
    struct gs_error error;
    const char *piece;
    size_t size;
    int bad = 0;
    gs_status status = gs_detokenizer_open(vocab, &detokenizer, &error);
    for (size_t i = 0; i < json_array_size(list) && status == GS_OK && bad == 0; i++) {
        const json_t *value = json_array_get(list, i);
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= (json_int_t)gs_vocab_size(vocab) || !gs_vocab_bytes(vocab, (int32_t)id, &size))
            bad = gs_api_bad(failure, "tokens", "tokens[%zu]: a token id of 0 to %zu is expected", i,
                             gs_vocab_size(vocab) - 1);
        else
            status = gs_detokenizer_feed(detokenizer, (int32_t)id, &piece, &size, &error);
        if (bad == 0 && status == GS_OK)
            status = gs_buffer_append(text, piece, size, &error);
    }
    if (status == GS_OK)
        status = gs_detokenizer_finish(detokenizer, &piece, &size, &error);
    if (status == GS_OK)
        status = gs_buffer_append(text, piece, size, &error);
    gs_detokenizer_close(detokenizer);
    return bad != 0 || status == GS_OK ? bad : gs_api_error_from(failure, status, &error);
}

void gs_post_detokenize(struct gs_server *server, struct gs_exchange *exchange)
{
    struct gs_api_error failure = {0};
    struct gs_buffer text = {0};
    json_t *body = gs_exchange_json(exchange);
    if (!body)
        return;
    if (gs_buffer_append(&text, "", 0, NULL) != GS_OK) {
        reply_memory(exchange);
        json_decref(body);
        return;
    }
    const json_t *list = json_object_get(body, "tokens");
    int status = json_is_array(list) ? decode(server, list, &text, &failure)
                                     : gs_api_bad(&failure, "tokens", "tokens: an array is expected, not %s",
                                                  gs_json_kind(list));
    if (status == 0)
        gs_reply_json(
            exchange, 200,
            json_pack("{s:s%, s:s%}", "content", text.data, text.size, "prompt", text.data, text.size));
    else
        gs_reply_error(exchange, &failure);
    gs_buffer_free(&text);
    json_decref(body);
}
