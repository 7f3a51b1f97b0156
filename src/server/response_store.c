#include "server/response_store.h"

#include "base/buffer.h"
#include "base/status.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Kept as text: its size is what it costs, and no reader shares memory with another. */
struct entry {
    struct entry *older, *newer;
    char *text; /* {"response": ..., "items": ..., "course": ...} */
    size_t size;
    struct gs_buffer item_ids; /* of its output, each with a NUL behind it */
    size_t key;
    char id[48];
};

struct gs_response_store {
    pthread_mutex_t mutex;
    struct entry *oldest, *newest;
    size_t bytes, max_bytes;
};

gs_status gs_response_store_open(size_t max_bytes, struct gs_response_store **out, struct gs_error *error)
{
    struct gs_response_store *store = calloc(1, sizeof *store);
    *out = store;
    if (!store)
        return gs_fail_memory(error, sizeof *store);
    pthread_mutex_init(&store->mutex, NULL);
    store->max_bytes = max_bytes;
    return GS_OK;
}

static size_t cost(const struct entry *entry)
{
    return sizeof *entry + entry->size + entry->item_ids.size;
}

static void unlink_entry(struct gs_response_store *store, struct entry *entry)
{
    *(entry->older ? &entry->older->newer : &store->oldest) = entry->newer;
    *(entry->newer ? &entry->newer->older : &store->newest) = entry->older;
    store->bytes -= cost(entry);
}

static void link_newest(struct gs_response_store *store, struct entry *entry)
{
    entry->older = store->newest;
    entry->newer = NULL;
    *(store->newest ? &store->newest->newer : &store->oldest) = entry;
    store->newest = entry;
    store->bytes += cost(entry);
}

static void free_entry(struct entry *entry)
{
    gs_buffer_free(&entry->item_ids);
    free(entry->text);
    free(entry);
}

void gs_response_store_close(struct gs_response_store *store)
{
    if (!store)
        return;
    for (struct entry *entry = store->oldest, *next; entry; entry = next) {
        next = entry->newer;
        free_entry(entry);
    }
    pthread_mutex_destroy(&store->mutex);
    free(store);
}

static bool has_item(const struct entry *entry, const char *id)
{
    const struct gs_buffer *ids = &entry->item_ids;
    size_t at = 0;
    while (at < ids->size && strcmp(ids->data + at, id) != 0)
        at += strlen(ids->data + at) + 1;
    return at < ids->size;
}

static struct entry *find(struct gs_response_store *store, const char *id, size_t key)
{
    for (struct entry *entry = store->newest; entry; entry = entry->older)
        if (entry->key == key && strcmp(entry->id, id) == 0)
            return entry;
    return NULL;
}

static bool list_items(const json_t *response, struct gs_buffer *ids)
{
    const json_t *output = json_object_get(response, "output");
    gs_status status = GS_OK;
    for (size_t i = 0; i < json_array_size(output) && status == GS_OK; i++) {
        const char *id = json_string_value(json_object_get(json_array_get(output, i), "id"));
        if (id)
            status = gs_buffer_append(ids, id, strlen(id) + 1, NULL);
    }
    return status == GS_OK;
}

void gs_response_store_put(struct gs_response_store *store, const char *id, size_t key,
                           const json_t *response, const json_t *items, const char *course)
{
    struct entry *entry = calloc(1, sizeof *entry);
    json_t *all = json_pack("{s:O, s:O, s:s}", "response", response, "items", items, "course", course);
    if (entry && all && strlen(id) < sizeof entry->id)
        entry->text = json_dumps(all, JSON_COMPACT);
    json_decref(all);
    if (!entry || !entry->text || !list_items(response, &entry->item_ids)) {
        if (entry)
            free_entry(entry);
        return;
    }
    gs_format(entry->id, sizeof entry->id, "%s", id);
    entry->key = key;
    entry->size = strlen(entry->text);
    pthread_mutex_lock(&store->mutex);
    if (cost(entry) > store->max_bytes) {
        pthread_mutex_unlock(&store->mutex);
        free_entry(entry);
        return;
    }
    while (store->oldest && store->bytes + cost(entry) > store->max_bytes) {
        struct entry *oldest = store->oldest;
        unlink_entry(store, oldest);
        free_entry(oldest);
    }
    link_newest(store, entry);
    pthread_mutex_unlock(&store->mutex);
}

/* What the entry holds, a new reference; unlocks. NULL for NULL, or if memory is out. */
static json_t *read_entry(struct gs_response_store *store, struct entry *entry)
{
    char *text = entry ? malloc(entry->size) : NULL;
    size_t size = entry ? entry->size : 0;
    if (text) {
        memcpy(text, entry->text, size);
        unlink_entry(store, entry);
        link_newest(store, entry);
    }
    pthread_mutex_unlock(&store->mutex);
    json_t *all = text ? json_loadb(text, size, JSON_ALLOW_NUL, NULL) : NULL;
    free(text);
    return all;
}

bool gs_response_store_get(struct gs_response_store *store, const char *id, size_t key, json_t **response,
                           json_t **items, json_t **course)
{
    pthread_mutex_lock(&store->mutex);
    json_t *all = read_entry(store, find(store, id, key));
    if (response)
        *response = json_incref(json_object_get(all, "response"));
    if (items)
        *items = json_incref(json_object_get(all, "items"));
    if (course)
        *course = json_incref(json_object_get(all, "course"));
    bool found = all != NULL;
    json_decref(all);
    return found;
}

json_t *gs_response_store_find_item(struct gs_response_store *store, const char *item_id, size_t key)
{
    pthread_mutex_lock(&store->mutex);
    struct entry *entry = store->newest;
    while (entry && (entry->key != key || !has_item(entry, item_id)))
        entry = entry->older;
    json_t *all = read_entry(store, entry);
    json_t *response = json_incref(json_object_get(all, "response"));
    json_decref(all);
    return response;
}

bool gs_response_store_remove(struct gs_response_store *store, const char *id, size_t key)
{
    pthread_mutex_lock(&store->mutex);
    struct entry *entry = find(store, id, key);
    if (entry)
        unlink_entry(store, entry);
    pthread_mutex_unlock(&store->mutex);
    if (entry)
        free_entry(entry);
    return entry != NULL;
}
