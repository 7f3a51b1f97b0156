/* A token as JSON. */
#ifndef GS_CHAT_TOKEN_JSON_H
#define GS_CHAT_TOKEN_JSON_H

#include "text/vocab.h"

#include <jansson.h>

/* Its text: bytes that are no UTF-8 as U+FFFD. NULL if memory is out. */
json_t *gs_token_json(const struct gs_vocab *vocab, int32_t id);

/* Its bytes as numbers: a token need not be whole characters. */
json_t *gs_token_bytes_json(const struct gs_vocab *vocab, int32_t id);

#endif
