#include "server/request_read.h"

#include "base/status.h"
#include "chat/json_path.h"
#include "server/steer.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BIAS        100.0
#define MAX_TEMPERATURE 2.0
#define MAX_PENALTY     2.0
#define LEAST_TOP_P     1e-6f /* what 0 means: the most likely token alone */

/* ---------------------------------------------------------------- sampling */

static int read_bias_entry(struct gs_server *server, const char *key, const json_t *value,
                           struct gs_logit_bias *bias, struct gs_api_error *error)
{
    size_t digits = strspn(key, "0123456789");
    long id = digits > 0 && digits < 10 && key[digits] == '\0' ? strtol(key, NULL, 10) : -1;
    if (id < 0 || (size_t)id >= gs_server_n_vocab(server))
        return gs_api_bad(error, "logit_bias", "logit_bias: \"%s\" is no token id of 0 to %zu",
                          gs_quote(key).text, gs_server_n_vocab(server) - 1);
    double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= -MAX_BIAS && number <= MAX_BIAS))
        return gs_api_bad(error, "logit_bias", "logit_bias: a number from %g to %g is expected for token %ld",
                          -MAX_BIAS, MAX_BIAS, id);
    *bias = (struct gs_logit_bias){(int32_t)id, (float)number};
    return 0;
}

static int read_bias(struct gs_server *server, const json_t *body, struct gs_request *request,
                     struct gs_api_error *error)
{
    json_t *list = json_object_get(body, "logit_bias"), *value;
    const char *key;
    int status = 0;
    if (!list || json_is_null(list))
        return 0;
    if (!json_is_object(list))
        return gs_api_bad(error, "logit_bias", "logit_bias: an object of token ids is expected, not %s",
                          gs_json_kind(list));
    if (json_object_size(list) > GS_MAX_LOGIT_BIAS)
        return gs_api_bad(error, "logit_bias", "logit_bias: at most %d entries are taken", GS_MAX_LOGIT_BIAS);
    request->bias = calloc(json_object_size(list) + 1, sizeof *request->bias);
    if (!request->bias)
        return gs_api_fail(error, 503, "out_of_memory", "memory is out");
    json_object_foreach(list, key, value) if (status == 0) status =
        read_bias_entry(server, key, value, &request->bias[request->n_bias++], error);
    request->sampling.bias = request->bias;
    request->sampling.n_bias = request->n_bias;
    return status;
}

static int read_sampling(struct gs_server *server, const json_t *body, struct gs_request *request,
                         struct gs_api_error *error)
{
    struct gs_sampling *s = &request->sampling;
    int64_t seed = 0, top_k = 0;
    int status = gs_read_number(body, "temperature", 0, MAX_TEMPERATURE, &s->temperature, error);
    if (status == 0)
        status = gs_read_number(body, "top_p", 0, 1, &s->top_p, error);
    if (s->top_p < LEAST_TOP_P)
        s->top_p = LEAST_TOP_P;
    if (status == 0)
        status = gs_read_integer(body, "top_k", -1, INT32_MAX, &top_k, error);
    s->top_k = top_k > 0 ? (int32_t)top_k : 0;
    if (status == 0)
        status = gs_read_number(body, "min_p", 0, 1, &s->min_p, error);
    if (status == 0)
        status =
            gs_read_number(body, "presence_penalty", -MAX_PENALTY, MAX_PENALTY, &s->presence_penalty, error);
    if (status == 0)
        status = gs_read_number(body, "frequency_penalty", -MAX_PENALTY, MAX_PENALTY, &s->frequency_penalty,
                                error);
    if (status == 0)
        status = gs_read_number(body, "repetition_penalty", 0.01, 100, &s->repetition_penalty, error);
    if (status == 0)
        status = gs_read_integer(body, "seed", INT64_MIN, INT64_MAX, &seed, error);
    s->seed = (uint64_t)seed;
    request->seeded = !json_is_null(json_object_get(body, "seed")) && json_object_get(body, "seed");
    return status == 0 ? read_bias(server, body, request, error) : status;
}

/* ---------------------------------------------------------------- the rest */

static int read_stop_string(const json_t *value, struct gs_request *request, struct gs_api_error *error)
{
    if (!json_is_string(value))
        return gs_api_bad(error, "stop", "stop: a string is expected, not %s", gs_json_kind(value));
    struct gs_text text = gs_json_text(value);
    if (text.size == 0 || text.size > GS_MAX_STOP_BYTES)
        return gs_api_bad(error, "stop", "stop: strings of 1 to %d bytes are expected", GS_MAX_STOP_BYTES);
    if (request->n_stop == GS_MAX_STOP_STRINGS)
        return gs_api_bad(error, "stop", "stop: at most %d strings are taken", GS_MAX_STOP_STRINGS);
    request->stop[request->n_stop++] = text;
    return 0;
}

static int read_stop(const json_t *body, struct gs_request *request, struct gs_api_error *error)
{
    const json_t *stop = json_object_get(body, "stop");
    int status = 0;
    if (!stop || json_is_null(stop))
        return 0;
    if (!json_is_array(stop))
        return read_stop_string(stop, request, error);
    for (size_t i = 0; i < json_array_size(stop) && status == 0; i++)
        status = read_stop_string(json_array_get(stop, i), request, error);
    return status;
}

static int read_stream(const json_t *body, struct gs_request *request, struct gs_api_error *error)
{
    const json_t *options = json_object_get(body, "stream_options");
    int status = gs_read_bool(body, "stream", &request->stream, error);
    if (status != 0 || !options || json_is_null(options))
        return status;
    if (!json_is_object(options))
        return gs_api_bad(error, "stream_options", "stream_options: an object is expected, not %s",
                          gs_json_kind(options));
    status = gs_read_bool(options, "include_usage", &request->include_usage, error);
    return status == 0 ? 0 : gs_api_within(error, "stream_options");
}

int gs_request_read_common(struct gs_server *server, const json_t *body, struct gs_request *request,
                           struct gs_api_error *error)
{
    static const struct gs_idle_field idle[] = {
        {"store", JSON_TRUE},       {"metadata", JSON_OBJECT},         {"service_tier", JSON_STRING},
        {"verbosity", JSON_STRING}, {"prompt_cache_key", JSON_STRING}, {"safety_identifier", JSON_STRING},
        {NULL, JSON_NULL}}; /* not "user": Open WebUI has an object there */
    int64_t n = 1;
    int status = gs_read_idle(body, idle, error);
    if (status == 0)
        status = gs_read_text(body, "model", &request->model, error);
    if (status == 0)
        status = gs_server_check_model(server, request->model, error);
    if (status == 0)
        status = read_stream(body, request, error);
    if (status == 0)
        status = gs_read_integer(body, "n", 1, (int64_t)gs_server_config(server)->max_choices, &n, error);
    request->n_choice = (size_t)n;
    if (status == 0)
        status = read_sampling(server, body, request, error);
    return status == 0 ? read_stop(body, request, error) : status;
}

int gs_request_read_limit(struct gs_server *server, const json_t *body, int64_t least,
                          struct gs_request *request, struct gs_api_error *error)
{
    int64_t most = gs_server_n_ctx(server);
    int status = gs_read_integer(body, "max_tokens", least, most, &request->max_tokens, error);
    if (status == 0)
        status = gs_read_integer(body, "max_completion_tokens", least, most, &request->max_tokens, error);
    return status;
}

int gs_request_read_format(const json_t *body, struct gs_request *request, struct gs_api_error *error)
{
    const json_t *format = json_object_get(body, "response_format");
    struct gs_text type = gs_json_text(json_object_get(format, "type"));
    const json_t *schema = json_object_get(format, "json_schema");
    if (gs_text_is(type, "json_object"))
        request->format.kind = GS_FORMAT_JSON_OBJECT;
    if (!gs_text_is(type, "json_schema"))
        return 0;
    request->format = (struct gs_format){.kind = GS_FORMAT_JSON_SCHEMA,
                                         .name = gs_json_text(json_object_get(schema, "name")),
                                         .schema = json_object_get(schema, "schema")};
    int status = gs_read_bool(schema, "strict", &request->format.strict, error);
    return status == 0 ? 0 : gs_api_within(error, "response_format.json_schema");
}

int gs_request_check_room(struct gs_server *server, const struct gs_request *request,
                          struct gs_api_error *error)
{
    int64_t n_ctx = gs_server_n_ctx(server);
    int64_t wanted = request->max_tokens == 0 ? 0 : 1;
    if (request->steer)
        wanted += (int64_t)gs_steer_plan_forced(request->steer)->count;
    for (size_t i = 0; i < request->n_prompt; i++)
        if ((int64_t)request->prompts[i].count + wanted > n_ctx) {
            gs_api_fail(error, 400, "context_length_exceeded",
                        "the prompt has %zu tokens and needs room for an answer, but the context holds %lld",
                        request->prompts[i].count, (long long)n_ctx);
            snprintf(error->param, sizeof error->param, "%s", request->chat ? "messages" : "prompt");
            return error->status;
        }
    return 0;
}
