/* What a person gets wrong at the prompt of a shell: one line, exit code 2; and streams that are not there.
 */
#include "tests/cli/model.h"
#include "tests/cli/process.h"

#include <string.h>

#define DEMO "models/demo"

/* Every command that takes a model says that an empty name is none. */
static void test_empty_name(void **state)
{
    static const char *const commands[] = {"run", "chat", "serve", "verify", "bench", "inspect"};
    (void)state;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        bool prompt = strcmp(commands[i], "run") == 0;
        process_refuses(process_run(commands[i], "", prompt ? "-p" : NULL, "x"), "the model's name is empty");
    }
    process_refuses(process_run("tokenize", "", "x"), "the model's name is empty");
    process_refuses(process_run("harmony", "parse", "--model", ""), "the model's name is empty");
}

static void test_empty_prompt(void **state)
{
    const struct process_options nothing = {.input = "", .input_size = 0};
    (void)state;
    process_refuses(process_run("run", DEMO, "-p", ""), "the prompt is empty");
    process_refuses(process_run("run", DEMO, "-f", "/dev/null"), "the prompt is empty");
    process_refuses(process_run_as(nothing, "run", DEMO, "-"), "the prompt is empty");
}

/* A conversation that cannot be gone on with: what is wrong with it, not that there is none. */
static void test_load(void **state)
{
    struct cli_model *model = *state;
    struct test_path cut = test_path_join(model->root, "cut.json");
    test_file_write(cut.text, "[{\"role\"", 8);
    process_refuses(process_run("chat", DEMO, "--load", cut.text), "cut.json: line 1");
    process_refuses(process_run("chat", DEMO, "--load", "/nowhere/x.json"), "cannot open /nowhere/x.json");
    process_refuses(process_run("chat", DEMO, "--load", model->root), "Is a directory");
    process_refuses(process_run("chat", DEMO, "--load", ""), "--load: the name of a saved conversation");
}

/* Weights in one file, named outright, have their vocabulary beside them; damaged ones are named for that. */
static void test_one_file(void **state)
{
    struct cli_model *model = *state;
    struct test_path weights = test_path_join(model->folder, "model.safetensors");
    struct test_path other = test_path_join(model->words, "short.safetensors");
    struct process_result whole =
        process_run("run", model->folder, "--raw", "-p", "The", "-n", "4", "--seed", "3", "--ctx", "64");
    struct process_result one =
        process_run("run", weights.text, "--raw", "-p", "The", "-n", "4", "--seed", "3", "--ctx", "64");
    assert_int_equal(whole.code, 0);
    process_expect(one, whole.out);
    process_free(&whole);
    test_file_write(other.text, "12345", 5);
    process_refuses(process_run("run", other.text, "-p", "x"), "no header");
}

static void test_halves_of_harmony(void **state)
{
    const struct process_options messages = {.input = "[]", .input_size = 2};
    (void)state;
    process_refuses(process_run_as(messages, "harmony", "render", "--stream"),
                    "--stream is an option of harmony parse");
    process_refuses(process_run_as(messages, "harmony", "parse", "--effort", "low"),
                    "--effort is an option of harmony render");
    process_refuses(process_run_as(messages, "harmony", "render", "--text", "--ids"), "give one of them");
}

/* What an option says is done or refused, never passed over. */
static void test_contradictions(void **state)
{
    const struct process_options messages = {.input = "[]", .input_size = 2};
    static const char *const dated[] = {"run", "chat", "serve"};
    (void)state;
    for (size_t i = 0; i < sizeof dated / sizeof *dated; i++)
        process_refuses(process_run(dated[i], DEMO, "--date", "2025-06-28", "--no-date"),
                        "--date and --no-date: give one of them");
    process_refuses(process_run("run", DEMO, "--date", "2025-02-30", "-p", "x"), "a date such as");
    process_refuses(process_run("run", DEMO, "--tools", "", "-p", "x"), "the name of a file is empty");
    process_refuses(process_run("run", DEMO, "--threads", "1025", "-p", "x"), "from 1 to 1024");
    process_refuses(process_run("verify", "--thresholds", "--kill", "sinks"), "it takes --json alone");
    process_refuses(process_run("verify", DEMO, "--layers", "--json"), "--json has a line for each layer");
    process_refuses(process_run("verify", DEMO, "--layers", "--controls"), "--controls shows no layers");
    process_refuses(process_run("serve", DEMO, "--cache-dir-mib", "5"), "--cache-dir-mib needs --cache-dir");
    process_refuses(process_run("serve", DEMO, "--cache-dir-seconds", "0"), "--cache-dir-seconds needs");
    process_refuses(process_run("serve", DEMO, "--cache-dir", ""), "--cache-dir: a folder is expected");
    process_refuses(process_run("serve", DEMO, "--allow-host", " ,"), "--allow-host: a name is expected");
    process_refuses(process_run("serve", DEMO, "--host", ""), "--host: an address is expected");
    process_refuses(process_run_as(messages, "harmony", "render", "--effort", "x"),
                    "--effort: low, medium or high is expected, not \"x\"");
    process_refuses(process_run_as(messages, "harmony", "render", "--form", "harmony", "--date", "x"),
                    "--date cannot go with --form harmony");
    process_refuses(process_run("harmony", "render", "-f", "/dev/null"),
                    "/dev/null is empty: JSON is expected");
}

static void test_names(void **state)
{
    (void)state;
    process_refuses(process_run("serve", DEMO, "--port", "0", "--name", ""), "--name: a name is expected");
    process_refuses(process_run("serve", DEMO, "--name", "\xff", "--parallel", "0"),
                    "--name: \"\\xFF\" is not UTF-8");
}

/* No file takes the place of a stream that was closed: weights are not what a person types. */
static void test_closed_streams(void **state)
{
    const struct process_options no_input = {.closed = 1}, no_output = {.closed = 2}, none = {.closed = 7};
    (void)state;
    process_expect(process_run_as(no_input, "chat", DEMO), "");
    process_refuses(process_run_as(no_input, "run", DEMO, "-"),
                    "cannot read standard input: Bad file descriptor");
    struct process_result result = process_run_as(no_output, "run", DEMO, "--raw", "-p",
                                                  "The capital of France is", "-n", "1", "--temp", "0");
    assert_int_equal(result.code, 1);
    assert_non_null(strstr(result.err, "cannot write to standard output: Bad file descriptor"));
    process_free(&result);
    result = process_run_as(none, "inspect", DEMO);
    assert_int_equal(result.code, 1);
    process_free(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty_name),
        cmocka_unit_test(test_empty_prompt),
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_one_file),
        cmocka_unit_test(test_halves_of_harmony),
        cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_closed_streams),
    };
    return cmocka_run_group_tests(tests, cli_model_setup, cli_model_teardown);
}
