#include "text/tokens.h"

#include "base/status.h"

#include <stdlib.h>

gs_status gs_tokens_reserve(struct gs_tokens *tokens, size_t extra, struct gs_error *error)
{
    if (extra <= tokens->capacity - tokens->count)
        return GS_OK;
    size_t wanted;
    if (__builtin_add_overflow(tokens->count, extra, &wanted) || wanted > SIZE_MAX / 2 / sizeof(int32_t))
        return gs_fail_memory(error, UINT64_MAX);
    size_t capacity = tokens->capacity + tokens->capacity / 2;
    if (capacity < wanted)
        capacity = wanted;
    if (capacity < 64)
        capacity = 64;
    int32_t *ids = realloc(tokens->ids, capacity * sizeof(*ids));
    if (!ids)
        return gs_fail_memory(error, capacity * sizeof(*ids));
    tokens->ids = ids;
    tokens->capacity = capacity;
    return GS_OK;
}

gs_status gs_tokens_append(struct gs_tokens *tokens, int32_t id, struct gs_error *error)
{
    gs_status status = gs_tokens_reserve(tokens, 1, error);
    if (status == GS_OK)
        tokens->ids[tokens->count++] = id;
    return status;
}

void gs_tokens_free(struct gs_tokens *tokens)
{
    if (!tokens)
        return;
    free(tokens->ids);
    *tokens = (struct gs_tokens){0};
}
