/* Fetching against a hub that lies, stalls, cuts off and redirects: what arrives is right, or nothing does.
 */
#include "base/utf8.h"
#include "hub/pull.h"
#include "tests/hub/stand_in.h"

#include <dirent.h>
#include <sys/stat.h>

#define SHARD      "model-00000-of-00001.safetensors"
#define SHARD_SIZE 100003

static struct stand_in hub;
static struct gs_error error;

/* A cache of its own for each test, and what the callbacks saw. */
struct scene {
    char *folder;
    struct test_path cache;
    struct gs_pull_options options;
    struct gs_hub_name name;
    unsigned n_event[GS_PULL_WAITING + 1];
    uint64_t cancel_at; /* bytes; 0: never */
    uint64_t done;
    uint64_t checked; /* bytes of the file whose hash is computed */
    unsigned n_whole; /* hashes that were told to their end */
    char waited[4096];
};

static bool is_cancelled(void *user)
{
    const struct scene *scene = user;
    return scene->cancel_at > 0 && scene->done >= scene->cancel_at;
}

static void take_progress(void *user, uint64_t done, uint64_t total)
{
    struct scene *scene = user;
    assert_true(done <= total);
    scene->done = done;
}

static void take_checking(void *user, uint64_t done, uint64_t size)
{
    struct scene *scene = user;
    assert_true(scene->checked < done && done <= size);
    scene->checked = done;
    scene->n_whole += done == size;
}

static void take_event(void *user, enum gs_pull_event event, const char *file, const char *detail)
{
    struct scene *scene = user;
    (void)file;
    scene->n_event[event]++;
    scene->checked = 0;
    if (detail && strlen(scene->waited) + strlen(detail) + 2 < sizeof scene->waited)
        strcat(strcat(scene->waited, detail), "\n");
}

static int set_up(void **state)
{
    struct scene *scene = calloc(1, sizeof *scene);
    if (!gs_can_pull())
        return -1;
    scene->folder = test_folder_make();
    scene->cache = test_path_join(scene->folder, "cache/hub");
    scene->options = (struct gs_pull_options){.cache = scene->cache.text,
                                              .endpoint = hub.endpoint,
                                              .token = STAND_IN_TOKEN,
                                              .n_connections = 4,
                                              .piece_bytes = 8192,
                                              .stall_seconds = 60.0, /* a slow hub does not stall */
                                              .retry_seconds = 0.01,
                                              .max_failures = 4,
                                              .cancelled = is_cancelled,
                                              .progress = take_progress,
                                              .checking = take_checking,
                                              .event = take_event,
                                              .user = scene};
    assert_ok(gs_hub_name_parse("test/model", &scene->name, &error), &error);
    stand_in_tell(&hub, "clear");
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    test_folder_remove(scene->folder);
    free(scene);
    return 0;
}

static gs_status pull(struct scene *scene)
{
    struct gs_pull_plan plan;
    memset(scene->n_event, 0, sizeof scene->n_event);
    scene->done = 0;
    scene->n_whole = 0;
    gs_status status = gs_pull_plan_make(&scene->options, &scene->name, &plan, &error);
    if (status == GS_OK)
        status = gs_pull_run(&plan, &error);
    gs_pull_plan_free(&plan);
    assert_null(strstr(error.message, STAND_IN_TOKEN));
    return status;
}

static struct test_path in_repo(const struct scene *scene, const char *name)
{
    return test_path_join(test_path_join(scene->cache.text, "models--test--model").text, name);
}

/* How many entries of blobs/ have this in their name. */
static int count_blobs(const struct scene *scene, const char *part)
{
    int count = 0;
    DIR *folder = opendir(in_repo(scene, "blobs").text);
    if (!folder)
        return 0;
    for (struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.' && strstr(entry->d_name, part) != NULL;
    closedir(folder);
    return count;
}

/* All that is needed, right, linked and named; nothing else. */
static void expect_complete(const struct scene *scene)
{
    static const char *const needed[] = {"config.json",
                                         "generation_config.json",
                                         "tokenizer_config.json",
                                         "tokenizer.json",
                                         "model.safetensors.index.json",
                                         SHARD,
                                         "model-00001-of-00001.safetensors"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        size_t size, true_size;
        char *bytes = test_file_read(
            test_path_join(in_repo(scene, "snapshots/" STAND_IN_COMMIT).text, needed[i]).text, &size);
        char *truth = test_file_read(test_path_join(hub.truth, needed[i]).text, &true_size);
        assert_int_equal(size, true_size);
        assert_memory_equal(bytes, truth, size);
        free(bytes);
        free(truth);
    }
    assert_int_equal(count_blobs(scene, ""), 7);
    assert_int_equal(count_blobs(scene, "gossamer"), 0);
    char *ref = test_file_read(in_repo(scene, "refs/main").text, NULL);
    assert_string_equal(ref, STAND_IN_COMMIT);
    free(ref);
}

/* No shard has got its name, and the revision stands for nothing. */
static void expect_no_shard(const struct scene *scene)
{
    struct stat info;
    assert_int_not_equal(stat(in_repo(scene, "snapshots/" STAND_IN_COMMIT "/" SHARD).text, &info), 0);
    assert_int_not_equal(stat(in_repo(scene, "refs/main").text, &info), 0);
}

/* The requests that begin with `start`. */
static int count_requests(const char *start)
{
    char *log = stand_in_ask(&hub, "log");
    int count = 0;
    for (const char *line = log; *line != '\0'; line = strchr(line, '\n') + 1)
        count += strncmp(line, start, strlen(start)) == 0;
    free(log);
    return count;
}

static bool was_asked(const char *part)
{
    char *log = stand_in_ask(&hub, "log");
    bool found = strstr(log, part) != NULL;
    free(log);
    return found;
}

/* ---------------------------------------------------------------- the plain way */

static void fetches_what_is_needed(void **state)
{
    struct scene *scene = *state;
    assert_ok(pull(scene), &error);
    expect_complete(scene);
    assert_int_equal(scene->n_event[GS_PULL_DONE], 7);
    assert_int_equal(scene->n_whole, 7);
    assert_int_equal(count_requests("cdn GET"), 13 + 7); /* pieces of both shards */
    assert_false(was_asked("README"));
    assert_false(was_asked("metal"));
    assert_false(was_asked("original"));
    stand_in_tell(&hub, "clear");
    assert_ok(pull(scene), &error); /* again: nothing is left to do */
    assert_int_equal(scene->n_event[GS_PULL_PRESENT], 7);
    assert_int_equal(count_requests("cdn"), 0);
    expect_complete(scene);
}

static void plans_without_a_trace(void **state)
{
    struct scene *scene = *state;
    struct gs_pull_plan plan;
    struct stat info;
    assert_ok(gs_pull_plan_make(&scene->options, &scene->name, &plan, &error), &error);
    assert_int_equal(plan.count, 7);
    assert_int_equal(plan.present, 0);
    assert_true(plan.total > 150003 && plan.free_bytes > 0);
    gs_pull_plan_free(&plan);
    assert_int_not_equal(stat(test_path_join(scene->folder, "cache").text, &info), 0);
}

static void token_stays_at_the_endpoint(void **state)
{
    struct scene *scene = *state;
    assert_ok(pull(scene), &error);
    char *log = stand_in_ask(&hub, "log");
    int n_hub = 0, n_cdn = 0;
    for (char *line = strtok(log, "\n"); line; line = strtok(NULL, "\n")) {
        bool has_token = strstr(line, STAND_IN_TOKEN) != NULL;
        bool is_hub = strncmp(line, "hub", 3) == 0;
        n_hub += is_hub;
        n_cdn += !is_hub;
        assert_int_equal(has_token, is_hub);
    }
    free(log);
    assert_true(n_hub > 5 && n_cdn > 5);
}

static void follows_a_moved_repository(void **state)
{
    struct scene *scene = *state;
    assert_ok(gs_hub_name_parse("test/moved", &scene->name, &error), &error);
    assert_ok(pull(scene), &error);
}

static void names_revisions(void **state)
{
    struct scene *scene = *state;
    struct stat info;
    assert_ok(gs_hub_name_set_revision(&scene->name, "refs/pr/1", &error), &error);
    assert_ok(pull(scene), &error);
    assert_int_equal(stat(in_repo(scene, "refs/refs/pr/1").text, &info), 0);
    assert_ok(gs_hub_name_set_revision(&scene->name, STAND_IN_COMMIT, &error), &error);
    assert_ok(pull(scene), &error);
    assert_int_not_equal(stat(in_repo(scene, "refs/" STAND_IN_COMMIT).text, &info), 0);
    assert_ok(gs_hub_name_set_revision(&scene->name, "nowhere", &error), &error);
    assert_fails(pull(scene), GS_INVALID_ARGUMENT, "no such repository, revision or file", &error);
}

static void asks_for_a_token(void **state)
{
    struct scene *scene = *state;
    assert_ok(gs_hub_name_parse("test/gated", &scene->name, &error), &error);
    scene->options.token = NULL;
    assert_fails(pull(scene), GS_INVALID_ARGUMENT, "wants a token (HF_TOKEN)", &error);
    assert_int_equal(count_requests(""), 1); /* no use in asking again */
    stand_in_tell(&hub, "fault api_status 403");
    scene->options.token = STAND_IN_TOKEN;
    assert_fails(pull(scene), GS_INVALID_ARGUMENT, "the list is not for you", &error);
    scene->options.token = "two words";
    assert_fails(pull(scene), GS_INVALID_ARGUMENT, "at position 3", &error);
}

static void cuts_messages_between_characters(void **state)
{
    struct scene *scene = *state;
    stand_in_tell(&hub, "fault api_status 403");
    for (int letters = 1; letters <= 3; letters++) {
        char text[80];
        snprintf(text, sizeof text, "fault api_message %d", letters);
        stand_in_tell(&hub, text);
        assert_fails(pull(scene), GS_INVALID_ARGUMENT, "HTTP 403: x", &error);
        assert_true(gs_utf8_valid(error.message, strlen(error.message)));
        assert_null(strstr(error.message, "\\x")); /* no rest of a character that was cut */
        assert_non_null(strstr(error.message, " from http://127.0.0.1"));
    }
}

/* The token would be the proxy's to read. */
static void passes_no_proxy(void **state)
{
    struct scene *scene = *state;
    stand_in_break_proxies();
    assert_ok(pull(scene), &error);
    expect_complete(scene);
}

static void refuses_insecure_endpoints(void **state)
{
    static const char *const urls[] = {
        "http://huggingface.co",   "ftp://127.0.0.1", "huggingface.co",        "https://h.co/?x",
        "http://127.evil.example", "file:///etc",     "http://user@127.0.0.1", ""};
    struct scene *scene = *state;
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        scene->options.endpoint = urls[i];
        assert_fails(pull(scene), GS_INVALID_ARGUMENT, "is no endpoint", &error);
    }
}

/* ---------------------------------------------------------------- interruptions */

static void names_nothing_half_there(void **state)
{
    static const char by_commit[] = "test/model@" STAND_IN_COMMIT;
    struct scene *scene = *state;
    struct gs_buffer path = {0};
    scene->options.max_failures = 1;
    stand_in_tell(&hub, "fault budget 60000"); /* the small files are there, a shard is not */
    assert_fails(pull(scene), GS_IO, "HTTP 503", &error);
    assert_fails(gs_hub_find(scene->cache.text, by_commit, &path, &error), GS_IO, "not completely", &error);
    stand_in_tell(&hub, "clear");
    struct test_path in_the_way = in_repo(scene, "snapshots/" STAND_IN_COMMIT "/tokenizer.json/x");
    assert_ok(gs_make_folders(in_the_way.text, &error), &error); /* not even between two links */
    assert_fails(pull(scene), GS_IO, "cannot replace", &error);
    assert_fails(gs_hub_find(scene->cache.text, by_commit, &path, &error), GS_IO, "not completely", &error);
    assert_int_equal(rmdir(in_the_way.text), 0);
    assert_int_equal(rmdir(in_repo(scene, "snapshots/" STAND_IN_COMMIT "/tokenizer.json").text), 0);
    assert_ok(pull(scene), &error);
    expect_complete(scene);
    assert_ok(gs_hub_find(scene->cache.text, by_commit, &path, &error), &error);
    assert_string_equal(path.data, in_repo(scene, "snapshots/" STAND_IN_COMMIT).text);
    gs_buffer_free(&path);
}

static void resumes_where_it_stopped(void **state)
{
    static const int stops[] = {0, 1, SHARD_SIZE - 1};
    struct scene *scene = *state;
    scene->options.piece_bytes = 1 << 20;
    scene->options.max_failures = 1;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        char text[80];
        snprintf(text, sizeof text, "fault budget %d", stops[i]);
        stand_in_tell(&hub, text);
        assert_fails(pull(scene), GS_IO, "HTTP 503", &error);
        assert_non_null(strstr(error.message, "the same command again goes on from here"));
        expect_no_shard(scene);
        stand_in_tell(&hub, "clear");
        assert_ok(pull(scene), &error);
        expect_complete(scene);
        snprintf(text, sizeof text, "bytes=%d-%d", stops[i], SHARD_SIZE - 1);
        assert_int_equal(was_asked(text), stops[i] > 0); /* from zero, the whole is asked for */
        stand_in_tell(&hub, "clear");
        test_folder_remove(scene->folder);
        scene->folder = test_folder_make();
        scene->cache = test_path_join(scene->folder, "cache/hub");
    }
}

static void resumes_pieces(void **state)
{
    struct scene *scene = *state;
    scene->options.max_failures = 2;
    stand_in_tell(&hub, "fault budget 60000");
    assert_fails(pull(scene), GS_IO, "HTTP 503", &error);
    stand_in_tell(&hub, "clear");
    assert_ok(pull(scene), &error);
    expect_complete(scene);
    assert_true(count_requests("cdn GET /signed-0") < 10); /* of 13 pieces; 7 were there */
}

static void stops_on_request(void **state)
{
    struct scene *scene = *state;
    scene->options.piece_bytes = 1 << 20;
    scene->options.stall_seconds = 3600.0;
    stand_in_tell(&hub, "fault stall 1"); /* in the middle of the first shard */
    scene->cancel_at = 2000;
    assert_int_equal(pull(scene), GS_CANCELLED);
    assert_int_equal(count_requests("stall over"), 0); /* its end was not waited for */
    expect_no_shard(scene);
    scene->cancel_at = 0;
    assert_ok(pull(scene), &error);
    expect_complete(scene);
}

static void gets_over_short_answers(void **state)
{
    struct scene *scene = *state;
    stand_in_tell(&hub, "fault cut 5000");
    assert_ok(pull(scene), &error);
    expect_complete(scene);
    assert_true(scene->n_event[GS_PULL_WAITING] >= 13);
}

static void gives_up_stalled_connections(void **state)
{
    struct scene *scene = *state;
    scene->options.stall_seconds = 1.0;
    scene->options.max_failures = 1000; /* a hub that gets no processor stalls as well */
    stand_in_tell(&hub, "fault stall 2");
    assert_ok(pull(scene), &error);
    expect_complete(scene);
    assert_non_null(strstr(scene->waited, "too slow"));
    assert_int_equal(count_requests("stall over"), 0);
}

static void tries_again_after_trouble(void **state)
{
    static const int passing[] = {408, 429, 500, 502, 503};
    struct scene *scene = *state;
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
        char text[80];
        snprintf(text, sizeof text, "cache-%zu", i);
        scene->cache = test_path_join(scene->folder, text);
        stand_in_tell(&hub, "clear");
        stand_in_tell(&hub, "fault times 2");
        snprintf(text, sizeof text, "fault status %d", passing[i]);
        stand_in_tell(&hub, text);
        assert_ok(pull(scene), &error);
        expect_complete(scene);
    }
    stand_in_tell(&hub, "clear");
    stand_in_tell(&hub, "fault api_status 500");
    assert_fails(pull(scene), GS_IO, "HTTP 500", &error);
    assert_int_equal(count_requests("hub"), 4);
}

static void gives_up_in_the_end(void **state)
{
    static const int statuses[] = {403, 404, 416, 429, 500};
    struct scene *scene = *state;
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        char text[80];
        snprintf(text, sizeof text, "fault status %d", statuses[i]);
        stand_in_tell(&hub, "clear");
        stand_in_tell(&hub, text);
        snprintf(text, sizeof text, SHARD ": HTTP %d", statuses[i]);
        assert_fails(pull(scene), GS_IO, text, &error);
        expect_no_shard(scene);
        /* 4 tries on 4 connections; a hub that is late may have heard those of the cases before just now. */
        assert_in_range(count_requests("cdn"), 1, 16 * (i + 1));
    }
    scene->options.endpoint = "http://127.0.0.1:1"; /* nobody there */
    assert_fails(pull(scene), GS_IO, "onnect", &error);
}

static void renews_expired_addresses(void **state)
{
    struct scene *scene = *state;
    stand_in_tell(&hub, "fault expire 5");
    assert_ok(pull(scene), &error);
    expect_complete(scene);
    assert_true(was_asked("/signed-3/"));
}

/* Only renewals and redirects without a byte in between are too many. */
static void keeps_on_while_bytes_come(void **state)
{
    struct scene *scene = *state;
    scene->options.n_connections = 1;
    stand_in_tell(&hub, "fault expire 1"); /* one renewal for each piece but the first */
    assert_ok(pull(scene), &error);
    expect_complete(scene);
    scene->cache = test_path_join(scene->folder, "hops");
    scene->options.piece_bytes = 256; /* more pieces than redirects are allowed in a row */
    stand_in_tell(&hub, "clear");
    stand_in_tell(&hub, "fault hops");
    assert_ok(pull(scene), &error);
    expect_complete(scene);
    assert_true(count_requests("cdn GET") > 2 * (SHARD_SIZE / 256));
}

static void does_without_ranges(void **state)
{
    struct scene *scene = *state;
    stand_in_tell(&hub, "fault no_range");
    assert_ok(pull(scene), &error);
    expect_complete(scene);
    scene->cache = test_path_join(scene->folder, "wrong");
    stand_in_tell(&hub, "clear");
    stand_in_tell(&hub, "fault wrong_range"); /* a part that was not asked for */
    assert_ok(pull(scene), &error);
    expect_complete(scene);
    scene->cache = test_path_join(scene->folder, "short");
    stand_in_tell(&hub, "fault no_range");
    stand_in_tell(&hub, "fault cut 5000"); /* never whole: no endless loop */
    assert_fails(pull(scene), GS_IO, SHARD, &error);
    expect_no_shard(scene);
}

static void works_without_redirects(void **state)
{
    struct scene *scene = *state;
    stand_in_tell(&hub, "fault no_redirect");
    assert_ok(pull(scene), &error);
    expect_complete(scene);
    assert_int_equal(count_requests("cdn"), 0);
}

/* ---------------------------------------------------------------- lies */

static void believes_no_lies(void **state)
{
    static const struct {
        const char *fault, *part;
        gs_status status;
    } cases[] = {
        {"api_lie_size", "the server has 100003 bytes of it, the hub's list says 100004", GS_MALFORMED},
        {"wrong_total", "the server has 100004 bytes of it, the hub's list says 100003", GS_MALFORMED},
        {"empty", "the server has 0 bytes of it", GS_MALFORMED},
        {"api_lie_hash", "the server's hash of it is", GS_MALFORMED},
        {"links_lie", "the server's hash of it is", GS_MALFORMED},
        {"links_lie_size", "the server has 100004 bytes of it, the hub's list says 100003", GS_MALFORMED},
        {"index_byte", "model.safetensors.index.json: got ", GS_MALFORMED},
        {"api_elsewhere", "test/model: the hub redirects to what is not https", GS_MALFORMED},
        {"elsewhere", "index.json: the hub redirects to what is not https", GS_MALFORMED},
        {"cdn_elsewhere", SHARD ": the hub redirects to what is not https", GS_MALFORMED},
        {"wrong_bytes", "it was thrown away", GS_MALFORMED},
        {"api_empty", "has a size of 0 bytes", GS_MALFORMED},
        {"api_huge", "1048576.00 GiB are to be fetched, ", GS_IO},
        {"api_climbs", "../../evil.safetensors", GS_MALFORMED},
        {"api_no_tokenizer", "no tokenizer.json", GS_UNSUPPORTED},
        {"api_garbage", "no JSON", GS_MALFORMED},
        {"api_endless", "larger than", GS_MALFORMED},
        {"loop", "more than 10 redirects", GS_MALFORMED},
    };
    struct scene *scene = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[80];
        snprintf(text, sizeof text, "fault %s", cases[i].fault);
        stand_in_tell(&hub, "clear");
        stand_in_tell(&hub, text);
        assert_fails(pull(scene), cases[i].status, cases[i].part, &error);
        expect_no_shard(scene);
        assert_int_equal(count_blobs(scene, "gossamer"), 0);
    }
    stand_in_tell(&hub, "clear");
    assert_ok(pull(scene), &error); /* an honest day */
    expect_complete(scene);
}

static struct test_path shard_blob(const struct scene *scene, const char *suffix)
{
    char target[256], name[160];
    ssize_t size = readlink(in_repo(scene, "snapshots/" STAND_IN_COMMIT "/" SHARD).text, target, 255);
    assert_true(size > 12);
    target[size] = '\0';
    snprintf(name, sizeof name, "blobs/%.64s%.60s", target + strlen("../../blobs/"), suffix);
    return in_repo(scene, name);
}

static void writes_through_no_link(void **state)
{
    struct scene *scene = *state;
    static const char precious[] = "precious";
    struct test_path other = test_path_join(scene->folder, "other");
    assert_ok(pull(scene), &error);
    struct test_path blob = shard_blob(scene, ""), partial = shard_blob(scene, ".gossamer.incomplete");
    assert_int_equal(unlink(blob.text), 0);
    test_file_write(other.text, precious, strlen(precious));
    assert_int_equal(symlink(other.text, partial.text), 0);
    assert_fails(pull(scene), GS_IO, "cannot create", &error);
    char *text = test_file_read(other.text, NULL);
    assert_string_equal(text, precious);
    free(text);
    assert_int_equal(unlink(partial.text), 0);
    assert_ok(pull(scene), &error);
    expect_complete(scene);
}

static void throws_damaged_leftovers_away(void **state)
{
    struct scene *scene = *state;
    assert_ok(pull(scene), &error);
    static char zeros[SHARD_SIZE];
    char ranges[64];
    int size = snprintf(ranges, sizeof ranges, "ranges 1 of %d\n0 %d\n", SHARD_SIZE, SHARD_SIZE);
    test_file_write(shard_blob(scene, ".gossamer.incomplete").text, zeros, sizeof zeros);
    test_file_write(shard_blob(scene, ".gossamer.ranges").text, ranges, (size_t)size);
    assert_int_equal(unlink(shard_blob(scene, "").text), 0);
    assert_ok(pull(scene), &error);
    assert_int_equal(scene->n_event[GS_PULL_AGAIN], 1);
    expect_complete(scene);
}

static void mends_what_is_there(void **state)
{
    struct scene *scene = *state;
    assert_ok(pull(scene), &error);
    struct test_path blob = shard_blob(scene, "");
    test_file_write(blob.text, "", 0); /* the hash of an empty file must never pass for it */
    assert_ok(pull(scene), &error);
    expect_complete(scene);
    static char zeros[SHARD_SIZE];
    test_file_write(blob.text, zeros, sizeof zeros);
    assert_ok(pull(scene), &error); /* the length is right: only --verify looks closer */
    assert_int_equal(scene->n_event[GS_PULL_PRESENT], 7);
    scene->options.verify = true;
    assert_ok(pull(scene), &error);
    assert_int_equal(scene->n_event[GS_PULL_PRESENT], 6);
    assert_int_equal(scene->n_event[GS_PULL_DONE], 1);
    expect_complete(scene);
}

static void one_process_at_a_time(void **state)
{
    struct scene *scene = *state;
    struct gs_pull_plan plan;
    int lock;
    assert_ok(gs_pull_plan_make(&scene->options, &scene->name, &plan, &error), &error);
    assert_ok(gs_hub_store_create(&plan.store, &error), &error);
    assert_ok(gs_hub_store_lock(&plan.store, plan.files[0].file->digest, &lock, &error), &error);
    gs_pull_plan_free(&plan);
    assert_fails(pull(scene), GS_IO, "another process is fetching the same file", &error);
    close(lock);
    assert_ok(pull(scene), &error);
}

#define PULL_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PULL_TEST(fetches_what_is_needed),
        PULL_TEST(plans_without_a_trace),
        PULL_TEST(token_stays_at_the_endpoint),
        PULL_TEST(follows_a_moved_repository),
        PULL_TEST(names_revisions),
        PULL_TEST(asks_for_a_token),
        PULL_TEST(cuts_messages_between_characters),
        PULL_TEST(passes_no_proxy),
        PULL_TEST(refuses_insecure_endpoints),
        PULL_TEST(names_nothing_half_there),
        PULL_TEST(resumes_where_it_stopped),
        PULL_TEST(resumes_pieces),
        PULL_TEST(stops_on_request),
        PULL_TEST(gets_over_short_answers),
        PULL_TEST(gives_up_stalled_connections),
        PULL_TEST(tries_again_after_trouble),
        PULL_TEST(gives_up_in_the_end),
        PULL_TEST(renews_expired_addresses),
        PULL_TEST(keeps_on_while_bytes_come),
        PULL_TEST(does_without_ranges),
        PULL_TEST(works_without_redirects),
        PULL_TEST(believes_no_lies),
        PULL_TEST(writes_through_no_link),
        PULL_TEST(throws_damaged_leftovers_away),
        PULL_TEST(mends_what_is_there),
        PULL_TEST(one_process_at_a_time),
    };
    if (!gs_can_pull()) {
        puts("  skipped: this build has no gossamer pull");
        return 0;
    }
    hub = stand_in_start();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    stand_in_stop(&hub);
    return failed;
}
