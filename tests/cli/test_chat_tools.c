/* gossamer chat's calls of functions: what counts as consent, what is shown for it, and commands that
 * misbehave. */
#include "tests/cli/chat_case.h"

#include <jansson.h>
#include <sys/stat.h>

#define TOOLS                                                                                                \
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"The weather\","        \
    "\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]"
#define CALL_BEGIN "<|channel|>commentary to=functions.get_weather<|message|>"
#define CALL       CALL_BEGIN "{}<|call|>"
#define QUESTION   "run it? [y/N/always] "
#define REFUSED    "The user did not allow this call."

static int set_up(void **state)
{
    return chat_case_setup_tools(state, TOOLS);
}

static struct process_result chat_calls(const struct cli_model *model, const char *script, const char *input,
                                        const char *command)
{
    struct test_path tools = test_path_join(model->root, "tools.json");
    struct process_options options = {.input = input, .input_size = strlen(input)};
    struct process_result result = process_run_as(options, "chat", model->words, "--script-tokens", script,
                                                  "--tools", tools.text, "--tool-command", command);
    if (result.code != 0)
        fail_msg("exit code %d: %s", result.code, result.err);
    return result;
}

static struct terminal_session chat_at(const struct cli_model *model, const char *term, const char *script,
                                       const char *command)
{
    struct test_path tools = test_path_join(model->root, "tools.json");
    return terminal_start((const char *const[]){"chat", model->words, "--script-tokens", script, "--tools",
                                                tools.text, "--tool-command", command, NULL},
                          term);
}

/* The content of message `index` of a saved conversation; to be freed. */
static char *saved_content(const char *path, size_t index)
{
    json_t *document = json_load_file(path, 0, NULL);
    assert_non_null(document);
    json_t *message = json_array_get(json_object_get(document, "messages"), index);
    const char *text = json_string_value(json_object_get(message, "content"));
    char *copy = strdup(text ? text : "(nothing)");
    assert_non_null(copy);
    json_decref(document);
    return copy;
}

static void expect_saved(const char *path, size_t index, const char *content)
{
    char *text = saved_content(path, index);
    assert_string_equal(text, content);
    free(text);
}

/* ---------------------------------------------------------------- consent */

static void test_only_whole_words_agree(void **state)
{
    const struct cli_model *model = *state;
    struct test_path script = cli_script_of(model, CALL, FINAL("1"), CALL, FINAL("2"), CALL, FINAL("3"), CALL,
                                            FINAL("4"), CALL, FINAL("5")),
                     path = test_path_join(model->root, "words.json");
    char input[2000];
    snprintf(input, sizeof input, "a\nactually no\nb\nyou must not\nc\n\nd\n \tYES \ne\nAlways\n/save %s\n",
             path.text);
    struct process_result result = chat_calls(model, script.text, input, "echo ran");
    assert_string_equal(result.out, "1\n2\n3\n4\n5\n");
    expect_saved(path.text, 2, REFUSED);
    expect_saved(path.text, 6, REFUSED);
    expect_saved(path.text, 10, REFUSED);
    expect_saved(path.text, 14, "ran");
    expect_saved(path.text, 18, "ran");
    process_free(&result);
}

/* Typed before the question was asked. */
static void type_ahead(const struct cli_model *model, const char *term)
{
    struct test_path script = cli_script_of(model, CALL, FINAL("done")),
                     path = test_path_join(model->root, "ahead.json");
    char input[1100];
    struct terminal_session s = chat_at(model, term, script.text, "echo ran");
    terminal_expect(&s, "> ");
    terminal_send(&s, "a\ry\r");
    terminal_expect(&s, QUESTION);
    terminal_send(&s, "n\r");
    terminal_expect(&s, "done");
    terminal_expect(&s, "> ");
    snprintf(input, sizeof input, "/save %s\r", path.text);
    terminal_send(&s, input);
    terminal_expect(&s, "saved 4 messages");
    terminal_send(&s, "/quit\r");
    assert_int_equal(terminal_finish(&s), 0);
    terminal_free(&s);
    expect_saved(path.text, 2, REFUSED);
    assert_int_equal(unlink(path.text), 0);
}

static void test_type_ahead_is_no_consent(void **state)
{
    type_ahead(*state, "xterm");
    type_ahead(*state, "dumb");
}

/* A call whose arguments have a NUL, escape sequences, and a character that turns the text round. */
static void test_hidden_arguments_are_shown(void **state)
{
    const struct cli_model *model = *state;
    static const char call[] =
        CALL_BEGIN "{\"a\0\033[8mrm\033]0;x\007\":\"\342\200\256\\x \\n \303\251\177\"}<|call|>";
    struct test_path script = test_path_join(model->root, "hidden.txt");
    struct gs_tokens tokens = {0};
    struct gs_error error;
    assert_ok(gs_vocab_encode_special(model->vocab, call, sizeof call - 1, &tokens, &error), &error);
    FILE *file = fopen(script.text, "w");
    assert_non_null(file);
    for (size_t i = 0; i < tokens.count; i++)
        fprintf(file, "%d ", (int)tokens.ids[i]);
    fputc('\n', file);
    assert_int_equal(fclose(file), 0);
    gs_tokens_free(&tokens);

    struct terminal_session s = chat_at(model, "xterm", script.text, "cat");
    terminal_expect(&s, "> ");
    terminal_send(&s, "a\r");
    terminal_expect(&s, "get_weather {\"a\\x00\\x1b[8mrm\\x1b]0;x\\x07\":\"\\xe2\\x80\\xae\\x5cx \\n "
                        "\303\251\\x7f\"}");
    terminal_expect(&s, QUESTION);
    terminal_send(&s, "n\r");
    terminal_expect(&s, "> ");
    terminal_send(&s, "/quit\r");
    assert_int_equal(terminal_finish(&s), 0);
    terminal_free(&s);
}

/* ---------------------------------------------------------------- commands */

static void test_deaf_command_is_killed(void **state)
{
    const struct cli_model *model = *state;
    struct test_path script = cli_script_of(model, CALL, FINAL("next")),
                     path = test_path_join(model->root, "pid");
    char command[1200];
    snprintf(command, sizeof command,
             "trap '' INT TERM; echo $$ >%s; echo begun >&2; while :; do sleep 1; done", path.text);
    struct terminal_session s = chat_at(model, "xterm", script.text, command);
    terminal_expect(&s, "> ");
    terminal_send(&s, "a\r");
    terminal_expect(&s, QUESTION);
    terminal_send(&s, "y\r");
    terminal_expect(&s, "begun");
    terminal_send(&s, "\003");
    terminal_expect(&s, "[stopped by the user]"); /* by itself it would run for ever */
    size_t size;
    char *number = test_file_read(path.text, &size);
    assert_true(atoi(number) > 1);
    assert_int_equal(kill(atoi(number), 0), -1);
    free(number);
    terminal_expect(&s, "> ");
    terminal_send(&s, "b\r");
    terminal_expect(&s, "next");
    terminal_send(&s, "/quit\r");
    assert_int_equal(terminal_finish(&s), 0);
    terminal_free(&s);
}

/* What a command leaves in the background is not waited for. */
static void test_background_is_not_waited_for(void **state)
{
    const struct cli_model *model = *state;
    struct test_path script = cli_script_of(model, CALL, FINAL("done")),
                     path = test_path_join(model->root, "background");
    char command[1200];
    snprintf(command, sizeof command, "sleep 3600 2>/dev/null & echo $! >%s; echo 21 degrees", path.text);
    struct process_result result = chat_calls(model, script.text, "a\ny\n", command);
    char *number = test_file_read(path.text, NULL);
    pid_t left = (pid_t)atoi(number);
    assert_true(left > 1);
    assert_int_equal(kill(left, SIGKILL), 0); /* it was there still */
    free(number);
    assert_string_equal(result.out, "done\n");
    assert_non_null(strstr(result.err, "21 degrees"));
    process_free(&result);
}

static void test_long_output_is_cut(void **state)
{
    const struct cli_model *model = *state;
    struct test_path script = cli_script_of(model, CALL), path = test_path_join(model->root, "long.json");
    char input[1100];
    snprintf(input, sizeof input, "a\ny\n/save %s\n", path.text);
    struct process_result result =
        chat_calls(model, script.text, input, "yes 1234567 | head -c 1100000; echo; echo late");
    char *text = saved_content(path.text, 2);
    size_t size = strlen(text);
    static const char end[] = "1234567\n\n[cut at 1 MiB]";
    assert_int_equal(size, (1 << 20) + strlen("\n[cut at 1 MiB]"));
    assert_string_equal(text + size - strlen(end), end);
    free(text);
    process_free(&result);
}

/* No descriptor is left for the pipes: the model is told, and the next message is answered. */
static void test_command_that_cannot_start(void **state)
{
    const struct cli_model *model = *state;
    need_own_processor();
    struct test_path script = cli_script_of(model, CALL, FINAL("one"), FINAL("two")),
                     few = test_path_join(model->root, "few");
    const char *binary = getenv("GOSSAMER");
    char *before = binary ? strdup(binary) : NULL;
    char text[1200];
    int size = snprintf(text, sizeof text, "#!/bin/sh\nulimit -n 6\nexec %s \"$@\"\n",
                        binary ? binary : "build/gossamer");
    test_file_write(few.text, text, (size_t)size);
    assert_int_equal(chmod(few.text, 0700), 0);
    setenv("GOSSAMER", few.text, 1);
    struct process_result result = chat_calls(model, script.text, "a\ny\nb\n", "echo ran");
    if (before)
        setenv("GOSSAMER", before, 1);
    else
        unsetenv("GOSSAMER");
    free(before);
    assert_string_equal(result.out, "one\ntwo\n");
    assert_non_null(strstr(result.err, "  the command could not be run: cannot run \"echo ran\": "));
    assert_non_null(strstr(result.err, "[the command could not be run: "));
    process_free(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_whole_words_agree),       cmocka_unit_test(test_type_ahead_is_no_consent),
        cmocka_unit_test(test_hidden_arguments_are_shown),   cmocka_unit_test(test_deaf_command_is_killed),
        cmocka_unit_test(test_background_is_not_waited_for), cmocka_unit_test(test_long_output_is_cut),
        cmocka_unit_test(test_command_that_cannot_start),
    };
    return cmocka_run_group_tests(tests, set_up, cli_model_teardown);
}
