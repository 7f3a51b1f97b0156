#include "base/utf8.h"

uint32_t gs_utf8_decode(const char *bytes, size_t size, size_t *length)
{
    const unsigned char *s = (const unsigned char *)bytes;
    unsigned first = s[0];
    *length = 1;
    if (first < 0x80)
        return first;

    /* Unicode's table 3-7: how many bytes follow, and the narrower range of the first of them. */
    size_t n_more;
    unsigned low = 0x80, high = 0xBF;
    uint32_t code_point;
    if (first >= 0xC2 && first <= 0xDF) {
        n_more = 1;
        code_point = first & 0x1F;
    } else if (first >= 0xE0 && first <= 0xEF) {
        n_more = 2;
        code_point = first & 0x0F;
        low = first == 0xE0 ? 0xA0 : low;
        high = first == 0xED ? 0x9F : high;
    } else if (first >= 0xF0 && first <= 0xF4) {
        n_more = 3;
        code_point = first & 0x07;
        low = first == 0xF0 ? 0x90 : low;
        high = first == 0xF4 ? 0x8F : high;
    } else {
        return GS_UTF8_INVALID;
    }
    for (size_t i = 1; i <= n_more; i++) {
        if (i == size) {
            *length = i;
            return GS_UTF8_INCOMPLETE;
        }
        if (s[i] < low || s[i] > high) {
            *length = i;
            return GS_UTF8_INVALID;
        }
        code_point = code_point << 6 | (s[i] & 0x3Fu);
        low = 0x80;
        high = 0xBF;
    }
    *length = n_more + 1;
    return code_point;
}

size_t gs_utf8_encode(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

bool gs_utf8_valid(const char *bytes, size_t size)
{
    for (size_t at = 0; at < size;) {
        size_t length;
        if (gs_utf8_decode(bytes + at, size - at, &length) > 0x10FFFF)
            return false;
        at += length;
    }
    return true;
}
