/*
 * Fuzzes the schema compiler and the machine: src/chat/schema_*.c. Input: a JSON schema, which is compiled
 * with small limits; or, after a first byte 'r', a pattern. From every place that the input's own bytes lead
 * to, some byte must lead on or the text must be complete.
 */
#include "chat/json_load.h"
#include "chat/schema_machine.h"
#include "chat/schema_mask.h"
#include "chat/schema_regex.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

#define MAX_STEPS 300

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void step_all(struct gs_machine *machine, const struct gs_places *now, uint8_t byte,
                     struct gs_places *next)
{
    next->count = 0;
    for (uint32_t k = 0; k < now->count; k++)
        gs_machine_step(machine, now->list[k], byte, GS_MAX_PLACES, next);
}

/* Walks along bytes picked by the input among those that lead on. */
static void walk(const struct gs_grammar *grammar, const uint8_t *input, size_t size)
{
    struct gs_machine machine;
    struct gs_places now, next;
    struct gs_error error;
    if (gs_machine_open(&machine, grammar, &error) != GS_OK)
        return;
    gs_machine_start(&machine, &now);
    check(now.count > 0);
    for (size_t i = 0; i < MAX_STEPS; i++) {
        bool can_end = false;
        unsigned first = size ? input[i % size] : 0, offset = 0;
        for (uint32_t k = 0; k < now.count; k++)
            can_end |= gs_machine_can_end(&machine, now.list[k]);
        for (next.count = 0; offset < 256 && next.count == 0; offset++)
            step_all(&machine, &now, (uint8_t)(first + offset), &next);
        check(next.count > 0 || can_end);
        if (next.count == 0)
            break;
        now = next;
    }
    gs_machine_close(&machine);
}

static void compile_pattern(const char *text, size_t size)
{
    struct gs_schema_budget budget = {2000000, 20000};
    struct gs_dfa dfa;
    struct gs_error error;
    bool supported = true;
    gs_status status = gs_regex_dfa((struct gs_text){text, size}, &budget, &dfa, &supported, &error);
    if (status == GS_OK) {
        check(supported || dfa.n_states == 0);
        for (uint32_t s = 0; s < dfa.n_states; s++)
            for (uint32_t c = 0; c < dfa.n_classes; c++)
                check(dfa.next[s * dfa.n_classes + c] == GS_DFA_DEAD ||
                      dfa.next[s * dfa.n_classes + c] < dfa.n_states);
    } else {
        check(!strpbrk(error.message, "\n\r\033"));
    }
    gs_dfa_free(&dfa);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    static const struct gs_schema_limits limits = {
        .max_rules = 300, .max_states = 20000, .max_work = 2000000, .max_depth = 16};
    struct gs_grammar *grammar = NULL;
    struct gs_schema_report report;
    struct gs_error error;
    json_t *schema;
    if (size > 0 && input[0] == 'r') {
        compile_pattern((const char *)input + 1, size - 1);
        return 0;
    }
    if (gs_json_load("fuzz", (const char *)input, size, &schema, &error) != GS_OK)
        return 0;
    gs_status status = gs_schema_compile(schema, &limits, &grammar, &report, &error);
    if (status == GS_OK) {
        check(report.count <= GS_MAX_UNSUPPORTED);
        walk(grammar, input, size);
    } else {
        check(!grammar && (status == GS_MALFORMED || status == GS_UNSUPPORTED));
        check(!strpbrk(error.message, "\n\r\033"));
    }
    gs_grammar_close(grammar);
    json_decref(schema);
    return 0;
}
