/* What is kept of past requests: found by their longest common prefix, exact, bounded, apart by scope. */
#include "server/prefix_cache.h"
#include "tests/support/check.h"
#include "tests/support/tiny_engine.h"

#include <stdlib.h>

#define N_CTX 1500

struct fixture {
    char *folder;
    struct gs_engine *engine;
    struct gs_prefix_cache *cache;
    size_t n_vocab;
    int32_t tokens[N_CTX];
};

static int set_up_with(void **state, enum gs_precision precision)
{
    struct fixture *f = calloc(1, sizeof *f);
    const struct gs_engine_options engine_options = {.backend = "cpu", .precision = precision};
    struct gs_error error;
    struct tiny_options options = tiny_options_default();
    options.n_layer = 2;
    f->engine = tiny_engine_open(&options, &engine_options, &f->folder);
    assert_ok(gs_prefix_cache_open(f->engine, 8u << 20, &f->cache, &error), &error);
    f->n_vocab = (size_t)gs_engine_info(f->engine)->n_vocab;
    for (size_t i = 0; i < N_CTX; i++)
        f->tokens[i] = (int32_t)((i * 31 + i / 5) % 120);
    *state = f;
    return 0;
}

static int set_up(void **state)
{
    return set_up_with(state, GS_PRECISION_EXACT);
}

/* Other layouts of the caches; the same bits on this backend all the same. */
static int set_up_fast(void **state)
{
    return set_up_with(state, GS_PRECISION_FAST);
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    gs_prefix_cache_close(f->cache);
    tiny_engine_close(f->engine, f->folder);
    free(f);
    return 0;
}

static struct gs_timeline_state open_state(const struct fixture *f)
{
    struct gs_timeline_state state = {0};
    struct gs_error error;
    assert_ok(gs_session_open(f->engine, N_CTX, &state.session, &error), &error);
    return state;
}

/* Runs the first `count` tokens of f->tokens. */
static struct gs_timeline_state run(const struct fixture *f, size_t count)
{
    struct gs_timeline_state state = open_state(f);
    struct gs_error error;
    assert_ok(gs_session_sync(state.session, f->tokens, count, NULL, &error), &error);
    state.least = gs_timeline_least(f->engine, count);
    return state;
}

static void keep(const struct fixture *f, size_t scope, size_t count)
{
    struct gs_timeline_state state = run(f, count);
    gs_prefix_cache_keep(f->cache, scope, &state);
    gs_prefix_cache_take(f->cache, state.session);
}

/* Goes on from what the cache has of the first `count` tokens, but for the last; the logits equal a cold
 * run's. */
static size_t use(const struct fixture *f, size_t scope, const int32_t *tokens, size_t count)
{
    struct gs_timeline_state state = open_state(f), cold = open_state(f);
    struct gs_error error;
    size_t reused;
    gs_prefix_cache_use(f->cache, scope, tokens, count, &state, &reused);
    assert_true(reused < count);
    assert_int_equal(gs_session_n_cached(state.session), reused);
    const size_t piece = 100;
    for (size_t at = reused; at < count; at += piece) {
        size_t n = count - at < piece ? count - at : piece;
        struct gs_batch_item item = {state.session, tokens + at, n, GS_WANT_LAST, NULL, NULL, NULL};
        assert_ok(gs_batch_run(f->engine, &item, 1, NULL, NULL, NULL, &error), &error);
    }
    assert_ok(gs_session_sync(cold.session, tokens, count, NULL, &error), &error);
    assert_memory_equal(gs_session_logits(state.session), gs_session_logits(cold.session),
                        f->n_vocab * sizeof(float));
    gs_session_close(state.session);
    gs_session_close(cold.session);
    return reused;
}

/* At least so many; where the rings reach no further than a step of the exact forward, not more. */
static void uses(const struct fixture *f, const int32_t *tokens, size_t count, size_t expected)
{
    size_t reused = use(f, 0, tokens, count);
    assert_true(reused >= expected);
    if (gs_batch_max_tokens(f->engine) <= 256)
        assert_int_equal(reused, expected);
}

static void a_prefix_is_found_and_exact(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(use(f, 0, f->tokens, 40), 0);
    keep(f, 0, 40);
    keep(f, 0, 700); /* far past the window of 16 and the longest step */
    assert_int_equal(use(f, 0, f->tokens, 40), 39);
    assert_int_equal(use(f, 0, f->tokens, 60), 40); /* the longer one cannot go back that far */
    assert_int_equal(use(f, 0, f->tokens, 700), 699);
    assert_int_equal(use(f, 0, f->tokens, 900), 700);
    gs_prefix_cache_clear(f->cache);
}

/* Beyond the reach of the rings only what was kept there serves; within it the longer timeline does. */
static void rings_reach_back_so_far(void **state)
{
    struct fixture *f = *state;
    int32_t other[N_CTX];
    memcpy(other, f->tokens, sizeof other);
    size_t reach = gs_batch_max_tokens(f->engine);
    keep(f, 0, 700);
    other[700 - reach] ^= 1;
    assert_int_equal(use(f, 0, other, 800), 700 - reach);
    memcpy(other, f->tokens, sizeof other);
    other[100] ^= 1;
    assert_int_equal(use(f, 0, other, 800), 0);
    keep(f, 0, 100);
    assert_int_equal(use(f, 0, other, 800), 100);
    gs_prefix_cache_clear(f->cache);
}

static void scopes_do_not_share(void **state)
{
    struct fixture *f = *state;
    keep(f, 1, 50);
    assert_int_equal(use(f, 2, f->tokens, 60), 0);
    assert_int_equal(use(f, 1, f->tokens, 60), 50);
    gs_prefix_cache_clear(f->cache);
}

static void the_budget_holds(void **state)
{
    struct fixture *f = *state;
    struct gs_prefix_cache *before = f->cache, *small;
    struct gs_error error;
    uint64_t each = gs_session_bytes(f->engine, 60);
    assert_ok(gs_prefix_cache_open(f->engine, 3 * each, &small, &error), &error);
    f->cache = small;
    for (size_t i = 0; i < 6; i++) {
        f->tokens[0] = (int32_t)i; /* six prompts that have nothing in common */
        keep(f, 0, 60);
        struct gs_prefix_figures figures = gs_prefix_cache_figures(small);
        assert_true(figures.bytes <= figures.max_bytes);
        assert_int_equal(figures.n_entry, i < 3 ? i + 1 : 3);
    }
    for (int32_t i = 3; i < 6; i++) {
        f->tokens[0] = i;
        assert_true(gs_prefix_cache_has(small, 0, f->tokens, 60));
    }
    f->tokens[0] = 3; /* used now: 4 is the oldest */
    assert_int_equal(use(f, 0, f->tokens, 61), 60);
    f->tokens[0] = 7;
    keep(f, 0, 60);
    f->tokens[0] = 3;
    assert_true(gs_prefix_cache_has(small, 0, f->tokens, 60));
    f->tokens[0] = 4;
    assert_false(gs_prefix_cache_has(small, 0, f->tokens, 60));
    keep(f, 0, 1400); /* more than the whole budget: not kept, and nothing goes for it */
    assert_int_equal(gs_prefix_cache_figures(small).n_entry, 3);
    gs_prefix_cache_close(small);
    f->cache = before;
    f->tokens[0] = 0;
}

/*
 * A conversation that grows is one timeline: each turn's end is a mark of it, and each, with the tokens just
 * before it, can be gone on from bit for bit.
 */
static void turns_are_marks_of_one_timeline(void **state)
{
    struct fixture *f = *state;
    int32_t other[N_CTX];
    const size_t turns[] = {100, 400, 800, 1200};
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++)
        keep(f, 0, turns[i]);
    struct gs_prefix_figures figures = gs_prefix_cache_figures(f->cache);
    assert_int_equal(figures.n_entry, 1);
    /* The longest, and of the others a part that has the size of the window. */
    assert_true(figures.bytes < gs_session_bytes(f->engine, 1200) + 3 * gs_session_bytes(f->engine, 33));
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        memcpy(other, f->tokens, sizeof other);
        other[turns[i]] ^= 1; /* another message there */
        uses(f, other, turns[i] + 50, turns[i]);
        assert_int_equal(use(f, 0, f->tokens, turns[i]), turns[i] - 1); /* the same again */
    }
    memcpy(other, f->tokens, sizeof other);
    other[790] ^= 1; /* a little before a mark */
    uses(f, other, 900, 790);
    other[700] ^= 1;
    uses(f, other, 900, 400);
    gs_prefix_cache_clear(f->cache);
    assert_int_equal(gs_prefix_cache_figures(f->cache).bytes, 0);
}

/* What a branch goes on from stays when the timeline that held it goes. */
static void marks_outlive_their_timeline(void **state)
{
    struct fixture *f = *state;
    struct gs_prefix_cache *before = f->cache, *small;
    struct gs_error error;
    assert_ok(gs_prefix_cache_open(f->engine, 5 * gs_session_bytes(f->engine, 700) / 2, &small, &error),
              &error);
    f->cache = small;
    keep(f, 0, 100);
    keep(f, 0, 700);
    int32_t last = f->tokens[699];
    f->tokens[110] ^= 1;
    keep(f, 0, 700); /* a branch behind 100, of which the other has a mark */
    assert_int_equal(gs_prefix_cache_figures(small).n_entry, 2);
    f->tokens[50] ^= 1;
    keep(f, 0, 700); /* something else: the first goes */
    f->tokens[50] ^= 1;
    assert_int_equal(gs_prefix_cache_figures(small).n_entry, 2);
    f->tokens[105] ^= 1;
    assert_int_equal(use(f, 0, f->tokens, 300), 100);
    f->tokens[105] ^= 1;
    f->tokens[110] ^= 1;
    f->tokens[699] = last;
    assert_true(gs_prefix_cache_figures(small).bytes <= gs_prefix_cache_figures(small).max_bytes);
    gs_prefix_cache_close(small);
    f->cache = before;
}

/* More ends than there is room for marks: the first stays, the instructions', and the last ones. */
static void marks_are_bounded(void **state)
{
    struct fixture *f = *state;
    int32_t other[N_CTX];
    struct gs_timeline_state timeline = open_state(f);
    struct gs_error error;
    for (size_t count = 40; count <= 1200; count += 40) {
        assert_ok(gs_session_append(timeline.session, f->tokens + count - 40, 40, &error), &error);
        timeline.least = gs_timeline_least(f->engine, count);
        gs_prefix_cache_keep(f->cache, 0, &timeline);
    }
    gs_prefix_cache_take(f->cache, timeline.session);
    assert_int_equal(gs_prefix_cache_figures(f->cache).n_entry, 1);
    memcpy(other, f->tokens, sizeof other);
    other[60] ^= 1;
    uses(f, other, 100, 40);
    memcpy(other, f->tokens, sizeof other);
    other[900] ^= 1;
    uses(f, other, 1000, 880);
    gs_prefix_cache_clear(f->cache);
}

/* A piece at a time, while the session goes on and its rings hold other tokens; or it is closed, or kept
 * again. */
static void copies_come_in_pieces(void **state)
{
    struct fixture *f = *state;
    struct gs_error error;
    int32_t other[N_CTX];
    size_t count = 700, n_piece = 1;
    struct gs_timeline_state timeline = run(f, count);
    gs_prefix_cache_keep(f->cache, 0, &timeline);
    do {
        assert_ok(gs_session_append(timeline.session, f->tokens + count, 300, &error), &error);
        count += 300;
        n_piece++;
    } while (gs_prefix_cache_copy(f->cache, 0.0));
    assert_true(n_piece > 2);
    assert_int_equal(use(f, 0, f->tokens, 900), 700);
    memcpy(other, f->tokens, sizeof other);
    size_t reach = gs_batch_max_tokens(f->engine);
    other[700 > reach ? 700 - reach : 0] ^= 1; /* as far back as the rings reach */
    assert_int_equal(use(f, 0, other, 800), 700 > reach ? 700 - reach : 0);

    timeline.least = gs_timeline_least(f->engine, count);
    gs_prefix_cache_keep(f->cache, 0, &timeline);
    assert_true(gs_prefix_cache_copy(f->cache, 0.0));
    assert_false(gs_prefix_cache_has_taken(f->cache));
    gs_prefix_cache_take(f->cache, timeline.session);
    assert_true(gs_prefix_cache_has_taken(f->cache));
    memcpy(other, f->tokens, sizeof other);
    other[700] ^= 1;
    uses(f, other, 900, 700);
    assert_false(gs_prefix_cache_has_taken(f->cache));
    assert_int_equal(use(f, 0, f->tokens, count), count - 1);
    gs_prefix_cache_clear(f->cache);

    timeline = run(f, 700);
    gs_prefix_cache_keep(f->cache, 0, &timeline);
    assert_ok(gs_session_append(timeline.session, f->tokens + 700, 100, &error), &error);
    timeline.least = gs_timeline_least(f->engine, 800);
    gs_prefix_cache_keep(f->cache, 0, &timeline);
    keep(f, 0, 300); /* of the one that is under way */
    assert_int_equal(gs_prefix_cache_figures(f->cache).n_entry, 1);
    keep(f, 1, 600); /* of another, which has to wait for it */
    gs_prefix_cache_take(f->cache, timeline.session);
    assert_int_equal(use(f, 0, f->tokens, 900), 800);
    assert_int_equal(use(f, 1, f->tokens, 900), 600);
    timeline = run(f, 750);
    gs_prefix_cache_keep(f->cache, 2, &timeline);
    gs_prefix_cache_take(f->cache, timeline.session);
    gs_prefix_cache_clear(f->cache);
    assert_false(gs_prefix_cache_copy(f->cache, 0.0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefix_is_found_and_exact),
        cmocka_unit_test(rings_reach_back_so_far),
        cmocka_unit_test(scopes_do_not_share),
        cmocka_unit_test(the_budget_holds),
        cmocka_unit_test(turns_are_marks_of_one_timeline),
        cmocka_unit_test(marks_outlive_their_timeline),
        cmocka_unit_test(marks_are_bounded),
        cmocka_unit_test(copies_come_in_pieces),
    };
    const struct CMUnitTest fast[] = {
        cmocka_unit_test(turns_are_marks_of_one_timeline),
        cmocka_unit_test(marks_are_bounded),
        cmocka_unit_test(copies_come_in_pieces),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down) +
           cmocka_run_group_tests_name("fast", fast, set_up_fast, tear_down);
}
