/*
 * One forward over several sessions must give each of them, bit for bit, what it would have got alone, and
 * leave everything as it was where it fails.
 */
#include "engine/batch.h"
#include "engine/engine.h"
#include "engine/session.h"
#include "tests/support/check.h"
#include "tests/support/tiny_engine.h"

#include <stdlib.h>

#define N_SESSION 5
#define N_CTX     200

struct fixture {
    char *folder;
    struct gs_engine *engine;
    size_t n_vocab;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct tiny_options options = tiny_options_default();
    f->engine = tiny_engine_open(&options, NULL, &f->folder);
    f->n_vocab = (size_t)gs_engine_info(f->engine)->n_vocab;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    tiny_engine_close(f->engine, f->folder);
    free(f);
    return 0;
}

static int32_t token_of(size_t session, size_t position)
{
    return (int32_t)((session * 37 + position * 11 + position / 7) % 120);
}

static struct gs_session *open_session(const struct fixture *f)
{
    struct gs_session *session;
    struct gs_error error;
    assert_ok(gs_session_open(f->engine, N_CTX, &session, &error), &error);
    return session;
}

/* What `count` tokens of timeline `number` give alone. */
static float *alone(const struct fixture *f, size_t number, size_t count)
{
    struct gs_session *session = open_session(f);
    struct gs_error error;
    int32_t tokens[N_CTX];
    float *logits = malloc(f->n_vocab * sizeof *logits);
    for (size_t i = 0; i < count; i++)
        tokens[i] = token_of(number, i);
    assert_ok(gs_session_sync(session, tokens, count, NULL, &error), &error);
    memcpy(logits, gs_session_logits(session), f->n_vocab * sizeof *logits);
    gs_session_close(session);
    return logits;
}

static void assert_same(const struct fixture *f, const struct gs_session *session, size_t number,
                        size_t count)
{
    float *wanted = alone(f, number, count);
    const float *logits = gs_session_logits(session);
    assert_non_null(logits);
    assert_memory_equal(logits, wanted, f->n_vocab * sizeof *logits);
    free(wanted);
}

static void mixed_steps_equal_each_alone(void **state)
{
    struct fixture *f = *state;
    struct gs_session *sessions[N_SESSION];
    size_t done[N_SESSION] = {0};
    int32_t tokens[N_SESSION][N_CTX];
    struct gs_error error;
    for (size_t i = 0; i < N_SESSION; i++) {
        sessions[i] = open_session(f);
        for (size_t p = 0; p < N_CTX; p++)
            tokens[i][p] = token_of(i, p);
    }
    /* Pieces of all lengths, some sessions left out of some steps; past the window of 16. */
    for (size_t step = 0; step < 14; step++) {
        struct gs_batch_item items[N_SESSION];
        size_t n = 0;
        for (size_t i = 0; i < N_SESSION; i++) {
            size_t count = (step * 3 + i * 5) % 9;
            if (count == 0)
                continue;
            items[n++] = (struct gs_batch_item){
                sessions[i], tokens[i] + done[i], count, step % 2 ? GS_WANT_LAST : GS_WANT_NONE, NULL, NULL,
                NULL};
            done[i] += count;
        }
        assert_ok(gs_batch_run(f->engine, items, n, NULL, NULL, NULL, &error), &error);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(gs_session_logits(items[k].session) != NULL, step % 2 == 1);
    }
    struct gs_batch_item last[N_SESSION];
    for (size_t i = 0; i < N_SESSION; i++)
        last[i] = (struct gs_batch_item){sessions[i], tokens[i] + done[i], 1, GS_WANT_LAST, NULL, NULL, NULL};
    assert_ok(gs_batch_run(f->engine, last, N_SESSION, NULL, NULL, NULL, &error), &error);
    for (size_t i = 0; i < N_SESSION; i++) {
        size_t count;
        gs_session_tokens(sessions[i], &count);
        assert_int_equal(count, done[i] + 1);
        assert_true(count > 32);
        assert_same(f, sessions[i], i, count);
        gs_session_close(sessions[i]);
    }
}

struct rows {
    size_t n, bytes; /* of a row */
    float *wanted[20];
};

static gs_status check_row(void *user, size_t item, size_t row, const float *logits, struct gs_error *error)
{
    struct rows *rows = user;
    (void)error;
    assert_int_equal(item, 1);
    assert_int_equal(row, rows->n);
    assert_memory_equal(logits, rows->wanted[rows->n++], rows->bytes);
    return GS_OK;
}

static void all_rows_are_lent(void **state)
{
    struct fixture *f = *state;
    struct gs_session *sessions[2] = {open_session(f), open_session(f)};
    struct gs_error error;
    int32_t tokens[2][20];
    for (size_t i = 0; i < 2; i++)
        for (size_t p = 0; p < 20; p++)
            tokens[i][p] = token_of(i, p);
    const struct gs_batch_item items[] = {{sessions[0], tokens[0], 7, GS_WANT_LAST, NULL, NULL, NULL},
                                          {sessions[1], tokens[1], 20, GS_WANT_ALL, NULL, NULL, NULL}};
    struct rows rows = {.bytes = f->n_vocab * sizeof(float)};
    for (size_t i = 0; i < 20; i++) /* beforehand: the engine is taken while rows are lent */
        rows.wanted[i] = alone(f, 1, i + 1);
    assert_ok(gs_batch_run(f->engine, items, 2, NULL, check_row, &rows, &error), &error);
    assert_int_equal(rows.n, 20);
    for (size_t i = 0; i < 20; i++)
        free(rows.wanted[i]);
    assert_same(f, sessions[0], 0, 7);
    assert_same(f, sessions[1], 1, 20);
    gs_session_close(sessions[0]);
    gs_session_close(sessions[1]);
}

/* The last token's row, instead of the session's logits; of a step that wants none nothing is written. */
static void a_row_is_borrowed(void **state)
{
    struct fixture *f = *state;
    struct gs_session *sessions[3] = {open_session(f), open_session(f), open_session(f)};
    struct gs_error error;
    int32_t tokens[3][20];
    const float *rows[3] = {NULL, NULL, NULL};
    for (size_t i = 0; i < 3; i++)
        for (size_t p = 0; p < 20; p++)
            tokens[i][p] = token_of(i, p);
    float *wanted[2] = {alone(f, 0, 7), alone(f, 1, 20)};
    const struct gs_batch_item items[] = {{sessions[0], tokens[0], 7, GS_WANT_LAST, NULL, NULL, &rows[0]},
                                          {sessions[1], tokens[1], 20, GS_WANT_ALL, NULL, NULL, &rows[1]},
                                          {sessions[2], tokens[2], 3, GS_WANT_NONE, NULL, NULL, &rows[2]}};
    assert_ok(gs_batch_run(f->engine, items, 3, NULL, NULL, NULL, &error), &error);
    for (size_t i = 0; i < 2; i++) {
        assert_non_null(rows[i]);
        assert_memory_equal(rows[i], wanted[i], f->n_vocab * sizeof(float));
        assert_null(gs_session_logits(sessions[i]));
        free(wanted[i]);
    }
    assert_null(rows[2]);
    for (size_t i = 0; i < 3; i++)
        gs_session_close(sessions[i]);
}

static void count_items(void *user, size_t begin, size_t end, size_t thread)
{
    _Atomic int *seen = user;
    (void)thread;
    for (size_t i = begin; i < end; i++)
        atomic_fetch_add(&seen[i], 1);
}

static void work_is_shared(void **state)
{
    struct fixture *f = *state;
    _Atomic int seen[50] = {0};
    gs_engine_share(f->engine, count_items, seen, 49);
    for (size_t i = 0; i < 50; i++)
        assert_int_equal(atomic_load(&seen[i]), i < 49);
}

static void failures_change_nothing(void **state)
{
    struct fixture *f = *state;
    struct gs_session *a = open_session(f), *b = open_session(f);
    struct gs_error error;
    int32_t tokens[N_CTX + 1] = {0}, bad = (int32_t)f->n_vocab;
    _Atomic bool cancelled = true;
    size_t count;
    const struct gs_batch_item good[] = {{a, tokens, 3, GS_WANT_LAST, NULL, NULL, NULL},
                                         {b, tokens, 4, GS_WANT_LAST, NULL, NULL, NULL}};
    assert_ok(gs_batch_run(f->engine, good, 2, NULL, NULL, NULL, &error), &error);

    const struct gs_batch_item wrong_id[] = {{a, tokens, 1, GS_WANT_LAST, NULL, NULL, NULL},
                                             {b, &bad, 1, GS_WANT_LAST, NULL, NULL, NULL}};
    assert_fails(gs_batch_run(f->engine, wrong_id, 2, NULL, NULL, NULL, &error), GS_INVALID_ARGUMENT,
                 "token id", &error);
    const struct gs_batch_item full[] = {{a, tokens, 1, GS_WANT_LAST, NULL, NULL, NULL},
                                         {b, tokens, N_CTX - 3, GS_WANT_LAST, NULL, NULL, NULL}};
    assert_fails(gs_batch_run(f->engine, full, 2, NULL, NULL, NULL, &error), GS_CONTEXT_FULL, "do not fit",
                 &error);
    const struct gs_batch_item twice[] = {{a, tokens, 1, GS_WANT_LAST, NULL, NULL, NULL},
                                          {a, tokens, 1, GS_WANT_LAST, NULL, NULL, NULL}};
    assert_fails(gs_batch_run(f->engine, twice, 2, NULL, NULL, NULL, &error), GS_INVALID_ARGUMENT, "timeline",
                 &error);
    const struct gs_batch_item none[] = {{a, tokens, 0, GS_WANT_LAST, NULL, NULL, NULL}};
    assert_fails(gs_batch_run(f->engine, none, 1, NULL, NULL, NULL, &error), GS_INVALID_ARGUMENT, "no tokens",
                 &error);
    assert_fails(gs_batch_run(f->engine, good, 2, &cancelled, NULL, NULL, &error), GS_CANCELLED, "cancel",
                 &error);

    gs_session_tokens(a, &count);
    assert_int_equal(count, 3);
    gs_session_tokens(b, &count);
    assert_int_equal(count, 4);
    assert_ok(gs_batch_run(f->engine, good, 2, NULL, NULL, NULL, &error), &error);
    gs_session_close(a);
    gs_session_close(b);
}

/* Copied into a session of exactly its length, back into a longer one, rewound, and gone on with. */
static void copies_and_rewinds_go_on_bit_for_bit(void **state)
{
    struct fixture *f = *state;
    struct gs_error error;
    int32_t tokens[N_CTX];
    size_t kept;
    struct gs_session *first = open_session(f), *tight, *second = open_session(f);
    for (size_t p = 0; p < N_CTX; p++)
        tokens[p] = token_of(3, p);
    assert_ok(gs_session_sync(first, tokens, 90, NULL, &error), &error);
    assert_ok(gs_session_open(f->engine, 90, &tight, &error), &error);
    assert_ok(gs_session_copy(tight, first, &error), &error);
    gs_session_close(first);
    assert_ok(gs_session_copy(second, tight, &error), &error);
    assert_same(f, second, 3, 90);
    assert_ok(gs_session_rewind(second, 70, &kept, &error), &error);
    assert_int_equal(kept, 70);
    assert_null(gs_session_logits(second));
    const struct gs_batch_item item = {second, tokens + 70, 60, GS_WANT_LAST, NULL, NULL, NULL};
    assert_ok(gs_batch_run(f->engine, &item, 1, NULL, NULL, NULL, &error), &error);
    assert_same(f, second, 3, 130);
    assert_fails(gs_session_copy(tight, second, &error), GS_CONTEXT_FULL, "do not fit", &error);
    gs_session_close(tight);
    gs_session_close(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixed_steps_equal_each_alone),
        cmocka_unit_test(all_rows_are_lent),
        cmocka_unit_test(a_row_is_borrowed),
        cmocka_unit_test(work_is_shared),
        cmocka_unit_test(failures_change_nothing),
        cmocka_unit_test(copies_and_rewinds_go_on_bit_for_bit),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
