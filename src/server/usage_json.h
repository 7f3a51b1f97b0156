/* Usage and timings as the OpenAI dialects without items write them. */
#ifndef GS_SERVER_USAGE_JSON_H
#define GS_SERVER_USAGE_JSON_H

#include "server/events.h"

/* {"prompt_tokens", "completion_tokens", "total_tokens", details} */
json_t *gs_usage_json(const struct gs_usage *usage);

/* {"queue_ms", "prefill_ms", "first_token_ms", "total_ms", "tokens_per_second"} */
json_t *gs_timings_json(const struct gs_usage *usage);

#endif
