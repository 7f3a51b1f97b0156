/*
 * The small parts of a tokenizer.json: those that decide how text is cut, and the added tokens. Each is
 * handed over as the JSON text of its value; NULL text stands for a key that is not there.
 */
#ifndef GS_TEXT_TOKENIZER_LAYOUT_H
#define GS_TEXT_TOKENIZER_LAYOUT_H

#include "text/added_tokens.h"

struct gs_json_text {
    const char *text;
    size_t size;
};

/* Of the whole file, and of its "model". */
struct gs_tokenizer_layout {
    struct gs_json_text added_tokens, normalizer, pre_tokenizer, decoder;
    struct gs_json_text type, dropout, prefix, suffix, byte_fallback, ignore_merges;
};

/* GS_UNSUPPORTED, naming what was found and what is supported, for any layout but that of o200k. */
gs_status gs_tokenizer_check_file(const struct gs_tokenizer_layout *layout, struct gs_error *error);
gs_status gs_tokenizer_check_model(const struct gs_tokenizer_layout *layout, bool *ignore_merges,
                                   struct gs_error *error);

/* Reads the added tokens and indexes them. */
gs_status gs_tokenizer_read_added(const struct gs_tokenizer_layout *layout, struct gs_added_tokens *added,
                                  struct gs_error *error);

#endif
