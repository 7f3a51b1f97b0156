/*
 * Responses that clients may come back to: by id, only with the key that made them, bounded in bytes; those
 * that were used longest ago give way. Any thread.
 */
#ifndef GS_SERVER_RESPONSE_STORE_H
#define GS_SERVER_RESPONSE_STORE_H

#include "gossamer.h"

#include <jansson.h>

struct gs_response_store;

gs_status gs_response_store_open(size_t max_bytes, struct gs_response_store **out, struct gs_error *error);
void gs_response_store_close(struct gs_response_store *store);

/*
 * `response` as the client got it, `items`: all input and output items up to its end, `course`: what
 * gs_response_replay needs. All are copied. What is larger than the store is not kept.
 */
void gs_response_store_put(struct gs_response_store *store, const char *id, size_t key,
                           const json_t *response, const json_t *items, const char *course);

/* New references; false if there is none of this id and key. Each may be NULL. */
bool gs_response_store_get(struct gs_response_store *store, const char *id, size_t key, json_t **response,
                           json_t **items, json_t **course);

/* The response, a new reference, of whose output the item of this id is; NULL if there is none of this key.
 */
json_t *gs_response_store_find_item(struct gs_response_store *store, const char *item_id, size_t key);

bool gs_response_store_remove(struct gs_response_store *store, const char *id, size_t key);

#endif
