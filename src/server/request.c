#include "server/request.h"

#include "server/steer.h"

#include <stdlib.h>

struct gs_request *gs_request_make(void)
{
    struct gs_request *request = calloc(1, sizeof *request);
    if (!request)
        return NULL;
    request->sampling = gs_sampling_default();
    request->n_choice = 1;
    request->max_tokens = -1;
    request->reasoning_budget = -1;
    request->parallel_tool_calls = true;
    request->as_reasoning = request->as_reasoning_content = true;
    return request;
}

void gs_request_free(struct gs_request *request)
{
    if (!request)
        return;
    for (size_t i = 0; i < request->n_prompt; i++)
        gs_tokens_free(&request->prompts[i]);
    free(request->prompts);
    free(request->bias);
    gs_steer_plan_free(request->steer);
    gs_conversation_free(&request->conversation);
    json_decref(request->document);
    json_decref(request->warnings);
    free(request);
}
