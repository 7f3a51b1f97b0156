#include "text/pretokenize.h"

#include "text/unicode_tables.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * The pattern's alternatives, and why one scan does:
 *
 *   1  X?A*B+(?i:'s|'t|'re|'ve|'m|'ll|'d)?     X = [^\r\n\p{L}\p{N}]
 *   2  X?A+B*(?i:'s|'t|'re|'ve|'m|'ll|'d)?     A = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
 *   3  \p{N}{1,3}                              B = [\p{Ll}\p{Lm}\p{Lo}\p{M}]
 *   4   ?[^\s\p{L}\p{N}]+[\r\n/]*
 *   5  \s*[\r\n]+
 *   6  \s+(?!\S)
 *   7  \s+
 *
 * Letters without case and marks are in A and in B. So a greedy run of A may have to give characters back
 * before B+ matches: exactly those after the last one that is in B too.
 */

struct scanner {
    const char *text;
    size_t size;
};

/* The GS_CLASS bits of the character at `at`, and where the next one starts; 0 at the end of the text. */
static inline unsigned peek(const struct scanner *scanner, size_t at, size_t *next)
{
    if (at >= scanner->size) {
        *next = at;
        return 0;
    }
    const unsigned char *s = (const unsigned char *)scanner->text + at;
    if (s[0] < 0x80) {
        *next = at + 1;
        return gs_unicode_ascii[s[0]];
    }
    uint32_t c;
    if (s[0] < 0xE0) {
        *next = at + 2;
        c = (s[0] & 0x1Fu) << 6 | (s[1] & 0x3Fu);
    } else if (s[0] < 0xF0) {
        *next = at + 3;
        c = (s[0] & 0x0Fu) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu);
    } else {
        *next = at + 4;
        c = (s[0] & 0x07u) << 18 | (s[1] & 0x3Fu) << 12 | (s[2] & 0x3Fu) << 6 | (s[3] & 0x3Fu);
    }
    return gs_unicode_class(c);
}

static inline size_t skip_class(const struct scanner *scanner, size_t at, unsigned class)
{
    size_t next;
    while (peek(scanner, at, &next) & class)
        at = next;
    return at;
}

/*
 * The end of a word that starts at `at` by alternative 1 or, if that fails, 2; `at` if both do. *lower
 * says that it was alternative 1.
 */
static size_t scan_word(const struct scanner *scanner, size_t at, bool *lower)
{
    size_t end = at, next, last_both = at;
    unsigned class;
    while ((class = peek(scanner, end, &next)) & GS_CLASS_UPPER) {
        end = next;
        if (class & GS_CLASS_LOWER)
            last_both = end;
    }
    *lower = true;
    if (class & GS_CLASS_LOWER)
        return skip_class(scanner, next, GS_CLASS_LOWER);
    if (last_both > at)
        return last_both;
    *lower = false;
    return end;
}

static inline unsigned char byte_at(const struct scanner *scanner, size_t at)
{
    return at < scanner->size ? (unsigned char)scanner->text[at] : 0;
}

static inline unsigned char lower_at(const struct scanner *scanner, size_t at)
{
    unsigned char c = byte_at(scanner, at);
    return c >= 'A' && c <= 'Z' ? (unsigned char)(c + ('a' - 'A')) : c;
}

/* The end of the contraction at `at`, or `at`. U+017F is s without regard to case. */
static size_t skip_contraction(const struct scanner *scanner, size_t at)
{
    if (byte_at(scanner, at) != '\'')
        return at;
    unsigned char first = lower_at(scanner, at + 1), second = lower_at(scanner, at + 2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd')
        return at + 2;
    if (first == 0xC5 && second == 0xBF)
        return at + 3;
    if (((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l'))
        return at + 3;
    return at;
}

/* Alternatives 1 and 2 at `at`, where a character of `class` stands and `next` follows; `at` if both fail. */
static size_t match_word(const struct scanner *scanner, size_t at, unsigned class, size_t next)
{
    bool lower;
    size_t end;
    if (class & (GS_CLASS_LETTER | GS_CLASS_NUMBER | GS_CLASS_NEWLINE)) {
        end = scan_word(scanner, at, &lower);
        return end > at ? skip_contraction(scanner, end) : at;
    }
    /* Any other character may be the optional first one; a mark may also be the word itself. */
    end = scan_word(scanner, next, &lower);
    bool mark = class & GS_CLASS_LOWER;
    if (end > next && (lower || !mark))
        return skip_contraction(scanner, end);
    return mark ? skip_contraction(scanner, next) : at;
}

/* Alternatives 5, 6 and 7: the run of whitespace at `at`. */
static size_t match_space(const struct scanner *scanner, size_t at)
{
    size_t end = at, next, last_start = at, after_newline = at;
    unsigned class;
    while ((class = peek(scanner, end, &next)) & GS_CLASS_SPACE) {
        if (class & GS_CLASS_NEWLINE)
            after_newline = next;
        last_start = end;
        end = next;
    }
    if (after_newline > at)
        return after_newline;
    /* The last character of a longer run is left for the word that follows. */
    return end < scanner->size && last_start > at ? last_start : end;
}

size_t gs_pretokenize_next(const char *text, size_t size, size_t start)
{
    const struct scanner scanner = {text, size};
    size_t next;
    unsigned class = peek(&scanner, start, &next);

    size_t end = match_word(&scanner, start, class, next);
    if (end > start)
        return end;

    if (class & GS_CLASS_NUMBER) {
        for (int digits = 1; digits < 3 && peek(&scanner, next, &end) & GS_CLASS_NUMBER; digits++)
            next = end;
        return next;
    }

    size_t symbols = text[start] == ' ' ? start + 1 : start;
    end = symbols;
    while (end < size && !(peek(&scanner, end, &next) & (GS_CLASS_SPACE | GS_CLASS_LETTER | GS_CLASS_NUMBER)))
        end = next;
    if (end == symbols)
        return match_space(&scanner, start);
    while (end < size && (text[end] == '\r' || text[end] == '\n' || text[end] == '/'))
        end++;
    return end;
}
