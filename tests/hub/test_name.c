/* Names of models: what passes is safe in paths and URLs. */
#include "hub/name.h"
#include "tests/support/check.h"

#include <stdio.h>

static void takes_names(void **state)
{
    struct gs_hub_name name;
    struct gs_error error;
    (void)state;
    assert_ok(gs_hub_name_parse("openai/gpt-oss-20b", &name, &error), &error);
    assert_string_equal(name.repo, "openai/gpt-oss-20b");
    assert_string_equal(name.revision, "main");
    assert_string_equal(name.folder, "models--openai--gpt-oss-20b");
    assert_ok(gs_hub_name_parse("a/B_c.d@refs/pr/1", &name, &error), &error);
    assert_string_equal(name.repo, "a/B_c.d");
    assert_string_equal(name.revision, "refs/pr/1");
    assert_ok(gs_hub_name_set_revision(&name, "v1.0", &error), &error);
    assert_string_equal(name.revision, "v1.0");
}

static void refuses_what_is_no_name(void **state)
{
    static const char *const texts[] = {
        "",         "/",        "a",       "a/",       "/b",         "a/b/c",  "./a",
        "../a",     "a/..",     "a/.",     "a//b",     "a/b ",       "a/b\n",  "a/b--c",
        "a--b/c",   "a/b..c",   "-a/b",    "a/b-",     "a/.b",       "a b/c",  "\xc3\xa9/b",
        "a/b@",     "a/b@/x",   "a/b@x/",  "a/b@..",   "a/b@x/../y", "a/b@-x", "a/b@x y",
        "a/b@x%2e", "a/b@x//y", "a/b@x@y", "a/b@.git", "~/b"};
    struct gs_hub_name name;
    struct gs_error error;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (gs_hub_name_parse(texts[i], &name, &error) != GS_INVALID_ARGUMENT)
            fail_msg("\"%s\" passes", texts[i]);
    assert_int_equal(gs_hub_name_parse("a", &name, NULL), GS_INVALID_ARGUMENT);
}

static void bounds_lengths(void **state)
{
    char text[400];
    struct gs_hub_name name;
    struct gs_error error;
    (void)state;
    memset(text, 'x', sizeof text);
    text[1] = '/';
    text[GS_HUB_MAX_REPO] = '\0';
    assert_ok(gs_hub_name_parse(text, &name, &error), &error);
    text[GS_HUB_MAX_REPO] = 'x';
    text[GS_HUB_MAX_REPO + 1] = '\0';
    assert_fails(gs_hub_name_parse(text, &name, &error), GS_INVALID_ARGUMENT, "no model's name", &error);
    memset(text, 'x', sizeof text);
    text[GS_HUB_MAX_REVISION] = '\0';
    assert_ok(gs_hub_name_set_revision(&name, text, &error), &error);
    text[GS_HUB_MAX_REVISION] = 'x';
    text[GS_HUB_MAX_REVISION + 1] = '\0';
    assert_fails(gs_hub_name_set_revision(&name, text, &error), GS_INVALID_ARGUMENT, "no revision", &error);
}

static void knows_commits(void **state)
{
    (void)state;
    assert_true(gs_hub_is_commit("0123456789abcdef0123456789abcdef01234567"));
    assert_false(gs_hub_is_commit("0123456789abcdef0123456789abcdef0123456"));
    assert_false(gs_hub_is_commit("0123456789abcdef0123456789abcdef012345678"));
    assert_false(gs_hub_is_commit("0123456789ABCDEF0123456789abcdef01234567"));
    assert_false(gs_hub_is_commit("main"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_names),
        cmocka_unit_test(refuses_what_is_no_name),
        cmocka_unit_test(bounds_lengths),
        cmocka_unit_test(knows_commits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
