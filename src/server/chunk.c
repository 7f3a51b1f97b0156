#include "server/chunk.h"

#include "base/status.h"
#include "chat/json_text.h"
#include "server/exchange.h"

bool gs_chunk_begun(const struct gs_chunk *chunk)
{
    return chunk->head.size > 0;
}

gs_status gs_chunk_begin(struct gs_chunk *chunk, json_t *object, bool has_usage)
{
    struct gs_writer writer = {.buffer = &chunk->head, .status = object ? GS_OK : GS_OUT_OF_MEMORY};
    chunk->has_usage = has_usage;
    gs_buffer_clear(&chunk->head);
    if (object)
        gs_write_json(&writer, object);
    if (writer.status == GS_OK)
        chunk->head.size--; /* its brace is the chunk's last */
    gs_write(&writer, ",\"choices\":[{\"index\":");
    if (writer.status != GS_OK)
        gs_buffer_clear(&chunk->head);
    json_decref(object);
    return writer.status;
}

void gs_chunk_send(struct gs_chunk *chunk, struct gs_exchange *exchange, size_t choice,
                   const struct gs_chunk_form *form, struct gs_text text)
{
    char digits[24];
    struct gs_writer writer = {.buffer = &chunk->line,
                               .status = gs_chunk_begun(chunk) ? GS_OK : GS_OUT_OF_MEMORY};
    gs_format(digits, sizeof digits, "%zu", choice);
    gs_buffer_clear(&chunk->line);
    gs_write_text(&writer, (struct gs_text){chunk->head.data, chunk->head.size});
    gs_write(&writer, digits);
    gs_write(&writer, form->open);
    gs_write_json_string(&writer, text);
    if (form->second) {
        gs_write(&writer, form->second);
        gs_write_json_string(&writer, text);
    }
    gs_write(&writer, form->close);
    gs_write(&writer, ",\"logprobs\":null,\"finish_reason\":null}]");
    gs_write(&writer, chunk->has_usage ? ",\"usage\":null}" : "}");
    if (writer.status == GS_OK)
        gs_stream_text(exchange, NULL, chunk->line.data, chunk->line.size);
    else
        gs_exchange_leave(exchange);
}

void gs_chunk_free(struct gs_chunk *chunk)
{
    gs_buffer_free(&chunk->head);
    gs_buffer_free(&chunk->line);
}
