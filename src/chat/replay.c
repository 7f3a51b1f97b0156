#include "chat/replay.h"

#include "base/arena.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    struct entry *older, *newer;
    struct gs_arena arena; /* of all that the turn points to */
    struct gs_replay_turn turn;
};

struct gs_replay {
    struct entry *newest, *oldest;
    size_t n_turn, n_token;
    size_t max_tokens;
};

gs_status gs_replay_open(size_t max_tokens, struct gs_replay **out, struct gs_error *error)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return gs_fail_memory(error, sizeof **out);
    (*out)->max_tokens = max_tokens;
    return GS_OK;
}

static void free_entry(struct entry *entry)
{
    gs_arena_free(&entry->arena);
    free(entry);
}

static void forget_oldest(struct gs_replay *replay)
{
    struct entry *entry = replay->oldest;
    replay->oldest = entry->newer;
    *(entry->newer ? &entry->newer->older : &replay->newest) = NULL;
    replay->n_token -= entry->turn.n_token;
    replay->n_turn--;
    free_entry(entry);
}

void gs_replay_close(struct gs_replay *replay)
{
    if (!replay)
        return;
    while (replay->oldest)
        forget_oldest(replay);
    free(replay);
}

static bool copy_bytes(struct gs_arena *arena, const char *bytes, size_t size, struct gs_text *text)
{
    *text = (struct gs_text){gs_arena_copy(arena, bytes ? bytes : "", size), size};
    return text->bytes != NULL;
}

static bool copy_calls(struct entry *entry, const struct gs_answer *answer, const char *const *call_ids)
{
    struct gs_replay_call *calls = gs_arena_alloc_array(&entry->arena, answer->n_call, sizeof *calls);
    bool ok = calls != NULL;
    for (size_t i = 0; ok && i < answer->n_call; i++) {
        const struct gs_answer_call *call = &answer->calls[i];
        ok = copy_bytes(&entry->arena, call_ids[i], strlen(call_ids[i]), &calls[i].id) &&
             copy_bytes(&entry->arena, call->name.data, call->name.size, &calls[i].name) &&
             copy_bytes(&entry->arena, call->arguments.data, call->arguments.size, &calls[i].arguments);
    }
    entry->turn.calls = calls;
    entry->turn.n_call = answer->n_call;
    return ok;
}

static void *copy_array(struct gs_arena *arena, const void *from, size_t count, size_t size)
{
    void *copy = gs_arena_alloc_array(arena, count, size);
    if (copy && count > 0)
        memcpy(copy, from, count * size);
    return copy;
}

gs_status gs_replay_add(struct gs_replay *replay, const int32_t *tokens, size_t n_token,
                        const struct gs_answer *answer, const char *const *call_ids, struct gs_error *error)
{
    if (answer->n_call == 0)
        return GS_OK;
    struct entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return gs_fail_memory(error, sizeof *entry);
    struct gs_replay_turn *turn = &entry->turn;
    turn->tokens = copy_array(&entry->arena, tokens, n_token, sizeof *tokens);
    turn->parts = copy_array(&entry->arena, answer->parts, answer->n_part, sizeof *answer->parts);
    turn->n_token = n_token;
    turn->n_part = answer->n_part;
    if (!turn->tokens || !turn->parts || !copy_calls(entry, answer, call_ids) ||
        !copy_bytes(&entry->arena, answer->reasoning.data, answer->reasoning.size, &turn->reasoning) ||
        !copy_bytes(&entry->arena, answer->content.data, answer->content.size, &turn->content)) {
        free_entry(entry);
        return gs_fail_memory(error, n_token * sizeof *tokens);
    }
    entry->older = replay->newest;
    *(entry->older ? &entry->older->newer : &replay->oldest) = entry;
    replay->newest = entry;
    replay->n_turn++;
    replay->n_token += n_token;
    while (replay->oldest != entry &&
           (replay->n_turn > GS_REPLAY_MAX_TURNS || replay->n_token > replay->max_tokens))
        forget_oldest(replay);
    return GS_OK;
}

const struct gs_replay_turn *gs_replay_find(const struct gs_replay *replay, struct gs_text call_id)
{
    for (const struct entry *entry = replay->newest; entry; entry = entry->older)
        for (size_t i = 0; i < entry->turn.n_call; i++)
            if (gs_text_equal(entry->turn.calls[i].id, call_id))
                return &entry->turn;
    return NULL;
}
