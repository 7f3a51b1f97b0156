#include "chat/markers.h"

#include "base/status.h"

gs_status gs_markers_find(const struct gs_vocab *vocab, struct gs_markers *markers, struct gs_error *error)
{
    const struct {
        const char *text;
        int32_t *id;
    } needed[] = {{"<|start|>", &markers->start},         {"<|end|>", &markers->end},
                  {"<|message|>", &markers->message},     {"<|channel|>", &markers->channel},
                  {"<|constrain|>", &markers->constrain}, {"<|call|>", &markers->call},
                  {"<|return|>", &markers->final_return}};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        *needed[i].id = gs_vocab_special(vocab, needed[i].text);
        if (*needed[i].id < 0)
            return gs_fail(error, GS_UNSUPPORTED,
                           "the vocabulary has no token %s: conversations need the special tokens of gpt-oss",
                           needed[i].text);
    }
    markers->end_of_text = gs_vocab_special(vocab, "<|endoftext|>");
    return GS_OK;
}

bool gs_markers_is_stop(const struct gs_markers *markers, int32_t id)
{
    return id >= 0 && (id == markers->final_return || id == markers->call || id == markers->end_of_text);
}
