/*
 * A choice's events as a list of items: pieces of reasoning, messages, calls, in the order in which the model
 * wrote them. What the Responses and Messages dialects share.
 *
 * Zero-initialise; gs_items_free releases.
 */
#ifndef GS_SERVER_ITEMS_H
#define GS_SERVER_ITEMS_H

#include "base/buffer.h"
#include "server/events.h"
#include "server/random_id.h"

enum gs_item_kind {
    GS_ITEM_REASONING,
    GS_ITEM_MESSAGE,
    GS_ITEM_CALL,
};

struct gs_item {
    enum gs_item_kind kind;
    struct gs_random_id id; /* its prefix is the watcher's choice */
    struct gs_buffer text;  /* reasoning, message, or arguments as generated */
    struct gs_buffer name;  /* of a call */
    char call_id[48];
    json_t *logprobs; /* array, of a message whose tokens have them; NULL: none */
    bool ended;       /* its message is complete; it closes with whatever comes next */
    bool closed;
};

struct gs_items;

/* What happens to the list. `event` is what made the item grow; its text may be empty. */
struct gs_items_watcher {
    const char *prefixes[3]; /* of ids, by kind */
    void (*opened)(void *user, const struct gs_item *item, size_t index);
    void (*grew)(void *user, const struct gs_item *item, size_t index, struct gs_text text, json_t *logprobs);
    void (*closed)(void *user, const struct gs_item *item, size_t index);
    /* JSON of an event's logprobs: an array; NULL: not wanted. May be absent. */
    json_t *(*logprobs)(void *user, const struct gs_event *event);
    void *user;
};

struct gs_items {
    struct gs_item *list; /* [count] */
    size_t count, capacity;
    bool failed; /* memory ran out: the list is not whole */
};

/* Events of text and calls; others do nothing. */
void gs_items_take(struct gs_items *items, const struct gs_items_watcher *watcher,
                   const struct gs_event *event);

/* Closes what is open: at the end of a choice. */
void gs_items_close(struct gs_items *items, const struct gs_items_watcher *watcher);

/* At an error: a cut-off call stays open, so that nobody carries it out. */
void gs_items_cut(struct gs_items *items, const struct gs_items_watcher *watcher);

void gs_items_free(struct gs_items *items);

#endif
