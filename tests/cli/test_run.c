/* gossamer run --raw, as a pipe sees it: exact completions, endings, scripts, refusals. */
#include "tests/cli/model.h"
#include "tests/cli/process.h"

#include <jansson.h>

static void test_completion(void **state)
{
    const struct cli_model *model = *state;
    struct process_result one =
        process_run("run", model->folder, "--raw", "-p", "The capital", "-n", "8", "--temp", "0");
    assert_int_equal(one.code, 0);
    assert_string_equal(one.err, "");
    assert_true(one.out_size > 0);
    assert_null(strstr(one.out, "The capital"));

    /* The same however the prompt comes, and on one thread; another prompt gives another text. */
    struct test_path file = test_path_join(model->root, "prompt.txt");
    test_file_write(file.text, "The capital", 11);
    struct process_options input = {.input = "The capital", .input_size = 11};
    process_expect(process_run("run", "--raw", "-f", file.text, "--temp=0", "-n8", model->folder), one.out);
    process_expect(process_run_as(input, "run", model->folder, "--raw", "-", "--temp", "0", "-n", "8"),
                   one.out);
    process_expect(process_run("run", model->folder, "--raw", "-p", "The capital", "-n", "8", "--temp", "0",
                               "--threads", "1", "--ctx", "64", "--backend", "cpu"),
                   one.out);
    struct process_result other =
        process_run("run", model->folder, "--raw", "-p", "Another text", "-n", "8", "--temp", "0");
    assert_string_not_equal(other.out, one.out);
    process_free(&other);
    process_free(&one);
    process_expect(process_run("run", model->folder, "--raw", "-p", "The capital", "-n", "0"), "");
}

static void test_seed(void **state)
{
    const struct cli_model *model = *state;
    struct process_result a =
        process_run("run", model->folder, "--raw", "-p", "x", "-n", "12", "--seed", "7");
    struct process_result b =
        process_run("run", model->folder, "--raw", "-p", "x", "-n", "12", "--seed", "8");
    assert_string_not_equal(a.out, b.out);
    process_expect(process_run("run", model->folder, "--raw", "-p", "x", "-n", "12", "--seed", "7"), a.out);
    process_free(&a);
    process_free(&b);

    /* A random seed, as --stats shows it, gives the same text again. */
    struct process_result random =
        process_run("run", model->folder, "--raw", "-p", "x", "-n", "12", "--stats");
    const char *shown = strstr(random.err, ", seed ");
    assert_non_null(shown);
    char seed[32];
    assert_int_equal(sscanf(shown, ", seed %31[0-9]", seed), 1);
    process_expect(process_run("run", model->folder, "--raw", "-p", "x", "-n", "12", "--seed", seed),
                   random.out);
    process_free(&random);
}

static void test_stats(void **state)
{
    const struct cli_model *model = *state;
    struct process_result result =
        process_run("run", model->folder, "--raw", "-p", "The capital", "-n", "4", "--temp", "0", "--stats");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.err, "weights  "));
    assert_non_null(strstr(result.err, "cache    "));
    assert_non_null(strstr(result.err, "scratch  "));
    assert_non_null(strstr(result.err, "end      length"));
    assert_non_null(strstr(result.err, " tok/s, decode 4 tokens "));
    process_free(&result);
}

static void test_stop(void **state)
{
    const struct cli_model *model = *state;
    char bias[40];
    snprintf(bias, sizeof bias, "%s=1e6", model->stop_id);
    process_expect(process_run("run", model->folder, "--raw", "-p", "x", "--logit-bias", bias), "");
    process_expect(process_run("run", model->folder, "--raw", "-p", "x", "-n", "2", "--logit-bias", bias,
                               "--ignore-stop"),
                   "");
}

/* Tokens without text: special ones, unless they are asked for, and ids that no token has. */
static void test_no_text(void **state)
{
    const struct cli_model *model = *state;
    char bias[40];
    snprintf(bias, sizeof bias, "%d=1e6", (int)gs_vocab_special(model->vocab, "<|end|>"));
    process_expect(process_run("run", model->folder, "--raw", "-p", "x", "-n", "2", "--logit-bias", bias),
                   "");
    process_expect(process_run("run", model->folder, "--raw", "-p", "x", "-n", "2", "--logit-bias", bias,
                               "--show-special"),
                   "<|end|><|end|>");
    snprintf(bias, sizeof bias, "%zu=1e6", gs_vocab_size(model->vocab));
    process_expect(process_run("run", model->folder, "--raw", "-p", "x", "-n", "2", "--logit-bias", bias,
                               "--show-special"),
                   "");
    struct process_result lines =
        process_run("run", model->folder, "--raw", "-p", "x", "-n", "1", "--logit-bias", bias, "--json");
    assert_non_null(strstr(lines.out, "\"text\":\"\",\"bytes\":[]}"));
    process_free(&lines);
}

static void test_context(void **state)
{
    const struct cli_model *model = *state;
    process_refuses(
        process_run("run", model->folder, "--raw", "-p", "The capital of France is", "--ctx", "3"),
        "but the context holds 3");
    process_refuses(
        process_run("run", model->folder, "--raw", "-p", "The capital of France is", "--ctx", "3"),
        "the prompt has ");
    process_refuses(process_run("run", model->folder, "--raw", "-p", "x", "--ctx", "65537"),
                    "a context of 65537 tokens: this model takes 1 to 65536");
    /* A full context ends the text: one prompt token, three more in the cache, one drawn from the last. */
    struct process_result full =
        process_run("run", model->folder, "--raw", "-p", "x", "--ctx", "4", "--json", "--ignore-stop");
    assert_int_equal(full.code, 0);
    assert_non_null(strstr(full.out, "\"reason\":\"length\",\"prompt_tokens\":1,\"tokens\":4"));
    process_free(&full);
}

static void test_prompt_refusals(void **state)
{
    const struct cli_model *model = *state;
    struct process_options empty = {0};
    process_refuses(process_run("run", model->folder), "no prompt: give one of -p TEXT, -f FILE, or -");
    process_refuses(process_run("run", model->folder, "--raw", "-p", ""), "the prompt is empty");
    process_refuses(process_run_as(empty, "run", model->folder, "--raw", "-"), "the prompt is empty");
    process_refuses(process_run("run", model->folder, "--raw", "-p", "x", "-f", "y"), "more than one prompt");
    process_refuses(process_run("run", model->folder, "--raw", "-p", "x", "-"), "more than one prompt");
    process_refuses(process_run("run", model->folder, "--raw", "-f", "/no\nwhere"),
                    "cannot open /no\\x0Awhere");
    process_refuses(process_run("run", model->folder, "--raw", "-f", model->root), "cannot read ");
    process_refuses(process_run("run", "/no/model", "--raw", "-p", "x"), "/no/model");
    process_refuses(process_run("run", model->words, "--raw", "-p", "x"), "words");
    process_refuses(process_run("run", model->folder, "--raw", "-p", "x", "--backend", "abacus"), "abacus");
    process_refuses(process_run("run", model->folder, "--raw", "-p", "x", "--logprobs", "1"),
                    "--logprobs needs --json");
    process_refuses(process_run("run", model->folder, "--raw", "-p", "x", "--logit-bias", "99999999=1"),
                    "99999999");
    process_refuses(process_run("run", model->folder, "--raw", "-p", "x", "--top-p", "1e-300"), "top");
}

static void test_any_bytes(void **state)
{
    const struct cli_model *model = *state;
    struct process_options input = {.input = "a\0b\xFF\xE2\x82", .input_size = 6};
    struct process_options replaced = {.input = "a\0b\xEF\xBF\xBD\xEF\xBF\xBD", .input_size = 9};
    struct process_options cut = {.input = "a", .input_size = 1};
    struct process_result a =
        process_run_as(input, "run", model->folder, "--raw", "-", "--temp", "0", "-n", "8");
    struct process_result b =
        process_run_as(cut, "run", model->folder, "--raw", "-", "--temp", "0", "-n", "8");
    assert_string_not_equal(a.out, b.out);
    process_expect(process_run_as(replaced, "run", model->folder, "--raw", "-", "--temp", "0", "-n", "8"),
                   a.out);
    process_free(&a);
    process_free(&b);
}

static void test_special_in_prompt(void **state)
{
    const struct cli_model *model = *state;
    struct process_result literal =
        process_run("run", model->folder, "--raw", "-p", "<|end|>", "-n", "0", "--json");
    assert_null(strstr(literal.out, "\"prompt_tokens\":1,"));
    process_free(&literal);
    struct process_result special =
        process_run("run", model->folder, "--raw", "-p", "<|end|>", "-n", "0", "--json", "--special");
    assert_non_null(strstr(special.out, "\"prompt_tokens\":1,"));
    process_free(&special);
}

static void test_dry_run(void **state)
{
    const struct cli_model *model = *state;
    struct process_result result = process_run("run", model->folder, "--raw", "--dry-run", "--ctx", "512");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "for a context of 512 tokens"));
    process_free(&result);
    result = process_run("run", model->folder, "--dry-run", "--json", "--ctx", "512");
    json_t *plan = json_loads(result.out, JSON_REJECT_DUPLICATES, NULL);
    assert_int_equal(json_integer_value(json_object_get(plan, "n_ctx")), 512);
    assert_true(json_integer_value(json_object_get(plan, "kv_bytes")) > 0);
    json_decref(plan);
    process_free(&result);
}

static void test_json_lines(void **state)
{
    const struct cli_model *model = *state;
    struct process_result text =
        process_run("run", model->folder, "--raw", "-p", "The", "-n", "6", "--temp", "0", "--ignore-stop");
    struct process_result lines = process_run("run", model->folder, "--raw", "-p", "The", "-n", "6", "--temp",
                                              "0", "--ignore-stop", "--json", "--logprobs", "3");
    assert_int_equal(lines.code, 0);
    char joined[4096] = "";
    size_t n_tokens = 0;
    const char *end_reason = NULL;
    json_t *object = NULL;
    for (char *line = strtok(lines.out, "\n"); line; line = strtok(NULL, "\n")) {
        json_decref(object);
        object = json_loads(line, 0, NULL);
        assert_non_null(object);
        if (strcmp(json_string_value(json_object_get(object, "type")), "end") == 0) {
            end_reason = json_string_value(json_object_get(object, "reason"));
            assert_int_equal(json_integer_value(json_object_get(object, "tokens")), 6);
            continue;
        }
        json_t *top = json_object_get(object, "top");
        assert_int_equal(json_array_size(top), 3);
        /* At temperature 0 the token is the likeliest. */
        assert_int_equal(json_integer_value(json_object_get(json_array_get(top, 0), "id")),
                         json_integer_value(json_object_get(object, "id")));
        assert_true(json_real_value(json_object_get(object, "logprob")) < 0.0);
        strcat(joined, json_string_value(json_object_get(object, "text")));
        n_tokens++;
    }
    assert_int_equal(n_tokens, 6);
    assert_string_equal(joined, text.out);
    assert_string_equal(end_reason, "length");
    json_decref(object);
    process_free(&lines);
    process_free(&text);
}

static void test_scripts(void **state)
{
    const struct cli_model *model = *state;
    struct test_path script = cli_script_of(model, "Hello \xE4\xB8\x96\xE7\x95\x8C \xF0\x9F\x91\x8B",
                                            "before<|return|>after", "a<|channel|>b<|call|>c", "");
    const char *words = model->words;
    process_expect(process_run("run", words, "--raw", "--script-tokens", script.text),
                   "Hello \xE4\xB8\x96\xE7\x95\x8C \xF0\x9F\x91\x8B");
    process_expect(
        process_run("run", words, "--raw", "--script-tokens", script.text, "--script-generation", "1"),
        "before");
    process_expect(process_run("run", words, "--raw", "--script-tokens", script.text, "--script-generation",
                               "1", "--ignore-stop"),
                   "beforeafter");
    process_expect(
        process_run("run", words, "--raw", "--script-tokens", script.text, "--script-generation", "2"), "ab");
    process_expect(process_run("run", words, "--raw", "--script-tokens", script.text, "--script-generation",
                               "2", "--show-special"),
                   "a<|channel|>b");
    process_expect(
        process_run("run", words, "--raw", "--script-tokens", script.text, "--script-generation", "3"), "");
    process_expect(process_run("run", words, "--raw", "--script-tokens", script.text, "-n", "1", "-p", "any"),
                   "H");
    process_refuses(
        process_run("run", words, "--raw", "--script-tokens", script.text, "--script-generation", "4"),
        "has no line 5");
    process_refuses(process_run("run", words, "--raw", "--script-tokens", "/no/script"),
                    "cannot open /no/script");
    process_refuses(
        process_run("run", words, "--raw", "--script-tokens", script.text, "--json", "--logprobs", "0"),
        "a script of ids has no logits");

    struct process_result end = process_run("run", words, "--raw", "--script-tokens", script.text,
                                            "--script-generation", "1", "--json");
    assert_non_null(strstr(end.out, "\"type\":\"end\",\"reason\":\"stop\""));
    process_free(&end);
    end = process_run("run", words, "--raw", "--script-tokens", script.text, "--json");
    assert_non_null(strstr(end.out, "\"type\":\"end\",\"reason\":\"length\""));
    process_free(&end);
}

/* A text that ends inside a character. */
static void test_broken_tail(void **state)
{
    const struct cli_model *model = *state;
    int32_t id = 0;
    size_t size = 0;
    const char *bytes;
    while (!((bytes = gs_vocab_bytes(model->vocab, id, &size)) && size == 1 && bytes[0] == '\xE2'))
        assert_true(++id < (int32_t)gs_vocab_size(model->vocab));
    char text[32];
    snprintf(text, sizeof text, "%d\n", (int)id);
    struct test_path script = cli_script_text(model, text);
    process_expect(process_run("run", model->words, "--raw", "--script-tokens", script.text), "\xEF\xBF\xBD");
    struct process_result lines =
        process_run("run", model->words, "--raw", "--script-tokens", script.text, "--json");
    assert_non_null(strstr(lines.out, "\"text\":\"\",\"bytes\":[226]}"));
    assert_non_null(strstr(lines.out, "\"text\":\"\xEF\xBF\xBD\"}"));
    process_free(&lines);
}

static void test_bad_scripts(void **state)
{
    const struct cli_model *model = *state;
    struct test_path script = cli_script_text(model, "12,x\n");
    struct process_result result = process_run("run", model->words, "--raw", "--script-tokens", script.text);
    assert_int_equal(result.code, 2);
    assert_non_null(strstr(result.err, "script line 1, column 4"));
    process_free(&result);
    cli_script_text(model, "99999999\n");
    process_refuses(process_run("run", model->words, "--raw", "--script-tokens", script.text),
                    "expected a token id");
}

static void test_script_of_logits(void **state)
{
    const struct cli_model *model = *state;
    struct gs_tokens a = {0};
    struct gs_error error;
    assert_ok(gs_vocab_encode(model->vocab, "ab", 1, &a, &error), &error);
    char text[200];
    snprintf(text, sizeof text, "logits: %d=5 %d=4; %d=1; %d=nan\n", (int)a.ids[0], (int)a.ids[0] + 1,
             (int)a.ids[0], (int)a.ids[0]);
    struct test_path script = cli_script_text(model, text);
    process_expect(
        process_run("run", model->words, "--raw", "--script-tokens", script.text, "-n", "2", "--temp", "0"),
        "aa");

    /* The third row is not finite: what came before stays, then one line and exit code 2. */
    struct process_result broken =
        process_run("run", model->words, "--raw", "--script-tokens", script.text, "--temp", "0");
    assert_int_equal(broken.code, 2);
    assert_string_equal(broken.out, "aa");
    assert_int_equal(strncmp(broken.err, "gossamer: ", 10), 0);
    assert_ptr_equal(strchr(broken.err, '\n'), broken.err + broken.err_size - 1);
    process_free(&broken);

    struct process_result lines = process_run("run", model->words, "--raw", "--script-tokens", script.text,
                                              "-n", "1", "--temp", "0", "--json", "--logprobs", "1");
    assert_int_equal(lines.code, 0);
    assert_non_null(strstr(lines.out, "\"logprob\":-0.313261"));
    process_free(&lines);
    gs_tokens_free(&a);
}

static void test_full_disk(void **state)
{
    const struct cli_model *model = *state;
    struct test_path script = cli_script_of(model, "Hello");
    if (access("/dev/full", W_OK) != 0)
        skip();
    struct process_options full = {.out_path = "/dev/full"};
    struct process_result result =
        process_run_as(full, "run", model->words, "--raw", "--script-tokens", script.text);
    assert_int_equal(result.code, 1);
    assert_non_null(strstr(result.err, "gossamer: cannot write to standard output: "));
    process_free(&result);
    result = process_run_as(full, "--version");
    assert_int_equal(result.code, 1);
    process_free(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_completion),
        cmocka_unit_test(test_seed),
        cmocka_unit_test(test_stats),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_no_text),
        cmocka_unit_test(test_context),
        cmocka_unit_test(test_prompt_refusals),
        cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_special_in_prompt),
        cmocka_unit_test(test_dry_run),
        cmocka_unit_test(test_json_lines),
        cmocka_unit_test(test_scripts),
        cmocka_unit_test(test_bad_scripts),
        cmocka_unit_test(test_script_of_logits),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_broken_tail),
    };
    return cmocka_run_group_tests(tests, cli_model_setup, cli_model_teardown);
}
