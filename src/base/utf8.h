/*
 * UTF-8 by the rules of RFC 3629 (no surrogates, no overlong forms, at most U+10FFFF). "Ill-formed part"
 * is the maximal subpart of Unicode's table 3-8, which WHATWG, Python's "replace" and Rust's lossy
 * decoding all use: each such part becomes one U+FFFD.
 */
#ifndef GS_BASE_UTF8_H
#define GS_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GS_UTF8_INVALID    0xFFFFFFFFu /* ill-formed: `*length` bytes are one part */
#define GS_UTF8_INCOMPLETE 0xFFFFFFFEu /* the input ends inside a sequence that could still become valid */

/* Decodes at bytes[0 ... size-1], size >= 1: the code point, or one of the two above; *length >= 1 bytes. */
uint32_t gs_utf8_decode(const char *bytes, size_t size, size_t *length);

/* Writes a code point (a valid one) to out[4]; returns its length in bytes. */
size_t gs_utf8_encode(uint32_t code_point, char *out);

bool gs_utf8_valid(const char *bytes, size_t size);

#endif
