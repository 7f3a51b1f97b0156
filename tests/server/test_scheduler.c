/*
 * Who is computed when: a client that leaves is in no further step, peers and connections take turns, the
 * queue is bounded, and neither a long prompt nor what is kept of it stalls a stream.
 */
#include "tests/server/watched.h"

/* ---------------------------------------------------------------- clients that leave */

static void who_leaves_is_in_no_further_step(void **state)
{
    struct heard *alone = make_heard(), *leaves = make_heard(), *stays = make_heard();
    (void)state;
    open_scheduler(4, 4);
    submit(alone, ask_raw("The capital of France is", 24), NULL, 0, 1);
    wait_for(alone);
    gs_scheduler_close(seen.scheduler);

    open_scheduler(4, 4);
    struct gs_exchange *exchange = gs_exchange_make(NULL);
    assert_non_null(exchange);
    seen.arrives_at = 2;
    seen.arrival = stays;
    seen.asks = ask_raw("The capital of France is", 24);
    seen.shares = true;
    seen.leaves_at = 8;
    seen.leaver = exchange;
    submit(leaves, ask_raw(PROMPT, 1000), exchange, 0, 1);
    wait_for(leaves);
    wait_for(stays);
    gs_scheduler_close(seen.scheduler);
    gs_exchange_release(exchange);
    assert_int_equal(seen.left_with, GS_OK); /* the step is the other's too */
    assert_int_equal(seen.n_later_shared, 0);
    assert_true(seen.n_later > 0);
    assert_int_equal(leaves->status, 499);
    assert_int_equal(atomic_load(&metrics.cancelled), 1);
    assert_int_equal(stays->status, 0);
    assert_true(says_the_same(alone, stays));
    free_heard(alone);
    free_heard(leaves);
    free_heard(stays);
}

static void who_leaves_alone_ends_the_step(void **state)
{
    struct heard *leaves = make_heard();
    struct gs_exchange *exchange = gs_exchange_make(NULL);
    (void)state;
    assert_non_null(exchange);
    open_scheduler(4, 4);
    seen.leaves_at = 2;
    seen.leaver = exchange;
    submit(leaves, ask_long(600), exchange, 0, 1);
    wait_for(leaves);
    gs_scheduler_close(seen.scheduler);
    gs_exchange_release(exchange);
    assert_int_equal(seen.left_with, GS_CANCELLED);
    assert_int_equal(seen.n_later, 0);
    assert_int_equal(leaves->status, 499);
    free_heard(leaves);
}

/* ---------------------------------------------------------------- the queue */

#define MOST_STARTS 8

/* Who said something first, in order. Until it is opened the engine's thread is held there. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool open;
    size_t count;
    const struct heard *who[MOST_STARTS];
} starts = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void note_start(struct heard *heard, const struct gs_event *event)
{
    bool known = event->kind != GS_EVENT_TEXT;
    pthread_mutex_lock(&starts.mutex);
    for (size_t i = 0; i < starts.count; i++)
        known |= starts.who[i] == heard;
    if (!known && starts.count < MOST_STARTS)
        starts.who[starts.count++] = heard;
    pthread_cond_broadcast(&starts.changed);
    while (!starts.open)
        pthread_cond_wait(&starts.changed, &starts.mutex);
    pthread_mutex_unlock(&starts.mutex);
}

static void wait_for_start(void)
{
    pthread_mutex_lock(&starts.mutex);
    while (starts.count == 0)
        pthread_cond_wait(&starts.changed, &starts.mutex);
    pthread_mutex_unlock(&starts.mutex);
}

static void set_gate(bool open)
{
    pthread_mutex_lock(&starts.mutex);
    starts.open = open;
    if (!open)
        starts.count = 0;
    pthread_cond_broadcast(&starts.changed);
    pthread_mutex_unlock(&starts.mutex);
}

static struct heard *make_listener(void)
{
    struct heard *heard = make_heard();
    heard->listens = note_start;
    return heard;
}

/* The first of them runs for `length` tokens, the others come meanwhile; `order` is that of their beginnings.
 */
static void assert_order(size_t n_parallel, int64_t length, const struct gs_client *clients,
                         const size_t *order, size_t count)
{
    struct heard *heard[MOST_STARTS];
    open_scheduler(n_parallel, MOST_STARTS);
    set_gate(false);
    for (size_t i = 0; i < count; i++) {
        heard[i] = make_listener();
        submit(heard[i], ask_raw(PROMPT, i == 0 ? length : 2), NULL, clients[i].peer, clients[i].connection);
        if (i == 0)
            wait_for_start();
    }
    set_gate(true);
    for (size_t i = 0; i < count; i++)
        wait_for(heard[i]);
    gs_scheduler_close(seen.scheduler);
    assert_int_equal(starts.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(heard[i]->status, 0);
        assert_ptr_equal(starts.who[i], heard[order[i]]);
    }
    for (size_t i = 0; i < count; i++)
        free_heard(heard[i]);
}

/* Who has less under way goes first: of peers, and of the connections of one. */
static void peers_and_connections_take_turns(void **state)
{
    static const struct gs_client beside[] = {{1, 1}, {1, 1}, {1, 2}, {2, 3}};
    static const size_t order_beside[] = {0, 3, 2, 1};
    static const struct gs_client after[] = {{1, 1}, {1, 2}, {1, 3}, {1, 4}, {2, 5}, {2, 6}, {3, 7}};
    static const size_t order_after[] = {0, 4, 6, 1, 5, 2, 3};
    (void)state;
    assert_order(2, 100, beside, order_beside, 4);
    assert_order(1, 2, after, order_after, 7);
}

static void a_full_queue_says_when_to_come_again(void **state)
{
    struct heard *heard[4];
    struct gs_api_error error = {0};
    (void)state;
    open_scheduler(1, 2);
    set_gate(false);
    for (size_t i = 0; i < 4; i++)
        heard[i] = make_listener();
    submit(heard[0], ask_raw(PROMPT, 4), NULL, 0, 1);
    wait_for_start();
    submit(heard[1], ask_raw(PROMPT, 4), NULL, 0, 2);
    submit(heard[2], ask_raw(PROMPT, 4), NULL, 0, 3);
    assert_int_equal(gs_scheduler_submit(seen.scheduler, ask_raw(PROMPT, 4),
                                         (struct gs_sink){hear, let_go, heard[3]}, NULL,
                                         (struct gs_client){0, 4}, &error),
                     429);
    assert_string_equal(error.code, "queue_full");
    assert_in_range(error.retry_after, 1, 60);
    assert_true(heard[3]->released && !heard[3]->begun);
    assert_int_equal(atomic_load(&metrics.rejected), 1);
    set_gate(true);
    for (size_t i = 0; i < 3; i++) {
        wait_for(heard[i]);
        assert_int_equal(heard[i]->status, 0);
    }
    gs_scheduler_stop(seen.scheduler, 0.0);
    assert_int_equal(gs_scheduler_submit(seen.scheduler, ask_raw(PROMPT, 4),
                                         (struct gs_sink){hear, let_go, heard[3]}, NULL,
                                         (struct gs_client){0, 4}, &error),
                     503);
    gs_scheduler_close(seen.scheduler);
    for (size_t i = 0; i < 4; i++)
        free_heard(heard[i]);
}

/* ---------------------------------------------------------------- long prompts */

/* On a machine where a step's cost lies in the call, in its tokens, in the text behind them, or in all. */
static void a_long_prompt_slows_a_stream_threefold_at_most(void **state)
{
    static const struct cost costs[] = {
        {10000000, 50000, 0}, {0, 1000000, 0}, {1000000, 100000, 0}, {1000000, 100000, 400}};
    (void)state;
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
        struct heard *stream = make_heard(), *prompt = make_heard();
        struct gs_exchange *exchange = gs_exchange_make(NULL);
        assert_non_null(exchange);
        open_scheduler(4, 4);
        seen.cost = costs[i];
        seen.arrives_at = 40;
        seen.arrival = prompt;
        seen.asks = ask_long(250);
        submit(stream, ask_raw(PROMPT, 1500), exchange, 0, 1);
        wait_for(prompt);
        gs_exchange_leave(exchange);
        wait_for(stream);
        gs_scheduler_close(seen.scheduler);
        gs_exchange_release(exchange);
        double mean = (double)seen.beside / (double)seen.n_beside / (double)seen.alone;
        double worst = (double)seen.slowest / (double)seen.alone;
        print_message("          costs %zu: %zu steps, %.2f times as long, the longest %.2f times\n", i,
                      (size_t)seen.n_beside, mean, worst);
        assert_int_equal(prompt->status, 0);
        assert_true(seen.n_beside > 5);
        assert_true(mean < 3.0);
        assert_true(worst < 3.01); /* 3 where what is earned rounds down, and comes with the next step's */
        free_heard(stream);
        free_heard(prompt);
    }
}

/* What is kept of it is copied beside the stream's steps, whether its own answer goes on or has ended. */
static void a_prompt_that_is_kept_does_not_stall_a_stream(void **state)
{
    const int64_t n_prompt = 1900;
    (void)state;
    for (int64_t length = 1; length <= 100; length += 99) {
        int64_t n_answered = length > 1 ? n_prompt + length - 1 : 0; /* is kept too */
        struct heard *stream = make_heard(), *prompt = make_heard();
        struct gs_exchange *exchange = gs_exchange_make(NULL);
        assert_non_null(exchange);
        open_with_cache(4, 4, (uint64_t)64 << 20);
        seen.arrives_at = 40;
        seen.arrival = prompt;
        seen.asks = ask_long((size_t)n_prompt);
        seen.asks->max_tokens = length;
        seen.leaver = exchange;
        seen.leaves_copied = (uint64_t)(n_prompt + n_answered) * COPY_COST;
        submit(stream, ask_raw(PROMPT, 1900), exchange, 0, 1);
        wait_for(prompt);
        wait_for(stream);
        gs_scheduler_close(seen.scheduler);
        gs_exchange_release(exchange);
        assert_int_equal(prompt->status, 0);
        assert_int_equal(stream->status, 499); /* it was there until all was copied */
        assert_true(seen.most_copied < seen.cost.call);
        free_heard(stream);
        free_heard(prompt);
    }
}

/* When the one that has waited begins: later the ends of the streams are kept, which are large too. */
static size_t most_large;

static void note_most_large(struct heard *heard, const struct gs_event *event)
{
    (void)event;
    if (!heard->begun)
        most_large = seen.most_large;
}

/* A session that lives on until it is copied keeps its place: no more memory is taken than these have. */
static void what_is_still_copied_has_its_place(void **state)
{
    struct heard *stream = make_heard(), *prompt = make_heard(), *next = make_heard();
    (void)state;
    open_with_cache(2, 4, (uint64_t)64 << 20);
    next->listens = note_most_large;
    seen.is_large = 1100; /* what is kept of the prompt is not */
    seen.arrives_at = 40;
    seen.arrival = prompt;
    seen.asks = ask_long(1100);
    seen.comes_late_at = 41;
    seen.late = next;
    seen.late_asks = ask_raw(PROMPT, 1100);
    submit(stream, ask_raw(PROMPT, 1200), NULL, 0, 1);
    wait_for(prompt);
    wait_for(next);
    wait_for(stream);
    gs_scheduler_close(seen.scheduler);
    assert_int_equal(stream->status, 0);
    assert_int_equal(prompt->status, 0);
    assert_int_equal(next->status, 0);
    assert_int_equal(most_large, 2);
    assert_int_equal(seen.n_large, 0);
    free_heard(stream);
    free_heard(prompt);
    free_heard(next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_leaves_is_in_no_further_step),
        cmocka_unit_test(who_leaves_alone_ends_the_step),
        cmocka_unit_test(peers_and_connections_take_turns),
        cmocka_unit_test(a_full_queue_says_when_to_come_again),
        cmocka_unit_test(a_long_prompt_slows_a_stream_threefold_at_most),
        cmocka_unit_test(a_prompt_that_is_kept_does_not_stall_a_stream),
        cmocka_unit_test(what_is_still_copied_has_its_place),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
