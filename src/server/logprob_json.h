/* Log-probabilities as chat completions and responses write them. */
#ifndef GS_SERVER_LOGPROB_JSON_H
#define GS_SERVER_LOGPROB_JSON_H

#include "server/events.h"

/* {"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}]} */
json_t *gs_logprob_json(const struct gs_vocab *vocab, const struct gs_token_logprob *logprob);

#endif
