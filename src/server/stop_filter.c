#include "server/stop_filter.h"

#include <string.h>

/* The first stop string in the held text; of several at one place the longest. */
static bool find(struct gs_stop_filter *filter, size_t *at)
{
    bool found = false;
    for (size_t i = 0; i < filter->count; i++) {
        const struct gs_text *string = &filter->strings[i];
        const char *place = memmem(filter->held.data, filter->held.size, string->bytes, string->size);
        size_t offset = place ? (size_t)(place - filter->held.data) : 0;
        if (place && (!found || offset < *at || (offset == *at && string->size > filter->match.size))) {
            *at = offset;
            filter->match = *string;
            found = true;
        }
    }
    return found;
}

/* How many bytes at the end could be the beginning of a stop string. */
static size_t open_end(const struct gs_stop_filter *filter)
{
    size_t longest = 0;
    for (size_t i = 0; i < filter->count; i++) {
        const struct gs_text *string = &filter->strings[i];
        size_t most = string->size - 1 < filter->held.size ? string->size - 1 : filter->held.size;
        for (size_t n = most; n > longest; n--)
            if (memcmp(filter->held.data + filter->held.size - n, string->bytes, n) == 0)
                longest = n;
    }
    return longest;
}

static void drop_passed(struct gs_stop_filter *filter)
{
    struct gs_buffer *held = &filter->held;
    if (filter->passed == 0)
        return;
    memmove(held->data, held->data + filter->passed, held->size - filter->passed);
    held->size -= filter->passed;
    filter->passed = 0;
}

gs_status gs_stop_filter_feed(struct gs_stop_filter *filter, struct gs_text text, struct gs_text *out,
                              struct gs_error *error)
{
    *out = (struct gs_text){"", 0};
    if (filter->matched)
        return GS_OK;
    if (filter->count == 0) {
        *out = text;
        return GS_OK;
    }
    drop_passed(filter);
    gs_status status = gs_buffer_append(&filter->held, text.bytes, text.size, error);
    if (status != GS_OK)
        return status;
    size_t at = 0;
    filter->matched = find(filter, &at);
    filter->passed = filter->matched ? at : filter->held.size - open_end(filter);
    *out = (struct gs_text){filter->held.data, filter->passed};
    return GS_OK;
}

struct gs_text gs_stop_filter_finish(struct gs_stop_filter *filter)
{
    if (filter->matched || filter->count == 0)
        return (struct gs_text){"", 0};
    drop_passed(filter);
    filter->passed = filter->held.size;
    return (struct gs_text){filter->held.data ? filter->held.data : "", filter->held.size};
}

void gs_stop_filter_free(struct gs_stop_filter *filter)
{
    gs_buffer_free(&filter->held);
}
