/*
 * Characters that merging may start from instead of their bytes: most of those of Chinese, Japanese and
 * Korean text, whose pieces are long. The result is the same, and proven so when the vocabulary is opened.
 *
 * Let c be a character of three bytes from U+3000 on that is one token, and m the highest rank among the
 * merges that make it from its bytes alone. c is "solid" if
 *
 *   (1) every merge of anything that ends in a byte from 0x80 on with a proper prefix of c,
 *   (2) every merge of a proper suffix of c with anything that starts with a byte from 0xE3 on, and
 *   (3) every merge that has c itself on one side
 *
 * has a rank above m. Where the byte before c (if any) is from 0x80 on and the byte after it from 0xE3 on,
 * the first merge across c's ends while c is incomplete would be one of (1) or (2); but a merge inside c, of
 * rank at most m, is still to be done and comes before it. So c is completed as if it were alone. And to have
 * it complete from the start changes no order: by (3) whatever joins c would have waited for its completion
 * anyway.
 */
#ifndef GS_TEXT_SOLID_H
#define GS_TEXT_SOLID_H

#include "text/merge_table.h"
#include "text/token_table.h"

#define GS_SOLID_FIRST 0x3000u
#define GS_SOLID_END   0x10000u
#define GS_SOLID_BYTE  0xE3 /* the first byte of U+3000 */

/*
 * The token of each solid character from GS_SOLID_FIRST on, GS_NO_TOKEN for the others:
 * [GS_SOLID_END - GS_SOLID_FIRST]; release with free().
 */
gs_status gs_solid_find(const struct gs_token_table *table, const struct gs_merge_table *merges,
                        const uint32_t byte_ids[256], uint32_t **out, struct gs_error *error);

/* The token of the solid character at bytes[at], or GS_NO_TOKEN if there is none between such neighbours. */
static inline uint32_t gs_solid_at(const uint32_t *solid, const unsigned char *bytes, size_t size, size_t at)
{
    unsigned first = bytes[at];
    if (first < GS_SOLID_BYTE || first > 0xEF || size - at < 3)
        return GS_NO_TOKEN;
    if ((at > 0 && bytes[at - 1] < 0x80) || (size - at > 3 && bytes[at + 3] < GS_SOLID_BYTE))
        return GS_NO_TOKEN;
    if ((bytes[at + 1] & 0xC0) != 0x80 || (bytes[at + 2] & 0xC0) != 0x80)
        return GS_NO_TOKEN;
    return solid[((first & 0xFu) << 12 | (bytes[at + 1] & 0x3Fu) << 6 | (bytes[at + 2] & 0x3Fu)) -
                 GS_SOLID_FIRST];
}

#endif
