#include "server/usage_json.h"

json_t *gs_usage_json(const struct gs_usage *usage)
{
    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:{s:I}}", "prompt_tokens", (json_int_t)usage->prompt,
                     "completion_tokens", (json_int_t)usage->completion, "total_tokens",
                     (json_int_t)(usage->prompt + usage->completion), "prompt_tokens_details",
                     "cached_tokens", (json_int_t)usage->cached, "completion_tokens_details",
                     "reasoning_tokens", (json_int_t)usage->reasoning);
}

json_t *gs_timings_json(const struct gs_usage *usage)
{
    double decode = usage->total_seconds - usage->first_seconds;
    double speed = usage->completion > 1 && decode > 0.0 ? (double)(usage->completion - 1) / decode : 0.0;
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "queue_ms", usage->queue_seconds * 1e3, "prefill_ms",
                     usage->prefill_seconds * 1e3, "first_token_ms", usage->first_seconds * 1e3, "total_ms",
                     usage->total_seconds * 1e3, "tokens_per_second", speed);
}
