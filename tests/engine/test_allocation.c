/*
 * Nothing allocates in the decode loop: malloc and its kin are counted while tokens are drawn and appended.
 * They are counted by standing in front of glibc's; where that is not possible the test is skipped.
 */
#include "tests/support/check.h"
#include "tests/support/files.h"
#include "tests/support/tiny_model.h"

#include <stdatomic.h>
#include <stdio.h>

static _Atomic int n_allocations;
static _Atomic bool counting;

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CAN_COUNT 1

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void *realloc(void *memory, size_t size);

void *malloc(size_t size)
{
    n_allocations += counting;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    n_allocations += counting;
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    n_allocations += counting;
    return __libc_realloc(memory, size);
}
#else
#define CAN_COUNT 0
#endif

static void decoding_allocates_nothing(void **state)
{
    (void)state;
    if (!CAN_COUNT) {
        printf("  skipped: allocations cannot be counted here\n");
        skip();
    }
    char *folder = test_folder_make();
    struct tiny_options options = tiny_options_default();
    tiny_checkpoint_write(&options, folder);
    struct gs_engine *engine;
    struct gs_session *session;
    struct gs_sampler *sampler;
    struct gs_source *source;
    struct gs_error error;
    struct gs_sampling sampling = gs_sampling_default();
    sampling.top_p = 0.9f;
    sampling.repetition_penalty = 1.1f;
    const int32_t prompt[5] = {1, 2, 3, 4, 5};
    assert_ok(gs_engine_open(folder, NULL, &engine, &error), &error);
    size_t n_vocab = (size_t)gs_engine_info(engine)->n_vocab;
    assert_ok(gs_session_open(engine, 300, &session, &error), &error);
    assert_ok(gs_sampler_open(&sampling, n_vocab, &sampler, &error), &error);
    assert_ok(gs_session_sync(session, prompt, 5, NULL, &error), &error);
    assert_ok(gs_source_open_model(session, sampler, &source, &error), &error);

    counting = true;
    gs_status status = GS_OK;
    int32_t token = 0;
    for (int i = 0; i < 200 && status == GS_OK; i++)
        status = gs_source_next(source, &token, &error);
    counting = false;
    assert_int_equal(status, GS_OK);
    assert_true(token >= 0);
    assert_int_equal(n_allocations, 0);

    counting = true; /* the control: opening a source does allocate, and that is seen */
    gs_source_close(source);
    status = gs_source_open_model(session, sampler, &source, &error);
    counting = false;
    assert_int_equal(status, GS_OK);
    assert_true(n_allocations > 0);

    gs_source_close(source);
    gs_sampler_close(sampler);
    gs_session_close(session);
    gs_engine_close(engine);
    test_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_allocates_nothing),
    };
    return cmocka_run_group_tests_name("engine/allocation", tests, NULL, NULL);
}
