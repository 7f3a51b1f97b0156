/* What the tests of conversations share: vocabularies, JSON, and running the parser over a text. */
#ifndef TESTS_CHAT_HARMONY_CASE_H
#define TESTS_CHAT_HARMONY_CASE_H

#include "chat/assemble.h"
#include "chat/conversation_json.h"
#include "chat/harmony_json.h"
#include "chat/harmony_render.h"

#include "tests/support/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DEMO_VOCAB "models/demo/tokenizer.json"

/* The published vocabulary, or NULL and a line that says how to make it. */
static inline struct gs_vocab *open_o200k(void)
{
    if (access(O200K_VOCAB, R_OK) == 0)
        return open_vocab(O200K_VOCAB);
    printf("  " O200K_VOCAB " is missing (tools/vocab/make_tokenizer.py makes it): skipped\n");
    return NULL;
}

static inline json_t *parse_json(const char *text)
{
    json_error_t fault;
    json_t *value = json_loads(text, JSON_ALLOW_NUL | JSON_DECODE_ANY, &fault);
    if (!value)
        fail_msg("%s: %s", text, fault.text);
    return value;
}

/* ---------------------------------------------------------------- parsing */

/* Declared tools as a list separated by blanks; at most 8. */
struct tool_list {
    char text[256];
    struct gs_text names[8];
    struct gs_declared_tools tools;
};

static inline void declare(struct tool_list *list, const char *names)
{
    memset(list, 0, sizeof *list);
    snprintf(list->text, sizeof list->text, "%s", names ? names : "");
    for (char *at = strtok(list->text, " "); at; at = strtok(NULL, " ")) {
        if (strcmp(at, "+python") == 0)
            list->tools.python = true;
        else if (strcmp(at, "+browser") == 0)
            list->tools.browser = true;
        else
            list->names[list->tools.n_function++] = gs_text_of(at);
    }
    list->tools.functions = list->names;
}

/* Feeds `ids` in pieces of `step` tokens and collects the answer. */
static inline void parse_ids(const struct gs_vocab *vocab, const int32_t *ids, size_t count, size_t step,
                             const struct gs_declared_tools *tools, bool no_preset, struct gs_answer *answer)
{
    struct gs_harmony_parser *parser = NULL;
    struct gs_error error = {0};
    const struct gs_harmony_options options = {
        .tools = *tools, .no_preset = no_preset, .fn = gs_answer_collect, .user = answer};
    assert_ok(gs_harmony_parser_open(vocab, &options, &parser, &error), &error);
    for (size_t at = 0; at < count; at += step)
        assert_ok(gs_harmony_feed(parser, ids + at, count - at < step ? count - at : step, &error), &error);
    assert_ok(gs_harmony_finish(parser, &error), &error);
    gs_harmony_parser_close(parser);
}

static inline const char *buffer_text(const struct gs_buffer *buffer)
{
    return buffer->data ? buffer->data : "";
}

/* "name(arguments)" of every call, one after the other. */
static inline void print_calls(const struct gs_answer *answer, struct gs_buffer *out)
{
    assert_int_equal(gs_buffer_append_text(out, "", NULL), GS_OK);
    for (size_t i = 0; i < answer->n_call; i++)
        assert_int_equal(gs_buffer_print(out, NULL, "%s(%s)", buffer_text(&answer->calls[i].name),
                                         buffer_text(&answer->calls[i].arguments)),
                         GS_OK);
}

#endif
