/* What the tests of gossamer chat share: a state folder of their own, and a conversation through pipes. */
#ifndef TESTS_CLI_CHAT_CASE_H
#define TESTS_CLI_CHAT_CASE_H

#include "tests/cli/model.h"
#include "tests/cli/terminal_session.h"

#define DEMO        "models/demo"
#define FINAL(text) "<|channel|>final<|message|>" text "<|return|>"
/* The line editor waits: before that, Ctrl-C is for what runs. */
#define READY       "\033[?2004h"

/* A model whose root is also the home folder, and the one of saved conversations. */
static inline int chat_case_setup(void **state)
{
    struct cli_model *model = cli_model_make();
    setenv("XDG_STATE_HOME", model->root, 1);
    setenv("HOME", model->root, 1); /* nobody's .editrc */
    *state = model;
    return 0;
}

/* The same, with "tools.json" in the root. */
static inline int chat_case_setup_tools(void **state, const char *tools)
{
    chat_case_setup(state);
    const struct cli_model *model = *state;
    struct test_path path = test_path_join(model->root, "tools.json");
    test_file_write(path.text, tools, strlen(tools));
    return 0;
}

/* Every line of `input` is a message; it must end well. */
static inline struct process_result chat_with(const char *input, const char *const *arguments)
{
    struct process_options options = {.input = input, .input_size = strlen(input)};
    struct process_result result = process_run_with(&options, arguments);
    if (result.code != 0)
        fail_msg("exit code %d: %s", result.code, result.err);
    return result;
}

#define chat(input, ...) chat_with(input, (const char *const[]){"chat", __VA_ARGS__, NULL})

#endif
