/* Commands and options: forms, ranges, one line for everything wrong, and documentation that is complete. */
#include "tests/cli/process.h"
#include "tests/support/files.h"

static void test_help(void **state)
{
    (void)state;
    static const char *const commands[] = {"run",   "chat",     "serve",   "inspect", "verify",
                                           "bench", "tokenize", "harmony", "pull"};
    struct process_result all = process_run("--help");
    assert_int_equal(all.code, 0);
    assert_string_equal(all.err, "");
    assert_non_null(strstr(all.out, "have never run on a Mac, an AMD\nGPU or ARM hardware"));
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        struct process_result a = process_run(commands[i], "--help"), b = process_run("help", commands[i]);
        assert_non_null(strstr(all.out, commands[i]));
        assert_int_equal(a.code, 0);
        assert_string_equal(a.err, "");
        assert_string_equal(a.out, b.out);
        assert_non_null(strstr(a.out, commands[i]));
        for (const char *line = a.out; *line; line = strchr(line, '\n') + 1)
            assert_in_range(strchr(line, '\n') - line, 0, 100);
        process_free(&a);
        process_free(&b);
    }
    process_free(&all);
    struct process_result same = process_run("--help");
    process_expect(process_run("help"), same.out);
    process_free(&same);
}

static void test_no_command(void **state)
{
    (void)state;
    struct process_result result =
        process_run_with(&(struct process_options){0}, (const char *const[]){NULL});
    assert_int_equal(result.code, 2);
    assert_string_equal(result.out, "");
    assert_non_null(strstr(result.err, "usage: gossamer COMMAND"));
    process_free(&result);
}

static void test_version(void **state)
{
    (void)state;
    struct process_result result = process_run("--version");
    char first[64];
    snprintf(first, sizeof first, "gossamer %s\n", gs_version());
    assert_int_equal(result.code, 0);
    assert_int_equal(strncmp(result.out, first, strlen(first)), 0);
    assert_non_null(strstr(result.out, "backend cpu: "));
    process_expect(process_run("version"), result.out);
    process_free(&result);
}

static void test_unknown(void **state)
{
    (void)state;
    process_refuses(process_run("rnu"), "did you mean run?");
    process_refuses(process_run("tokenise"), "did you mean tokenize?");
    process_refuses(process_run("\033[31mzzzzzz"), "unknown command \"\\x1B[31mzzzzzz\": gossamer --help");
    process_refuses(process_run("help", "zzzzzz"), "unknown command");
    process_refuses(process_run("run", "m", "--tempp", "1"), "unknown option --tempp: did you mean --temp?");
    process_refuses(process_run("run", "m", "--tok=1"), "unknown option --tok: did you mean --tokens?");
    process_refuses(process_run("run", "m", "--n", "1"), "did you mean -n?");
    process_refuses(process_run("run", "m", "-x"), "unknown option -x: gossamer run --help");
    process_refuses(process_run("run", "m", "--zzzzzzzzzzzz"), "gossamer run --help lists them");
    process_refuses(process_run("run", "m", "--script-token", "f"), "unknown option --script-token");
    process_refuses(process_run("inspect", "m", "--jsn"), "did you mean --json?");
    process_refuses(process_run("chat", "m", "--stats"), "gossamer chat --help lists them"); /* not --date */
}

struct bad {
    const char *option, *value, *part;
};

static void test_values(void **state)
{
    (void)state;
    static const struct bad bad[] = {
        {"--tokens", "-1", "--tokens: \"-1\" is not a whole number from 0 to"},
        {"--tokens", "4x", "--tokens: \"4x\""},
        {"--tokens", "", "--tokens: \"\""},
        {"--tokens", " 4", "--tokens: \" 4\""},
        {"--tokens", "+4", "--tokens: \"+4\""},
        {"--tokens", "1e3", "--tokens: \"1e3\""},
        {"--tokens", "99999999999999999999", "whole number from 0 to 1000000000"},
        {"--ctx", "0", "--ctx: \"0\" is not a whole number from 1 to"},
        {"--threads", "0", "--threads: \"0\""},
        {"--seed", "-1", "from 0 to 9007199254740992"},
        {"--temp", "-0.1", "--temp: \"-0.1\" is not a number from 0 to 100"},
        {"--temp", "nan", "--temp: \"nan\""},
        {"--temp", "inf", "--temp: \"inf\""},
        {"--temp", "0x1", "--temp: \"0x1\""},
        {"--temp", "1e999", "--temp: \"1e999\""},
        {"--temp", "1,5", "--temp: \"1,5\""},
        {"--top-p", "0", "--top-p: \"0\" is not a number above 0 and up to 1"},
        {"--top-p", "1.01", "--top-p"},
        {"--min-p", "2", "--min-p: \"2\" is not a number from 0 to 1"},
        {"--repeat-penalty", "0", "--repeat-penalty"},
        {"--logit-bias", "5", "--logit-bias: \"5\" is not ID=VALUE"},
        {"--logit-bias", "=5", "--logit-bias"},
        {"--logit-bias", "5=", "--logit-bias"},
        {"--logit-bias", "-5=1", "--logit-bias"},
        {"--logit-bias", "5=nan", "--logit-bias"},
        {"--logit-bias", "99999999999=1", "--logit-bias"},
        {"--logprobs", "21", "from 0 to 20"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char joined[96];
        snprintf(joined, sizeof joined, "%s=%s", bad[i].option, bad[i].value);
        process_refuses(process_run("run", "m", bad[i].option, bad[i].value), bad[i].part);
        process_refuses(process_run("run", "m", joined), bad[i].part);
    }
    process_refuses(process_run("run", "m", "-n-1"), "--tokens: \"-1\"");
    process_refuses(process_run("run", "m", "-n"), "--tokens needs a value: --tokens N");
    process_refuses(process_run("run", "m", "--raw=1"), "--raw=1: this option takes no value");
}

static void test_operands(void **state)
{
    (void)state;
    process_refuses(process_run("run"), "no model: gossamer run MODEL");
    process_refuses(process_run("inspect"), "no model: gossamer inspect MODEL");
    process_refuses(process_run("tokenize"), "no model: gossamer tokenize MODEL");
    process_refuses(process_run("run", "m", "text"), "\"text\" is one argument too many");
    process_refuses(process_run("run", "m", "-", "-"), "\"-\" is one argument too many");
    process_refuses(process_run("inspect", "m", "n"), "\"n\" is one argument too many");
    process_refuses(process_run("run", "--", "--help"), "cannot open --help"); /* a model of that name */
    process_refuses(process_run("--version", "x"), "\"x\" is one argument too many: gossamer --version");
    process_refuses(process_run("help", "run", "x"), "\"x\" is one argument too many: gossamer --help");
}

/* Every option in a help text stands in the command's manual, hidden ones aside. */
static void test_manual_is_complete(void **state)
{
    (void)state;
    static const char *const commands[][2] = {
        {"run", "docs/cli.md"},         {"chat", "docs/cli.md"},      {"inspect", "docs/cli.md"},
        {"tokenize", "docs/cli.md"},    {"serve", "docs/cli.md"},     {"pull", "docs/pull.md"},
        {"harmony", "docs/harmony.md"}, {"verify", "docs/verify.md"}, {"bench", "docs/bench.md"},
    };
    size_t n_options = 0;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char *manual = test_file_read(commands[i][1], NULL);
        struct process_result help = process_run(commands[i][0], "--help");
        for (const char *at = help.out; (at = strstr(at, " --")) != NULL; at += 3) {
            char name[64] = "";
            size_t size = strcspn(at + 1, " \n=);:");
            assert_in_range(size, 3, 40);
            memcpy(name, at + 1, size);
            if (!strstr(manual, name) && strcmp(name, "--help") != 0)
                fail_msg("%s does not mention %s", commands[i][1], name);
            n_options++;
        }
        process_free(&help);
        free(manual);
    }
    assert_in_range(n_options, 100, 250);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_no_command),
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_operands),
        cmocka_unit_test(test_manual_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
