/* Log-probabilities as chat completions and responses write them. */
#ifndef GS_SERVER_LOGPROB_JSON_H
#define GS_SERVER_LOGPROB_JSON_H

#include "server/events.h"

/* A token's text; what is not whole UTF-8 in it is U+FFFD. NULL if memory is out. */
json_t *gs_token_json(const struct gs_vocab *vocab, int32_t id);

/* {"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}]} */
json_t *gs_logprob_json(const struct gs_vocab *vocab, const struct gs_token_logprob *logprob);

#endif
