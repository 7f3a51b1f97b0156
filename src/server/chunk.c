#include "server/chunk.h"

#include "chat/json_text.h"
#include "server/exchange.h"

bool gs_chunk_begun(const struct gs_chunk *chunk)
{
    return chunk->head.size > 0;
}

gs_status gs_chunk_begin(struct gs_chunk *chunk, json_t *object, bool has_usage)
{
    struct gs_writer writer = {
        .buffer = &chunk->head, .status = object ? GS_OK : GS_OUT_OF_MEMORY, .one_line = true};
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
    if (!gs_chunk_begun(chunk)) {
        gs_exchange_leave(exchange);
        return;
    }
    struct gs_writer writer = gs_stream_open(exchange, NULL);
    gs_write_text(&writer, (struct gs_text){chunk->head.data, chunk->head.size});
    gs_write_number(&writer, choice);
    gs_write(&writer, form->open);
    gs_write_json_string(&writer, text);
    if (form->second) {
        gs_write(&writer, form->second);
        gs_write_json_string(&writer, text);
    }
    gs_write(&writer, form->close);
    gs_write(&writer, chunk->has_usage ? ",\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}"
                                       : ",\"logprobs\":null,\"finish_reason\":null}]}");
    gs_stream_close(exchange, &writer);
}

void gs_chunk_free(struct gs_chunk *chunk)
{
    gs_buffer_free(&chunk->head);
}
