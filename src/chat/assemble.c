#include "chat/assemble.h"

#include "base/status.h"

#include <stdlib.h>

/* Room for one more entry of `size` bytes: lists double when their count is a power of two. */
static void *grow(void *list, size_t count, size_t size, struct gs_error *error)
{
    if (count & (count - 1))
        return list;
    size_t bytes;
    void *grown = NULL;
    if (!__builtin_mul_overflow(count ? 2 * count : 1, size, &bytes))
        grown = realloc(list, bytes);
    if (!grown)
        gs_fail_memory(error, size);
    return grown;
}

static gs_status begin_call(struct gs_answer *answer, const struct gs_harmony_event *event,
                            struct gs_error *error)
{
    struct gs_answer_call *calls = grow(answer->calls, answer->n_call, sizeof *calls, error);
    if (!calls)
        return GS_OUT_OF_MEMORY;
    answer->calls = calls;
    struct gs_answer_call *call = &calls[answer->n_call++];
    *call = (struct gs_answer_call){.builtin = event->builtin};
    gs_status status = gs_buffer_append(&call->arguments, "", 0, error);
    return status == GS_OK ? gs_buffer_append(&call->name, event->text.bytes, event->text.size, error)
                           : status;
}

static gs_status append_text(struct gs_answer *answer, const struct gs_harmony_event *event,
                             struct gs_error *error)
{
    struct gs_buffer *buffer = NULL;
    switch (event->kind) {
    case GS_MESSAGE_REASONING:
        buffer = &answer->reasoning;
        break;
    case GS_MESSAGE_PREAMBLE:
    case GS_MESSAGE_FINAL:
        buffer = &answer->content;
        break;
    case GS_MESSAGE_CALL:
        buffer = &answer->calls[answer->n_call - 1].arguments;
        break;
    case GS_MESSAGE_HIDDEN:
        return GS_OK;
    }
    return gs_buffer_append(buffer, event->text.bytes, event->text.size, error);
}

gs_status gs_answer_collect(void *user, const struct gs_harmony_event *event, struct gs_error *error)
{
    struct gs_answer *answer = user;
    struct gs_answer_part *parts;
    switch (event->event) {
    case GS_HARMONY_TEXT:
        return append_text(answer, event, error);
    case GS_HARMONY_CALL:
        return begin_call(answer, event, error);
    case GS_HARMONY_MESSAGE:
        parts = grow(answer->parts, answer->n_part, sizeof *parts, error);
        if (!parts)
            return GS_OUT_OF_MEMORY;
        answer->parts = parts;
        parts[answer->n_part++] = (struct gs_answer_part){event->kind, event->begin, event->end};
        return GS_OK;
    case GS_HARMONY_TURN:
        answer->finish = event->finish;
        return GS_OK;
    }
    return GS_OK;
}

void gs_answer_free(struct gs_answer *answer)
{
    if (!answer)
        return;
    for (size_t i = 0; i < answer->n_call; i++) {
        gs_buffer_free(&answer->calls[i].name);
        gs_buffer_free(&answer->calls[i].arguments);
    }
    free(answer->calls);
    free(answer->parts);
    gs_buffer_free(&answer->reasoning);
    gs_buffer_free(&answer->content);
    *answer = (struct gs_answer){0};
}
