/*
 * Runs a grammar over bytes. A *place* is a stack of frames: where the text stands in each value that is
 * open. There can be several places at once, while alternatives have not been told apart yet. Every place can
 * reach the end of the text: what could not, is not entered (rules have heights, and the stack a limit).
 */
#ifndef GS_CHAT_SCHEMA_MACHINE_H
#define GS_CHAT_SCHEMA_MACHINE_H

#include "chat/schema_grammar.h"

#define GS_MAX_PLACES  256 /* while a token is read */
#define GS_KEPT_PLACES 32  /* between tokens: more alternatives than that are not pursued */
#define GS_PLACE_DONE  0u  /* the text is complete */

struct gs_frame {
    uint32_t rule, state;
    uint32_t a; /* STRING: characters, ARRAY: items so far, OBJECT: the next property, or n + 1 + kind of
                   another key */
    uint32_t b; /* OBJECT, if counted: properties so far */
    uint32_t parent, depth;
};

struct gs_places {
    uint32_t list[GS_MAX_PLACES]; /* frames: the top of each stack */
    uint32_t count;
};

struct gs_machine {
    const struct gs_grammar *grammar;
    struct gs_frame *frames; /* frames[0] stands for the end */
    size_t count, capacity;
    uint32_t string_inside; /* the state of dfas[0] between two characters */
    gs_status status;       /* GS_OUT_OF_MEMORY: the first failure */
};

gs_status gs_machine_open(struct gs_machine *machine, const struct gs_grammar *grammar,
                          struct gs_error *error);
void gs_machine_close(struct gs_machine *machine);

/* The places before the first byte. */
void gs_machine_start(struct gs_machine *machine, struct gs_places *places);

/* Adds the places after one more byte, at most `limit` in all. */
void gs_machine_step(struct gs_machine *machine, uint32_t place, uint8_t byte, size_t limit,
                     struct gs_places *out);

/* The place after the value on top, which ended with this label. */
uint32_t gs_machine_return(struct gs_machine *machine, uint32_t parent, uint8_t label);

bool gs_machine_can_end(const struct gs_machine *machine, uint32_t place);

/* Adds a place if it is new and there is room. */
void gs_places_add(const struct gs_machine *machine, struct gs_places *places, uint32_t place, size_t limit);

#endif
