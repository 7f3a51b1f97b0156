/*
 * Memory with one lifetime: many small allocations, one release. Zero-initialise; pointers stay valid until
 * gs_arena_free. Allocations are zeroed and aligned to 16 bytes.
 */
#ifndef GS_BASE_ARENA_H
#define GS_BASE_ARENA_H

#include <stddef.h>

struct gs_arena_block;
struct gs_arena {
    struct gs_arena_block *last;
};

/* NULL if memory is out; size 0 gives a valid pointer. */
void *gs_arena_alloc(struct gs_arena *arena, size_t size);

/* count * size with overflow checked. */
void *gs_arena_alloc_array(struct gs_arena *arena, size_t count, size_t size);

/* A NUL-terminated copy of `bytes` [size]. */
char *gs_arena_copy(struct gs_arena *arena, const char *bytes, size_t size);
void gs_arena_free(struct gs_arena *arena);

#endif
