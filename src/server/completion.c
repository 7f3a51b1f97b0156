#include "server/completion.h"

#include <time.h>

bool gs_completion_init(struct gs_completion *completion, struct gs_server *server,
                        struct gs_exchange *exchange, const struct gs_request *request, const char *prefix)
{
    *completion = (struct gs_completion){.server = server,
                                         .exchange = gs_exchange_hold(exchange),
                                         .id = gs_random_id(prefix),
                                         .model = gs_server_model_json(server, request->model),
                                         .warnings = json_incref(request->warnings),
                                         .created = (json_int_t)time(NULL),
                                         .stream = request->stream,
                                         .include_usage = request->include_usage,
                                         .logprobs = request->logprobs,
                                         .n_choice = request->n_prompt * request->n_choice};
    return completion->model != NULL;
}

void gs_completion_release(struct gs_completion *completion)
{
    gs_exchange_release(completion->exchange);
    json_decref(completion->model);
    json_decref(completion->warnings);
    gs_chunk_free(&completion->chunk);
}

json_t *gs_completion_object(const struct gs_completion *completion, const char *object)
{
    return json_pack("{s:s, s:s, s:I, s:O, s:s+}", "id", completion->id.text, "object", object, "created",
                     completion->created, "model", completion->model, "system_fingerprint", "gossamer-",
                     gs_version());
}

void gs_completion_send(struct gs_completion *completion, const char *object, json_t *choice)
{
    json_t *chunk = gs_completion_object(completion, object);
    json_t *choices = choice ? json_pack("[o]", choice) : NULL;
    if (json_object_set_new(chunk, "choices", choices) != 0) { /* it took them all the same */
        json_decref(chunk);
        chunk = NULL;
    }
    if (chunk && completion->warnings) {
        json_object_set_new(chunk, "warnings", completion->warnings);
        completion->warnings = NULL; /* said once */
    }
    if (chunk && completion->include_usage)
        json_object_set_new(chunk, "usage", json_null());
    gs_stream_json(completion->exchange, NULL, chunk);
}

void gs_completion_serve(struct gs_server *server, struct gs_exchange *exchange, gs_completion_read_fn *read,
                         gs_completion_make_fn *make)
{
    struct gs_api_error error = {0};
    struct gs_sink sink = {0};
    json_t *body = gs_exchange_json(exchange);
    if (!body)
        return;
    struct gs_request *request = gs_request_make();
    if (request && read(server, body, request, &error) == 0)
        sink = make(server, exchange, request);
    if (sink.event) {
        gs_server_submit(server, exchange, request, sink);
    } else {
        if (error.status == 0)
            gs_api_fail(&error, 503, "out_of_memory", "memory is out");
        gs_reply_error(exchange, &error);
        gs_request_free(request);
    }
    json_decref(body);
}
