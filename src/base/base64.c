#include "base/base64.h"

#include "base/status.h"

#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

gs_status gs_base64_encode(const void *bytes, size_t size, struct gs_buffer *out, struct gs_error *error)
{
    const unsigned char *in = bytes;
    if (size > SIZE_MAX / 2)
        return gs_fail_memory(error, size);
    gs_status status = gs_buffer_reserve(out, (size + 2) / 3 * 4, error);
    if (status == GS_OK)
        status = gs_buffer_append(out, "", 0, error); /* a text also where there is nothing */
    for (size_t i = 0; i < size && status == GS_OK; i += 3) {
        size_t have = size - i < 3 ? size - i : 3;
        unsigned triple = (unsigned)in[i] << 16;
        triple |= have > 1 ? (unsigned)in[i + 1] << 8 : 0;
        triple |= have > 2 ? in[i + 2] : 0;
        char four[4] = {alphabet[triple >> 18], alphabet[triple >> 12 & 63],
                        have > 1 ? alphabet[triple >> 6 & 63] : '=', have > 2 ? alphabet[triple & 63] : '='};
        status = gs_buffer_append(out, four, 4, error);
    }
    return status;
}

gs_status gs_base64_decode(const char *text, size_t size, struct gs_buffer *out, struct gs_error *error)
{
    if (size % 4 != 0)
        return gs_fail(error, GS_MALFORMED, "base64: %zu characters, a multiple of 4 is expected", size);
    for (size_t i = 0; i < size; i += 4) {
        size_t given = 4;
        if (i + 4 == size && text[i + 3] == '=')
            given = text[i + 2] == '=' ? 2 : 3;
        unsigned triple = 0;
        for (size_t k = 0; k < 4; k++) {
            const char *digit = k < given && text[i + k] ? strchr(alphabet, text[i + k]) : NULL;
            if (k < given && !digit)
                return gs_fail(error, GS_MALFORMED, "base64: character %zu is none of its alphabet", i + k);
            triple = triple << 6 | (digit ? (unsigned)(digit - alphabet) : 0);
        }
        if ((given == 2 && (triple & 0xffff)) || (given == 3 && (triple & 0xff)))
            return gs_fail(error, GS_MALFORMED, "base64: the last character has bits too many");
        unsigned char three[3] = {(unsigned char)(triple >> 16), (unsigned char)(triple >> 8),
                                  (unsigned char)triple};
        gs_status status = gs_buffer_append(out, three, given - 1, error);
        if (status != GS_OK)
            return status;
    }
    return GS_OK;
}
