/*
 * The tokens of a vocabulary: id -> bytes, and bytes -> id through a hash table. Zero-initialise; fill in
 * this order: add all, index, then extend; gs_token_table_free releases.
 */
#ifndef GS_TEXT_TOKEN_TABLE_H
#define GS_TEXT_TOKEN_TABLE_H

#include "base/buffer.h"

#define GS_MAX_TOKEN_ID    ((1u << 24) - 1)
#define GS_MAX_TOKEN_BYTES ((1u << 16) - 1)
#define GS_NO_TOKEN        UINT32_MAX

struct gs_token {
    uint32_t offset; /* into bytes.data */
    uint32_t size;   /* 0: no token has this id */
};

struct gs_token_entry {
    uint32_t id;
    struct gs_token token;
};

struct gs_token_slot {
    uint64_t head; /* the first 8 bytes as a number; distinct for distinct bytes of one size */
    uint32_t size; /* 0: free */
    uint32_t id;
};

struct gs_token_table {
    struct gs_buffer bytes;      /* of all tokens, one after the other */
    struct gs_token_entry *list; /* [count], as added; gone after indexing */
    size_t count;
    size_t capacity;
    struct gs_token *tokens; /* [size] */
    size_t size;             /* one past the highest id */
    struct gs_token_slot *slots;
    size_t mask;    /* number of slots - 1 */
    size_t longest; /* bytes */
};

/* 1 <= size <= GS_MAX_TOKEN_BYTES. */
gs_status gs_token_table_add(struct gs_token_table *table, uint32_t id, const char *bytes, size_t size,
                             struct gs_error *error);

/* Makes both directions. GS_MALFORMED for an id or bytes that occur twice, and for too many unused ids. */
gs_status gs_token_table_index(struct gs_token_table *table, struct gs_error *error);

/* Sets the bytes of an id in the direction id -> bytes only. GS_MALFORMED if the id is out of proportion. */
gs_status gs_token_table_extend(struct gs_token_table *table, uint32_t id, const char *bytes, size_t size,
                                struct gs_error *error);

/* The id of these bytes, or GS_NO_TOKEN. */
uint32_t gs_token_table_find(const struct gs_token_table *table, const char *bytes, size_t size);

/* Are the bytes of `id` these? False if there is no such id. */
bool gs_token_table_is(const struct gs_token_table *table, uint32_t id, const char *bytes, size_t size);

void gs_token_table_free(struct gs_token_table *table);

#endif
