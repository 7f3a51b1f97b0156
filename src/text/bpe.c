#include "text/bpe.h"

#include "base/status.h"
#include "text/tokens.h"

#include <stdlib.h>
#include <string.h>

/* Bytes. Up to here looking at all pairs for the next merge is faster than a heap. */
#define SHORT_PIECE 128u

#define NO_LINK UINT32_MAX

gs_status gs_bpe_index(struct gs_bpe *bpe, struct gs_error *error)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        bpe->byte_ids[byte] = gs_token_table_find(&bpe->table, &c, 1);
        if (bpe->byte_ids[byte] == GS_NO_TOKEN)
            return gs_fail(error, GS_MALFORMED, "no token for the single byte 0x%02X", byte);
    }
    bpe->byte_pair_ranks = malloc(65536 * sizeof(*bpe->byte_pair_ranks));
    if (!bpe->byte_pair_ranks)
        return gs_fail_memory(error, 65536 * sizeof(*bpe->byte_pair_ranks));
    for (size_t pair = 0; pair < 65536; pair++) {
        uint32_t result;
        bpe->byte_pair_ranks[pair] =
            gs_merge_table_find(&bpe->merges, bpe->byte_ids[pair >> 8], bpe->byte_ids[pair & 0xFF], &result);
    }
    gs_status status = gs_solid_find(&bpe->table, &bpe->merges, bpe->byte_ids, &bpe->solid, error);
    /* Only gs_solid_find needs the list of pairs. */
    free(bpe->merges.pairs);
    bpe->merges.pairs = NULL;
    return status;
}

void gs_bpe_free(struct gs_bpe *bpe)
{
    if (!bpe)
        return;
    gs_token_table_free(&bpe->table);
    gs_merge_table_free(&bpe->merges);
    free(bpe->byte_pair_ranks);
    free(bpe->solid);
    *bpe = (struct gs_bpe){0};
}

/* The rank of each pair of bytes of the piece into ranks [size-1], the ids of its bytes into ids [size]. */
static void start_from_bytes(const struct gs_bpe *bpe, const char *piece, size_t size, uint32_t *ids,
                             uint32_t *ranks)
{
    const unsigned char *bytes = (const unsigned char *)piece;
    for (size_t i = 0; i < size; i++)
        ids[i] = bpe->byte_ids[bytes[i]];
    for (size_t i = 0; i + 1 < size; i++)
        ranks[i] = bpe->byte_pair_ranks[(size_t)bytes[i] << 8 | bytes[i + 1]];
}

/*
 * The pairs of a short piece, by the position of their left token: rank << 7 | position, so that the least
 * key is the next merge, or NO_KEY. Four keys are compared at a time.
 */
typedef int32_t four_keys __attribute__((vector_size(16)));
union pairs {
    int32_t key[SHORT_PIECE];
    four_keys four[SHORT_PIECE / 4];
};
#define NO_KEY INT32_MAX
_Static_assert((uint64_t)GS_MAX_MERGES *SHORT_PIECE < NO_KEY, "a rank and a position fit in a key");

static inline four_keys lower_of(four_keys a, four_keys b)
{
    four_keys less = a < b;
    return (a & less) | (b & ~less);
}

/* The least of the first 8 * n_eights keys. */
static inline int32_t least(const union pairs *pairs, size_t n_eights)
{
    four_keys a = pairs->four[0], b = pairs->four[1];
    for (size_t i = 1; i < n_eights; i++) {
        a = lower_of(a, pairs->four[2 * i]);
        b = lower_of(b, pairs->four[2 * i + 1]);
    }
    a = lower_of(a, b);
    int32_t one = a[0] < a[1] ? a[0] : a[1], other = a[2] < a[3] ? a[2] : a[3];
    return one < other ? one : other;
}

static inline int32_t key_of(uint32_t rank, size_t at)
{
    return rank == GS_NO_MERGE ? NO_KEY : (int32_t)(rank * SHORT_PIECE + (uint32_t)at);
}

/* The tokens to start from into ids: solid characters, and single bytes; returns their number. */
static size_t start_from_solid(const struct gs_bpe *bpe, const char *piece, size_t size, uint32_t *ids)
{
    const unsigned char *bytes = (const unsigned char *)piece;
    size_t count = 0;
    for (size_t at = 0; at < size; count++) {
        uint32_t id = gs_solid_at(bpe->solid, bytes, size, at);
        ids[count] = id != GS_NO_TOKEN ? id : bpe->byte_ids[bytes[at]];
        at += id != GS_NO_TOKEN ? 3 : 1;
    }
    return count;
}

/* 2 <= size <= SHORT_PIECE. A token stays at the index of the first one it is made of, linked both ways. */
static gs_status encode_short(const struct gs_bpe *bpe, const char *piece, size_t size,
                              struct gs_tokens *tokens, struct gs_error *error)
{
    uint32_t ids[SHORT_PIECE], ranks[SHORT_PIECE], results[SHORT_PIECE]; /* results: of the pair here */
    uint8_t next[SHORT_PIECE + 1], previous[SHORT_PIECE + 1];
    union pairs pairs;
    size_t at, count = start_from_solid(bpe, piece, size, ids);
    if (count == size) {
        start_from_bytes(bpe, piece, size, ids, ranks);
        for (at = 0; at + 1 < count; at++)
            results[at] = ranks[at] == GS_NO_MERGE ? GS_NO_TOKEN : bpe->merges.results[ranks[at]];
    } else {
        for (at = 0; at + 1 < count; at++)
            ranks[at] = gs_merge_table_find(&bpe->merges, ids[at], ids[at + 1], &results[at]);
    }
    for (at = 0; at < count; at++) {
        next[at] = (uint8_t)(at + 1);
        previous[at] = (uint8_t)(at - 1);
    }
    size_t n_eights = (count + 6) / 8;
    n_eights = n_eights > 0 ? n_eights : 1;
    for (at = 0; at < 8 * n_eights; at++)
        pairs.key[at] = at + 1 < count ? key_of(ranks[at], at) : NO_KEY;

    int32_t key;
    while ((key = least(&pairs, n_eights)) != NO_KEY) {
        at = (uint32_t)key % SHORT_PIECE;
        size_t gone = next[at], after = next[gone];
        ids[at] = results[at];
        next[at] = (uint8_t)after;
        previous[after] = (uint8_t)at;
        pairs.key[gone] = NO_KEY;
        uint32_t rank = GS_NO_MERGE;
        if (after < count)
            rank = gs_merge_table_find(&bpe->merges, ids[at], ids[after], &results[at]);
        pairs.key[at] = key_of(rank, at);
        if (at > 0) {
            size_t before = previous[at];
            rank = gs_merge_table_find(&bpe->merges, ids[before], ids[at], &results[before]);
            pairs.key[before] = key_of(rank, before);
        }
    }
    gs_status status = gs_tokens_reserve(tokens, count, error);
    for (at = 0; at < count && status == GS_OK; at = next[at])
        tokens->ids[tokens->count++] = (int32_t)ids[at];
    return status;
}

/* ---------------------------------------------------------------- long pieces */

/*
 * A doubly linked list of symbols, and a heap of candidate merges. A candidate is rank << 32 | position, so
 * that the heap's order is the order of merging; it is stale, and dropped, when the rank at its position is
 * no longer the one it carries.
 */
struct list {
    uint32_t *ids;      /* [size] */
    uint32_t *ranks;    /* [size]: of the pair that starts here; GS_NO_MERGE where there is none */
    uint32_t *next;     /* [size] */
    uint32_t *previous; /* [size] */
    uint64_t *heap;     /* [2 * size]: each merge takes one candidate out and puts at most two in */
    size_t n_heap;
};

static void sift_down(uint64_t *heap, size_t count, size_t at)
{
    uint64_t moving = heap[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= count)
            break;
        if (child + 1 < count && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= moving)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moving;
}

static uint64_t pop(struct list *list)
{
    uint64_t top = list->heap[0];
    list->heap[0] = list->heap[--list->n_heap];
    if (list->n_heap > 0)
        sift_down(list->heap, list->n_heap, 0);
    return top;
}

/* Sets the rank of the pair at `at` anew and makes it a candidate. */
static void rank_pair(const struct gs_bpe *bpe, struct list *list, uint32_t at)
{
    uint32_t next = list->next[at];
    uint32_t rank = GS_NO_MERGE, result;
    if (next != NO_LINK)
        rank = gs_merge_table_find(&bpe->merges, list->ids[at], list->ids[next], &result);
    list->ranks[at] = rank;
    if (rank == GS_NO_MERGE)
        return;
    uint64_t candidate = (uint64_t)rank << 32 | at;
    size_t hole = list->n_heap++;
    while (hole > 0 && list->heap[(hole - 1) / 2] > candidate) {
        list->heap[hole] = list->heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    list->heap[hole] = candidate;
}

static void merge_all(const struct gs_bpe *bpe, struct list *list)
{
    while (list->n_heap > 0) {
        uint64_t candidate = pop(list);
        uint32_t at = (uint32_t)candidate, rank = (uint32_t)(candidate >> 32);
        if (list->ranks[at] != rank)
            continue;
        uint32_t gone = list->next[at], after = list->next[gone];
        list->ids[at] = bpe->merges.results[rank];
        list->ranks[gone] = GS_NO_MERGE;
        list->next[at] = after;
        if (after != NO_LINK)
            list->previous[after] = at;
        rank_pair(bpe, list, at);
        if (list->previous[at] != NO_LINK)
            rank_pair(bpe, list, list->previous[at]);
    }
}

static void start_list(const struct gs_bpe *bpe, struct list *list, const char *piece, size_t size)
{
    start_from_bytes(bpe, piece, size, list->ids, list->ranks);
    list->ranks[size - 1] = GS_NO_MERGE;
    for (size_t i = 0; i < size; i++) {
        list->previous[i] = i == 0 ? NO_LINK : (uint32_t)(i - 1);
        list->next[i] = i + 1 == size ? NO_LINK : (uint32_t)(i + 1);
        if (list->ranks[i] != GS_NO_MERGE)
            list->heap[list->n_heap++] = (uint64_t)list->ranks[i] << 32 | i;
    }
    for (size_t i = list->n_heap / 2; i-- > 0;)
        sift_down(list->heap, list->n_heap, i);
}

static gs_status encode_long(const struct gs_bpe *bpe, const char *piece, size_t size,
                             struct gs_tokens *tokens, struct gs_error *error)
{
    const size_t bytes_each = 2 * sizeof(uint64_t) + 4 * sizeof(uint32_t);
    if (size >= NO_LINK)
        return gs_fail_memory(error, size);
    uint64_t *memory = malloc(size * bytes_each);
    if (!memory)
        return gs_fail_memory(error, size * bytes_each);
    uint32_t *arrays = (uint32_t *)(memory + 2 * size);
    struct list list = {
        .ids = arrays,
        .ranks = arrays + size,
        .next = arrays + 2 * size,
        .previous = arrays + 3 * size,
        .heap = memory,
    };
    start_list(bpe, &list, piece, size);
    merge_all(bpe, &list);

    gs_status status = GS_OK;
    for (uint32_t at = 0; at != NO_LINK && status == GS_OK; at = list.next[at])
        status = gs_tokens_append(tokens, (int32_t)list.ids[at], error);
    free(memory);
    return status;
}

gs_status gs_bpe_encode(const struct gs_bpe *bpe, const char *piece, size_t size, struct gs_tokens *tokens,
                        struct gs_error *error)
{
    if (size == 1)
        return gs_tokens_append(tokens, (int32_t)bpe->byte_ids[(unsigned char)piece[0]], error);
    if (bpe->ignore_merges) {
        uint32_t id = gs_token_table_find(&bpe->table, piece, size);
        if (id != GS_NO_TOKEN)
            return gs_tokens_append(tokens, (int32_t)id, error);
    }
    return size <= SHORT_PIECE ? encode_short(bpe, piece, size, tokens, error)
                               : encode_long(bpe, piece, size, tokens, error);
}
