/* gossamer pull as a person has it, and the models that it brought, by their names, in every command. */
#include "tests/cli/model.h"
#include "tests/cli/process.h"
#include "tests/hub/stand_in.h"

#include <sys/stat.h>

static struct stand_in hub;
static bool can_pull;

/* A home of its own for every test: no variable of the person who runs them matters. */
static int set_up(void **state)
{
    static const char *const names[] = {"HF_HUB_CACHE", "HF_HOME",       "XDG_CACHE_HOME",
                                        "HF_TOKEN",     "HF_TOKEN_PATH", "HF_ENDPOINT"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    *state = test_folder_make();
    setenv("HOME", *state, 1);
    setenv("HF_ENDPOINT", hub.endpoint, 1);
    stand_in_tell(&hub, "clear");
    return 0;
}

static int tear_down(void **state)
{
    test_folder_remove(*state);
    return 0;
}

static bool exists(const char *folder, const char *name)
{
    struct stat info;
    return stat(test_path_join(folder, name).text, &info) == 0;
}

static void succeed(struct process_result result)
{
    if (result.code != 0)
        fail_msg("exit code %d: %s", result.code, result.err);
    process_free(&result);
}

#define IN_HUB "models--test--model/snapshots/" STAND_IN_COMMIT

static void fetches_into_the_cache(void **state)
{
    const char *home = *state;
    char expected[1200];
    struct process_result result = process_run("pull", "test/model");
    assert_int_equal(result.code, 0);
    snprintf(expected, sizeof expected, "%s\n", test_path_join(home, ".cache/huggingface/hub/" IN_HUB).text);
    assert_string_equal(result.out, expected);
    assert_non_null(strstr(result.err, "model-00000-of-00001.safetensors: 97.7 KiB\n"));
    assert_null(strchr(result.err, '\033')); /* no bar where no terminal is */
    process_free(&result);
    result = process_run("pull", "test/model@main", "--verify");
    assert_non_null(strstr(result.err, "tokenizer.json: there already\n"));
    process_expect(result, expected);
}

static void finds_the_cache_by_the_environment(void **state)
{
    const char *home = *state;
    setenv("XDG_CACHE_HOME", test_path_join(home, "xdg").text, 1);
    succeed(process_run("pull", "test/model"));
    assert_true(exists(home, "xdg/huggingface/hub/" IN_HUB));
    setenv("HF_HOME", "~/hf", 1);
    succeed(process_run("pull", "test/model"));
    assert_true(exists(home, "hf/hub/" IN_HUB));
    setenv("HF_HUB_CACHE", test_path_join(home, "direct").text, 1);
    succeed(process_run("pull", "test/model"));
    assert_true(exists(home, "direct/" IN_HUB));
    struct test_path chosen = test_path_join(home, "chosen");
    succeed(process_run("pull", "test/model", "--cache-dir", chosen.text));
    assert_true(exists(home, "chosen/" IN_HUB));
}

/* Scripts read the path: all of it, on a line. */
static void prints_a_long_path_whole(void **state)
{
    char name[201], cache[1200], expected[1400];
    int size = snprintf(cache, sizeof cache, "%s", (const char *)*state);
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (int i = 0; i < 5; i++)
        size += snprintf(cache + size, sizeof cache - (size_t)size, "/%s", name);
    snprintf(expected, sizeof expected, "%s/" IN_HUB "\n", cache);
    assert_true(strlen(expected) > 1024);
    process_expect(process_run("pull", "test/model", "--cache-dir", cache), expected);
}

static void passes_no_proxy(void **state)
{
    (void)state;
    stand_in_break_proxies();
    setenv("HF_TOKEN", STAND_IN_TOKEN, 1);
    succeed(process_run("pull", "test/gated"));
    unsetenv("HF_TOKEN");
}

static void lists_without_fetching(void **state)
{
    const char *home = *state;
    struct process_result result = process_run("pull", "test/model", "--revision", "v1.0", "--dry-run");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "test/model@v1.0, commit " STAND_IN_COMMIT "\n"));
    assert_non_null(strstr(result.out, "  model-00001-of-00001.safetensors     48.8 KiB  missing\n"));
    assert_non_null(strstr(result.out, "7 files of 147.4 KiB, 147.4 KiB to fetch; "));
    process_free(&result);
    assert_false(exists(home, ".cache"));
}

static void keeps_the_token_to_itself(void **state)
{
    const char *home = *state;
    static const char line[] = STAND_IN_TOKEN "\n";
    setenv("HF_TOKEN", STAND_IN_TOKEN, 1);
    for (int i = 0; i < 3; i++) {
        struct process_result result = process_run("pull", "test/gated");
        assert_int_equal(result.code, 0);
        assert_null(strstr(result.err, "secret"));
        assert_null(strstr(result.out, "secret"));
        process_free(&result);
        unsetenv("HF_TOKEN");
        if (i == 0) { /* next by the file in its usual place, then by one that is named */
            setenv("HF_HOME", test_path_join(home, "hf").text, 1);
            assert_int_equal(mkdir(test_path_join(home, "hf").text, 0700), 0);
            test_file_write(test_path_join(home, "hf/token").text, line, sizeof line - 1);
        } else {
            unsetenv("HF_HOME");
            setenv("HF_TOKEN_PATH", test_path_join(home, "hf/token").text, 1);
        }
    }
    char *log = stand_in_ask(&hub, "log");
    for (char *entry = strtok(log, "\n"); entry; entry = strtok(NULL, "\n"))
        assert_int_equal(strstr(entry, "Bearer_" STAND_IN_TOKEN) != NULL, strncmp(entry, "hub", 3) == 0);
    free(log);
    unsetenv("HF_TOKEN_PATH");
    process_refuses(process_run("pull", "test/gated"), "it wants a token (HF_TOKEN)");
    setenv("HF_TOKEN", "hf_secret\nX-Evil: yes", 1);
    process_refuses(process_run("pull", "test/gated"), "holds a character that no token has, at position 9");
}

static void shows_a_bar_on_a_terminal(void **state)
{
    (void)state;
    struct process_options options = {.err_terminal = true, .interrupt_on = " 34%  49.7 KiB of 147.4 KiB"};
    stand_in_tell(&hub, "fault stall 40"); /* as often as it is tried; the interrupt ends it */
    struct process_result result = process_run_as(options, "pull", "test/model");
    assert_int_equal(result.code, 130);
    assert_non_null(strstr(result.err, "model-00000-of-00001.safetensors ")); /* its label */
    assert_non_null(strstr(result.err, options.interrupt_on));                /* half of it is there */
    assert_non_null(strstr(result.err, "interrupted; the same command goes on from here\n"));
    assert_string_equal(result.out, "");
    process_free(&result);
    stand_in_tell(&hub, "clear");
    succeed(process_run("pull", "test/model"));
    char *log = stand_in_ask(&hub, "log");
    assert_non_null(strstr(log, "bytes=50001-100002")); /* only the other half */
    free(log);
}

static void shows_the_checking_too(void **state)
{
    const char *home = *state;
    struct process_options options = {.err_terminal = true,
                                      .interrupt_on = "checking model-00000-of-00001.safetensors "};
    succeed(process_run("pull", "test/model"));
    /* The hub says 1 TiB, and that is there: zeros, to be hashed, which no machine has done when it is told
     * to stop. */
    struct test_path shard =
        test_path_join(home, ".cache/huggingface/hub/" IN_HUB "/model-00000-of-00001.safetensors");
    assert_int_equal(truncate(shard.text, (off_t)1 << 40), 0);
    stand_in_tell(&hub, "fault api_large");
    struct process_result result = process_run_as(options, "pull", "test/model", "--verify");
    assert_int_equal(result.code, 130);
    assert_non_null(strstr(result.err, options.interrupt_on));
    assert_non_null(strstr(result.err, " of 1.00 TiB"));
    process_free(&result);
}

static void refuses_what_cannot_be(void **state)
{
    (void)state;
    process_refuses(process_run("pull"), "no model");
    process_refuses(process_run("pull", "gpt-oss-20b"), "it should look like openai/gpt-oss-20b");
    process_refuses(process_run("pull", "../x"), "no model's name");
    process_refuses(process_run("pull", "openai/gpt-oss-20b@main", "--revision", "v2"),
                    "a revision is given once");
    process_refuses(process_run("pull", "a/b", "--revision", "../x"), "no revision");
    process_refuses(process_run("pull", "a/b", "--endpoint", "http://hub.example"), "no endpoint");
    process_refuses(process_run("pull", "a/b", "--connections", "0"), "--connections");
    process_refuses(process_run("pull", "test/model", "--cache-dir", ""), "--cache-dir is empty");
    process_refuses(process_run("pull", "test/missing"), "there is no such repository, revision or file");
    process_refuses(process_run("pull", "test/model@nowhere"), "there is no such repository, revision");
    stand_in_tell(&hub, "fault api_climbs");
    process_refuses(process_run("pull", "test/model"), "../../evil.safetensors");
    unsetenv("HOME");
    process_refuses(process_run("pull", "test/model"), "set HF_HOME");
}

/* ---------------------------------------------------------------- models by name */

static void make_folders(const char *path)
{
    struct test_path part;
    for (const char *slash = path; slash; slash = strchr(slash + 1, '/')) {
        snprintf(part.text, sizeof part.text, "%.*s", (int)(slash - path), path);
        mkdir(part.text, 0700); /* those above are there already */
    }
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
}

static void names_a_model_in_every_command(void **state)
{
    const char *home = *state;
    struct cli_model *model = cli_model_make();
    struct test_path repo = test_path_join(home, ".cache/huggingface/hub/models--test--named");
    struct test_path refs = test_path_join(repo.text, "refs"),
                     snapshots = test_path_join(repo.text, "snapshots");
    make_folders(refs.text);
    make_folders(snapshots.text);
    test_file_write(test_path_join(refs.text, "main").text, STAND_IN_COMMIT, 40);
    assert_int_equal(symlink(model->folder, test_path_join(snapshots.text, STAND_IN_COMMIT).text), 0);

    struct process_result by_path = process_run("tokenize", model->folder, "two words");
    assert_int_equal(by_path.code, 0);
    process_expect(process_run("tokenize", "test/named", "two words"), by_path.out);
    process_free(&by_path);
    by_path = process_run("run", model->folder, "--raw", "-p", "one", "-n", "3", "--temp", "0");
    assert_int_equal(by_path.code, 0);
    process_expect(process_run("run", "test/named@main", "--raw", "-p", "one", "-n", "3", "--temp", "0"),
                   by_path.out);
    process_free(&by_path);
    succeed(process_run("inspect", "test/named@" STAND_IN_COMMIT));

    static const char part[] = "test/absent is no path, and not (or not completely) in the cache ";
    process_refuses(process_run("run", "test/absent", "-p", "x"), part);
    process_refuses(process_run("tokenize", "test/absent", "x"), "gossamer pull test/absent fetches it");
    process_refuses(process_run("inspect", "test/absent"), part);
    process_refuses(process_run("verify", "test/absent"), part);
    process_refuses(process_run("harmony", "render", "--model", "test/absent"), part);
    cli_model_free(model);
}

#define PULL_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PULL_TEST(fetches_into_the_cache),    PULL_TEST(finds_the_cache_by_the_environment),
        PULL_TEST(lists_without_fetching),    PULL_TEST(keeps_the_token_to_itself),
        PULL_TEST(shows_a_bar_on_a_terminal), PULL_TEST(refuses_what_cannot_be),
        PULL_TEST(prints_a_long_path_whole),  PULL_TEST(passes_no_proxy),
        PULL_TEST(shows_the_checking_too),    PULL_TEST(names_a_model_in_every_command),
    };
    const struct CMUnitTest without[] = {PULL_TEST(names_a_model_in_every_command)};
    hub = stand_in_start();
    struct process_result probe = process_run("pull", "test/model", "--endpoint", "none");
    can_pull = !strstr(probe.err, "this build cannot fetch models");
    process_free(&probe);
    if (!can_pull)
        puts("  skipped: this build has no gossamer pull");
    int failed =
        can_pull ? cmocka_run_group_tests(tests, NULL, NULL) : cmocka_run_group_tests(without, NULL, NULL);
    stand_in_stop(&hub);
    return failed;
}
