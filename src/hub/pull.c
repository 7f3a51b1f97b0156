#include "hub/pull.h"

#include "base/checked.h"
#include "base/status.h"
#include "format/shard_index.h"
#include "hub/digest.h"
#include "hub/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

bool gs_can_pull(void)
{
    return true;
}

struct gs_pull_options gs_pull_options_default(void)
{
    return (struct gs_pull_options){.n_connections = 8,
                                    .piece_bytes = 32u << 20,
                                    .stall_seconds = 30.0,
                                    .retry_seconds = 1.0,
                                    .max_failures = 6};
}

static void say(const struct gs_pull_options *options, enum gs_pull_event event, const char *file,
                const char *detail)
{
    if (options->event)
        options->event(options->user, event, file, detail);
}

static void tell_waiting(void *user, const char *why, double seconds)
{
    const struct gs_pull_options *options = user;
    char detail[256];
    snprintf(detail, sizeof detail, "%s; next try in %.0f s", why, seconds);
    say(options, GS_PULL_WAITING, NULL, detail);
}

static bool ask_cancelled(void *user)
{
    const struct gs_pull_options *options = user;
    return options->cancelled && options->cancelled(options->user);
}

static struct gs_http_options http_options(const struct gs_pull_options *options)
{
    /* The callbacks get the options back as they were given; they change nothing in them. */
    return (struct gs_http_options){.endpoint = options->endpoint,
                                    .token = options->token,
                                    .stall_seconds = options->stall_seconds,
                                    .retry_seconds = options->retry_seconds,
                                    .max_failures = options->max_failures,
                                    .cancelled = ask_cancelled,
                                    .waiting = tell_waiting,
                                    .user = (void *)(uintptr_t)options};
}

/* ---------------------------------------------------------------- where things are */

static gs_status file_url(const struct gs_pull_plan *plan, const char *file, struct gs_buffer *url,
                          struct gs_error *error)
{
    gs_buffer_clear(url);
    return gs_buffer_print(url, error, "%s/%s/resolve/%s/%s", plan->options->endpoint, plan->name.repo,
                           plan->listing.commit, file);
}

/* The paths of a file's contents: whole, partial, and the state of the partial ones. */
struct blob {
    struct gs_buffer path, partial, state;
};

static void free_blob(struct blob *blob)
{
    gs_buffer_free(&blob->path);
    gs_buffer_free(&blob->partial);
    gs_buffer_free(&blob->state);
}

/* The partial file has a name of its own: other tools would take the length of theirs for its progress. */
static gs_status name_blob(const struct gs_pull_plan *plan, const struct gs_hub_file *file, struct blob *blob,
                           struct gs_error *error)
{
    gs_status status = gs_buffer_print(&blob->path, error, "%s/%s", plan->store.blobs.data, file->digest);
    if (status == GS_OK)
        status = gs_buffer_print(&blob->partial, error, "%s.gossamer.incomplete", blob->path.data);
    if (status == GS_OK)
        status = gs_buffer_print(&blob->state, error, "%s.gossamer.ranges", blob->path.data);
    return status;
}

static bool is_present(const struct blob *blob, uint64_t size)
{
    struct stat info;
    return stat(blob->path.data, &info) == 0 && S_ISREG(info.st_mode) && (uint64_t)info.st_size == size;
}

static gs_status load_ranges(const struct gs_pull_plan *plan, const struct gs_hub_file *file,
                             const struct blob *blob, struct gs_ranges *ranges, struct gs_error *error)
{
    struct stat info;
    gs_status status = gs_ranges_init(ranges, file->size, plan->options->piece_bytes, error);
    if (status == GS_OK && lstat(blob->partial.data, &info) == 0 && S_ISREG(info.st_mode))
        status = gs_ranges_load(ranges, blob->state.data, (uint64_t)info.st_size, error);
    return status;
}

/* ---------------------------------------------------------------- the plan */

static gs_status ask_listing(struct gs_pull_plan *plan, struct gs_error *error)
{
    struct gs_http_options http = http_options(plan->options);
    struct gs_buffer url = {0}, body = {0};
    gs_status status =
        gs_buffer_print(&url, error, "%s/api/models/%s/revision/", plan->options->endpoint, plan->name.repo);
    for (const char *c = plan->name.revision; status == GS_OK && *c != '\0'; c++)
        status = gs_buffer_append(&url, *c == '/' ? "%2F" : c, *c == '/' ? 3 : 1, error);
    if (status == GS_OK)
        status = gs_buffer_append_text(&url, "?blobs=true", error);
    if (status == GS_OK)
        status = gs_http_get(&http, url.data, plan->name.repo, GS_HUB_MAX_LISTING, &body, error);
    if (status == GS_OK)
        status =
            gs_hub_listing_parse(body.data ? body.data : "", body.size, &plan->arena, &plan->listing, error);
    gs_buffer_free(&url);
    gs_buffer_free(&body);
    return status;
}

/* GS_MALFORMED unless `text` is what the hub's list says of the file. */
static gs_status check_text(const struct gs_hub_file *file, const struct gs_buffer *text,
                            struct gs_error *error)
{
    struct gs_digest *digest = NULL;
    struct gs_digest_text found = {""};
    gs_status status = gs_digest_open(file->digest, text->size, &digest, error);
    if (status == GS_OK)
        status = gs_digest_add(digest, text->data, text->size, error);
    if (status == GS_OK)
        status = gs_digest_finish(digest, &found, error);
    gs_digest_close(digest);
    if (status == GS_OK && (text->size != file->size || strcmp(found.text, file->digest) != 0))
        status = gs_fail(
            error, GS_MALFORMED, "%s: got %zu bytes with the hash %s, the hub's list says %llu with %s",
            gs_quote(file->name).text, text->size, found.text, (unsigned long long)file->size, file->digest);
    return status;
}

/* The files that are needed; the index decides which shards. */
static gs_status choose_files(struct gs_pull_plan *plan, struct gs_error *error)
{
    struct gs_http_options http = http_options(plan->options);
    struct gs_buffer url = {0}, index = {0};
    const struct gs_hub_file *listed = gs_hub_listing_find(&plan->listing, GS_HUB_INDEX_NAME), **files = NULL;
    gs_status status = GS_OK;
    if (listed) {
        status = file_url(plan, listed->name, &url, error);
        if (status == GS_OK)
            status = gs_http_get(&http, url.data, listed->name, GS_SHARD_INDEX_MAX_BYTES, &index, error);
        if (status == GS_OK)
            status = check_text(listed, &index, error);
    }
    if (status == GS_OK)
        status = gs_hub_select(&plan->listing, listed ? index.data : NULL, index.size, &plan->arena, &files,
                               &plan->count, error);
    if (status == GS_OK &&
        !(plan->files = gs_arena_alloc_array(&plan->arena, plan->count, sizeof *plan->files)))
        status = gs_fail_memory(error, plan->count * sizeof *plan->files);
    for (size_t i = 0; status == GS_OK && i < plan->count; i++)
        plan->files[i].file = files[i];
    gs_buffer_free(&url);
    gs_buffer_free(&index);
    return status;
}

static gs_status measure_present(struct gs_pull_plan *plan, struct gs_error *error)
{
    gs_status status = GS_OK;
    for (size_t i = 0; status == GS_OK && i < plan->count; i++) {
        struct gs_pull_file *file = &plan->files[i];
        struct blob blob = {0};
        struct gs_ranges ranges = {0};
        status = name_blob(plan, file->file, &blob, error);
        if (status == GS_OK && is_present(&blob, file->file->size))
            file->present = file->file->size;
        else if (status == GS_OK && (status = load_ranges(plan, file->file, &blob, &ranges, error)) == GS_OK)
            file->present = gs_ranges_done(&ranges);
        if (status == GS_OK && !gs_add_u64(plan->total, file->file->size, &plan->total))
            status = gs_fail(error, GS_MALFORMED, "the hub's list: the sizes have no sum");
        plan->present += file->present;
        gs_ranges_free(&ranges);
        free_blob(&blob);
    }
    return status;
}

/* Of the nearest folder that is there. */
static gs_status measure_free(const char *cache, uint64_t *free_bytes, struct gs_error *error)
{
    struct statvfs disk;
    char *path = strdup(cache);
    if (!path)
        return gs_fail_memory(error, strlen(cache) + 1);
    int result;
    while ((result = statvfs(path, &disk)) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
        char *slash = strrchr(path, '/');
        if (!slash || slash == path) {
            result = statvfs(slash ? "/" : ".", &disk);
            break;
        }
        *slash = '\0';
    }
    gs_status status = result == 0 ? GS_OK : gs_fail_io(error, errno, "measure the disk of", cache);
    if (status == GS_OK && !gs_mul_u64(disk.f_bavail, disk.f_frsize, free_bytes))
        *free_bytes = UINT64_MAX;
    free(path);
    return status;
}

gs_status gs_pull_plan_make(const struct gs_pull_options *options, const struct gs_hub_name *name,
                            struct gs_pull_plan *plan, struct gs_error *error)
{
    struct gs_http_options http = http_options(options);
    *plan = (struct gs_pull_plan){.options = options, .name = *name};
    gs_status status = gs_http_check(&http, error);
    if (status == GS_OK && curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        status = gs_fail(error, GS_UNSUPPORTED, "libcurl does not start");
    if (status == GS_OK)
        status = ask_listing(plan, error);
    if (status == GS_OK)
        status = choose_files(plan, error);
    if (status == GS_OK)
        status = gs_hub_store_name(options->cache, name, plan->listing.commit, &plan->store, error);
    if (status == GS_OK)
        status = measure_present(plan, error);
    if (status == GS_OK)
        status = measure_free(options->cache, &plan->free_bytes, error);
    return status;
}

void gs_pull_plan_free(struct gs_pull_plan *plan)
{
    if (!plan)
        return;
    gs_hub_store_free(&plan->store);
    gs_arena_free(&plan->arena);
    *plan = (struct gs_pull_plan){0};
}

/* ---------------------------------------------------------------- one file */

struct progress {
    const struct gs_pull_plan *plan;
    uint64_t before; /* bytes of the other files */
};

static void tell_progress(void *user, uint64_t done)
{
    const struct progress *progress = user;
    const struct gs_pull_options *options = progress->plan->options;
    if (options->progress)
        options->progress(options->user, progress->before + done, progress->plan->total);
}

struct check {
    const struct gs_pull_options *options;
    uint64_t size;
};

static bool tell_checked(void *user, uint64_t done)
{
    const struct check *check = user;
    const struct gs_pull_options *options = check->options;
    if (options->checking)
        options->checking(options->user, done, check->size);
    return !options->cancelled || !options->cancelled(options->user);
}

static gs_status compute_digest(const struct gs_pull_plan *plan, const struct gs_hub_file *file,
                                int descriptor, const char *path, struct gs_digest_text *found,
                                struct gs_error *error)
{
    struct check check = {.options = plan->options, .size = file->size};
    say(plan->options, GS_PULL_CHECKING, file->name, NULL);
    return gs_digest_file(descriptor, path, file->digest, file->size, tell_checked, &check, found, error);
}

/* Fetches what is missing and checks the whole; a damaged rest of an earlier run is thrown away once. */
static gs_status fill_partial(const struct gs_pull_plan *plan, const struct gs_hub_file *file,
                              const struct blob *blob, int descriptor, struct progress *progress,
                              struct gs_error *error)
{
    struct gs_http_options http = http_options(plan->options);
    struct gs_digest_text found = {""};
    struct gs_ranges ranges = {0};
    struct gs_buffer url = {0};
    struct gs_fetch fetch = {.http = &http,
                             .file = file,
                             .n_connections = plan->options->n_connections,
                             .descriptor = descriptor,
                             .path = blob->partial.data,
                             .state_path = blob->state.data,
                             .progress = tell_progress,
                             .user = progress};
    gs_status status = file_url(plan, file->name, &url, error);
    fetch.url = url.data;
    if (status == GS_OK)
        status = load_ranges(plan, file, blob, &ranges, error);
    bool resumed = status == GS_OK && gs_ranges_done(&ranges) > 0;
    for (;;) {
        if (status == GS_OK && ftruncate(descriptor, (off_t)file->size) != 0)
            status = gs_fail_io(error, errno, "enlarge", blob->partial.data);
        if (status == GS_OK)
            status = gs_fetch_run(&fetch, &ranges, error);
        if (status == GS_OK)
            status = compute_digest(plan, file, descriptor, blob->partial.data, &found, error);
        if (status != GS_OK || strcmp(found.text, file->digest) == 0)
            break;
        unlink(blob->state.data);
        if (!resumed) {
            unlink(blob->partial.data);
            status = gs_fail(error, GS_MALFORMED,
                             "%s: the hash of what came is %s, the hub's list says %s: it was thrown away",
                             gs_quote(file->name).text, found.text, file->digest);
            break;
        }
        say(plan->options, GS_PULL_AGAIN, file->name, NULL);
        resumed = false;
        status = gs_ranges_init(&ranges, file->size, plan->options->piece_bytes, error);
    }
    if (status != GS_OK && gs_ranges_done(&ranges) == 0) { /* nothing to go on from */
        unlink(blob->partial.data);
        unlink(blob->state.data);
    }
    gs_ranges_free(&ranges);
    gs_buffer_free(&url);
    return status;
}

/* On disk for good, and only then under its name. */
static gs_status publish(const struct gs_pull_plan *plan, const struct blob *blob, int descriptor,
                         struct gs_error *error)
{
    if (fsync(descriptor) != 0)
        return gs_fail_io(error, errno, "sync", blob->partial.data);
    if (rename(blob->partial.data, blob->path.data) != 0)
        return gs_fail_io(error, errno, "rename to its final name", blob->partial.data);
    unlink(blob->state.data);
    return gs_sync_folder(plan->store.blobs.data, error);
}

static gs_status fetch_blob(const struct gs_pull_plan *plan, const struct gs_hub_file *file,
                            const struct blob *blob, struct progress *progress, struct gs_error *error)
{
    int descriptor = open(blob->partial.data, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor < 0)
        return gs_fail_io(error, errno, "create", blob->partial.data);
    say(plan->options, GS_PULL_FETCHING, file->name, NULL);
    gs_status status = fill_partial(plan, file, blob, descriptor, progress, error);
    if (status == GS_OK)
        status = publish(plan, blob, descriptor, error);
    close(descriptor);
    if (status == GS_OK)
        say(plan->options, GS_PULL_DONE, file->name, NULL);
    return status;
}

/* Is the blob there, and (if that was asked) right? */
static gs_status check_present(const struct gs_pull_plan *plan, const struct gs_hub_file *file,
                               const struct blob *blob, bool *good, struct gs_error *error)
{
    struct gs_digest_text found = {""};
    *good = is_present(blob, file->size);
    if (!*good || !plan->options->verify)
        return GS_OK;
    int descriptor = open(blob->path.data, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return gs_fail_io(error, errno, "open", blob->path.data);
    gs_status status = compute_digest(plan, file, descriptor, blob->path.data, &found, error);
    close(descriptor);
    *good = strcmp(found.text, file->digest) == 0;
    return status;
}

static gs_status obtain(const struct gs_pull_plan *plan, const struct gs_pull_file *wanted,
                        struct progress *progress, struct gs_error *error)
{
    const struct gs_hub_file *file = wanted->file;
    struct blob blob = {0};
    bool good = false;
    int lock = -1;
    gs_status status = name_blob(plan, file, &blob, error);
    if (status == GS_OK)
        status = gs_hub_store_lock(&plan->store, file->digest, &lock, error);
    if (status == GS_OK)
        status = check_present(plan, file, &blob, &good, error);
    if (status == GS_OK && good)
        say(plan->options, GS_PULL_PRESENT, file->name, NULL);
    else if (status == GS_OK)
        status = fetch_blob(plan, file, &blob, progress, error);
    if (lock >= 0)
        close(lock);
    free_blob(&blob);
    return status;
}

gs_status gs_pull_run(struct gs_pull_plan *plan, struct gs_error *error)
{
    uint64_t missing = plan->total - plan->present;
    if (missing > plan->free_bytes)
        return gs_fail(error, GS_IO,
                       "the disk of %s is too small: %.2f GiB are to be fetched, %.2f GiB are free "
                       "(--cache-dir or HF_HOME chooses another)",
                       gs_quote(plan->options->cache).text, (double)missing / 0x1p30,
                       (double)plan->free_bytes / 0x1p30);
    struct progress progress = {.plan = plan, .before = plan->present};
    gs_status status = gs_hub_store_create(&plan->store, error);
    for (size_t i = 0; status == GS_OK && i < plan->count; i++) {
        struct gs_pull_file *wanted = &plan->files[i];
        progress.before -= wanted->present;
        status = obtain(plan, wanted, &progress, error);
        if (status == GS_OK)
            tell_progress(&progress, wanted->file->size);
        progress.before += wanted->file->size;
    }
    /* Backwards: config.json, the first, says by being there that all others are. */
    for (size_t i = plan->count; status == GS_OK && i-- > 0;)
        status =
            gs_hub_store_link(&plan->store, plan->files[i].file->name, plan->files[i].file->digest, error);
    if (status == GS_OK)
        status = gs_hub_store_refer(&plan->store, &plan->name, plan->listing.commit, error);
    return status;
}
