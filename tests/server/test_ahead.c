/*
 * A lone stream has its tokens chosen in a row where the backend can: the same tokens, the same prefix is
 * kept behind it, and who arrives is heard at the end of the row. The backend is the CPU's with rows made by
 * a plain loop.
 */
#include "backend/cpu/cpu.h"
#include "base/math.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/source.h"
#include "tests/server/heard.h"

#define PROMPT "Spell the word" /* the demo model has much to say to that */
#define LENGTH 24               /* tokens of an answer: one, then rows of 1, 2, 4, 8 and 8 */

static struct gs_backend rows;
static struct gs_vocab *vocab;
static struct gs_engine *engine;
static struct gs_metrics metrics;

/* What the backend did and is to do; the engine's thread alone writes between a submit and its release. */
static struct {
    size_t n_row, n_token, longest;
    int64_t in_doubt;               /* the token behind so many cannot be told; 0: all can */
    size_t fails_at, arrives_at;    /* row number; 0: none */
    struct gs_scheduler *scheduler; /* of who arrives */
    struct heard *arrival;          /* and is under way until it is released */
    bool interrupts, is_under_way;  /* a row was begun meanwhile */
} backend;

/* ---------------------------------------------------------------- a backend that goes on by itself */

static int32_t choose(const float *logits, const struct gs_draw *draw)
{
    int32_t best = 0, n = (int32_t)gs_engine_info(engine)->n_vocab;
    double total = 0.0, sum = 0.0;
    for (int32_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    if (!draw)
        return best;
    for (int32_t i = 0; i < n; i++)
        total += gs_exp64(((double)logits[i] - (double)logits[best]) / (double)draw->temperature);
    for (int32_t i = 0; i < n; i++) {
        sum += gs_exp64(((double)logits[i] - (double)logits[best]) / (double)draw->temperature);
        if (sum > draw->uniform * total)
            return i;
    }
    return -1;
}

static void submit(struct gs_scheduler *scheduler, struct heard *heard, struct gs_request *request);
static struct gs_request *make_request(const char *prompt);

static gs_status chain(struct gs_device *device, struct gs_kv *kv, int32_t token, const struct gs_draw *draws,
                       int32_t *out, size_t n, struct gs_error *error)
{
    int64_t before = gs_backend_cpu.kv_length(kv);
    backend.n_row++;
    backend.n_token += n;
    backend.longest = n > backend.longest ? n : backend.longest;
    backend.interrupts |= backend.is_under_way;
    for (size_t i = 0; i < n; i++) {
        struct gs_step step = {kv, &token, 1, GS_WANT_LAST, NULL};
        gs_status status = gs_backend_cpu.forward(device, &step, 1, NULL, error);
        if (status == GS_OK && backend.n_row == backend.fails_at)
            status = gs_fail(error, GS_IO, "made to fail");
        if (status != GS_OK) {
            gs_backend_cpu.kv_truncate(kv, before);
            return status;
        }
        token = out[i] = choose(gs_backend_cpu.logits(device, 0), draws ? &draws[i] : NULL);
        if (gs_backend_cpu.kv_length(kv) == backend.in_doubt)
            out[i] = -1;
    }
    if (backend.n_row == backend.arrives_at) {
        backend.is_under_way = true;
        backend.arrival->under_way = &backend.is_under_way;
        submit(backend.scheduler, backend.arrival, make_request("The capital of France is"));
    }
    return GS_OK;
}

static int set_up(void **state)
{
    (void)state;
    open_model(GS_PRECISION_EXACT, &vocab, &engine);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    close_model(vocab, engine);
    return 0;
}

/* ---------------------------------------------------------------- requests */

static struct gs_request *make_request(const char *prompt)
{
    return make_raw_request(vocab, prompt, LENGTH);
}

static void submit(struct gs_scheduler *scheduler, struct heard *heard, struct gs_request *request)
{
    struct gs_api_error error;
    assert_int_equal(gs_scheduler_submit(scheduler, request, (struct gs_sink){hear, let_go, heard}, NULL,
                                         (struct gs_client){0}, &error),
                     0);
}

static struct gs_scheduler *open_scheduler(bool ahead)
{
    struct gs_scheduler *scheduler;
    struct gs_error error;
    const struct gs_scheduler_options options = {.vocab = vocab,
                                                 .engine = engine,
                                                 .n_vocab = (size_t)gs_engine_info(engine)->n_vocab,
                                                 .n_ctx = 256,
                                                 .n_parallel = 4,
                                                 .max_queue = 4,
                                                 .ahead_seconds = 100.0, /* lengths hang on no clock */
                                                 .cache_bytes = 8u << 20,
                                                 .metrics = &metrics};
    rows = gs_backend_cpu;
    rows.chain = ahead ? chain : NULL;
    rows.draws = true;
    engine->backend = &rows;
    memset(&backend, 0, sizeof backend);
    assert_ok(gs_scheduler_open(&options, &scheduler, &error), &error);
    return scheduler;
}

/* One request after another, on one server. */
static void ask(struct gs_scheduler *scheduler, struct heard *heard, struct gs_request *request)
{
    submit(scheduler, heard, request);
    wait_for(heard);
}

static void assert_same(const struct heard *a, const struct heard *b)
{
    assert_int_equal(a->status, 0);
    assert_int_equal(b->status, 0);
    assert_true(a->text.size > 0);
    assert_int_equal(a->text.size, b->text.size);
    assert_memory_equal(a->text.data, b->text.data, a->text.size);
    assert_int_equal(a->usage.completion, b->usage.completion);
    assert_int_equal(a->usage.cached, b->usage.cached);
}

/* ---------------------------------------------------------------- tests */

static void rows_say_what_steps_say(void **state)
{
    static const float temperatures[] = {0.0f, 1.0f};
    (void)state;
    for (size_t t = 0; t < 2; t++) {
        struct heard *heard[2] = {make_heard(), make_heard()};
        for (int ahead = 0; ahead < 2; ahead++) {
            struct gs_scheduler *scheduler = open_scheduler(ahead);
            struct gs_request *request = make_request(PROMPT);
            request->sampling.temperature = temperatures[t];
            ask(scheduler, heard[ahead], request);
            gs_scheduler_close(scheduler);
        }
        assert_same(heard[0], heard[1]);
        assert_true(backend.n_row > 0);
        assert_in_range(backend.longest, 1, GS_AHEAD_TOKENS);
        assert_true(backend.n_token >= heard[1]->usage.completion - 1);
        if (temperatures[t] == 0.0f) { /* to the limit, and none too many */
            assert_int_equal(heard[1]->usage.completion, LENGTH);
            assert_int_equal(backend.n_token, LENGTH - 1);
        }
        free_heard(heard[0]);
        free_heard(heard[1]);
    }
}

/* `in_doubt` as the backend has it. */
static struct heard *hear_one(bool ahead, float temperature, size_t in_doubt)
{
    struct heard *heard = make_heard();
    struct gs_scheduler *scheduler = open_scheduler(ahead);
    struct gs_request *request = make_request(PROMPT);
    request->sampling.temperature = temperature;
    backend.in_doubt = (int64_t)in_doubt;
    ask(scheduler, heard, request);
    gs_scheduler_close(scheduler);
    return heard;
}

/* A token that the backend cannot tell is drawn from its logits, by the draw that was this token's. */
static void what_is_in_doubt_is_drawn(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        struct heard *plain = hear_one(false, (float)t, 0);
        size_t before = plain->usage.prompt;
        assert_true(plain->usage.completion >= 8);
        for (size_t at = before + 1; at < before + 20; at++) { /* the first of a row, and within */
            struct heard *heard = hear_one(true, (float)t, at);
            assert_same(plain, heard);
            free_heard(heard);
        }
        free_heard(plain);
    }
}

/* What lies behind a stop is no part of the timeline that is kept: who goes on finds as much of it. */
static void a_row_ends_where_the_choice_does(void **state)
{
    (void)state;
    struct heard *first[2] = {make_heard(), make_heard()}, *second[2] = {make_heard(), make_heard()};
    uint64_t kept[2]; /* bytes */
    struct gs_buffer longer = {0};
    char stop[4] = "";
    for (int ahead = 0; ahead < 2; ahead++) {
        struct gs_scheduler *scheduler = open_scheduler(ahead);
        struct heard *whole = make_heard();
        ask(scheduler, whole, make_request(PROMPT));
        assert_true(whole->text.size > 40);
        memcpy(stop, whole->text.data + whole->text.size / 2, sizeof stop - 1); /* somewhere in a row */
        free_heard(whole);
        gs_scheduler_close(scheduler);

        scheduler = open_scheduler(ahead); /* with nothing kept */
        struct gs_request *request = make_request(PROMPT);
        request->stop[0] = (struct gs_text){stop, sizeof stop - 1};
        request->n_stop = 1;
        ask(scheduler, first[ahead], request);
        kept[ahead] = gs_scheduler_cache_figures(scheduler).bytes;
        gs_buffer_clear(&longer);
        assert_int_equal(gs_buffer_append_text(&longer, PROMPT, NULL), GS_OK);
        assert_int_equal(gs_buffer_append(&longer, first[ahead]->text.data, first[ahead]->text.size, NULL),
                         GS_OK);
        ask(scheduler, second[ahead], make_request(longer.data));
        gs_scheduler_close(scheduler);
    }
    assert_true(first[0]->usage.completion < LENGTH);
    assert_int_equal(kept[0], kept[1]);
    assert_true(second[0]->usage.cached > 0);
    assert_same(first[0], first[1]);
    assert_same(second[0], second[1]);
    gs_buffer_free(&longer);
    for (int i = 0; i < 2; i++) {
        free_heard(first[i]);
        free_heard(second[i]);
    }
}

/* From the end of the row on the two share steps, until one of them is alone again. */
static void who_arrives_ends_it(void **state)
{
    (void)state;
    struct heard *plain[2] = {make_heard(), make_heard()}, *heard[2] = {make_heard(), make_heard()};
    struct gs_scheduler *scheduler = open_scheduler(false);
    ask(scheduler, plain[0], make_request(PROMPT));
    ask(scheduler, plain[1], make_request("The capital of France is"));
    gs_scheduler_close(scheduler);

    scheduler = open_scheduler(true);
    backend.scheduler = scheduler;
    backend.arrival = heard[1];
    backend.arrives_at = 3; /* at most 1 + 2 + 4 tokens are there */
    ask(scheduler, heard[0], make_request(PROMPT));
    wait_for(heard[1]);
    gs_scheduler_close(scheduler);
    assert_false(backend.interrupts);
    assert_true(backend.n_row > 3); /* the later one ends alone */
    assert_same(plain[0], heard[0]);
    assert_same(plain[1], heard[1]);
    for (int i = 0; i < 2; i++) {
        free_heard(plain[i]);
        free_heard(heard[i]);
    }
}

static void a_row_that_fails_is_an_error(void **state)
{
    (void)state;
    struct heard *failed = make_heard(), *next = make_heard();
    struct gs_scheduler *scheduler = open_scheduler(true);
    backend.fails_at = 2;
    ask(scheduler, failed, make_request(PROMPT));
    ask(scheduler, next, make_request(PROMPT));
    gs_scheduler_close(scheduler);
    assert_int_equal(failed->status, 500);
    assert_int_equal(next->status, 0);
    assert_true(next->text.size > 0);
    free_heard(failed);
    free_heard(next);
}

static void rows_grow_as_long_as_they_take_little(void **state)
{
    (void)state;
    assert_int_equal(gs_ahead_length(1, 1e-4, 0.008), 2);
    assert_int_equal(gs_ahead_length(2, 0.004, 0.008), 4);
    assert_int_equal(gs_ahead_length(4, 0.008, 0.008), 4);
    assert_int_equal(gs_ahead_length(4, 0.016, 0.008), 2);
    assert_int_equal(gs_ahead_length(1, 0.1, 0.008), 1);
    assert_int_equal(gs_ahead_length(32, 0.0, 0.008), GS_AHEAD_TOKENS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_say_what_steps_say),
        cmocka_unit_test(what_is_in_doubt_is_drawn),
        cmocka_unit_test(a_row_ends_where_the_choice_does),
        cmocka_unit_test(who_arrives_ends_it),
        cmocka_unit_test(a_row_that_fails_is_an_error),
        cmocka_unit_test(rows_grow_as_long_as_they_take_little),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
