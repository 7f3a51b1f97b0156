#include "base/arena.h"

#include "base/checked.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

/* Each block is twice the one before; an allocation that is larger than its turn gets a block of its own
 * size. */
#define FIRST_BYTES 1024
#define MOST_BYTES  65536

struct gs_arena_block {
    struct gs_arena_block *previous;
    size_t used;
    size_t size;
    alignas(16) char data[];
};

void *gs_arena_alloc(struct gs_arena *arena, size_t size)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    size = (size + 15) & ~(size_t)15;
    struct gs_arena_block *block = arena->last;
    if (!block || block->size - block->used < size) {
        size_t block_size = block ? 2 * block->size : FIRST_BYTES;
        block_size = block_size < MOST_BYTES ? block_size : MOST_BYTES;
        block_size = block_size > size ? block_size : size;
        block = calloc(1, sizeof *block + block_size);
        if (!block)
            return NULL;
        block->size = block_size;
        block->previous = arena->last;
        arena->last = block;
    }
    void *memory = block->data + block->used;
    block->used += size;
    return memory;
}

void *gs_arena_alloc_array(struct gs_arena *arena, size_t count, size_t size)
{
    uint64_t bytes;
    if (!gs_mul_u64(count, size, &bytes) || bytes > SIZE_MAX)
        return NULL;
    return gs_arena_alloc(arena, (size_t)bytes);
}

char *gs_arena_copy(struct gs_arena *arena, const char *bytes, size_t size)
{
    char *copy = size < SIZE_MAX ? gs_arena_alloc(arena, size + 1) : NULL;
    if (copy)
        memcpy(copy, bytes, size);
    return copy;
}

void gs_arena_free(struct gs_arena *arena)
{
    for (struct gs_arena_block *block = arena->last; block;) {
        struct gs_arena_block *previous = block->previous;
        free(block);
        block = previous;
    }
    arena->last = NULL;
}
