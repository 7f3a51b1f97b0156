/* gossamer run at a terminal: cleaned text, the progress bar, the closing line, Ctrl-C, a closed pipe. */
#include "tests/cli/model.h"
#include "tests/cli/process.h"

#define NASTY                                                                                                \
    "a\033[31mb\033]52;c;QUJD\007c\xC2\x9B"                                                                  \
    "1md\re\x7F\xE2\x80\xAE"                                                                                 \
    "f\tg\n\xE6\x97\xA5"

static void test_text_is_cleaned(void **state)
{
    const struct cli_model *model = *state;
    struct test_path script = cli_script_of(model, NASTY);
    struct process_options terminal = {.out_terminal = true};
    process_expect(process_run("run", model->words, "--raw", "--script-tokens", script.text), NASTY);
    process_expect(process_run_as(terminal, "run", model->words, "--raw", "--script-tokens", script.text),
                   "abcdef\tg\n\xE6\x97\xA5\n");
    process_expect(process_run_as(terminal, "run", model->words, "--raw", "--script-tokens", script.text,
                                  "--raw-control"),
                   NASTY "\n");
    process_expect(process_run_as(terminal, "run", model->words, "--raw", "--script-tokens", script.text,
                                  "--json", "-n", "0", "--seed", "1"),
                   "{\"type\":\"end\",\"reason\":\"length\",\"prompt_tokens\":0,\"tokens\":0,\"seed\":1,"
                   "\"prefill_seconds\":0.0,\"decode_seconds\":0.0}\n");
}

static void test_decode_is_cleaned(void **state)
{
    const struct cli_model *model = *state;
    struct test_path script = cli_script_of(model, NASTY);
    struct process_options terminal = {.out_terminal = true};
    char *ids = test_file_read(script.text, NULL);
    process_expect(process_run("tokenize", model->words, "--decode", ids), NASTY);
    process_expect(process_run_as(terminal, "tokenize", model->words, "--decode", ids),
                   "abcdef\tg\n\xE6\x97\xA5\n");
    free(ids);
}

static void test_newline_is_not_doubled(void **state)
{
    const struct cli_model *model = *state;
    struct test_path script = cli_script_of(model, "text\n");
    struct process_options terminal = {.out_terminal = true};
    process_expect(process_run_as(terminal, "run", model->words, "--raw", "--script-tokens", script.text),
                   "text\n");
}

static char *long_text(size_t size)
{
    char *text = malloc(size + 1);
    assert_non_null(text);
    for (size_t i = 0; i < size; i++)
        text[i] = i % 6 == 5 ? ' ' : (char)('a' + i % 23);
    text[size] = '\0';
    return text;
}

static void test_progress_bar(void **state)
{
    const struct cli_model *model = *state;
    char *text = long_text(3000);
    struct process_options terminal = {.err_terminal = true, .input = text, .input_size = 3000};
    struct process_result result =
        process_run_as(terminal, "run", model->folder, "--precision", "exact", "--raw", "-", "-n", "1");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.err, "\r\033[Kprefill "));
    assert_non_null(strstr(result.err, "%  "));
    assert_non_null(strstr(result.err, "\xE2\x94\x81"));
    /* Erased before the closing line, which is dim. */
    const char *closing = strstr(result.err, "\r\033[K\033[2mprefill ");
    assert_non_null(closing);
    assert_non_null(strstr(closing, " tok/s, decode 1 token\033[0m\n"));
    process_free(&result);

    terminal.input_size = 30;
    terminal.no_color = true;
    result = process_run_as(terminal, "run", model->folder, "--raw", "-", "-n", "1");
    assert_null(strstr(result.err, "\033[2m"));
    process_free(&result);

    terminal.term = "dumb";
    result = process_run_as(terminal, "run", model->folder, "--raw", "-", "-n", "1");
    assert_null(strchr(result.err, '\033'));
    assert_null(strchr(result.err, '\r'));
    assert_int_equal(strncmp(result.err, "prefill ", 8), 0);
    process_free(&result);

    terminal.err_terminal = false;
    result = process_run_as(terminal, "run", model->folder, "--raw", "-", "-n", "1");
    assert_string_equal(result.err, "");
    process_free(&result);
    free(text);
}

static void test_interrupted_decode(void **state)
{
    const struct cli_model *model = *state;
    struct process_options options = {.out_terminal = true, .err_terminal = true, .interrupt_after = 40};
    struct process_result result =
        process_run_as(options, "run", model->folder, "--raw", "-p", "x", "--ignore-stop");
    assert_int_equal(result.code, 130);
    assert_in_range(result.out_size, 40, 1 << 20);
    assert_int_equal(result.out[result.out_size - 1], '\n');
    assert_non_null(strstr(result.err, ", interrupted"));
    assert_null(strstr(result.err, "gossamer: "));
    process_free(&result);

    options = (struct process_options){.interrupt_after = 400};
    result = process_run_as(options, "run", model->folder, "--raw", "-p", "x", "--ignore-stop", "--json");
    assert_int_equal(result.code, 130);
    assert_non_null(strstr(result.out, "\"reason\":\"interrupted\""));
    assert_string_equal(result.err, "");
    process_free(&result);
}

static void test_interrupted_prefill(void **state)
{
    const struct cli_model *model = *state;
    char *text = long_text(60000);
    struct process_options options = {.err_terminal = true,
                                      .interrupt_after = 200,
                                      .interrupt_on_err = true,
                                      .input = text,
                                      .input_size = 60000};
    struct process_result result = process_run_as(options, "run", model->folder, "--raw", "-", "-n", "1");
    assert_int_equal(result.code, 130);
    assert_string_equal(result.out, "");
    assert_non_null(strstr(result.err, ", interrupted"));
    process_free(&result);
    free(text);
}

static void test_closed_reader(void **state)
{
    const struct cli_model *model = *state;
    struct process_options options = {.close_after = 20};
    struct process_result result =
        process_run_as(options, "run", model->folder, "--raw", "-p", "x", "--ignore-stop");
    assert_int_equal(result.code, 0);
    assert_string_equal(result.err, "");
    process_free(&result);
    char *text = long_text(400000);
    struct process_options tokens = {.close_after = 20, .input = text, .input_size = 400000};
    result = process_run_as(tokens, "tokenize", model->words, "-");
    assert_int_equal(result.code, 0);
    assert_string_equal(result.err, "");
    process_free(&result);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_cleaned),        cmocka_unit_test(test_decode_is_cleaned),
        cmocka_unit_test(test_newline_is_not_doubled), cmocka_unit_test(test_progress_bar),
        cmocka_unit_test(test_interrupted_decode),     cmocka_unit_test(test_interrupted_prefill),
        cmocka_unit_test(test_closed_reader),
    };
    return cmocka_run_group_tests(tests, cli_model_setup, cli_model_teardown);
}
