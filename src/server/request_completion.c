/* Raw completions: prompts are texts or ids, and nothing is made of them. */
#include "server/request_read.h"

#include "base/status.h"
#include "chat/json_path.h"
#include "chat/json_text.h"
#include "chat/tools_json.h"
#include "server/server_state.h"
#include "text/tokens.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_SEQUENCES  128 /* prompts times choices */
#define DEFAULT_TOKENS 16  /* as the API has it */

static int read_ids(struct gs_server *server, const json_t *list, const char *path, struct gs_tokens *tokens,
                    struct gs_api_error *error)
{
    struct gs_error cause;
    int64_t n_vocab = (int64_t)gs_server_n_vocab(server);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        int64_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= n_vocab)
            return gs_api_bad(error, "prompt", "%s[%zu]: a token id of 0 to %lld is expected", path, i,
                              (long long)n_vocab - 1);
        gs_status status = gs_tokens_append(tokens, (int32_t)id, &cause);
        if (status != GS_OK)
            return gs_api_error_from(error, status, &cause);
    }
    return 0;
}

static int read_prompt(struct gs_server *server, const json_t *value, const char *path,
                       struct gs_tokens *tokens, struct gs_api_error *error)
{
    struct gs_error cause;
    int status = 0;
    if (json_is_string(value)) {
        gs_status encoded = gs_vocab_encode(gs_server_vocab(server), json_string_value(value),
                                            json_string_length(value), tokens, &cause);
        if (encoded != GS_OK)
            return gs_api_error_from(error, encoded, &cause);
    } else if (json_is_array(value)) {
        status = read_ids(server, value, path, tokens, error);
    } else {
        return gs_api_bad(error, "prompt", "%s: a string or an array of token ids is expected, not %s", path,
                          gs_json_kind(value));
    }
    if (status == 0 && tokens->count == 0)
        return gs_api_bad(error, "prompt", "%s: at least one token is expected", path);
    return status;
}

static int read_prompts(struct gs_server *server, const json_t *body, struct gs_request *request,
                        struct gs_api_error *error)
{
    const json_t *prompt = json_object_get(body, "prompt"), *first = json_array_get(prompt, 0);
    bool several = json_is_string(first) || json_is_array(first);
    size_t count = several ? json_array_size(prompt) : 1;
    int status = 0;
    if (!prompt || json_is_null(prompt))
        return gs_api_bad(error, "prompt", "prompt: a string or an array is expected, not nothing");
    if (count * request->n_choice > MAX_SEQUENCES)
        return gs_api_bad(error, "prompt", "prompt: prompts times n is at most %d", MAX_SEQUENCES);
    request->prompts = calloc(count, sizeof *request->prompts);
    if (!request->prompts)
        return gs_api_fail(error, 503, "out_of_memory", "memory is out");
    request->n_prompt = count;
    for (size_t i = 0; i < count && status == 0; i++) {
        char path[48] = "prompt";
        if (several)
            snprintf(path, sizeof path, "prompt[%zu]", i);
        status = read_prompt(server, several ? json_array_get(prompt, i) : prompt, path, &request->prompts[i],
                             error);
    }
    return status;
}

static int read_options(const json_t *body, struct gs_request *request, struct gs_api_error *error)
{
    int64_t best = (int64_t)request->n_choice, top = -1;
    struct gs_text suffix = {0};
    int status = gs_read_bool(body, "echo", &request->echo, error);
    if (status == 0)
        status = gs_read_text(body, "suffix", &suffix, error);
    if (status == 0 && suffix.size > 0)
        return gs_api_bad(error, "suffix", "suffix: the model cannot fill in the middle of a text");
    if (status == 0)
        status = gs_read_integer(body, "best_of", 1, GS_MAX_CHOICES, &best, error);
    if (status == 0 && best != (int64_t)request->n_choice)
        return gs_api_bad(error, "best_of", "best_of: must equal n");
    if (status == 0 &&
        json_is_boolean(json_object_get(body, "logprobs"))) { /* some clients take it for the chat's */
        status = gs_read_bool(body, "logprobs", &request->logprobs, error);
        return status;
    }
    if (status == 0)
        status = gs_read_integer(body, "logprobs", 0, GS_MAX_TOP_LOGPROBS, &top, error);
    request->logprobs = top >= 0;
    request->n_top_logprobs = top > 0 ? (size_t)top : 0;
    return status;
}

static int read_format(struct gs_server *server, const json_t *body, struct gs_request *request,
                       struct gs_api_error *error)
{
    struct gs_developer_content unused = {0};
    struct gs_error cause;
    gs_status checked = gs_read_response_format(body, &unused, &cause);
    if (checked != GS_OK)
        return gs_api_error_from(error, checked, &cause);
    struct gs_steer_tools tools = gs_server_steer_tools(server);
    int status = gs_request_read_format(body, request, error);
    return status == 0 ? gs_steer_plan_make(&tools, request, &request->steer, error) : status;
}

int gs_request_read_completion(struct gs_server *server, json_t *body, struct gs_request *request,
                               struct gs_api_error *error)
{
    request->document = json_incref(body);
    request->max_tokens = DEFAULT_TOKENS;
    int status = gs_request_read_common(server, body, request, error);
    if (status == 0)
        status = read_options(body, request, error);
    if (status == 0)
        status = gs_request_read_limit(server, body, request->echo ? 0 : 1, request, error);
    if (status == 0)
        status = read_format(server, body, request, error);
    if (status == 0)
        status = read_prompts(server, body, request, error);
    return status == 0 ? gs_request_check_room(server, request, error) : status;
}
