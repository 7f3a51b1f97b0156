/* What backends check of the steps of a forward. */
#include "backend/steps.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>

static const int32_t tokens[] = {0, 9, 4};

/* Timelines are told apart by where they are: nothing looks into them. */
static struct gs_kv *timeline(const int32_t *place)
{
    union {
        const void *place;
        struct gs_kv *kv;
    } pointer = {.place = place};
    return pointer.kv;
}

static void steps_have_to_fit(void **state)
{
    (void)state;
    const struct gs_step steps[] = {{timeline(&tokens[0]), tokens, 3, GS_WANT_LAST, NULL},
                                    {timeline(&tokens[1]), tokens, 3, GS_WANT_NONE, NULL},
                                    {timeline(&tokens[0]), tokens, 3, GS_WANT_NONE, NULL}};
    const struct gs_step none = {timeline(&tokens[2]), tokens, 0, GS_WANT_NONE, NULL};
    const struct gs_step_room fits = {8, 5, 10, 7, 10};
    const struct gs_step twice[] = {steps[0], steps[0]};
    struct gs_step_room room = fits;
    struct gs_error error;
    assert_ok(gs_step_check(steps, 0, &room, &error), &error);
    assert_ok(gs_step_check(steps, 1, &room, &error), &error);
    assert_fails(gs_step_check(steps, 2, &room, &error), GS_INVALID_ARGUMENT,
                 "steps 0 and 2 have the same timeline", &error);
    assert_fails(gs_step_check(twice, 1, &room, &error), GS_INVALID_ARGUMENT, "steps 0 and 1", &error);
    assert_fails(gs_step_check(&none, 0, &room, &error), GS_INVALID_ARGUMENT, "1 to 8 tokens a step", &error);
    room.n_rows = 6;
    assert_fails(gs_step_check(steps, 0, &room, &error), GS_INVALID_ARGUMENT, "1 to 8 tokens a step", &error);
    room = fits;
    room.length = 8;
    assert_fails(gs_step_check(steps, 0, &room, &error), GS_CONTEXT_FULL, "3 tokens, but only 2 of 10",
                 &error);
    room = fits;
    room.n_vocab = 9;
    assert_fails(gs_step_check(steps, 0, &room, &error), GS_INVALID_ARGUMENT, "token id 9 is not in 0 ... 8",
                 &error);
    assert_fails(gs_token_check(-1, 9, &error), GS_INVALID_ARGUMENT, "token id -1", &error);
    assert_ok(gs_token_check(8, 9, &error), &error);
}

static void wishes_are_for_all_or_the_last(void **state)
{
    (void)state;
    static const bool first[] = {false, false, true, false}, last[] = {false, true, true, true};
    for (int want = GS_WANT_NONE; want <= GS_WANT_TOKEN; want++) {
        const struct gs_step step = {NULL, tokens, 3, (enum gs_want)want, NULL};
        assert_int_equal(gs_step_wants(&step, 0), first[want]);
        assert_int_equal(gs_step_wants(&step, 2), last[want]);
    }
}

static void room_for_logits_only_grows(void **state)
{
    (void)state;
    float *logits = NULL;
    size_t capacity = 0;
    struct gs_error error;
    assert_ok(gs_logits_reserve(&logits, &capacity, 2, 10, &error), &error);
    logits[19] = 1.5f;
    assert_ok(gs_logits_reserve(&logits, &capacity, 40, 10, &error), &error);
    logits[399] = 2.5f;
    float *before = logits;
    assert_ok(gs_logits_reserve(&logits, &capacity, 7, 10, &error), &error);
    assert_ptr_equal(logits, before);
    assert_int_equal(capacity, 40);
    assert_true(logits[19] == 1.5f);
    free(logits);
}

/* One row's choice, then what each of n rows that choose evenly leaves out. */
static void experts_are_expected(void **state)
{
    (void)state;
    assert_true(gs_experts_expected(32, 4, 1) == 4.0);
    assert_true(gs_experts_expected(10, 3, 1) == 3.0); /* though 10 * (1 - (1 - 0.3)) is not */
    assert_true(fabs(gs_experts_expected(32, 4, 2) - 32 * (1 - 0.875 * 0.875)) < 1e-12);
    assert_true(fabs(gs_experts_expected(128, 4, 1000000) - 128.0) < 1e-6);
    assert_true(gs_experts_expected(4, 4, 9) == 4.0);
    assert_true(gs_experts_expected(32, 4, 0) == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_have_to_fit),
        cmocka_unit_test(wishes_are_for_all_or_the_last),
        cmocka_unit_test(room_for_logits_only_grows),
        cmocka_unit_test(experts_are_expected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
