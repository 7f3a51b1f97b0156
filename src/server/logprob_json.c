#include "server/logprob_json.h"

#include "chat/token_json.h"

#define LEAST_LOGPROB -9999.0 /* JSON has no infinity */

static json_t *entry(const struct gs_vocab *vocab, int32_t id, float logprob)
{
    double value = (double)logprob;
    return json_pack("{s:o, s:f, s:o}", "token", gs_token_json(vocab, id), "logprob",
                     value > LEAST_LOGPROB ? value : LEAST_LOGPROB, "bytes", gs_token_bytes_json(vocab, id));
}

json_t *gs_logprob_json(const struct gs_vocab *vocab, const struct gs_token_logprob *logprob)
{
    json_t *json = entry(vocab, logprob->id, logprob->logprob);
    json_t *list = json_array();
    for (size_t i = 0; i < logprob->n_top; i++)
        json_array_append_new(list, entry(vocab, logprob->top[i].id, logprob->top[i].logprob));
    if (!json) {
        json_decref(list);
        return NULL;
    }
    json_object_set_new(json, "top_logprobs", list);
    return json;
}
