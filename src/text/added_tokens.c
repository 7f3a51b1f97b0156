#include "text/added_tokens.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

gs_status gs_added_tokens_add(struct gs_added_tokens *added, const struct gs_added_token *token,
                              struct gs_error *error)
{
    if (added->count == added->capacity) {
        size_t capacity = added->capacity ? added->capacity * 2 : 32;
        struct gs_added_token *list = realloc(added->list, capacity * sizeof(*list));
        if (!list)
            return gs_fail_memory(error, capacity * sizeof(*list));
        added->list = list;
        added->capacity = capacity;
    }
    struct gs_added_token *copy = &added->list[added->count];
    *copy = *token;
    copy->text = gs_arena_copy(&added->arena, token->text, token->size);
    if (!copy->text)
        return gs_fail_memory(error, token->size);
    added->count++;
    return GS_OK;
}

static int compare_texts(const char *a, size_t a_size, const char *b, size_t b_size)
{
    int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
    return order != 0 ? order : (a_size > b_size) - (a_size < b_size);
}

static int compare_tokens(const void *left, const void *right)
{
    const struct gs_added_token *a = left, *b = right;
    if (a->normalized != b->normalized)
        return a->normalized - b->normalized;
    return compare_texts(a->text, a->size, b->text, b->size);
}

static int compare_ids(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* All ids, sorted, into special_ids; then only the special ones are kept. */
static gs_status index_ids(struct gs_added_tokens *added, struct gs_error *error)
{
    uint32_t *ids = malloc((added->count + 1) * sizeof(*ids));
    if (!ids)
        return gs_fail_memory(error, (added->count + 1) * sizeof(*ids));
    added->special_ids = ids;
    for (size_t i = 0; i < added->count; i++)
        ids[i] = added->list[i].id;
    qsort(ids, added->count, sizeof(*ids), compare_ids);
    for (size_t i = 1; i < added->count; i++)
        if (ids[i] == ids[i - 1])
            return gs_fail(error, GS_MALFORMED, "id %u is given to two added tokens", ids[i]);
    for (size_t i = 0; i < added->count; i++)
        if (added->list[i].special)
            ids[added->n_special++] = added->list[i].id;
    qsort(ids, added->n_special, sizeof(*ids), compare_ids);
    return GS_OK;
}

gs_status gs_added_tokens_index(struct gs_added_tokens *added, struct gs_error *error)
{
    if (added->count > 0)
        qsort(added->list, added->count, sizeof(*added->list), compare_tokens);
    while (added->n_first < added->count && !added->list[added->n_first].normalized)
        added->n_first++;
    for (size_t i = 0; i < added->count; i++) {
        const struct gs_added_token *token = &added->list[i];
        added->starts[token->normalized][(unsigned char)token->text[0]] = true;
        if (gs_added_tokens_find(added, token->text, token->size) != token ||
            (i > 0 && compare_tokens(token - 1, token) == 0))
            return gs_fail(error, GS_MALFORMED, "the added token \"%s\" occurs twice",
                           gs_quote_bytes(token->text, token->size).text);
    }
    return index_ids(added, error);
}

void gs_added_tokens_free(struct gs_added_tokens *added)
{
    if (!added)
        return;
    free(added->list);
    free(added->special_ids);
    gs_arena_free(&added->arena);
    *added = (struct gs_added_tokens){0};
}

static void part_of(const struct gs_added_tokens *added, bool normalized, size_t *low, size_t *high)
{
    *low = normalized ? added->n_first : 0;
    *high = normalized ? added->count : added->n_first;
}

/* The first token of low ... high-1 whose text is not below the given one. */
static size_t lower_bound(const struct gs_added_tokens *added, size_t low, size_t high, const char *text,
                          size_t size)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct gs_added_token *token = &added->list[middle];
        if (compare_texts(token->text, token->size, text, size) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct gs_added_token *gs_added_tokens_find(const struct gs_added_tokens *added, const char *text,
                                                  size_t size)
{
    for (int part = 0; part < 2; part++) {
        size_t low, high;
        part_of(added, part == 1, &low, &high);
        size_t at = lower_bound(added, low, high, text, size);
        if (at < high && compare_texts(added->list[at].text, added->list[at].size, text, size) == 0)
            return &added->list[at];
    }
    return NULL;
}

bool gs_added_tokens_is_special(const struct gs_added_tokens *added, uint32_t id)
{
    return added->n_special > 0 &&
           bsearch(&id, added->special_ids, added->n_special, sizeof(id), compare_ids) != NULL;
}

/* The first token of low ... high-1, all of which share `depth` bytes, whose byte `depth` is not below c. */
static size_t lower_byte(const struct gs_added_tokens *added, size_t low, size_t high, size_t depth,
                         unsigned c)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct gs_added_token *token = &added->list[middle];
        if (token->size <= depth || (unsigned char)token->text[depth] < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest token of low ... high-1 that `text` [size] starts with: a walk down the sorted texts. */
static const struct gs_added_token *match(const struct gs_added_tokens *added, size_t low, size_t high,
                                          const char *text, size_t size)
{
    const struct gs_added_token *longest = NULL;
    for (size_t depth = 0; depth < size && low < high; depth++) {
        unsigned c = (unsigned char)text[depth];
        low = lower_byte(added, low, high, depth, c);
        high = lower_byte(added, low, high, depth, c + 1);
        if (low < high && added->list[low].size == depth + 1)
            longest = &added->list[low];
    }
    return longest;
}

const struct gs_added_token *gs_added_tokens_next(const struct gs_added_tokens *added, bool normalized,
                                                  const char *text, size_t size, size_t from, size_t *at)
{
    size_t low, high;
    part_of(added, normalized, &low, &high);
    if (low == high)
        return NULL;
    const bool *starts = added->starts[normalized];
    for (size_t i = from; i < size; i++) {
        if (!starts[(unsigned char)text[i]])
            continue;
        const struct gs_added_token *token = match(added, low, high, text + i, size - i);
        if (token) {
            *at = i;
            return token;
        }
    }
    return NULL;
}
