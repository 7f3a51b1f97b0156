/* Requests to a scheduler without HTTP, and what came of them: for the tests that stand in for a client. */
#ifndef TESTS_SERVER_HEARD_H
#define TESTS_SERVER_HEARD_H

#include "backend/cpu/cpu.h"
#include "engine/engine.h"
#include "server/scheduler.h"
#include "tests/support/check.h"

#include <pthread.h>
#include <stdlib.h>

/* The demo model on the CPU, one thread; the engine's backend may be replaced until it is closed. */
static inline void open_model(enum gs_precision precision, struct gs_vocab **vocab, struct gs_engine **engine)
{
    const struct gs_engine_options options = {.backend = "cpu", .n_threads = 1, .precision = precision};
    struct gs_error error;
    assert_ok(gs_vocab_open("models/demo", vocab, &error), &error);
    assert_ok(gs_engine_open("models/demo", &options, engine, &error), &error);
}

static inline void close_model(struct gs_vocab *vocab, struct gs_engine *engine)
{
    engine->backend = &gs_backend_cpu;
    gs_engine_close(engine);
    gs_vocab_close(vocab);
}

/* What came of a request. */
struct heard {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct gs_buffer text;
    struct gs_usage usage;
    int status; /* of an error */
    bool begun, released;
    bool *under_way; /* becomes false with the release; may be NULL */
    /* Called at each event, by the engine's thread; may be NULL. */
    void (*listens)(struct heard *heard, const struct gs_event *event);
};

static inline struct heard *make_heard(void)
{
    struct heard *heard = calloc(1, sizeof *heard);
    assert_non_null(heard);
    pthread_mutex_init(&heard->mutex, NULL);
    pthread_cond_init(&heard->changed, NULL);
    return heard;
}

static inline void free_heard(struct heard *heard)
{
    pthread_mutex_destroy(&heard->mutex);
    pthread_cond_destroy(&heard->changed);
    gs_buffer_free(&heard->text);
    free(heard);
}

static inline void hear(void *user, const struct gs_event *event)
{
    struct heard *heard = user;
    if (event->kind == GS_EVENT_TEXT)
        gs_buffer_append(&heard->text, event->text.bytes, event->text.size, NULL);
    if (event->kind == GS_EVENT_DONE)
        heard->usage = *event->usage;
    if (heard->listens)
        heard->listens(heard, event);
    pthread_mutex_lock(&heard->mutex);
    if (event->kind == GS_EVENT_ERROR)
        heard->status = event->error->status;
    heard->begun = true;
    pthread_cond_signal(&heard->changed);
    pthread_mutex_unlock(&heard->mutex);
}

static inline void let_go(void *user)
{
    struct heard *heard = user;
    if (heard->under_way)
        *heard->under_way = false;
    pthread_mutex_lock(&heard->mutex);
    heard->released = true;
    pthread_cond_signal(&heard->changed);
    pthread_mutex_unlock(&heard->mutex);
}

/* Until its last event. */
static inline void wait_for(struct heard *heard)
{
    pthread_mutex_lock(&heard->mutex);
    while (!heard->released)
        pthread_cond_wait(&heard->changed, &heard->mutex);
    pthread_mutex_unlock(&heard->mutex);
}

/* Raw text goes on from `prompt`, greedily, for `length` tokens at most. */
static inline struct gs_request *make_raw_request(struct gs_vocab *vocab, const char *prompt, int64_t length)
{
    struct gs_error error;
    struct gs_request *request = gs_request_make();
    assert_non_null(request);
    request->prompts = calloc(1, sizeof *request->prompts);
    assert_non_null(request->prompts);
    request->n_prompt = 1;
    request->max_tokens = length;
    request->sampling.temperature = 0.0f;
    request->seeded = true;
    request->sampling.seed = 7;
    assert_ok(gs_vocab_encode(vocab, prompt, strlen(prompt), request->prompts, &error), &error);
    return request;
}

static inline bool says_the_same(const struct heard *a, const struct heard *b)
{
    return a->text.size == b->text.size && a->text.size > 0 &&
           memcmp(a->text.data, b->text.data, a->text.size) == 0;
}

#endif
