/* The tokens that a place in a grammar allows, and the way from one place to the next. */
#include "chat/schema_mask.h"

#include "base/buffer.h"
#include "base/status.h"
#include "chat/schema_cache.h"
#include "chat/schema_free.h"
#include "chat/schema_trie.h"

#include <stdlib.h>
#include <string.h>

#define WALK_PLACES 64 /* while the tokens below a node are tried; less than GS_MAX_PLACES, see accept */

struct gs_mask {
    struct gs_grammar *grammar;
    const struct gs_token_trie *trie;
    struct gs_machine machine;
    struct gs_places places;
    int32_t *end_ids;
    size_t n_end;
    uint64_t *words; /* [n_words] */
    struct gs_buffer key;
    struct gs_frame *spare; /* for compacting */
    uint32_t *moved;
    size_t spare_capacity;
    struct gs_free_memo memo; /* of the automaton that was walked last */
    bool fresh;               /* words belong to the places */
    bool ended;
};

/* ---------------------------------------------------------------- what is allowed */

struct walk {
    struct gs_machine *machine;
    const struct gs_token_trie *trie;
    uint64_t *words;
    uint32_t parent; /* of the value being left */
};

static gs_status walk_places(struct walk *walk, uint32_t node, const struct gs_places *places);

static bool is_string(const struct gs_machine *machine, const struct gs_frame *frame)
{
    return machine->grammar->rules[frame->rule].kind == GS_RULE_STRING;
}

static bool is_lex(const struct gs_machine *machine, uint32_t place)
{
    if (place == GS_PLACE_DONE)
        return false;
    const struct gs_frame *frame = &machine->frames[place];
    return is_string(machine, frame) || machine->grammar->rules[frame->rule].kind == GS_RULE_LEX;
}

/* The tokens that go on after the value on top has ended at this node. */
static gs_status leave(void *user, uint32_t node, uint8_t label)
{
    struct walk walk = *(struct walk *)user;
    size_t before = walk.machine->count;
    if (walk.parent == GS_PLACE_DONE)
        return GS_OK;
    struct gs_places places = {.count = 1};
    places.list[0] = gs_machine_return(walk.machine, walk.parent, label);
    gs_status status = walk_places(&walk, node, &places);
    walk.machine->count = before;
    return status;
}

/* From between two characters of a string: what is known beforehand, and what follows the string. */
static gs_status walk_inside(struct walk *walk, const struct gs_frame *frame, uint32_t min, uint32_t max)
{
    const struct gs_token_trie *trie = walk->trie;
    uint32_t left = max == GS_UNLIMITED ? GS_UNLIMITED : max - frame->a;
    uint32_t missing = frame->a < min ? min - frame->a : 0;
    gs_trie_fill_inside(trie, left, walk->words);
    gs_status status = GS_OK;
    for (size_t i = 0; i < trie->n_exits && status == GS_OK; i++) {
        const struct gs_string_exit *way = &trie->exits[i];
        if (way->chars > left || way->chars < missing)
            continue;
        gs_trie_allow(trie, way->node, walk->words);
        if (trie->end[way->node] > way->node + 1)
            status = leave(walk, way->node, GS_LABEL_KEY);
    }
    return status;
}

static gs_status walk_lex(struct walk *walk, uint32_t node, uint32_t place)
{
    struct gs_machine *machine = walk->machine;
    const struct gs_frame frame = machine->frames[place];
    const struct gs_rule *rule = &machine->grammar->rules[frame.rule];
    struct walk inner = *walk;
    inner.parent = frame.parent;
    struct gs_lex_walk lex = {.state = frame.state, .leave = leave, .user = &inner};
    if (rule->kind == GS_RULE_STRING) {
        lex.dfa = &machine->grammar->dfas[0];
        lex.counts = rule->as.string.min > 0 || rule->as.string.max != GS_UNLIMITED;
        lex.inside = machine->string_inside;
        lex.chars = frame.a;
        lex.min = rule->as.string.min;
        lex.max = rule->as.string.max;
        return gs_trie_walk(walk->trie, node, &lex, walk->words);
    }
    lex.dfa = &machine->grammar->dfas[rule->as.dfa];
    gs_status status = gs_trie_walk(walk->trie, node, &lex, walk->words);
    uint8_t label = lex.dfa->label[frame.state];
    return status == GS_OK && label ? leave(&inner, node, label) : status;
}

/* Allows the tokens below `node` that one of the places takes. */
static gs_status walk_places(struct walk *walk, uint32_t node, const struct gs_places *places)
{
    struct gs_machine *machine = walk->machine;
    const struct gs_token_trie *trie = walk->trie;
    gs_status status = GS_OK;
    if (places->count == 1 && is_lex(machine, places->list[0]))
        return walk_lex(walk, node, places->list[0]);
    for (uint32_t i = node + 1; i < trie->end[node] && status == GS_OK; i = trie->end[i]) {
        struct gs_places out;
        size_t before = machine->count;
        out.count = 0;
        for (uint32_t k = 0; k < places->count; k++)
            gs_machine_step(machine, places->list[k], trie->byte[i], WALK_PLACES, &out);
        status = machine->status;
        if (out.count > 0 && status == GS_OK) {
            gs_trie_allow(trie, i, walk->words);
            if (trie->end[i] > i + 1)
                status = walk_places(walk, i, &out);
        }
        machine->count = before;
    }
    return status;
}

static bool is_free(struct gs_mask *mask, uint32_t place, struct gs_free_run *run)
{
    if (place == GS_PLACE_DONE)
        return false;
    const struct gs_frame *frame = &mask->machine.frames[place];
    const struct gs_rule *rule = &mask->grammar->rules[frame->rule];
    return rule->kind == GS_RULE_LEX &&
           gs_free_find(mask->trie, &mask->grammar->dfas[rule->as.dfa], frame->state, &mask->memo, run);
}

/* From one place: its tokens are set in mask->words, alone. */
static gs_status walk_one(struct gs_mask *mask, uint32_t place)
{
    struct gs_free_run run;
    struct walk walk = {&mask->machine, mask->trie, mask->words, GS_PLACE_DONE};
    struct gs_places one = {.count = 1};
    size_t before = mask->machine.count;
    const struct gs_frame frame = mask->machine.frames[place];
    gs_status status;
    one.list[0] = place;
    memset(mask->words, 0, mask->trie->n_words * sizeof *mask->words);
    if (place != GS_PLACE_DONE && is_string(&mask->machine, &frame) &&
        frame.state == mask->machine.string_inside) {
        const struct gs_rule *rule = &mask->grammar->rules[frame.rule];
        walk.parent = frame.parent;
        status = walk_inside(&walk, &frame, rule->as.string.min, rule->as.string.max);
    } else if (is_free(mask, place, &run)) {
        walk.parent = frame.parent;
        status = gs_free_walk(mask->trie, &mask->memo, &run, leave, &walk, mask->words);
    } else {
        status = walk_places(&walk, 0, &one);
    }
    mask->machine.count = before;
    return status;
}

static gs_status walk_all(struct gs_mask *mask)
{
    gs_status status = GS_OK;
    if (mask->places.count == 1)
        return walk_one(mask, mask->places.list[0]);
    uint64_t *total = calloc(mask->trie->n_words, sizeof *total);
    if (!total)
        return GS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < mask->places.count && status == GS_OK; i++) {
        status = walk_one(mask, mask->places.list[i]);
        for (size_t k = 0; k < mask->trie->n_words; k++)
            total[k] |= mask->words[k];
    }
    memcpy(mask->words, total, mask->trie->n_words * sizeof *total);
    free(total);
    return status;
}

/* ---------------------------------------------------------------- the cache's key */

/* A count that no token can exhaust counts as any other such. */
static uint32_t in_key(uint32_t count, uint32_t enough, uint32_t max, uint32_t longest)
{
    return max != GS_UNLIMITED && count >= enough && max - count >= longest ? GS_UNLIMITED : count;
}

static gs_status make_key(struct gs_mask *mask)
{
    static const uint32_t end_of_place[4] = {GS_NO_RULE};
    gs_status status = GS_OK;
    gs_buffer_clear(&mask->key);
    for (uint32_t i = 0; i < mask->places.count; i++) {
        for (uint32_t at = mask->places.list[i]; at != GS_PLACE_DONE && status == GS_OK;
             at = mask->machine.frames[at].parent) {
            const struct gs_frame *frame = &mask->machine.frames[at];
            const struct gs_rule *rule = &mask->grammar->rules[frame->rule];
            uint32_t part[4] = {frame->rule, frame->state, frame->a, frame->b}, longest = mask->trie->longest;
            if (rule->kind == GS_RULE_STRING)
                part[2] = in_key(frame->a, rule->as.string.min, rule->as.string.max, longest);
            else if (rule->kind == GS_RULE_ARRAY)
                part[2] = in_key(frame->a,
                                 rule->as.array.min > rule->as.array.n_prefix ? rule->as.array.min
                                                                              : rule->as.array.n_prefix,
                                 rule->as.array.max, longest);
            else if (rule->kind == GS_RULE_OBJECT && rule->as.object.max >= rule->as.object.n + longest)
                part[3] =
                    in_key(frame->b, rule->as.object.min, rule->as.object.max - rule->as.object.n, longest);
            status = gs_buffer_append(&mask->key, part, sizeof part, NULL);
        }
        if (status == GS_OK)
            status = gs_buffer_append(&mask->key, end_of_place, sizeof end_of_place, NULL);
    }
    return status;
}

gs_status gs_mask_allowed(struct gs_mask *mask, const uint64_t **words, struct gs_error *error)
{
    struct gs_grammar *grammar = mask->grammar;
    size_t n_words = mask->trie->n_words;
    *words = mask->words;
    if (mask->fresh)
        return GS_OK;
    gs_status status = make_key(mask);
    if (status == GS_OK) {
        pthread_mutex_lock(&grammar->lock);
        const uint64_t *known = gs_mask_cache_find(grammar->cache, mask->key.data, mask->key.size);
        if (known)
            memcpy(mask->words, known, n_words * sizeof *known);
        pthread_mutex_unlock(&grammar->lock);
        if (!known)
            status = walk_all(mask);
        if (!known && status == GS_OK) {
            pthread_mutex_lock(&grammar->lock);
            gs_mask_cache_store(grammar->cache, mask->key.data, mask->key.size, mask->words);
            pthread_mutex_unlock(&grammar->lock);
        }
    }
    if (status != GS_OK) {
        *words = NULL;
        return gs_fail_memory(error, n_words * sizeof(uint64_t));
    }
    if (gs_mask_can_end(mask))
        for (size_t i = 0; i < mask->n_end; i++)
            mask->words[mask->end_ids[i] / 64] |= (uint64_t)1 << (mask->end_ids[i] % 64);
    mask->fresh = true;
    return GS_OK;
}

/* ---------------------------------------------------------------- moving on */

/* The frames below `place`, moved to the front of the spare ones; *count of those there. */
static uint32_t move_place(struct gs_mask *mask, uint32_t place, size_t *count)
{
    uint32_t first = UINT32_MAX, *link = &first;
    for (uint32_t at = place; at != GS_PLACE_DONE; at = mask->machine.frames[at].parent) {
        if (mask->moved[at] != UINT32_MAX) {
            *link = mask->moved[at];
            return first;
        }
        mask->moved[at] = *link = (uint32_t)*count;
        mask->spare[*count] = mask->machine.frames[at];
        link = &mask->spare[(*count)++].parent;
    }
    *link = GS_PLACE_DONE;
    return first;
}

/* Forgets frames that no place refers to. */
static gs_status compact(struct gs_mask *mask)
{
    struct gs_machine *machine = &mask->machine;
    if (mask->spare_capacity < machine->capacity) {
        free(mask->spare);
        free(mask->moved);
        mask->spare_capacity = 0;
        mask->spare = malloc(machine->capacity * sizeof *mask->spare);
        mask->moved = malloc(machine->capacity * sizeof *mask->moved);
        if (!mask->spare || !mask->moved)
            return GS_OUT_OF_MEMORY;
        mask->spare_capacity = machine->capacity;
    }
    memset(mask->moved, 0xFF, machine->count * sizeof *mask->moved);
    mask->spare[0] = machine->frames[0];
    size_t count = 1;
    for (uint32_t i = 0; i < mask->places.count; i++)
        mask->places.list[i] = move_place(mask, mask->places.list[i], &count);
    memcpy(machine->frames, mask->spare, count * sizeof *machine->frames);
    machine->count = count;
    return GS_OK;
}

/*
 * From one place over some bytes. Places are tried in the same order as in walk_places, where fewer are kept:
 * so what was allowed there is found here.
 */
static void advance(struct gs_machine *machine, uint32_t place, const uint8_t *bytes, size_t size,
                    struct gs_places *out)
{
    struct gs_places now = {.count = 1}, next;
    now.list[0] = place;
    for (size_t i = 0; i < size && now.count > 0; i++) {
        next.count = 0;
        for (uint32_t k = 0; k < now.count; k++)
            gs_machine_step(machine, now.list[k], bytes[i], GS_MAX_PLACES, &next);
        now = next;
    }
    for (uint32_t k = 0; k < now.count; k++)
        gs_places_add(machine, out, now.list[k], GS_KEPT_PLACES);
}

static gs_status refuse(int32_t token, struct gs_error *error)
{
    return gs_fail(error, GS_INVALID_ARGUMENT, "token %d is not allowed at this place of the schema",
                   (int)token);
}

gs_status gs_mask_accept(struct gs_mask *mask, int32_t token, struct gs_error *error)
{
    const struct gs_token_trie *trie = mask->trie;
    uint8_t bytes[GS_TRIE_MAX_BYTES];
    if (mask->ended || token < 0 || (size_t)token >= trie->n_vocab)
        return refuse(token, error);
    for (size_t i = 0; i < mask->n_end; i++)
        if (mask->end_ids[i] == token && gs_mask_can_end(mask)) {
            mask->ended = true;
            mask->fresh = false;
            mask->places.count = 0;
            return GS_OK;
        }
    size_t size = 0;
    for (uint32_t node = trie->node[token]; node != 0; node = trie->parent[node])
        bytes[size++] = trie->byte[node];
    for (size_t i = 0; i < size / 2; i++) {
        uint8_t swapped = bytes[i];
        bytes[i] = bytes[size - 1 - i];
        bytes[size - 1 - i] = swapped;
    }
    struct gs_places out;
    size_t before = mask->machine.count;
    out.count = 0;
    for (uint32_t i = 0; i < mask->places.count && size > 0; i++)
        advance(&mask->machine, mask->places.list[i], bytes, size, &out);
    if (mask->machine.status == GS_OK && out.count == 0) {
        mask->machine.count = before;
        return refuse(token, error);
    }
    mask->places = out;
    mask->fresh = false;
    if (mask->machine.status != GS_OK || compact(mask) != GS_OK)
        return gs_fail_memory(error, mask->machine.capacity * sizeof(struct gs_frame));
    return GS_OK;
}

bool gs_mask_can_end(const struct gs_mask *mask)
{
    for (uint32_t i = 0; i < mask->places.count; i++)
        if (gs_machine_can_end(&mask->machine, mask->places.list[i]))
            return true;
    return false;
}

bool gs_mask_ended(const struct gs_mask *mask)
{
    return mask->ended;
}

/* ---------------------------------------------------------------- opening */

static gs_status join_cache(struct gs_grammar *grammar, const struct gs_token_trie *trie,
                            struct gs_error *error)
{
    gs_status status = GS_OK;
    pthread_mutex_lock(&grammar->lock);
    if (!grammar->cache) {
        grammar->cache = gs_mask_cache_make(trie->n_words, grammar->cache_bytes);
        grammar->trie = trie;
    }
    if (!grammar->cache)
        status = gs_fail_memory(error, sizeof(uint64_t));
    else if (grammar->trie != trie)
        status = gs_fail(error, GS_INVALID_ARGUMENT, "a grammar's masks are for one vocabulary");
    pthread_mutex_unlock(&grammar->lock);
    return status;
}

gs_status gs_mask_open(struct gs_grammar *grammar, const struct gs_token_trie *trie, const int32_t *end_ids,
                       size_t n_end, struct gs_mask **out, struct gs_error *error)
{
    *out = NULL;
    if (n_end == 0)
        return gs_fail(error, GS_INVALID_ARGUMENT, "a mask needs an end token");
    for (size_t i = 0; i < n_end; i++)
        if (end_ids[i] < 0 || (size_t)end_ids[i] >= trie->n_vocab || trie->node[end_ids[i]] != 0)
            return gs_fail(error, GS_INVALID_ARGUMENT, "end token %d is not a special token",
                           (int)end_ids[i]);
    gs_status status = join_cache(grammar, trie, error);
    if (status != GS_OK)
        return status;
    struct gs_mask *mask = calloc(1, sizeof *mask);
    if (!mask)
        return gs_fail_memory(error, sizeof *mask);
    mask->grammar = gs_grammar_hold(grammar);
    mask->trie = trie;
    mask->n_end = n_end;
    mask->end_ids = malloc(n_end * sizeof *end_ids);
    mask->words = calloc(trie->n_words, sizeof *mask->words);
    if (!mask->end_ids || !mask->words)
        status = gs_fail_memory(error, trie->n_words * sizeof *mask->words);
    if (status == GS_OK)
        status = gs_machine_open(&mask->machine, grammar, error);
    if (status == GS_OK) {
        memcpy(mask->end_ids, end_ids, n_end * sizeof *end_ids);
        gs_machine_start(&mask->machine, &mask->places);
        *out = mask;
    } else {
        gs_mask_close(mask);
    }
    return status;
}

void gs_mask_close(struct gs_mask *mask)
{
    if (!mask)
        return;
    gs_machine_close(&mask->machine);
    gs_free_memo_close(&mask->memo);
    gs_grammar_close(mask->grammar);
    gs_buffer_free(&mask->key);
    free(mask->end_ids);
    free(mask->words);
    free(mask->spare);
    free(mask->moved);
    free(mask);
}

gs_status gs_grammar_accepts(struct gs_grammar *grammar, const char *text, size_t size, bool *accepted,
                             struct gs_error *error)
{
    struct gs_machine machine;
    struct gs_places now, next;
    *accepted = false;
    gs_status status = gs_machine_open(&machine, grammar, error);
    if (status != GS_OK)
        return status;
    gs_machine_start(&machine, &now);
    for (size_t i = 0; i < size && now.count > 0; i++) {
        next.count = 0;
        for (uint32_t k = 0; k < now.count; k++)
            gs_machine_step(&machine, now.list[k], (uint8_t)text[i], GS_MAX_PLACES, &next);
        now = next;
    }
    for (uint32_t k = 0; k < now.count; k++)
        *accepted |= gs_machine_can_end(&machine, now.list[k]);
    if (machine.status != GS_OK)
        status = gs_fail_memory(error, machine.capacity * sizeof *machine.frames);
    gs_machine_close(&machine);
    return status;
}
