/* What a memory plan that does not fit says, and that a session is opened by the same rule. */
#include "engine/engine.h"
#include "tests/support/check.h"
#include "tests/support/files.h"
#include "tests/support/tiny_model.h"

static const uint64_t mib = 1 << 20;

static void what_fits(void **state)
{
    (void)state;
    struct gs_error error;
    struct gs_memory_plan plan = {.n_ctx = 100, .largest_n_ctx = 100, .available_bytes = mib};
    assert_ok(gs_plan_check(&plan, &error), &error);
    plan = (struct gs_memory_plan){.n_ctx = 100}; /* a machine that does not say what is free */
    assert_ok(gs_plan_check(&plan, &error), &error);
}

static void what_does_not(void **state)
{
    (void)state;
    struct gs_error error;
    struct gs_memory_plan plan = {.n_ctx = 101,
                                  .largest_n_ctx = 100,
                                  .kv_bytes = 5 * mib / 2,
                                  .scratch_bytes = 3 * mib,
                                  .available_bytes = 5 * mib};
    assert_fails(gs_plan_check(&plan, &error), GS_OUT_OF_MEMORY,
                 "a context of 101 tokens needs 2.5 MiB for its cache and 3.0 MiB beside it, but 5.0 MiB are "
                 "free: the largest that fits is 100 tokens",
                 &error);
    plan.n_ctx = 1;
    plan.largest_n_ctx = 0;
    assert_fails(gs_plan_check(&plan, &error), GS_OUT_OF_MEMORY, "not even a context of one token fits",
                 &error);
    assert_null(strstr(error.message, "largest"));
}

/* A model whose longest context takes 256 GiB: more than most machines hold. */
static void sessions_keep_to_it(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_long_context();
    char *folder = test_folder_make();
    struct gs_engine *engine;
    struct gs_session *session;
    struct gs_memory_plan plan;
    struct gs_error error, same;
    tiny_checkpoint_write(&options, folder);
    assert_ok(gs_engine_open(folder, NULL, &engine, &error), &error);
    assert_ok(gs_engine_plan(engine, options.max_ctx, &plan, &error), &error);
    assert_true(plan.kv_bytes > UINT64_C(200) << 30);
    if (plan.largest_n_ctx < options.max_ctx) {
        assert_true(plan.largest_n_ctx > 0);
        gs_status status = gs_plan_check(&plan, &same);
        assert_int_equal(status, GS_OUT_OF_MEMORY);
        assert_int_equal(gs_session_open(engine, options.max_ctx, &session, &error), status);
        assert_null(session);
        size_t part = strcspn(same.message, ","); /* what is free differs from moment to moment */
        assert_memory_equal(error.message, same.message, part);
    }
    assert_fails(gs_session_open(engine, -1, &session, &error), GS_INVALID_ARGUMENT, "1 to", &error);
    gs_engine_close(engine);
    test_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits),
        cmocka_unit_test(what_does_not),
        cmocka_unit_test(sessions_keep_to_it),
    };
    return cmocka_run_group_tests_name("engine/plan", tests, NULL, NULL);
}
