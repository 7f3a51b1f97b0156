/* Token sources: a script is obeyed to the letter, and a session's source is its sampler's draws. */
#include "tests/support/check.h"
#include "tests/support/files.h"
#include "tests/support/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>

#define N_VOCAB 128

static char *folder;

static int set_up(void **state)
{
    (void)state;
    folder = test_folder_make();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_folder_remove(folder);
    return 0;
}

static struct test_path write_script(const char *text)
{
    struct test_path path = test_path_join(folder, "script");
    test_file_write(path.text, text, strlen(text));
    return path;
}

static struct gs_sampler *open_sampler(float temperature, uint64_t seed)
{
    struct gs_sampling s = gs_sampling_default();
    s.temperature = temperature;
    s.seed = seed;
    struct gs_sampler *sampler;
    struct gs_error error;
    assert_ok(gs_sampler_open(&s, N_VOCAB, &sampler, &error), &error);
    return sampler;
}

static void assert_next(struct gs_source *source, int32_t expected)
{
    int32_t token;
    struct gs_error error;
    assert_ok(gs_source_next(source, &token, &error), &error);
    assert_int_equal(token, expected);
}

static void a_script_is_replayed(void **state)
{
    (void)state;
    struct test_path path = write_script("1,2, 3\t4\n\n5\r\n127");
    static const int32_t lines[4][5] = {{1, 2, 3, 4, -1}, {-1}, {5, -1}, {127, -1}};
    struct gs_error error;
    struct gs_source *source[4];
    for (size_t g = 0; g < 4; g++) /* all open at once: they do not mix */
        assert_ok(gs_source_open_script(path.text, g, NULL, N_VOCAB, &source[g], &error), &error);
    for (size_t i = 0; i < 5; i++)
        for (size_t g = 0; g < 4; g++)
            if (i == 0 || lines[g][i - 1] > 0)
                assert_next(source[g], lines[g][i]);
    for (size_t g = 0; g < 4; g++) {
        assert_next(source[g], -1); /* it stays ended */
        assert_null(gs_source_logits(source[g]));
        gs_source_close(source[g]);
    }
}

static void scripted_logits_go_through_the_sampler(void **state)
{
    (void)state;
    struct test_path path = write_script("logits: 3=1 9=2.5; 7=-1e3 8=-2e3 ;5=nan");
    struct gs_sampler *sampler = open_sampler(0, 0);
    struct gs_source *source;
    struct gs_error error;
    assert_ok(gs_source_open_script(path.text, 0, sampler, N_VOCAB, &source, &error), &error);
    assert_next(source, 9);
    assert_true(gs_source_logits(source)[9] == 2.5f);
    assert_true(gs_source_logits(source)[3] == 1);
    assert_true(gs_source_logits(source)[4] < -1e8f);
    assert_next(source, 7);
    int32_t token;
    assert_fails(gs_source_next(source, &token, &error), GS_NON_FINITE, "logit 5", &error);
    assert_int_equal(token, -1);
    gs_source_close(source);
    gs_sampler_close(sampler);
}

static void bad_scripts_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {{"128", "column 1: expected a token id"},
                 {"1,-1", "column 3: expected a token id"},
                 {"1 x", "column 3"},
                 {"1.5", "column 2"},
                 {"99999999999999999999", "column 1"},
                 {"logits: 1:2", "expected '='"},
                 {"logits: 1=x", "expected a number"},
                 {"logits: 128=1", "expected a token id"}};
    struct gs_sampler *sampler = open_sampler(0, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct test_path path = write_script(cases[i].text);
        struct gs_source *source;
        struct gs_error error;
        int32_t token = 0;
        assert_ok(gs_source_open_script(path.text, 0, sampler, N_VOCAB, &source, &error), &error);
        gs_status status = GS_OK;
        for (int n = 0; n < 5 && status == GS_OK; n++)
            status = gs_source_next(source, &token, &error);
        assert_int_equal(status, GS_MALFORMED);
        if (!strstr(error.message, cases[i].message))
            fail_msg("%s: %s", cases[i].text, error.message);
        gs_source_close(source);
    }
    gs_sampler_close(sampler);

    struct gs_source *source;
    struct gs_error error;
    struct test_path path = write_script("1\n2\n");
    assert_fails(gs_source_open_script(path.text, 2, NULL, N_VOCAB, &source, &error), GS_INVALID_ARGUMENT,
                 "no line 3", &error);
    path = write_script("logits: 1=1");
    assert_fails(gs_source_open_script(path.text, 0, NULL, N_VOCAB, &source, &error), GS_INVALID_ARGUMENT,
                 "need a sampler", &error);
    path = test_path_join(folder, "absent");
    assert_fails(gs_source_open_script(path.text, 0, NULL, N_VOCAB, &source, &error), GS_IO, "cannot open",
                 &error);
    assert_null(source);
}

static void a_model_is_sampled_until_its_context_is_full(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    options.n_vocab = N_VOCAB;
    options.n_layer = 2;
    struct test_path path = test_path_join(folder, "");
    tiny_checkpoint_write(&options, path.text);
    struct gs_engine *engine;
    struct gs_session *session, *by_hand;
    struct gs_source *source;
    struct gs_error error;
    assert_ok(gs_engine_open(path.text, NULL, &engine, &error), &error);
    assert_ok(gs_session_open(engine, 20, &session, &error), &error);
    assert_ok(gs_session_open(engine, 20, &by_hand, &error), &error);
    struct gs_sampler *sampler = open_sampler(1, 5), *same = open_sampler(1, 5);
    assert_fails(gs_source_open_model(session, sampler, &source, &error), GS_INVALID_ARGUMENT,
                 "sync a prompt", &error);

    const int32_t prompt[] = {1, 2, 3};
    assert_ok(gs_session_sync(session, prompt, 3, NULL, &error), &error);
    assert_ok(gs_session_sync(by_hand, prompt, 3, NULL, &error), &error);
    assert_ok(gs_source_open_model(session, sampler, &source, &error), &error);
    for (int n = 0; n < 18; n++) { /* 17 fill the context; one more needs no room, its logits are there */
        int32_t expected, token;
        assert_ok(gs_sampler_draw(same, gs_session_logits(by_hand), NULL, 0, &expected, &error), &error);
        assert_ok(gs_source_next(source, &token, &error), &error);
        assert_int_equal(token, expected);
        assert_memory_equal(gs_source_logits(source), gs_session_logits(by_hand), N_VOCAB * sizeof(float));
        if (n < 17)
            assert_ok(gs_session_append(by_hand, &token, 1, &error), &error);
    }
    assert_next(source, -1);
    assert_next(source, -1);
    gs_source_close(source);
    gs_sampler_close(sampler);
    gs_sampler_close(same);
    gs_session_close(session);
    gs_session_close(by_hand);
    gs_engine_close(engine);
}

/* The penalties see the whole timeline: the prompt, and what was drawn. */
static void penalties_count_the_timeline(void **state)
{
    (void)state;
    struct gs_sampling s = gs_sampling_default();
    s.temperature = 0;
    s.presence_penalty = 1000;
    struct gs_sampler *sampler;
    struct gs_source *source;
    struct gs_error error;
    assert_ok(gs_sampler_open(&s, N_VOCAB, &sampler, &error), &error);
    struct test_path path = write_script("logits: 3=5 4=4 5=3; 3=5 4=4 5=3; 3=5 4=4 5=3");
    assert_ok(gs_source_open_script(path.text, 0, sampler, N_VOCAB, &source, &error), &error);
    assert_null(gs_source_logits(source));
    assert_next(source, 3);
    assert_next(source, 4);
    assert_next(source, 5);
    gs_source_close(source);

    struct tiny_options options = tiny_options_default();
    options.n_vocab = N_VOCAB;
    options.n_layer = 2;
    path = test_path_join(folder, "");
    tiny_checkpoint_write(&options, path.text);
    struct gs_engine *engine;
    struct gs_session *session;
    assert_ok(gs_engine_open(path.text, NULL, &engine, &error), &error);
    assert_ok(gs_session_open(engine, N_VOCAB, &session, &error), &error);
    int32_t prompt[100];
    for (int32_t i = 0; i < 100; i++)
        prompt[i] = i;
    assert_ok(gs_session_sync(session, prompt, 100, NULL, &error), &error);
    assert_ok(gs_source_open_model(session, sampler, &source, &error), &error);
    bool drawn[N_VOCAB] = {false};
    for (int n = 0; n < N_VOCAB - 100; n++) { /* every token that the prompt lacks, once */
        int32_t token;
        assert_ok(gs_source_next(source, &token, &error), &error);
        assert_in_range(token, 100, N_VOCAB - 1);
        assert_false(drawn[token]);
        drawn[token] = true;
    }
    assert_ok(gs_session_truncate(session, 50, &error), &error);
    int32_t token;
    gs_source_close(source);
    assert_fails(gs_source_open_model(session, sampler, &source, &error), GS_INVALID_ARGUMENT, "no logits",
                 &error);
    assert_ok(gs_session_sync(session, prompt, 100, NULL, &error), &error);
    assert_ok(gs_source_open_model(session, sampler, &source, &error), &error);
    assert_ok(gs_session_truncate(session, 50, &error), &error);
    assert_fails(gs_source_next(source, &token, &error), GS_INVALID_ARGUMENT, "behind its source", &error);
    gs_source_close(source);
    gs_session_close(session);
    gs_engine_close(engine);
    gs_sampler_close(sampler);
}

static void a_foreign_sampler_is_refused(void **state)
{
    (void)state;
    struct gs_sampler *sampler = open_sampler(0, 0);
    struct gs_source *source;
    struct gs_error error;
    struct test_path path = write_script("logits: 3=5");
    assert_fails(gs_source_open_script(path.text, 0, sampler, N_VOCAB - 1, &source, &error),
                 GS_INVALID_ARGUMENT, "a sampler of 128 tokens cannot draw from rows of 127", &error);
    gs_sampler_close(sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_script_is_replayed),
        cmocka_unit_test(scripted_logits_go_through_the_sampler),
        cmocka_unit_test(bad_scripts_are_refused),
        cmocka_unit_test(penalties_count_the_timeline),
        cmocka_unit_test(a_foreign_sampler_is_refused),
        cmocka_unit_test(a_model_is_sampled_until_its_context_is_full),
    };
    return cmocka_run_group_tests_name("engine/source", tests, set_up, tear_down);
}
