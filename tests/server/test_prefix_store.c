/*
 * Prefixes as files: found by the next start, exact, bounded, each for its own scope; what is damaged,
 * foreign or cannot be written does no harm.
 */
#include "engine/snapshot.h"
#include "server/prefix_cache.h"
#include "tests/support/check.h"
#include "tests/support/files.h"
#include "tests/support/tiny_engine.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_CTX       900
#define MAX_FILES   32
#define CACHE_BYTES (16u << 20)

static const char *const keys[] = {"alpha", "beta"};

struct fixture {
    char *models, *folder;
    struct gs_engine *engine;
    struct gs_prefix_store_options options;
    struct gs_prefix_store *store;
    struct gs_prefix_cache *cache;
    size_t n_vocab;
    int32_t tokens[N_CTX];
    char said[1200]; /* the last line of the log */
    size_t n_said;
    uint64_t cache_bytes; /* of memory */
};

static void note(void *user, const char *line)
{
    struct fixture *f = user;
    snprintf(f->said, sizeof f->said, "%s", line);
    f->n_said++;
}

static int set_up_all(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct tiny_options options = tiny_options_default();
    options.n_layer = 2;
    f->engine = tiny_engine_open(&options, NULL, &f->models);
    f->n_vocab = (size_t)gs_engine_info(f->engine)->n_vocab;
    for (size_t i = 0; i < N_CTX; i++)
        f->tokens[i] = (int32_t)((i * 29 + i / 7) % 120);
    *state = f;
    return 0;
}

static int tear_down_all(void **state)
{
    struct fixture *f = *state;
    tiny_engine_close(f->engine, f->models);
    free(f);
    return 0;
}

static void start(struct fixture *f)
{
    struct gs_error error;
    assert_ok(gs_prefix_store_open(&f->options, &f->store, &error), &error);
    assert_ok(gs_prefix_cache_open(f->engine, f->cache_bytes, &f->cache, &error), &error);
    gs_prefix_cache_attach(f->cache, f->store, 0.0);
}

static void stop(struct fixture *f)
{
    gs_prefix_cache_close(f->cache);
    gs_prefix_store_close(f->store);
    f->cache = NULL;
    f->store = NULL;
}

static int set_up(void **state)
{
    struct fixture *f = *state;
    f->folder = test_folder_make();
    f->options = (struct gs_prefix_store_options){.folder = f->folder,
                                                  .max_bytes = 64u << 20,
                                                  .identity = gs_engine_identity(f->engine),
                                                  .max_tokens = N_CTX,
                                                  .keys = keys,
                                                  .n_key = 2,
                                                  .log = note,
                                                  .log_user = f};
    f->cache_bytes = CACHE_BYTES;
    start(f);
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    stop(f);
    test_folder_remove(f->folder);
    return 0;
}

static struct gs_timeline_state run(const struct fixture *f, size_t count)
{
    struct gs_timeline_state state = {0};
    struct gs_error error;
    assert_ok(gs_session_open(f->engine, N_CTX, &state.session, &error), &error);
    assert_ok(gs_session_sync(state.session, f->tokens, count, NULL, &error), &error);
    state.least = gs_timeline_least(f->engine, count);
    return state;
}

/* Kept in memory, and in the folder. */
static void keep(const struct fixture *f, size_t scope, size_t count)
{
    struct gs_timeline_state state = run(f, count);
    gs_prefix_cache_keep(f->cache, scope, &state);
    gs_prefix_cache_take(f->cache, state.session);
    gs_prefix_cache_store_all(f->cache, 1e300);
}

/* How many of the first `count` tokens are taken from what is kept; what follows has a cold run's bits. */
static size_t use(const struct fixture *f, size_t scope, size_t count)
{
    struct gs_timeline_state state = {0}, cold = run(f, count);
    struct gs_error error;
    size_t reused;
    assert_ok(gs_session_open(f->engine, (int64_t)count, &state.session, &error), &error);
    gs_prefix_cache_use(f->cache, scope, f->tokens, count, &state, &reused);
    assert_true(reused < count);
    assert_int_equal(gs_session_n_cached(state.session), reused);
    assert_ok(gs_session_append(state.session, f->tokens + reused, count - reused, &error), &error);
    assert_memory_equal(gs_session_logits(state.session), gs_session_logits(cold.session),
                        f->n_vocab * sizeof(float));
    gs_session_close(state.session);
    gs_session_close(cold.session);
    return reused;
}

/* The names of what is in the folder, but for the secret. */
static size_t list(const struct fixture *f, char names[MAX_FILES][64])
{
    size_t n = 0;
    DIR *folder = opendir(f->folder);
    assert_non_null(folder);
    for (struct dirent *item; (item = readdir(folder));)
        if (item->d_name[0] != '.' && strcmp(item->d_name, "secret") != 0) {
            assert_true(n < MAX_FILES);
            snprintf(names[n++], 64, "%.63s", item->d_name);
        }
    closedir(folder);
    return n;
}

static struct test_path only_file(const struct fixture *f)
{
    char names[MAX_FILES][64];
    assert_int_equal(list(f, names), 1);
    return test_path_join(f->folder, names[0]);
}

static uint64_t bytes_of_files(const struct fixture *f)
{
    char names[MAX_FILES][64];
    uint64_t bytes = 0;
    size_t n = list(f, names);
    for (size_t i = 0; i < n; i++) {
        struct stat info;
        assert_int_equal(stat(test_path_join(f->folder, names[i]).text, &info), 0);
        bytes += (uint64_t)info.st_size;
    }
    return bytes;
}

static void the_next_start_finds_them(void **state)
{
    struct fixture *f = *state;
    struct stat info;
    keep(f, 0, 100);
    keep(f, 0, 700); /* takes the first one's place, with a mark where it ended */
    struct test_path path = only_file(f);
    assert_int_equal(stat(path.text, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    stop(f);
    start(f);
    assert_non_null(strstr(f->said, "1 prefixes of 700 tokens; 0 of another"));
    assert_int_equal(use(f, 0, 800), 700);
    f->tokens[650] ^= 1;
    assert_int_equal(use(f, 0, 800), 650);
    f->tokens[300] ^= 1;
    assert_int_equal(use(f, 0, 800), 100);
    f->tokens[300] ^= 1;
    f->tokens[650] ^= 1;
    assert_int_equal(gs_prefix_cache_figures(f->cache).n_loaded, 1);

    /* What memory forgets is still there. */
    gs_prefix_cache_clear(f->cache);
    assert_int_equal(use(f, 0, 800), 700);
    assert_int_equal(gs_prefix_cache_figures(f->cache).n_loaded, 2);
}

static void every_key_has_its_own(void **state)
{
    struct fixture *f = *state;
    static const char *const turned[] = {"beta", "alpha"};
    keep(f, 1, 300);
    stop(f);
    start(f);
    assert_int_equal(use(f, 2, 310), 0);
    assert_int_equal(use(f, 0, 310), 0);
    assert_int_equal(use(f, 1, 310), 300);
    stop(f);
    f->options.keys = turned; /* scope 1 is another's now */
    start(f);
    assert_int_equal(use(f, 1, 310), 0);
    assert_int_equal(use(f, 2, 310), 300);

    /* A file does not give its key away, and another folder's hash of it is another. */
    size_t size;
    char *bytes = test_file_read(only_file(f).text, &size);
    assert_null(memmem(bytes, size, "alpha", 5));
    free(bytes);
}

/* A secret that others may have read is one no more: what it tagged is nobody's, what is everybody's stays.
 */
static void a_secret_is_the_owners_alone(void **state)
{
    struct fixture *f = *state;
    struct test_path path = test_path_join(f->folder, "secret");
    struct stat info;
    keep(f, 0, 100);
    f->tokens[0] ^= 1;
    keep(f, 1, 300);
    assert_int_equal(stat(path.text, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    stop(f);
    assert_int_equal(chmod(path.text, 0644), 0);
    start(f);
    assert_int_equal(stat(path.text, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(use(f, 1, 310), 0);
    f->tokens[0] ^= 1;
    assert_int_equal(use(f, 0, 110), 100);
}

/* One bit anywhere: the file is removed, the rest of the work goes on. */
static void damage_is_noticed(void **state)
{
    struct fixture *f = *state;
    size_t size, n_damaged = 0;
    keep(f, 0, 120);
    struct test_path path = only_file(f);
    char *bytes = test_file_read(path.text, &size);
    const size_t head = sizeof(struct gs_prefix_head);
    const size_t places[] = {16, 24, head - 1, head, head + 4 * 119, head + 4 * 120 + 40, size / 2, size - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        stop(f);
        bytes[places[i]] ^= 8;
        test_file_write(path.text, bytes, size);
        bytes[places[i]] ^= 8;
        start(f);
        bool at_start =
            strstr(f->said, "0 prefixes of 0 tokens; 0 of another model or machine, 1 damaged") != NULL;
        assert_int_equal(use(f, 0, 130), 0);
        n_damaged += at_start || strstr(f->said, "is damaged and has been removed");
        assert_int_not_equal(access(path.text, F_OK), 0);
    }
    assert_int_equal(n_damaged, sizeof places / sizeof *places);
    for (size_t cut = 1; cut < size; cut += size / 9) {
        stop(f);
        test_file_write(path.text, bytes, size - cut);
        start(f);
        assert_int_equal(use(f, 0, 130), 0);
        unlink(path.text); /* too short even for a header: it is none of ours */
    }
    stop(f);
    test_file_write(path.text, bytes, size);
    start(f);
    assert_int_equal(use(f, 0, 130), 120); /* whole again */
    free(bytes);
}

static void foreign_files_are_left_alone(void **state)
{
    struct fixture *f = *state;
    char names[MAX_FILES][64];
    keep(f, 0, 50);
    stop(f);
    struct test_path note_file = test_path_join(f->folder, "notes.txt");
    struct test_path alike = test_path_join(f->folder, "p-0000000000000001.kv");
    struct test_path cut_off = test_path_join(f->folder, "p-0000000000000002.kv.Ab3xY9");
    test_file_write(note_file.text, "mine", 4);
    test_file_write(alike.text, "neither", 7);
    test_file_write(cut_off.text, "half", 4);
    f->options.identity ^= 1; /* another model */
    size_t n_said = f->n_said;
    start(f);
    assert_int_equal(f->n_said, n_said + 1);
    assert_non_null(strstr(f->said,
                           "0 prefixes of 0 tokens; 1 of another model or machine, 0 damaged and removed, "
                           "2 that are none"));
    assert_int_equal(use(f, 0, 60), 0);
    keep(f, 0, 60);
    stop(f);
    assert_int_equal(list(f, names), 4); /* but for what a cut-off write left */
    assert_int_not_equal(access(cut_off.text, F_OK), 0);
    f->options.identity ^= 1;
    start(f);
    assert_int_equal(use(f, 0, 70), 50);
}

static void the_budget_holds(void **state)
{
    struct fixture *f = *state;
    char names[MAX_FILES][64];
    keep(f, 0, 60);
    uint64_t each = bytes_of_files(f);
    stop(f);
    f->options.max_bytes = 3 * each + each / 2;
    start(f);
    for (int32_t i = 1; i < 6; i++) {
        if (i == 3) { /* used again, so that others go first */
            int32_t now = f->tokens[0];
            f->tokens[0] = 0;
            gs_prefix_cache_clear(f->cache);
            assert_int_equal(use(f, 0, 70), 60);
            f->tokens[0] = now;
        }
        f->tokens[0] = i;
        keep(f, 0, 60);
        assert_true(bytes_of_files(f) <= f->options.max_bytes);
    }
    assert_int_equal(list(f, names), 3);
    gs_prefix_cache_clear(f->cache);
    f->tokens[0] = 5;
    assert_int_equal(use(f, 0, 70), 60);
    f->tokens[0] = 1;
    assert_int_equal(use(f, 0, 70), 0);
    f->tokens[0] = 6;
    keep(f, 0, 800); /* more than there is room for at all: nothing goes for it */
    assert_int_equal(list(f, names), 3);
    stop(f);
    f->options.max_bytes = each + each / 2; /* less than before */
    start(f);
    assert_int_equal(list(f, names), 1);
    f->tokens[0] = 0;
}

/* No room on the disk: what is there stays, nothing half-written is left, and it is tried again later. */
static void a_full_disk_is_survived(void **state)
{
    struct fixture *f = *state;
    char names[MAX_FILES][64];
    struct rlimit before, small;
    keep(f, 0, 60);
    uint64_t bytes = bytes_of_files(f);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 4096; /* of a file: a write beyond fails, as on a full disk */
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    keep(f, 0, 400);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_non_null(strstr(f->said, "cache folder: "));
    assert_non_null(strstr(f->said, "cannot write"));
    assert_int_equal(list(f, names), 1);
    assert_int_equal(bytes_of_files(f), bytes);
    assert_int_equal(use(f, 0, 410), 400);              /* from memory */
    assert_true(gs_prefix_cache_store(f->cache) > 1.0); /* not at once */
    gs_prefix_cache_store_all(f->cache, 1e300);         /* at the end, however */
    assert_int_equal(list(f, names), 1);
    assert_true(bytes_of_files(f) > bytes);
    stop(f);
    start(f);
    assert_int_equal(use(f, 0, 410), 400);
}

static size_t times_said(const struct fixture *f, const char *text)
{
    return strstr(f->said, text) ? f->n_said : 0;
}

/* Not forgotten: it may be descriptors that were out. And not tried, and told, at each request. */
static void what_cannot_be_opened_is_tried_again(void **state)
{
    struct fixture *f = *state;
    keep(f, 0, 700);
    struct test_path path = only_file(f), aside = test_path_join(f->models, "aside");
    f->options.rest_seconds = 1e9;
    stop(f);
    start(f);
    assert_int_equal(rename(path.text, aside.text), 0);
    assert_int_equal(mkdir(path.text, 0700), 0);
    assert_int_equal(use(f, 0, 800), 0);
    size_t said = times_said(f, "tried again in");
    assert_true(said > 0);
    assert_int_equal(rmdir(path.text), 0);
    assert_int_equal(rename(aside.text, path.text), 0);
    assert_int_equal(use(f, 0, 800), 0); /* it rests */
    assert_int_equal(f->n_said, said);

    f->options.rest_seconds = 0.0;
    stop(f);
    start(f);
    assert_int_equal(rename(path.text, aside.text), 0);
    assert_int_equal(mkdir(path.text, 0700), 0);
    assert_int_equal(use(f, 0, 800), 0);
    assert_int_equal(rmdir(path.text), 0);
    assert_int_equal(rename(aside.text, path.text), 0);
    assert_int_equal(use(f, 0, 800), 700);

    /* One that is gone is forgotten. */
    gs_prefix_cache_clear(f->cache);
    assert_int_equal(unlink(path.text), 0);
    assert_int_equal(use(f, 0, 800), 0);
    size_t n_file;
    uint64_t bytes;
    gs_prefix_store_figures(f->store, &n_file, &bytes);
    assert_int_equal(n_file, 0);
    assert_int_equal(bytes, 0);
}

/* Is the file taken for a request? */
static bool is_read(struct fixture *f, const char *path)
{
    struct stat before, after;
    struct timespec long_ago[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(utimensat(AT_FDCWD, path, long_ago, 0), 0);
    assert_int_equal(stat(path, &before), 0);
    use(f, 0, 800);
    assert_int_equal(stat(path, &after), 0);
    return after.st_mtime != before.st_mtime; /* taking it counts as use */
}

/* A file that memory has no room for is read once, not for each request that begins like it. */
static void what_does_not_fit_is_not_read_again(void **state)
{
    struct fixture *f = *state;
    keep(f, 0, 100);
    keep(f, 0, 700);
    struct test_path path = only_file(f);
    uint64_t all = gs_prefix_cache_figures(f->cache).bytes;
    uint64_t alone = gs_session_bytes(f->engine, 700);
    assert_true(alone < all);
    f->options.rest_seconds = 1e9;
    stop(f);
    f->cache_bytes = alone - 1;
    start(f);
    assert_true(is_read(f, path.text));
    assert_false(is_read(f, path.text));
    assert_int_equal(gs_prefix_cache_figures(f->cache).n_loaded, 0);
    stop(f);
    f->cache_bytes = alone; /* without its mark */
    start(f);
    assert_int_equal(use(f, 0, 800), 700);
    assert_int_equal(gs_prefix_cache_figures(f->cache).n_loaded, 1);
    f->tokens[300] ^= 1;
    assert_int_equal(use(f, 0, 800), 0);
    assert_false(is_read(f, path.text));
    f->tokens[300] ^= 1;
    assert_int_equal(gs_prefix_cache_figures(f->cache).n_loaded, 1);
    stop(f);
    f->cache_bytes = all;
    start(f);
    f->tokens[300] ^= 1;
    assert_int_equal(use(f, 0, 800), 100);
    f->tokens[300] ^= 1;
    f->cache_bytes = CACHE_BYTES;
}

/* A timeline is written when it has been as it is for a while, by gs_prefix_cache_store alone. */
static void what_is_due_is_written(void **state)
{
    struct fixture *f = *state;
    char names[MAX_FILES][64];
    struct gs_timeline_state timeline = run(f, 90);
    assert_true(gs_prefix_cache_store(f->cache) < 0.0);
    gs_prefix_cache_attach(f->cache, f->store, 1000.0);
    gs_prefix_cache_keep(f->cache, 0, &timeline);
    double due = gs_prefix_cache_store(f->cache);
    assert_true(due > 500.0 && due <= 1000.0);
    gs_prefix_store_wait(f->store);
    assert_int_equal(list(f, names), 0);
    gs_prefix_cache_attach(f->cache, f->store, 0.0);
    assert_true(gs_prefix_cache_store(f->cache) > 0.0); /* how it went is to be asked */
    gs_prefix_store_wait(f->store);
    assert_true(gs_prefix_cache_store(f->cache) < 0.0);
    assert_int_equal(list(f, names), 1);
    gs_prefix_cache_take(f->cache, timeline.session);
}

static void folders_are_ones_own(void **state)
{
    struct fixture *f = *state;
    struct gs_prefix_store *second;
    struct gs_prefix_store_options options = f->options;
    struct gs_error error;
    assert_fails(gs_prefix_store_open(&options, &second, &error), GS_INVALID_ARGUMENT,
                 "another server uses this cache folder", &error);
    struct test_path other = test_path_join(f->folder, "open/to/others");
    options.folder = other.text;
    assert_ok(gs_prefix_store_open(&options, &second, &error), &error); /* made on the way */
    gs_prefix_store_close(second);
    struct stat info;
    assert_int_equal(stat(other.text, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_equal(chmod(other.text, 0770), 0);
    assert_fails(gs_prefix_store_open(&options, &second, &error), GS_INVALID_ARGUMENT,
                 "others may write to the cache folder", &error);
    options.folder = "/proc/none";
    assert_fails(gs_prefix_store_open(&options, &second, &error), GS_IO, "/proc/none", &error);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_next_start_finds_them),
        TEST(every_key_has_its_own),
        TEST(damage_is_noticed),
        TEST(foreign_files_are_left_alone),
        TEST(the_budget_holds),
        TEST(a_full_disk_is_survived),
        TEST(a_secret_is_the_owners_alone),
        TEST(what_cannot_be_opened_is_tried_again),
        TEST(what_does_not_fit_is_not_read_again),
        TEST(what_is_due_is_written),
        TEST(folders_are_ones_own),
    };
    return cmocka_run_group_tests(tests, set_up_all, tear_down_all);
}
