/* Sessions as files: a loaded one goes on as if it had never stopped; damaged and foreign ones are refused.
 */
#include "engine/snapshot.h"
#include "tests/support/check.h"
#include "tests/support/files.h"
#include "tests/support/tiny_engine.h"

#include <stdlib.h>
#include <sys/stat.h>

#define N_VOCAB 128
#define N_CTX   600
#define COUNT   301 /* odd: the ids need padding; longer than the rings */

struct fixture {
    char *folder;
    struct gs_engine *engine;
    struct test_path path;
    int32_t tokens[COUNT + 40];
};

static struct gs_engine *open_engine(uint64_t seed, char **folder)
{
    struct tiny_options options = tiny_options_default();
    struct gs_engine_options engine_options = {.n_threads = 2};
    options.n_vocab = N_VOCAB;
    options.n_layer = 2;
    options.seed = seed;
    return tiny_engine_open(&options, &engine_options, folder);
}

static struct gs_session *open_session(struct gs_engine *engine, int64_t n_ctx)
{
    struct gs_session *session;
    struct gs_error error;
    assert_ok(gs_session_open(engine, n_ctx, &session, &error), &error);
    return session;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct gs_error error;
    assert_non_null(f);
    f->engine = open_engine(1, &f->folder);
    f->path = test_path_join(f->folder, "session.kv");
    for (int i = 0; i < COUNT + 40; i++)
        f->tokens[i] = (i * i + 3 * i) % N_VOCAB;
    struct gs_session *session = open_session(f->engine, N_CTX);
    assert_ok(gs_session_append(session, f->tokens, COUNT, &error), &error);
    assert_ok(gs_session_save(session, f->path.text, &error), &error);
    gs_session_close(session);
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

static void goes_on_where_it_was(void **state)
{
    struct fixture *f = *state;
    struct gs_error error;
    size_t n, n_computed;
    struct gs_session *loaded = open_session(f->engine, N_CTX), *fresh = open_session(f->engine, N_CTX);
    assert_ok(gs_session_load(loaded, f->path.text, &error), &error);
    const int32_t *held = gs_session_tokens(loaded, &n);
    assert_int_equal(n, COUNT);
    assert_memory_equal(held, f->tokens, COUNT * sizeof *held);
    assert_null(gs_session_logits(loaded));
    assert_ok(gs_session_sync(loaded, f->tokens, COUNT + 40, &n_computed, &error), &error);
    assert_int_equal(n_computed, 40);
    assert_ok(gs_session_append(fresh, f->tokens, COUNT + 40, &error), &error);
    assert_memory_equal(gs_session_logits(loaded), gs_session_logits(fresh), N_VOCAB * sizeof(float));

    /* Into a smaller context too, and without anything new: one token for the logits. */
    struct gs_session *small = open_session(f->engine, COUNT);
    assert_ok(gs_session_load(small, f->path.text, &error), &error);
    assert_ok(gs_session_sync(small, f->tokens, COUNT, &n_computed, &error), &error);
    assert_int_equal(n_computed, 1);
    gs_session_close(small);
    gs_session_close(fresh);
    gs_session_close(loaded);
}

static void is_for_its_owner_alone(void **state)
{
    struct fixture *f = *state;
    struct stat info;
    assert_int_equal(stat(f->path.text, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
}

/* Refused with this status and message, and the session still has what it had. */
static void refuses(struct fixture *f, const char *bytes, size_t size, gs_status status, const char *part)
{
    struct test_path path = test_path_join(f->folder, "bad.kv");
    struct gs_session *session = open_session(f->engine, N_CTX);
    struct gs_error error;
    size_t n, n_computed;
    test_file_write(path.text, bytes, size);
    assert_ok(gs_session_append(session, f->tokens, 50, &error), &error);
    assert_fails(gs_session_load(session, path.text, &error), status, part, &error);
    gs_session_tokens(session, &n);
    assert_int_equal(n, 50);
    assert_ok(gs_session_sync(session, f->tokens, 60, &n_computed, &error), &error);
    assert_int_equal(n_computed, 10);
    gs_session_close(session);
}

/* A flipped bit anywhere is noticed, and so is every truncation. */
static void damage_is_noticed(void **state)
{
    struct fixture *f = *state;
    size_t size;
    char *bytes = test_file_read(f->path.text, &size);
    const size_t head = sizeof(struct gs_snapshot_header);
    const size_t places[] = {
        head, head + 4 * COUNT - 1, head + 4 * COUNT + 4, head + 4 * COUNT + 100, size / 2, size - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        bytes[places[i]] ^= 4;
        refuses(f, bytes, size, GS_MALFORMED, "the snapshot is damaged: its checksum is wrong");
        bytes[places[i]] ^= 4;
    }
    for (size_t at = 16; at < head; at += 7) {
        bytes[at] ^= 4;
        refuses(f, bytes, size, GS_MALFORMED, "damaged: its header's checksum");
        bytes[at] ^= 4;
    }
    for (size_t cut = 1; cut < size; cut += size / 5)
        refuses(f, bytes, size - cut, GS_MALFORMED,
                size - cut < head ? "too few for a snapshot" : "the snapshot is damaged: it has ");
    refuses(f, "", 0, GS_MALFORMED, "too few");
    bytes[0] ^= 4;
    refuses(f, bytes, size, GS_MALFORMED, "is no snapshot");
    bytes[0] ^= 4;
    bytes[8] ^= 4;
    refuses(f, bytes, size, GS_UNSUPPORTED, "version");
    free(bytes);
}

static void foreign_ones_are_refused(void **state)
{
    struct fixture *f = *state;
    struct gs_error error;
    char *folder;
    struct gs_engine *other = open_engine(2, &folder); /* the same shapes, other weights */
    struct gs_session *session = open_session(other, N_CTX);
    assert_fails(gs_session_load(session, f->path.text, &error), GS_UNSUPPORTED, "of another model", &error);
    gs_session_close(session);
    tiny_engine_close(other, folder);

    session = open_session(f->engine, COUNT - 1);
    assert_fails(gs_session_load(session, f->path.text, &error), GS_CONTEXT_FULL,
                 "holds 301 tokens, but the context only 300", &error);
    assert_fails(gs_session_load(session, "/no/snapshot", &error), GS_IO, "/no/snapshot", &error);
    assert_fails(gs_session_save(session, f->path.text, &error), GS_INVALID_ARGUMENT, "nothing to save",
                 &error);
    assert_ok(gs_session_append(session, f->tokens, 3, &error), &error);
    assert_fails(gs_session_save(session, "/no/folder/x", &error), GS_IO, "/no/folder/x", &error);
    gs_session_close(session);
}

static void the_model_has_a_fingerprint(void **state)
{
    struct fixture *f = *state;
    char *folder;
    struct gs_engine *same = open_engine(1, &folder);
    assert_true(gs_model_fingerprint(same) == gs_model_fingerprint(f->engine));
    tiny_engine_close(same, folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_on_where_it_was),        cmocka_unit_test(is_for_its_owner_alone),
        cmocka_unit_test(damage_is_noticed),           cmocka_unit_test(foreign_ones_are_refused),
        cmocka_unit_test(the_model_has_a_fingerprint),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
