#include "server/prefix_file.h"

#include "base/checked.h"
#include "engine/snapshot.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(struct gs_prefix_head) % 8 == 0, "what follows the header is aligned");

static size_t padding_of(uint64_t n_tokens)
{
    return n_tokens % 2 ? sizeof(int32_t) : 0;
}

/* Of the ids, the padding and the table. */
static size_t index_bytes(const struct gs_prefix_head *head)
{
    return (size_t)head->n_tokens * sizeof(int32_t) + padding_of(head->n_tokens) +
           (size_t)head->n_mark * sizeof(struct gs_prefix_place);
}

static uint64_t sum_head(const struct gs_prefix_head *head)
{
    return gs_snapshot_sum(0, head, offsetof(struct gs_prefix_head, head_sum));
}

/* ---------------------------------------------------------------- reading */

static bool read_whole(int descriptor, void *to, size_t size, uint64_t at)
{
    for (char *next = to; size > 0;) {
        ssize_t n = pread(descriptor, next, size, (off_t)at);
        if (n <= 0)
            return false;
        next += n;
        at += (uint64_t)n;
        size -= (size_t)n;
    }
    return true;
}

/* Do the numbers of a header whose sum is right make sense for a file of this size? */
static bool plausible(const struct gs_prefix_head *head, uint64_t size, size_t max_tokens)
{
    uint64_t expected = sizeof *head;
    return head->n_tokens > 0 && head->n_tokens <= max_tokens && head->least <= head->n_tokens &&
           head->n_mark <= GS_PREFIX_MAX_MARKS && gs_add_u64(expected, index_bytes(head), &expected) &&
           gs_add_u64(expected, head->body_bytes, &expected) && expected == size;
}

static bool plausible_places(const struct gs_prefix_index *index)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < index->head.n_mark; i++)
        if (index->places[i].count == 0 || index->places[i].least > index->places[i].count ||
            index->places[i].count > index->head.n_tokens ||
            !gs_add_u64(bytes, index->places[i].bytes, &bytes) || bytes > index->head.body_bytes)
            return false;
    return true;
}

enum gs_prefix_verdict gs_prefix_index_read(int descriptor, uint64_t size, uint64_t identity,
                                            size_t max_tokens, struct gs_prefix_index *out)
{
    struct gs_prefix_head *head = &out->head;
    *out = (struct gs_prefix_index){0};
    if (size < sizeof *head || !read_whole(descriptor, head, sizeof *head, 0) ||
        memcmp(head->magic, GS_PREFIX_MAGIC, sizeof head->magic) != 0)
        return GS_PREFIX_FOREIGN;
    if (head->version != GS_PREFIX_VERSION || head->byte_order != GS_PREFIX_BYTE_ORDER)
        return GS_PREFIX_OTHER;
    if (head->head_sum != sum_head(head))
        return GS_PREFIX_DAMAGED;
    if (head->identity != identity)
        return GS_PREFIX_OTHER;
    if (!plausible(head, size, max_tokens))
        return GS_PREFIX_DAMAGED;
    size_t bytes = index_bytes(head);
    char *text = malloc(bytes);
    if (!text || !read_whole(descriptor, text, bytes, sizeof *head) ||
        gs_snapshot_sum(0, text, bytes) != head->index_sum) {
        free(text);
        return GS_PREFIX_DAMAGED;
    }
    size_t table = (size_t)head->n_mark * sizeof *out->places;
    memcpy(out->places, text + bytes - table, table);
    if (!plausible_places(out)) {
        free(text);
        return GS_PREFIX_DAMAGED;
    }
    out->tokens = (int32_t *)(void *)text;
    return GS_PREFIX_GOOD;
}

enum gs_prefix_verdict gs_prefix_body_find(const struct gs_file_map *map, const struct gs_prefix_index *index,
                                           struct gs_prefix_body *out)
{
    const struct gs_prefix_head *head = &index->head;
    size_t before = sizeof *head + index_bytes(head);
    if (map->size != before + head->body_bytes || memcmp(map->data, head, sizeof *head) != 0)
        return GS_PREFIX_DAMAGED;
    const char *at = (const char *)map->data + before, *end = (const char *)map->data + map->size;
    if (gs_snapshot_sum(0, at, (size_t)head->body_bytes) != head->body_sum ||
        gs_file_map_check(map, NULL) != GS_OK)
        return GS_PREFIX_DAMAGED;
    for (size_t i = 0; i < head->n_mark; i++) {
        out->rings[i] = at;
        at += index->places[i].bytes;
    }
    out->export = at;
    out->export_bytes = (size_t)(end - at);
    return GS_PREFIX_GOOD;
}

/* ---------------------------------------------------------------- writing */

gs_status gs_prefix_file_build(const struct gs_prefix_timeline *timeline, uint64_t identity,
                               struct gs_prefix_tag tag, struct gs_buffer *out, struct gs_error *error)
{
    static const char zeros[sizeof(int32_t)];
    size_t count, begin = out->size;
    const int32_t *tokens = gs_session_tokens(timeline->session, &count);
    struct gs_prefix_head head = {.magic = GS_PREFIX_MAGIC,
                                  .version = GS_PREFIX_VERSION,
                                  .byte_order = GS_PREFIX_BYTE_ORDER,
                                  .identity = identity,
                                  .tag = tag,
                                  .n_tokens = count,
                                  .least = timeline->least,
                                  .n_mark = timeline->n_mark};
    gs_status status = gs_buffer_append(out, &head, sizeof head, error);
    if (status == GS_OK)
        status = gs_buffer_append(out, tokens, count * sizeof *tokens, error);
    if (status == GS_OK)
        status = gs_buffer_append(out, zeros, padding_of(count), error);
    for (size_t i = 0; i < timeline->n_mark && status == GS_OK; i++) {
        struct gs_prefix_place place = {timeline->marks[i].count, timeline->marks[i].least,
                                        timeline->marks[i].rings.size};
        status = gs_buffer_append(out, &place, sizeof place, error);
    }
    for (size_t i = 0; i < timeline->n_mark && status == GS_OK; i++)
        status = gs_buffer_append(out, timeline->marks[i].rings.data, timeline->marks[i].rings.size, error);
    if (status == GS_OK)
        status = gs_session_export(timeline->session, out, error);
    if (status != GS_OK)
        return status;
    head.body_bytes = out->size - begin - sizeof head - index_bytes(&head);
    memcpy(out->data + begin, &head, sizeof head);
    return GS_OK;
}

void gs_prefix_file_seal(struct gs_buffer *image)
{
    struct gs_prefix_head head;
    memcpy(&head, image->data, sizeof head);
    const char *at = image->data + sizeof head;
    head.index_sum = gs_snapshot_sum(0, at, index_bytes(&head));
    head.body_sum = gs_snapshot_sum(0, at + index_bytes(&head), (size_t)head.body_bytes);
    head.head_sum = sum_head(&head);
    memcpy(image->data, &head, sizeof head);
}
