/* Which message made the call of an id: what a tool's result is paired by. Zero-initialise; free releases. */
#ifndef GS_CHAT_CALL_TABLE_H
#define GS_CHAT_CALL_TABLE_H

#include "chat/writer.h"

struct gs_call_slot {
    struct gs_text id; /* not set: free */
    size_t message;
};

struct gs_call_table {
    struct gs_call_slot *slots; /* [capacity], a power of two */
    size_t capacity;
    size_t count;
    uint64_t seed; /* of this process and table: ids come from outside and must not be made to collide */
};

/* The ids are borrowed. A later call of the same id takes its place. */
gs_status gs_call_table_put(struct gs_call_table *table, struct gs_text id, size_t message,
                            struct gs_error *error);
bool gs_call_table_find(const struct gs_call_table *table, struct gs_text id, size_t *message);
void gs_call_table_free(struct gs_call_table *table);

#endif
