#include "server/items.h"

#include "base/status.h"

#include <stdlib.h>

static struct gs_item *last_open(const struct gs_items *items)
{
    struct gs_item *last = items->count > 0 ? &items->list[items->count - 1] : NULL;
    return last && !last->closed ? last : NULL;
}

void gs_items_close(struct gs_items *items, const struct gs_items_watcher *watcher)
{
    struct gs_item *item = last_open(items);
    if (!item)
        return;
    item->closed = true;
    if (!items->failed)
        watcher->closed(watcher->user, item, items->count - 1);
}

void gs_items_cut(struct gs_items *items, const struct gs_items_watcher *watcher)
{
    const struct gs_item *item = last_open(items);
    if (item && item->kind != GS_ITEM_CALL)
        gs_items_close(items, watcher);
}

static struct gs_item *open_item(struct gs_items *items, const struct gs_items_watcher *watcher,
                                 enum gs_item_kind kind)
{
    gs_items_close(items, watcher);
    if (items->count == items->capacity) {
        size_t capacity = items->capacity ? items->capacity * 2 : 4;
        struct gs_item *list = realloc(items->list, capacity * sizeof *list);
        if (!list) {
            items->failed = true;
            return NULL;
        }
        items->list = list;
        items->capacity = capacity;
    }
    struct gs_item *item = &items->list[items->count++];
    *item = (struct gs_item){.kind = kind, .id = gs_random_id(watcher->prefixes[kind])};
    return item;
}

static void grow(struct gs_items *items, const struct gs_items_watcher *watcher, struct gs_item *item,
                 const struct gs_event *event)
{
    json_t *logprobs = NULL;
    if (gs_buffer_append(&item->text, event->text.bytes, event->text.size, NULL) != GS_OK)
        items->failed = true;
    if (item->kind == GS_ITEM_MESSAGE && event->n_logprob > 0 && watcher->logprobs)
        logprobs = watcher->logprobs(watcher->user, event);
    if (logprobs && !item->logprobs)
        item->logprobs = json_array();
    if (logprobs && json_array_extend(item->logprobs, logprobs) != 0)
        items->failed = true;
    if (!items->failed && (event->text.size > 0 || logprobs))
        watcher->grew(watcher->user, item, items->count - 1, event->text, logprobs);
    json_decref(logprobs);
}

static void take_text(struct gs_items *items, const struct gs_items_watcher *watcher, enum gs_item_kind kind,
                      const struct gs_event *event)
{
    struct gs_item *item = last_open(items);
    if (!item || item->kind != kind || item->ended) {
        item = open_item(items, watcher, kind);
        if (item)
            watcher->opened(watcher->user, item, items->count - 1);
    }
    if (item)
        grow(items, watcher, item, event);
}

static void take_call(struct gs_items *items, const struct gs_items_watcher *watcher,
                      const struct gs_event *event)
{
    struct gs_item *item = open_item(items, watcher, GS_ITEM_CALL);
    if (!item)
        return;
    gs_format(item->call_id, sizeof item->call_id, "%s", event->call_id);
    if (gs_buffer_append(&item->name, event->text.bytes, event->text.size, NULL) != GS_OK)
        items->failed = true;
    else
        watcher->opened(watcher->user, item, items->count - 1);
}

void gs_items_take(struct gs_items *items, const struct gs_items_watcher *watcher,
                   const struct gs_event *event)
{
    if (items->failed)
        return;
    switch (event->kind) {
    case GS_EVENT_REASONING:
        take_text(items, watcher, GS_ITEM_REASONING, event);
        break;
    case GS_EVENT_TEXT:
        take_text(items, watcher, GS_ITEM_MESSAGE, event);
        break;
    case GS_EVENT_CALL:
        take_call(items, watcher, event);
        break;
    case GS_EVENT_ARGUMENTS:
        if (last_open(items) && last_open(items)->kind == GS_ITEM_CALL)
            grow(items, watcher, last_open(items), event);
        break;
    case GS_EVENT_MESSAGE_DONE: /* whether it was cut is known only at the end of the choice */
        if (last_open(items))
            last_open(items)->ended = true;
        break;
    default:
        break;
    }
}

void gs_items_free(struct gs_items *items)
{
    for (size_t i = 0; i < items->count; i++) {
        gs_buffer_free(&items->list[i].text);
        gs_buffer_free(&items->list[i].name);
        json_decref(items->list[i].logprobs);
    }
    free(items->list);
    *items = (struct gs_items){0};
}
