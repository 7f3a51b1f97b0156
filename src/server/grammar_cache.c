#include "server/grammar_cache.h"

#include "base/status.h"
#include "chat/json_text.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define N_ENTRY 64

struct entry {
    struct gs_buffer text; /* of the schema; empty: any object */
    struct gs_grammar *grammar;
    struct gs_schema_report report;
    uint64_t used;
};

struct gs_grammar_cache {
    pthread_mutex_t mutex;
    struct entry entries[N_ENTRY];
    uint64_t clock;
};

gs_status gs_grammar_cache_open(struct gs_grammar_cache **out, struct gs_error *error)
{
    *out = calloc(1, sizeof **out);
    if (!*out || pthread_mutex_init(&(*out)->mutex, NULL) != 0) {
        free(*out);
        *out = NULL;
        return gs_fail_memory(error, sizeof **out);
    }
    return GS_OK;
}

static void empty(struct entry *entry)
{
    gs_grammar_close(entry->grammar);
    gs_buffer_free(&entry->text);
    *entry = (struct entry){0};
}

void gs_grammar_cache_close(struct gs_grammar_cache *cache)
{
    if (!cache)
        return;
    for (size_t i = 0; i < N_ENTRY; i++)
        empty(&cache->entries[i]);
    pthread_mutex_destroy(&cache->mutex);
    free(cache);
}

/* Under the mutex. */
static struct gs_grammar *find(struct gs_grammar_cache *cache, const struct gs_buffer *text,
                               struct gs_schema_report *report)
{
    for (size_t i = 0; i < N_ENTRY; i++) {
        struct entry *entry = &cache->entries[i];
        if (!entry->grammar || entry->text.size != text->size ||
            memcmp(entry->text.data, text->data, text->size) != 0)
            continue;
        entry->used = ++cache->clock;
        *report = entry->report;
        return gs_grammar_hold(entry->grammar);
    }
    return NULL;
}

/* Under the mutex: in place of the one that was not asked for the longest. Takes the text. */
static void put(struct gs_grammar_cache *cache, struct gs_buffer *text, struct gs_grammar *grammar,
                const struct gs_schema_report *report)
{
    struct entry *oldest = &cache->entries[0];
    for (size_t i = 1; i < N_ENTRY; i++)
        if (cache->entries[i].used < oldest->used)
            oldest = &cache->entries[i];
    empty(oldest);
    *oldest = (struct entry){*text, gs_grammar_hold(grammar), *report, ++cache->clock};
    *text = (struct gs_buffer){0};
}

gs_status gs_grammar_cache_get(struct gs_grammar_cache *cache, const json_t *schema, struct gs_grammar **out,
                               struct gs_schema_report *report, struct gs_error *error)
{
    struct gs_buffer text = {0};
    struct gs_writer writer = {.buffer = &text, .status = GS_OK, .error = error};
    *report = (struct gs_schema_report){0};
    *out = NULL;
    gs_status status = gs_buffer_append(&text, "", 0, error);
    if (status == GS_OK && schema) {
        gs_write_json(&writer, schema);
        status = writer.status;
    }
    if (status != GS_OK)
        goto cleanup;
    pthread_mutex_lock(&cache->mutex);
    *out = find(cache, &text, report);
    pthread_mutex_unlock(&cache->mutex);
    if (*out)
        goto cleanup;
    status =
        schema ? gs_schema_compile(schema, NULL, out, report, error) : gs_grammar_json_object(out, error);
    if (status != GS_OK)
        goto cleanup;
    pthread_mutex_lock(&cache->mutex);
    put(cache, &text, *out, report);
    pthread_mutex_unlock(&cache->mutex);
cleanup:
    gs_buffer_free(&text);
    return status;
}
