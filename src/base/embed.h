/*
 * A file of the sources as bytes of the program: GS_EMBED(name, "src/...") declares gs_NAME_begin and
 * gs_NAME_end. A byte 0 follows that does not count. Paths are seen from the repository's root, where make
 * runs.
 */
#ifndef GS_BASE_EMBED_H
#define GS_BASE_EMBED_H

#include <stddef.h>
#include <stdint.h>

#define GS_EMBED_STRING_(x) #x
#define GS_EMBED_STRING(x)  GS_EMBED_STRING_(x)

#ifdef __APPLE__
#define GS_EMBED_SECTION ".const_data\n"
#else
#define GS_EMBED_SECTION ".section .rodata\n"
#endif

/* They are two arrays to the compiler: the difference is one of addresses. */
static inline size_t gs_embed_size(const unsigned char *begin, const unsigned char *end)
{
    return (size_t)((uintptr_t)end - (uintptr_t)begin);
}

/* clang-format off */
#define GS_EMBED_SYMBOL(x) GS_EMBED_STRING(__USER_LABEL_PREFIX__) #x
#define GS_EMBED(name, path)                                              \
    __asm__(GS_EMBED_SECTION                                              \
            ".global " GS_EMBED_SYMBOL(gs_##name##_begin) "\n"            \
            ".global " GS_EMBED_SYMBOL(gs_##name##_end) "\n"              \
            GS_EMBED_SYMBOL(gs_##name##_begin) ":\n"                      \
            ".incbin \"" path "\"\n"                                      \
            GS_EMBED_SYMBOL(gs_##name##_end) ":\n"                        \
            ".byte 0\n"                                                   \
            ".text\n");                                                   \
    extern const unsigned char gs_##name##_begin[], gs_##name##_end[]
/* clang-format on */

#endif
