#include "chat/conversation.h"

#include "base/status.h"

#include <stdlib.h>

const char *gs_role_name(enum gs_role role)
{
    static const char *const names[] = {"system", "developer", "user", "assistant", "tool"};
    return names[role];
}

const char *gs_effort_name(enum gs_effort effort)
{
    static const char *const names[] = {"medium", "low", "high"};
    return names[effort];
}

bool gs_effort_parse(struct gs_text text, enum gs_effort *effort)
{
    static const struct {
        const char *name;
        enum gs_effort effort;
    } names[] = {{"low", GS_EFFORT_LOW},     {"medium", GS_EFFORT_MEDIUM}, {"high", GS_EFFORT_HIGH},
                 {"minimal", GS_EFFORT_LOW}, {"none", GS_EFFORT_LOW},      {"xhigh", GS_EFFORT_HIGH},
                 {"max", GS_EFFORT_HIGH}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (gs_text_is(text, names[i].name)) {
            *effort = names[i].effort;
            return true;
        }
    return false;
}

void gs_conversation_free(struct gs_conversation *conversation)
{
    if (!conversation)
        return;
    free(conversation->messages);
    gs_arena_free(&conversation->arena);
    json_decref(conversation->document);
    *conversation = (struct gs_conversation){0};
}

gs_status gs_conversation_add(struct gs_conversation *conversation, const struct gs_message *message,
                              struct gs_error *error)
{
    if (conversation->count == conversation->capacity) {
        size_t capacity = conversation->capacity ? 2 * conversation->capacity : 16, bytes;
        if (__builtin_mul_overflow(capacity, sizeof *message, &bytes))
            return gs_fail_memory(error, SIZE_MAX);
        struct gs_message *grown = realloc(conversation->messages, bytes);
        if (!grown)
            return gs_fail_memory(error, bytes);
        conversation->messages = grown;
        conversation->capacity = capacity;
    }
    conversation->messages[conversation->count++] = *message;
    return GS_OK;
}

void *gs_conversation_alloc(struct gs_conversation *conversation, size_t count, size_t size,
                            struct gs_error *error)
{
    void *memory = gs_arena_alloc_array(&conversation->arena, count, size);
    if (!memory)
        gs_fail_memory(error, size);
    return memory;
}

struct gs_content *gs_conversation_text(struct gs_conversation *conversation, struct gs_text text,
                                        struct gs_error *error)
{
    struct gs_content *content = gs_conversation_alloc(conversation, 1, sizeof *content, error);
    if (content)
        content->text = text.bytes ? text : gs_text_of("");
    return content;
}
