/* Sessions: whatever way a timeline came about, its logits are those of a fresh run of its tokens. */
#include "engine/engine.h"
#include "tests/support/check.h"
#include "tests/support/files.h"
#include "tests/support/tiny_engine.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define N_VOCAB 128
#define N_CTX   600

struct fixture {
    char *folder;
    struct gs_engine *engine;
};

static int set_up(void **state)
{
    static struct fixture fixture;
    struct tiny_options options = tiny_options_default();
    options.n_vocab = N_VOCAB;
    options.n_layer = 2;
    struct gs_engine_options engine_options = {.n_threads = 2};
    fixture.engine = tiny_engine_open(&options, &engine_options, &fixture.folder);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    tiny_engine_close(fixture->engine, fixture->folder);
    return 0;
}

static struct gs_session *open_session(void **state, int64_t n_ctx)
{
    struct gs_session *session;
    struct gs_error error;
    assert_ok(gs_session_open(((struct fixture *)*state)->engine, n_ctx, &session, &error), &error);
    return session;
}

static unsigned next_random(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 16;
}

/* The timeline is these tokens, and its logits have the bits of a fresh session's. */
static void assert_fresh(void **state, const struct gs_session *session, const int32_t *tokens, size_t count)
{
    size_t n;
    const int32_t *held = gs_session_tokens(session, &n);
    assert_int_equal(n, count);
    assert_memory_equal(held, tokens, count * sizeof *tokens);
    struct gs_session *fresh = open_session(state, N_CTX);
    struct gs_error error;
    assert_ok(gs_session_append(fresh, tokens, count, &error), &error);
    assert_non_null(gs_session_logits(session));
    assert_memory_equal(gs_session_logits(session), gs_session_logits(fresh), N_VOCAB * sizeof(float));
    gs_session_close(fresh);
}

/* Random walks over timelines: extend, go back a little or far, branch, repeat. */
static void sync_equals_a_fresh_run(void **state)
{
    struct gs_session *session = open_session(state, N_CTX);
    struct gs_error error;
    unsigned seed = 7;
    int32_t tokens[N_CTX];
    size_t count = 0;
    for (int round = 0; round < 60; round++) {
        size_t back =
            next_random(&seed) % 4 == 0 ? next_random(&seed) % (count + 1) : next_random(&seed) % 20;
        count = back < count ? count - back : 0;
        size_t more = 1 + next_random(&seed) % 90;
        size_t kept = count;
        while (count < N_CTX && more-- > 0)
            tokens[count++] = (int32_t)(next_random(&seed) % N_VOCAB);
        if (count == kept)
            continue;
        size_t n_computed;
        assert_ok(gs_session_sync(session, tokens, count, &n_computed, &error), &error);
        assert_true(n_computed >= 1 && n_computed <= count);
        assert_fresh(state, session, tokens, count);
        assert_ok(gs_session_sync(session, tokens, count, &n_computed, &error), &error);
        assert_int_equal(n_computed, 0); /* nothing changed: nothing to run */
    }
    gs_session_close(session);
}

static void sync_reuses_the_common_prefix(void **state)
{
    struct gs_session *session = open_session(state, N_CTX);
    struct gs_error error;
    int32_t tokens[400] = {0};
    for (int i = 0; i < 400; i++)
        tokens[i] = i % N_VOCAB;
    size_t n_computed;
    assert_ok(gs_session_sync(session, tokens, 300, &n_computed, &error), &error);
    assert_int_equal(n_computed, 300);
    assert_ok(gs_session_sync(session, tokens, 400, &n_computed, &error), &error);
    assert_int_equal(n_computed, 100);
    tokens[390] = 5;
    assert_ok(gs_session_sync(session, tokens, 400, &n_computed, &error), &error);
    assert_int_equal(n_computed, 10);
    assert_ok(gs_session_sync(session, tokens, 395, &n_computed, &error), &error);
    assert_int_equal(n_computed, 1); /* a prefix: only its last token, for the logits */
    assert_fresh(state, session, tokens, 395);
    assert_ok(gs_session_sync(session, tokens, 20, &n_computed, &error), &error);
    assert_int_equal(n_computed, 20); /* too far back for the rings */
    assert_fresh(state, session, tokens, 20);
    gs_session_close(session);
}

static void truncate_and_append(void **state)
{
    struct gs_session *session = open_session(state, N_CTX);
    struct gs_error error;
    int32_t tokens[500];
    for (int i = 0; i < 500; i++)
        tokens[i] = i * 7 % N_VOCAB;
    assert_ok(gs_session_append(session, tokens, 450, &error), &error);
    static const size_t lengths[] = {449, 440, 300, 100, 3, 1, 0};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        assert_ok(gs_session_truncate(session, lengths[i], &error), &error);
        size_t n;
        gs_session_tokens(session, &n);
        assert_int_equal(n, lengths[i]);
        assert_null(gs_session_logits(session));
        assert_ok(gs_session_append(session, tokens + lengths[i], 450 - lengths[i], &error), &error);
        assert_fresh(state, session, tokens, 450);
    }
    assert_ok(gs_session_truncate(session, 449, &error), &error);
    assert_null(gs_session_logits(session));
    assert_fails(gs_session_truncate(session, 450, &error), GS_INVALID_ARGUMENT, "450", &error);
    gs_session_close(session);
}

static void forks_go_their_own_ways(void **state)
{
    struct gs_session *session = open_session(state, N_CTX), *fork;
    struct gs_error error;
    int32_t tokens[400];
    for (int i = 0; i < 400; i++)
        tokens[i] = i * 11 % N_VOCAB;
    assert_ok(gs_session_append(session, tokens, 350, &error), &error);
    assert_ok(gs_session_fork(session, &fork, &error), &error);
    assert_fresh(state, fork, tokens, 350);
    assert_ok(gs_session_append(session, tokens + 350, 50, &error), &error);
    assert_fresh(state, fork, tokens, 350);
    int32_t other[] = {1, 2, 3};
    assert_ok(gs_session_append(fork, other, 3, &error), &error);
    assert_fresh(state, session, tokens, 400);
    memcpy(tokens + 350, other, sizeof other);
    assert_fresh(state, fork, tokens, 353);
    gs_session_close(session); /* the fork does not need it */
    assert_ok(gs_session_append(fork, other, 1, &error), &error);
    gs_session_close(fork);
}

static void bad_tokens_change_nothing(void **state)
{
    struct gs_session *session = open_session(state, 8);
    struct gs_error error;
    int32_t tokens[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    assert_ok(gs_session_append(session, tokens, 4, &error), &error);
    assert_fails(gs_session_append(session, tokens, 5, &error), GS_CONTEXT_FULL, "9 tokens do not fit",
                 &error);
    assert_fails(gs_session_sync(session, tokens, 9, NULL, &error), GS_CONTEXT_FULL, "context of 8", &error);
    assert_fails(gs_session_sync(session, tokens, 0, NULL, &error), GS_INVALID_ARGUMENT, "no tokens", &error);
    tokens[2] = N_VOCAB;
    assert_fails(gs_session_sync(session, tokens, 3, NULL, &error), GS_INVALID_ARGUMENT,
                 "128 is not in 0 ... 127", &error);
    tokens[2] = -1;
    assert_fails(gs_session_append(session, tokens, 3, &error), GS_INVALID_ARGUMENT, "-1", &error);
    tokens[2] = 3;
    assert_fresh(state, session, tokens, 4);
    gs_session_close(session);

    struct gs_engine *engine = ((struct fixture *)*state)->engine;
    int64_t too_long = gs_engine_info(engine)->max_ctx + 1;
    assert_fails(gs_session_open(engine, too_long, &session, &error), GS_INVALID_ARGUMENT, "this model takes",
                 &error);
    assert_null(session);
    assert_fails(gs_session_open(engine, -1, &session, &error), GS_INVALID_ARGUMENT, "-1", &error);
    assert_ok(gs_session_open(engine, 0, &session, &error), &error);
    assert_int_equal(gs_session_n_ctx(session), gs_engine_info(engine)->max_ctx);
    gs_session_close(session);
}

static void count_progress(void *user, uint64_t done, uint64_t total)
{
    uint64_t *last = user;
    assert_true(done > *last && done <= total);
    *last = done;
}

static void progress_and_cancel(void **state)
{
    struct gs_session *session = open_session(state, N_CTX);
    struct gs_error error;
    int32_t tokens[500];
    for (int i = 0; i < 500; i++)
        tokens[i] = i * 3 % N_VOCAB;
    uint64_t last = 0;
    gs_session_on_progress(session, count_progress, &last);
    assert_ok(gs_session_append(session, tokens, 300, &error), &error);
    assert_int_equal(last, 300);
    gs_session_on_progress(session, NULL, NULL);
    gs_session_cancel(session);
    assert_fails(gs_session_append(session, tokens + 300, 200, &error), GS_CANCELLED, "cancelled", &error);
    assert_fresh(state, session, tokens, 300);                              /* nothing was begun */
    assert_ok(gs_session_sync(session, tokens, 500, NULL, &error), &error); /* the flag is spent */
    assert_fresh(state, session, tokens, 500);
    gs_session_cancel(session); /* also where nothing would have to be run */
    assert_fails(gs_session_sync(session, tokens, 500, NULL, &error), GS_CANCELLED, "cancelled", &error);
    assert_ok(gs_session_sync(session, tokens, 500, NULL, &error), &error);
    gs_session_close(session);
}

static void cancel_at_the_end(void *user, uint64_t done, uint64_t total)
{
    if (done == total)
        gs_session_cancel(user);
}

/* A cancel that comes when the work is done is kept for the next call. */
static void a_late_cancel_is_not_lost(void **state)
{
    struct gs_session *session = open_session(state, N_CTX);
    struct gs_error error;
    int32_t tokens[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    gs_session_on_progress(session, cancel_at_the_end, session);
    assert_ok(gs_session_append(session, tokens, 5, &error), &error);
    gs_session_on_progress(session, NULL, NULL);
    assert_fails(gs_session_append(session, tokens + 5, 5, &error), GS_CANCELLED, "cancelled", &error);
    assert_ok(gs_session_append(session, tokens + 5, 5, &error), &error);
    assert_fresh(state, session, tokens, 10);
    gs_session_close(session);
}

/* A model of its own, whose files change under the engine. */
static void a_changed_model_is_noticed(void **state)
{
    (void)state;
    for (int blocked = 0; blocked < 2; blocked++)
        for (int cut = 0; cut < 2; cut++) {
            char *folder = test_folder_make();
            struct tiny_options options = tiny_options_default();
            tiny_checkpoint_write(&options, folder);
            struct test_path path = test_path_join(folder, "model.safetensors");
            sigset_t all, before;
            sigfillset(&all);
            if (blocked) /* as servers do that wait for signals in one thread */
                pthread_sigmask(SIG_BLOCK, &all, &before);
            struct gs_engine *engine;
            struct gs_session *session;
            struct gs_error error;
            const struct gs_engine_options two = {.n_threads = 2};
            const int32_t tokens[4] = {1, 2, 3, 4};
            assert_ok(gs_engine_open(folder, &two, &engine, &error), &error);
            assert_ok(gs_session_open(engine, 20, &session, &error), &error);
            assert_ok(gs_session_append(session, tokens, 4, &error), &error);
            size_t size;
            free(test_file_read(path.text, &size));
            assert_int_equal(truncate(path.text, cut ? 4096 : (off_t)size - 100), 0);
            assert_fails(gs_session_append(session, tokens, 4, &error), GS_FILE_CHANGED, "model.safetensors",
                         &error);
            assert_null(gs_session_logits(session));
            if (blocked)
                pthread_sigmask(SIG_SETMASK, &before, NULL);
            gs_session_close(session);
            gs_engine_close(engine);
            test_folder_remove(folder);
        }
}

struct runner {
    struct gs_session *session;
    int32_t tokens[300];
    gs_status status;
    struct gs_error error;
};

static void *run(void *argument)
{
    struct runner *runner = argument;
    for (size_t i = 0; runner->status == GS_OK && i < 300; i += 30)
        runner->status = gs_session_append(runner->session, runner->tokens + i, 30, &runner->error);
    return NULL;
}

static void sessions_run_from_several_threads(void **state)
{
    static struct runner runners[4];
    pthread_t threads[4];
    for (int r = 0; r < 4; r++) {
        runners[r] = (struct runner){.session = open_session(state, N_CTX)};
        for (int i = 0; i < 300; i++)
            runners[r].tokens[i] = (i * (r + 3) + r) % N_VOCAB;
        assert_int_equal(pthread_create(&threads[r], NULL, run, &runners[r]), 0);
    }
    for (int r = 0; r < 4; r++) {
        pthread_join(threads[r], NULL);
        assert_int_equal(runners[r].status, GS_OK);
        assert_fresh(state, runners[r].session, runners[r].tokens, 300);
        gs_session_close(runners[r].session);
    }
}

static void the_plan_adds_up(void **state)
{
    struct gs_engine *engine = ((struct fixture *)*state)->engine;
    struct gs_memory_plan small, large;
    struct gs_error error;
    assert_ok(gs_engine_plan(engine, 16, &small, &error), &error);
    assert_ok(gs_engine_plan(engine, gs_engine_info(engine)->max_ctx, &large, &error), &error);
    assert_true(small.kv_bytes < large.kv_bytes);
    assert_int_equal(small.scratch_bytes, large.scratch_bytes); /* scratch does not grow with the context */
    assert_true(small.weight_bytes > 0 && small.available_bytes > 0 && small.largest_n_ctx > 0);
    /* keys and values, float32: 2 layers (one a ring of window + step), 2 heads of 16 */
    assert_int_equal(small.kv_bytes, 2 * 2 * 2 * 16 * 16 * sizeof(float));
    assert_fails(gs_engine_plan(engine, 0, &small, &error), GS_INVALID_ARGUMENT, "0 tokens", &error);
}

static uint64_t bytes_free;
static size_t n_asked;

static uint64_t tell_free(const struct gs_device *device)
{
    (void)device;
    n_asked++;
    return bytes_free;
}

/* Of what was free half goes to sessions unasked; what does not fit then is refused, as is what never did. */
static void memory_is_asked_for_now_and_then(void **state)
{
    struct gs_engine *engine = ((struct fixture *)*state)->engine;
    const struct gs_backend *backend = engine->backend;
    struct gs_backend stingy = *backend;
    struct gs_session *sessions[4], *none;
    struct gs_error error;
    uint64_t each = backend->kv_bytes(engine->device, N_CTX),
             scratch = backend->scratch_bytes(engine->device);
    stingy.memory_available = tell_free;
    engine->backend = &stingy;
    atomic_store(&engine->spare_until, 0.0);
    bytes_free = scratch + 5 * each;
    n_asked = 0;
    sessions[0] = open_session(state, N_CTX);
    atomic_store(&engine->spare_until, INFINITY); /* not a matter of time */
    sessions[1] = open_session(state, N_CTX);
    sessions[2] = open_session(state, N_CTX);
    assert_int_equal(n_asked, 1);
    sessions[3] = open_session(state, N_CTX);
    assert_int_equal(n_asked, 2);
    bytes_free = scratch + each / 2;
    atomic_store(&engine->spare_until, 0.0);
    assert_fails(gs_session_open(engine, N_CTX, &none, &error), GS_OUT_OF_MEMORY, "the largest that fits",
                 &error);
    assert_int_equal(n_asked, 3);
    assert_fails(gs_session_open(engine, -1, &none, &error), GS_INVALID_ARGUMENT, "-1 tokens", &error);
    engine->backend = backend;
    atomic_store(&engine->spare_until, 0.0);
    for (size_t i = 0; i < 4; i++)
        gs_session_close(sessions[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sync_equals_a_fresh_run),
        cmocka_unit_test(sync_reuses_the_common_prefix),
        cmocka_unit_test(truncate_and_append),
        cmocka_unit_test(forks_go_their_own_ways),
        cmocka_unit_test(bad_tokens_change_nothing),
        cmocka_unit_test(progress_and_cancel),
        cmocka_unit_test(a_late_cancel_is_not_lost),
        cmocka_unit_test(a_changed_model_is_noticed),
        cmocka_unit_test(sessions_run_from_several_threads),
        cmocka_unit_test(the_plan_adds_up),
        cmocka_unit_test(memory_is_asked_for_now_and_then),
    };
    return cmocka_run_group_tests_name("engine/session", tests, set_up, tear_down);
}
