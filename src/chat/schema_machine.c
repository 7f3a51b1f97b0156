#include "chat/schema_machine.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* The low bits of a frame's state; above them, blanks so far, or the node of a key. */
enum phase {
    OPEN,   /* the bracket is still to come */
    FIRST,  /* after it */
    KEY,    /* in a known name */
    OTHER,  /* in another key, which is a frame of its own */
    COLON,  /* after a key */
    VALUE,  /* after the colon */
    INSIDE, /* in a value or item, which is a frame of its own */
    AFTER,  /* after it */
    NEXT,   /* after a comma */
};

#define PHASE_BITS 4
#define MAX_INDENT 20 /* blanks after a line's end */

static enum phase phase_of(const struct gs_frame *frame)
{
    return (enum phase)(frame->state & ((1u << PHASE_BITS) - 1));
}

gs_status gs_machine_open(struct gs_machine *machine, const struct gs_grammar *grammar,
                          struct gs_error *error)
{
    *machine = (struct gs_machine){.grammar = grammar, .capacity = 1024, .count = 1};
    machine->frames = calloc(machine->capacity, sizeof *machine->frames);
    if (!machine->frames)
        return gs_fail_memory(error, machine->capacity * sizeof *machine->frames);
    machine->string_inside = gs_dfa_next(&grammar->dfas[0], 0, '"');
    return GS_OK;
}

void gs_machine_close(struct gs_machine *machine)
{
    free(machine->frames);
    *machine = (struct gs_machine){0};
}

static uint32_t add_frame(struct gs_machine *machine, struct gs_frame frame)
{
    if (machine->count == machine->capacity) {
        size_t capacity = 2 * machine->capacity;
        struct gs_frame *frames = realloc(machine->frames, capacity * sizeof *frames);
        if (!frames) {
            machine->status = GS_OUT_OF_MEMORY;
            return GS_PLACE_DONE;
        }
        machine->frames = frames;
        machine->capacity = capacity;
    }
    machine->frames[machine->count] = frame;
    return (uint32_t)machine->count++;
}

static uint32_t with_state(struct gs_machine *machine, struct gs_frame frame, enum phase phase, uint32_t more)
{
    frame.state = phase | more << PHASE_BITS;
    return add_frame(machine, frame);
}

static bool same_place(const struct gs_machine *machine, uint32_t x, uint32_t y)
{
    while (x != y) {
        const struct gs_frame *a = &machine->frames[x], *b = &machine->frames[y];
        if (x == GS_PLACE_DONE || y == GS_PLACE_DONE || a->rule != b->rule || a->state != b->state ||
            a->a != b->a || a->b != b->b || a->depth != b->depth)
            return false;
        x = a->parent;
        y = b->parent;
    }
    return true;
}

void gs_places_add(const struct gs_machine *machine, struct gs_places *places, uint32_t place, size_t limit)
{
    if (places->count >= limit || machine->status != GS_OK)
        return;
    for (uint32_t i = 0; i < places->count; i++)
        if (same_place(machine, places->list[i], place))
            return;
    places->list[places->count++] = place;
}

/* Can a value of this rule be completed on top of this depth? */
static bool fits(const struct gs_machine *machine, uint32_t rule, uint32_t depth)
{
    return rule != GS_NO_RULE && machine->grammar->rules[rule].height <= machine->grammar->max_depth - depth;
}

/* Steps every way to begin a value of this rule on top of `parent`. */
static void begin(struct gs_machine *machine, uint32_t rule, uint32_t parent, uint8_t byte, size_t limit,
                  struct gs_places *out)
{
    const struct gs_rule *r = &machine->grammar->rules[rule];
    uint32_t depth = machine->frames[parent].depth;
    size_t count = r->kind == GS_RULE_UNION ? r->as.alternatives.count : 1;
    for (size_t i = 0; i < count && machine->status == GS_OK; i++) {
        uint32_t one = r->kind == GS_RULE_UNION ? r->as.alternatives.list[i] : rule;
        if (!fits(machine, one, depth))
            continue;
        size_t before = machine->count;
        uint32_t n_out = out->count;
        uint32_t frame =
            add_frame(machine, (struct gs_frame){.rule = one, .parent = parent, .depth = depth + 1});
        gs_machine_step(machine, frame, byte, limit, out);
        if (out->count == n_out)
            machine->count = before; /* nothing refers to it */
    }
}

void gs_machine_start(struct gs_machine *machine, struct gs_places *places)
{
    const struct gs_rule *r = &machine->grammar->rules[machine->grammar->root];
    size_t count = r->kind == GS_RULE_UNION ? r->as.alternatives.count : 1;
    places->count = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t one = r->kind == GS_RULE_UNION ? r->as.alternatives.list[i] : machine->grammar->root;
        if (fits(machine, one, 0))
            gs_places_add(machine, places, add_frame(machine, (struct gs_frame){.rule = one, .depth = 1}),
                          GS_MAX_PLACES);
    }
}

static uint32_t at_most(uint32_t value, uint32_t limit)
{
    return value < limit ? value : limit;
}

uint32_t gs_machine_return(struct gs_machine *machine, uint32_t parent, uint8_t label)
{
    if (parent == GS_PLACE_DONE)
        return GS_PLACE_DONE;
    struct gs_frame frame = machine->frames[parent];
    const struct gs_rule *rule = &machine->grammar->rules[frame.rule];
    if (rule->kind == GS_RULE_ARRAY) {
        const struct gs_rule_array *array = &rule->as.array;
        /* Beyond these, the number of items makes no difference. */
        uint32_t enough = array->min > array->n_prefix ? array->min : array->n_prefix;
        frame.a = array->max == GS_UNLIMITED ? at_most(frame.a + 1, enough) : frame.a + 1;
        return with_state(machine, frame, AFTER, 0);
    }
    const struct gs_rule_object *object = &rule->as.object;
    if (phase_of(&frame) == OTHER) {
        frame.a = object->n + 1 + (label & (GS_N_KEY_KINDS - 1));
        return with_state(machine, frame, COLON, 0);
    }
    frame.a = at_most(frame.a, object->n);
    if (object->counted)
        frame.b = object->max == GS_UNLIMITED ? at_most(frame.b + 1, object->min) : frame.b + 1;
    return with_state(machine, frame, AFTER, 0);
}

static void leave(struct gs_machine *machine, const struct gs_frame *frame, uint8_t label, size_t limit,
                  struct gs_places *out)
{
    gs_places_add(machine, out, gs_machine_return(machine, frame->parent, label), limit);
}

/* ---------------------------------------------------------------- strings, numbers, words */

static void step_lex(struct gs_machine *machine, struct gs_frame frame, const struct gs_rule *rule,
                     uint8_t byte, size_t limit, struct gs_places *out)
{
    const struct gs_dfa *dfa = &machine->grammar->dfas[rule->as.dfa];
    uint16_t next = gs_dfa_next(dfa, frame.state, byte);
    uint8_t label = dfa->label[frame.state];
    if (next != GS_DFA_DEAD && dfa->final[next]) {
        leave(machine, &frame, dfa->label[next], limit, out);
    } else if (next != GS_DFA_DEAD) {
        struct gs_frame moved = frame;
        moved.state = next;
        gs_places_add(machine, out, add_frame(machine, moved), limit);
    }
    if (label && frame.parent != GS_PLACE_DONE)
        gs_machine_step(machine, gs_machine_return(machine, frame.parent, label), byte, limit, out);
}

static void step_string(struct gs_machine *machine, struct gs_frame frame, const struct gs_rule *rule,
                        uint8_t byte, size_t limit, struct gs_places *out)
{
    const struct gs_dfa *dfa = &machine->grammar->dfas[0];
    uint16_t next = gs_dfa_next(dfa, frame.state, byte);
    uint32_t min = rule->as.string.min, max = rule->as.string.max;
    if (next == GS_DFA_DEAD)
        return;
    if (dfa->final[next]) {
        if (frame.a >= min)
            leave(machine, &frame, dfa->label[next], limit, out);
        return;
    }
    if (frame.state == machine->string_inside) {
        if (frame.a >= max)
            return;
        frame.a = max == GS_UNLIMITED ? at_most(frame.a + 1, min) : frame.a + 1;
    }
    frame.state = next;
    gs_places_add(machine, out, add_frame(machine, frame), limit);
}

/* ---------------------------------------------------------------- blanks */

/*
 * One blank, or the end of a line and up to MAX_INDENT blanks: enough for the usual styles, and no text is
 * endless for its blanks. *blanks: 0 none, 1 one blank, 2 ... a line's end and blanks.
 */
static bool step_blank(uint32_t *blanks, uint8_t byte, bool lines)
{
    if (*blanks == 0 && (byte == ' ' || (byte == '\n' && lines))) {
        *blanks = byte == ' ' ? 1 : 2;
        return true;
    }
    if (*blanks >= 2 && *blanks < 2 + MAX_INDENT && byte == ' ') {
        ++*blanks;
        return true;
    }
    return false;
}

/* ---------------------------------------------------------------- arrays */

static uint32_t item_rule(const struct gs_rule_array *array, uint32_t i)
{
    return i < array->n_prefix ? array->prefix[i] : array->items;
}

static void step_array(struct gs_machine *machine, struct gs_frame frame, const struct gs_rule_array *array,
                       uint8_t byte, size_t limit, struct gs_places *out)
{
    enum phase phase = phase_of(&frame);
    uint32_t blanks = frame.state >> PHASE_BITS, item = item_rule(array, frame.a);
    bool can_add = frame.a < array->max && fits(machine, item, frame.depth);
    bool can_close = frame.a >= array->min && phase != NEXT;
    if (phase == OPEN) {
        if (byte == '[')
            gs_places_add(machine, out, with_state(machine, frame, FIRST, 0), limit);
    } else if (byte == ' ' || byte == '\n') {
        if ((phase != AFTER || can_close) && step_blank(&blanks, byte, true))
            gs_places_add(machine, out, with_state(machine, frame, phase, blanks), limit);
    } else if (byte == ']') {
        if (can_close)
            leave(machine, &frame, 1, limit, out);
    } else if (phase == AFTER) {
        if (byte == ',' && blanks == 0 && can_add)
            gs_places_add(machine, out, with_state(machine, frame, NEXT, 0), limit);
    } else if (can_add) {
        begin(machine, item, with_state(machine, frame, INSIDE, 0), byte, limit, out);
    }
}

/* ---------------------------------------------------------------- objects */

/* Properties from number `i` on that could still be generated. */
static uint32_t available(const struct gs_machine *machine, const struct gs_rule_object *object, uint32_t i,
                          uint32_t depth)
{
    uint32_t n = 0;
    for (; i < object->n; i++)
        n += fits(machine, object->values[i], depth);
    return n;
}

static bool known_allowed(const struct gs_machine *machine, const struct gs_rule_object *object,
                          const struct gs_frame *frame, uint32_t i)
{
    if (!fits(machine, object->values[i], frame->depth))
        return false;
    if (!object->counted)
        return true;
    uint32_t n = frame->b + 1;
    return n <= object->max && object->required_left[i + 1] <= object->max - n;
}

/* Would enough properties be left for `min` after this one? If not, then neither after a later one. */
static bool enough_left(const struct gs_machine *machine, const struct gs_rule_object *object,
                        const struct gs_frame *frame, uint32_t i)
{
    uint32_t n = frame->b + 1;
    return !object->counted || n >= object->min ||
           available(machine, object, i + 1, frame->depth) >= object->min - n;
}

/* Is one of the properties below a node possible now? They come in order, and no required one is left out. */
static bool node_allowed(const struct gs_machine *machine, const struct gs_rule_object *object,
                         const struct gs_frame *frame, const struct gs_key_node *node)
{
    uint32_t from = at_most(frame->a, object->n), last = object->next_required[from];
    const uint32_t *list = object->lists + node->list;
    uint32_t low = 0, high = node->n_list;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (list[middle] < from)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < node->n_list && list[low] <= last; low++)
        if (known_allowed(machine, object, frame, list[low]))
            return enough_left(machine, object, frame, list[low]);
    return false;
}

/* The rule of another key that may come now, or GS_NO_RULE. */
static uint32_t other_key(const struct gs_machine *machine, const struct gs_rule_object *object,
                          const struct gs_frame *frame)
{
    uint32_t room = machine->grammar->max_depth - frame->depth;
    if (object->key == GS_NO_RULE || object->required_left[at_most(frame->a, object->n)] > 0 ||
        (object->counted && frame->b >= object->max))
        return GS_NO_RULE;
    if (object->other_height <= room)
        return object->key;
    return frame->b < object->min && object->low_height <= room ? object->low_key : GS_NO_RULE;
}

/* One byte further in the known names; also the quotation mark that begins one. */
static void step_key(struct gs_machine *machine, struct gs_frame frame, const struct gs_rule_object *object,
                     uint32_t at, uint8_t byte, size_t limit, struct gs_places *out)
{
    const struct gs_key_node *node = &object->nodes[at];
    for (uint32_t i = 0; i < node->n_children; i++) {
        uint32_t child = node->first_child + i;
        const struct gs_key_node *next = &object->nodes[child];
        if (next->byte != byte || !node_allowed(machine, object, &frame, next))
            continue;
        if (next->n_children == 0) {
            frame.a = object->lists[next->list] + 1;
            gs_places_add(machine, out, with_state(machine, frame, COLON, 0), limit);
        } else {
            gs_places_add(machine, out, with_state(machine, frame, KEY, child), limit);
        }
        return;
    }
}

static void step_value(struct gs_machine *machine, struct gs_frame frame, const struct gs_rule_object *object,
                       uint8_t byte, size_t limit, struct gs_places *out)
{
    uint32_t blanks = frame.state >> PHASE_BITS;
    if (byte == ' ' && step_blank(&blanks, byte, false)) {
        gs_places_add(machine, out, with_state(machine, frame, VALUE, blanks), limit);
    } else if (byte != ' ') {
        uint32_t rule = frame.a <= object->n ? object->values[frame.a - 1]
                                             : object->other_values[frame.a - object->n - 1];
        begin(machine, rule, with_state(machine, frame, INSIDE, 0), byte, limit, out);
    }
}

static void step_object(struct gs_machine *machine, struct gs_frame frame,
                        const struct gs_rule_object *object, uint8_t byte, size_t limit,
                        struct gs_places *out)
{
    enum phase phase = phase_of(&frame);
    uint32_t more = frame.state >> PHASE_BITS;
    bool can_close = (phase == FIRST || phase == AFTER) &&
                     object->required_left[at_most(frame.a, object->n)] == 0 &&
                     (!object->counted || frame.b >= object->min);
    if (phase == OPEN) {
        if (byte == '{')
            gs_places_add(machine, out, with_state(machine, frame, FIRST, 0), limit);
    } else if (phase == KEY) {
        step_key(machine, frame, object, more, byte, limit, out);
    } else if (phase == COLON) {
        if (byte == ':')
            gs_places_add(machine, out, with_state(machine, frame, VALUE, 0), limit);
    } else if (phase == VALUE) {
        step_value(machine, frame, object, byte, limit, out);
    } else if (byte == ' ' || byte == '\n') {
        if ((phase != AFTER || can_close) && step_blank(&more, byte, true))
            gs_places_add(machine, out, with_state(machine, frame, phase, more), limit);
    } else if (byte == '}') {
        if (can_close)
            leave(machine, &frame, 1, limit, out);
    } else if (phase == AFTER) {
        if (byte == ',' && more == 0 &&
            (node_allowed(machine, object, &frame, &object->nodes[0]) ||
             other_key(machine, object, &frame) != GS_NO_RULE))
            gs_places_add(machine, out, with_state(machine, frame, NEXT, 0), limit);
    } else if (byte == '"') {
        step_key(machine, frame, object, 0, byte, limit, out);
        uint32_t key = other_key(machine, object, &frame);
        if (key != GS_NO_RULE)
            begin(machine, key, with_state(machine, frame, OTHER, 0), byte, limit, out);
    }
}

void gs_machine_step(struct gs_machine *machine, uint32_t place, uint8_t byte, size_t limit,
                     struct gs_places *out)
{
    if (place == GS_PLACE_DONE || machine->status != GS_OK)
        return;
    struct gs_frame frame = machine->frames[place];
    const struct gs_rule *rule = &machine->grammar->rules[frame.rule];
    switch (rule->kind) {
    case GS_RULE_LEX:
        step_lex(machine, frame, rule, byte, limit, out);
        break;
    case GS_RULE_STRING:
        step_string(machine, frame, rule, byte, limit, out);
        break;
    case GS_RULE_ARRAY:
        step_array(machine, frame, &rule->as.array, byte, limit, out);
        break;
    case GS_RULE_OBJECT:
        step_object(machine, frame, &rule->as.object, byte, limit, out);
        break;
    case GS_RULE_UNION:
        break; /* never on the stack */
    }
}

bool gs_machine_can_end(const struct gs_machine *machine, uint32_t place)
{
    if (place == GS_PLACE_DONE)
        return true;
    const struct gs_frame *frame = &machine->frames[place];
    const struct gs_rule *rule = &machine->grammar->rules[frame->rule];
    return frame->parent == GS_PLACE_DONE && rule->kind == GS_RULE_LEX &&
           machine->grammar->dfas[rule->as.dfa].label[frame->state] != 0;
}
