#include "cli/json_text.h"

#include "base/buffer.h"
#include "base/status.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

json_t *gs_json_bytes(const char *bytes, size_t size)
{
    struct gs_buffer valid = {0};
    gs_status status = GS_OK;
    for (size_t at = 0, length; at < size && status == GS_OK; at += length) {
        bool good = gs_utf8_decode(bytes + at, size - at, &length) <= 0x10FFFF;
        status = gs_buffer_append(&valid, good ? bytes + at : "\xEF\xBF\xBD", good ? length : 3, NULL);
    }
    json_t *value = status == GS_OK ? json_stringn(valid.data ? valid.data : "", valid.size) : NULL;
    gs_buffer_free(&valid);
    return value;
}

json_t *gs_json_string(const char *text)
{
    return gs_json_bytes(text, strlen(text));
}

gs_status gs_json_print(json_t *root, size_t flags, struct gs_output *output, struct gs_error *error)
{
    char *text = root ? json_dumps(root, flags) : NULL;
    json_decref(root);
    if (!text)
        return gs_fail_memory(error, 0);
    gs_output_append(output, text, strlen(text));
    gs_output_append(output, "\n", 1);
    free(text);
    return GS_OK;
}
