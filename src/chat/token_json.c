#include "chat/token_json.h"

#include "base/buffer.h"
#include "base/utf8.h"

json_t *gs_token_json(const struct gs_vocab *vocab, int32_t id)
{
    struct gs_buffer text = {0};
    size_t size = 0, length;
    const char *bytes = gs_vocab_bytes(vocab, id, &size);
    gs_status status = gs_buffer_append(&text, "", 0, NULL);
    for (size_t at = 0; bytes && at < size && status == GS_OK; at += length) {
        uint32_t c = gs_utf8_decode(bytes + at, size - at, &length);
        if (c == GS_UTF8_INCOMPLETE)
            length = size - at;
        status = c == GS_UTF8_INVALID || c == GS_UTF8_INCOMPLETE
                     ? gs_buffer_append_text(&text, "\xEF\xBF\xBD", NULL)
                     : gs_buffer_append(&text, bytes + at, length, NULL);
    }
    json_t *json = status == GS_OK ? json_stringn(text.data, text.size) : NULL;
    gs_buffer_free(&text);
    return json;
}

json_t *gs_token_bytes_json(const struct gs_vocab *vocab, int32_t id)
{
    size_t size = 0;
    const char *bytes = gs_vocab_bytes(vocab, id, &size);
    json_t *list = json_array();
    for (size_t i = 0; bytes && i < size; i++)
        json_array_append_new(list, json_integer((unsigned char)bytes[i]));
    return list;
}
