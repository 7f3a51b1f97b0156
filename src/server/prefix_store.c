#include "server/prefix_store.h"

#include "base/clock.h"
#include "base/file_write.h"
#include "base/status.h"
#include "base/system.h"
#include "server/random_id.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAME_FORMAT "p-%016llx.kv"
#define NAME_BYTES  GS_PREFIX_NAME_BYTES
#define SECRET_NAME "secret"

/* A file of the folder. */
struct record {
    struct record *after;
    char name[NAME_BYTES + 1];
    uint64_t bytes;
    int64_t used; /* nanoseconds since 1970 */
    double rests; /* not to be read before: it could not be opened, or was of no use */
    /* of this identity: what is in it; else tokens is NULL */
    struct gs_prefix_tag tag;
    int32_t *tokens; /* [count] */
    size_t count, least;
    struct gs_prefix_place marks[GS_PREFIX_MAX_MARKS]; /* [n_mark] */
    size_t n_mark;
};

struct gs_prefix_store {
    struct gs_prefix_store_options options;
    struct gs_buffer folder;
    int descriptor;           /* of the folder; locked */
    unsigned char secret[16]; /* of the tags */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t mutex;
    pthread_cond_t changes;

    /* under the mutex */
    struct record *records;
    uint64_t bytes;
    size_t n_file;
    bool busy, failed, stops;
    struct gs_buffer image; /* to be written, while busy */
};

/* ---------------------------------------------------------------- small things */

__attribute__((format(printf, 2, 3))) static void say(const struct gs_prefix_store *store, const char *format,
                                                      ...)
{
    char line[1200];
    va_list arguments;
    if (!store->options.log)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    store->options.log(store->options.log_user, line);
}

static int64_t in_nanoseconds(struct timespec time)
{
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return in_nanoseconds(time);
}

static uint64_t rotate(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

/* One round of SipHash (Aumasson and Bernstein 2012). */
static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

/* SipHash-2-4 with 128 bits of output. */
static struct gs_prefix_tag sip_hash(const unsigned char secret[16], const char *text, size_t size)
{
    struct gs_prefix_tag tag;
    uint64_t key[2], word = 0, half;
    memcpy(key, secret, sizeof key);
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du ^ 0xee,
                     key[0] ^ 0x6c7967656e657261u, key[1] ^ 0x7465646279746573u};
    for (size_t i = 0; i <= size / 8; i++) {
        size_t n = i < size / 8 ? 8 : size % 8;
        word = i < size / 8 ? 0 : (uint64_t)size << 56;
        for (size_t j = 0; j < n; j++)
            word |= (uint64_t)(unsigned char)text[8 * i + j] << (8 * j);
        v[3] ^= word;
        sip_round(v);
        sip_round(v);
        v[0] ^= word;
    }
    v[2] ^= 0xee;
    for (int i = 0; i < 8; i++) {
        if (i == 4) {
            half = v[0] ^ v[1] ^ v[2] ^ v[3];
            memcpy(tag.bytes, &half, sizeof half);
            v[1] ^= 0xdd;
        }
        sip_round(v);
    }
    half = v[0] ^ v[1] ^ v[2] ^ v[3];
    memcpy(tag.bytes + sizeof half, &half, sizeof half);
    return tag;
}

static struct gs_prefix_tag tag_of(const struct gs_prefix_store *store, size_t scope)
{
    struct gs_prefix_tag everybody = {{0}};
    if (scope == 0 || scope > store->options.n_key)
        return everybody;
    const char *key = store->options.keys[scope - 1];
    return sip_hash(store->secret, key, strlen(key));
}

static gs_status make_path(const struct gs_prefix_store *store, const char *name, struct gs_buffer *path,
                           struct gs_error *error)
{
    return gs_buffer_print(path, error, "%s/%s", store->folder.data, name);
}

/* ---------------------------------------------------------------- records */

static void free_record(struct record *record)
{
    if (record)
        free(record->tokens);
    free(record);
}

/* Under the mutex, once there is a thread. */
static void link_record(struct gs_prefix_store *store, struct record *record)
{
    record->after = store->records;
    store->records = record;
    store->bytes += record->bytes;
    store->n_file++;
}

/* Under the mutex. Takes it out of the list. */
static void unlink_record(struct gs_prefix_store *store, struct record *record)
{
    struct record **link = &store->records;
    while (*link != record)
        link = &(*link)->after;
    *link = record->after;
    store->bytes -= record->bytes;
    store->n_file--;
}

/* Under the mutex. */
static void forget(struct gs_prefix_store *store, struct record *record)
{
    unlink_record(store, record);
    free_record(record);
}

/* Under the mutex: from the store's list to that of what is to go. */
static void give_up(struct gs_prefix_store *store, struct record *record, struct record **gone)
{
    unlink_record(store, record);
    record->after = *gone;
    *gone = record;
}

/* Not under the mutex: to remove a large file takes its time. */
static void remove_files(const struct gs_prefix_store *store, struct record *gone)
{
    while (gone) {
        struct record *record = gone;
        gone = record->after;
        unlinkat(store->descriptor, record->name, 0);
        free_record(record);
    }
}

/* Under the mutex. And its file out of the folder. */
static void drop(struct gs_prefix_store *store, struct record *record)
{
    unlinkat(store->descriptor, record->name, 0);
    forget(store, record);
}

static void fill_record(struct record *record, const struct gs_prefix_head *head, int32_t *tokens,
                        const struct gs_prefix_place *places)
{
    record->tag = head->tag;
    record->tokens = tokens;
    record->count = (size_t)head->n_tokens;
    record->least = (size_t)head->least;
    record->n_mark = (size_t)head->n_mark;
    memcpy(record->marks, places, record->n_mark * sizeof *places);
}

static bool has_tag(const struct record *record, const struct gs_prefix_tag *tag)
{
    return record->tokens && memcmp(&record->tag, tag, sizeof *tag) == 0;
}

/* How many of the tokens can be taken from the file. */
static size_t usable(const struct record *record, const int32_t *tokens, size_t count)
{
    size_t n = 0, best = 0;
    while (n < record->count && n < count && record->tokens[n] == tokens[n])
        n++;
    if (n >= record->least)
        return n;
    for (size_t i = 0; i < record->n_mark; i++) {
        size_t held = (size_t)record->marks[i].count, here = held < n ? held : n;
        if (here >= record->marks[i].least && here > best)
            best = here;
    }
    return best;
}

/* Under the mutex. */
static struct record *find_best(struct gs_prefix_store *store, size_t scope, const int32_t *tokens,
                                size_t count, size_t *most)
{
    struct gs_prefix_tag tag = tag_of(store, scope);
    struct record *best = NULL;
    double time = gs_clock_seconds();
    *most = 0;
    for (struct record *record = store->records; record; record = record->after) {
        size_t n = has_tag(record, &tag) && record->rests <= time ? usable(record, tokens, count) : 0;
        if (n > *most) {
            *most = n;
            best = record;
        }
    }
    return best;
}

/* Does `longer` serve all that `record` does: its end, and each of its marks? */
static bool is_superseded(const struct record *record, const struct record *longer)
{
    if (record == longer || record->count > longer->count || !has_tag(record, &longer->tag) ||
        !longer->tokens || usable(longer, record->tokens, record->count) != record->count)
        return false;
    for (size_t i = 0; i < record->n_mark; i++)
        if (usable(longer, record->tokens, (size_t)record->marks[i].count) != record->marks[i].count)
            return false;
    return true;
}

/* ---------------------------------------------------------------- finding */

size_t gs_prefix_store_find(struct gs_prefix_store *store, size_t scope, const int32_t *tokens, size_t count)
{
    size_t most;
    pthread_mutex_lock(&store->mutex);
    find_best(store, scope, tokens, count, &most);
    pthread_mutex_unlock(&store->mutex);
    return most;
}

/* Under the mutex. The time is kept in the file too: it is all that the next start knows. */
static void use(struct gs_prefix_store *store, struct record *record)
{
    record->used = now();
    utimensat(store->descriptor, record->name, NULL, 0);
}

void gs_prefix_store_touch(struct gs_prefix_store *store, size_t scope, const int32_t *tokens, size_t count)
{
    struct gs_prefix_tag tag = tag_of(store, scope);
    pthread_mutex_lock(&store->mutex);
    for (struct record *record = store->records; record; record = record->after)
        if (has_tag(record, &tag) && record->count == count &&
            memcmp(record->tokens, tokens, count * sizeof *tokens) == 0)
            use(store, record);
    pthread_mutex_unlock(&store->mutex);
}

void gs_prefix_loaded_close(struct gs_prefix_loaded *loaded)
{
    free(loaded->index.tokens);
    gs_file_map_close(loaded->map);
    *loaded = (struct gs_prefix_loaded){0};
}

/* Under the mutex. */
static struct record *find_name(struct gs_prefix_store *store, const char *name)
{
    struct record *record = store->records;
    while (record && strcmp(record->name, name) != 0)
        record = record->after;
    return record;
}

void gs_prefix_store_rest(struct gs_prefix_store *store, const struct gs_prefix_loaded *loaded)
{
    pthread_mutex_lock(&store->mutex);
    struct record *record = find_name(store, loaded->name);
    if (record)
        record->rests = gs_clock_seconds() + store->options.rest_seconds;
    pthread_mutex_unlock(&store->mutex);
}

static enum gs_prefix_verdict open_loaded(const struct gs_prefix_store *store, const char *path,
                                          struct gs_prefix_loaded *out, struct gs_error *error)
{
    if (gs_file_map_open(path, NULL, &out->map, error) != GS_OK)
        return GS_PREFIX_FOREIGN;
    enum gs_prefix_verdict verdict =
        gs_prefix_index_read(out->map->descriptor, out->map->size, store->options.identity,
                             store->options.max_tokens, &out->index);
    if (verdict == GS_PREFIX_GOOD)
        verdict = gs_prefix_body_find(out->map, &out->index, &out->body);
    return verdict;
}

/* What becomes of a file that was to be taken and cannot be: `verdict`, or why it could not be opened. */
static void turn_down(struct gs_prefix_store *store, const struct gs_prefix_loaded *loaded,
                      enum gs_prefix_verdict verdict, const struct gs_error *error)
{
    struct stat info;
    bool unopened = !loaded->map && fstatat(store->descriptor, loaded->name, &info, AT_SYMLINK_NOFOLLOW) == 0;
    if (verdict == GS_PREFIX_DAMAGED)
        say(store, "cache folder: %s is damaged and has been removed", loaded->name);
    else if (unopened)
        say(store, "cache folder: %s; tried again in %.0f seconds", error->message,
            store->options.rest_seconds);
    if (unopened) {
        gs_prefix_store_rest(store, loaded);
        return;
    }
    pthread_mutex_lock(&store->mutex);
    struct record *record = find_name(store, loaded->name);
    if (record && verdict == GS_PREFIX_DAMAGED)
        drop(store, record);
    else if (record) /* gone, or another's now */
        forget(store, record);
    pthread_mutex_unlock(&store->mutex);
}

bool gs_prefix_store_load(struct gs_prefix_store *store, size_t scope, const int32_t *tokens, size_t count,
                          struct gs_prefix_loaded *out)
{
    struct gs_buffer path = {0};
    struct gs_error error = {0};
    size_t most;
    *out = (struct gs_prefix_loaded){0};
    pthread_mutex_lock(&store->mutex);
    struct record *record = find_best(store, scope, tokens, count, &most);
    gs_status status = record ? make_path(store, record->name, &path, NULL) : GS_IO;
    if (status == GS_OK) {
        memcpy(out->name, record->name, sizeof record->name);
        use(store, record);
    }
    pthread_mutex_unlock(&store->mutex);
    if (status != GS_OK)
        return false;
    enum gs_prefix_verdict verdict = open_loaded(store, path.data, out, &error);
    /* Meanwhile another may be at this name, of another key: only what is in the file itself counts. */
    struct gs_prefix_tag tag = tag_of(store, scope);
    bool good = verdict == GS_PREFIX_GOOD && memcmp(&out->index.head.tag, &tag, sizeof tag) == 0;
    if (!good) {
        turn_down(store, out, verdict, &error);
        gs_prefix_loaded_close(out);
    }
    gs_buffer_free(&path);
    return good;
}

/* ---------------------------------------------------------------- writing */

/*
 * Under the mutex: records are given up, the least recently used first, until `record` fits beside what it
 * leaves there.
 */
static void make_room(struct gs_prefix_store *store, const struct record *record, struct record **gone)
{
    uint64_t leaving = 0;
    for (const struct record *other = store->records; other; other = other->after)
        leaving += is_superseded(other, record) ? other->bytes : 0;
    while (store->bytes - leaving + record->bytes > store->options.max_bytes) {
        struct record *oldest = NULL;
        for (struct record *other = store->records; other; other = other->after)
            if (!is_superseded(other, record) && (!oldest || other->used < oldest->used))
                oldest = other;
        if (!oldest)
            return;
        give_up(store, oldest, gone);
    }
}

/* A record of what is to be written; NULL if memory is out. */
static struct record *make_record(const struct gs_buffer *image)
{
    struct gs_prefix_head head;
    struct gs_prefix_place places[GS_PREFIX_MAX_MARKS];
    memcpy(&head, image->data, sizeof head);
    size_t ids = (size_t)head.n_tokens * sizeof(int32_t);
    struct record *record = calloc(1, sizeof *record);
    int32_t *tokens = malloc(ids);
    if (!record || !tokens) {
        free(record);
        free(tokens);
        return NULL;
    }
    const char *at = image->data + sizeof head;
    memcpy(tokens, at, ids);
    memcpy(places, at + (ids + 7) / 8 * 8, (size_t)head.n_mark * sizeof *places);
    fill_record(record, &head, tokens, places);
    record->bytes = image->size;
    record->used = now();
    snprintf(record->name, sizeof record->name, NAME_FORMAT, (unsigned long long)gs_random_number());
    return record;
}

static gs_status write_image(struct gs_prefix_store *store, const struct record *record,
                             struct gs_buffer *image, struct gs_error *error)
{
    struct gs_buffer path = {0};
    struct gs_file_write file = {.descriptor = -1};
    gs_status status = make_path(store, record->name, &path, error);
    if (status == GS_OK) {
        gs_prefix_file_seal(image);
        status = gs_file_write_begin(&file, path.data, error);
    }
    if (status == GS_OK)
        status = gs_file_write_bytes(&file, image->data, image->size, error);
    status = gs_file_write_end(&file, status, error);
    gs_buffer_free(&path);
    return status;
}

/* The image becomes a file; false if it does not. Too large a one is left out as if it were written. */
static bool save(struct gs_prefix_store *store, struct gs_buffer *image)
{
    struct gs_error error;
    if (image->size > store->options.max_bytes)
        return true;
    struct record *record = make_record(image), *gone = NULL;
    if (!record)
        return false;
    pthread_mutex_lock(&store->mutex);
    make_room(store, record, &gone);
    pthread_mutex_unlock(&store->mutex);
    remove_files(store, gone);
    if (write_image(store, record, image, &error) != GS_OK) {
        say(store, "cache folder: %s", error.message);
        free_record(record);
        return false;
    }
    gone = NULL;
    pthread_mutex_lock(&store->mutex);
    for (struct record *other = store->records, *after; other; other = after) {
        after = other->after;
        if (is_superseded(other, record))
            give_up(store, other, &gone);
    }
    link_record(store, record);
    pthread_mutex_unlock(&store->mutex);
    remove_files(store, gone);
    return true;
}

static void *write_files(void *user)
{
    struct gs_prefix_store *store = user;
    pthread_mutex_lock(&store->mutex);
    for (;;) {
        while (!store->busy && !store->stops)
            pthread_cond_wait(&store->changes, &store->mutex);
        if (!store->busy)
            break;
        pthread_mutex_unlock(&store->mutex);
        bool saved = save(store, &store->image); /* nobody else's while busy */
        gs_buffer_free(&store->image);
        pthread_mutex_lock(&store->mutex);
        store->busy = false;
        store->failed = !saved;
        pthread_cond_broadcast(&store->changes);
    }
    pthread_mutex_unlock(&store->mutex);
    return NULL;
}

enum gs_prefix_store_state gs_prefix_store_poll(struct gs_prefix_store *store)
{
    pthread_mutex_lock(&store->mutex);
    enum gs_prefix_store_state state = store->busy     ? GS_STORE_BUSY
                                       : store->failed ? GS_STORE_FAILED
                                                       : GS_STORE_IDLE;
    if (!store->busy)
        store->failed = false;
    pthread_mutex_unlock(&store->mutex);
    return state;
}

void gs_prefix_store_wait(struct gs_prefix_store *store)
{
    pthread_mutex_lock(&store->mutex);
    while (store->busy)
        pthread_cond_wait(&store->changes, &store->mutex);
    pthread_mutex_unlock(&store->mutex);
}

bool gs_prefix_store_save(struct gs_prefix_store *store, size_t scope,
                          const struct gs_prefix_timeline *timeline)
{
    struct gs_buffer image = {0};
    struct gs_error unused;
    if (gs_prefix_store_poll(store) == GS_STORE_BUSY ||
        gs_prefix_file_build(timeline, store->options.identity, tag_of(store, scope), &image, &unused) !=
            GS_OK) {
        gs_buffer_free(&image);
        return false;
    }
    pthread_mutex_lock(&store->mutex);
    store->image = image;
    store->busy = true;
    pthread_cond_broadcast(&store->changes);
    pthread_mutex_unlock(&store->mutex);
    return true;
}

void gs_prefix_store_figures(struct gs_prefix_store *store, size_t *n_file, uint64_t *bytes)
{
    pthread_mutex_lock(&store->mutex);
    *n_file = store->n_file;
    *bytes = store->bytes;
    pthread_mutex_unlock(&store->mutex);
}

/* ---------------------------------------------------------------- opening */

/* The folder, if it is the owner's alone to write, and nobody else's at the moment. */
static gs_status open_folder(struct gs_prefix_store *store, struct gs_error *error)
{
    const char *folder = store->options.folder;
    struct stat info;
    gs_status status = gs_buffer_print(&store->folder, error, "%s/", folder);
    if (status == GS_OK)
        status = gs_make_private_folders(store->folder.data, error);
    if (status != GS_OK)
        return status;
    store->folder.data[--store->folder.size] = '\0';
    store->descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store->descriptor < 0 || fstat(store->descriptor, &info) != 0)
        return gs_fail_io(error, errno, "open the cache folder", folder);
    if (info.st_uid != geteuid() || (info.st_mode & 022) != 0)
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "%s: others may write to the cache folder; one of the server's own user, with mode "
                       "0700, is expected",
                       gs_quote(folder).text);
    if (flock(store->descriptor, LOCK_EX | LOCK_NB) != 0)
        return gs_fail(error, GS_INVALID_ARGUMENT, "%s: another server uses this cache folder",
                       gs_quote(folder).text);
    return GS_OK;
}

/* What tags are keyed with; a new one where there is none of the right size, or others may have seen it. */
static gs_status read_secret(struct gs_prefix_store *store, struct gs_error *error)
{
    struct gs_buffer path = {0};
    struct gs_file_write file = {.descriptor = -1};
    struct stat info;
    char more;
    int descriptor = openat(store->descriptor, SECRET_NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool there = descriptor >= 0 && fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode) &&
                 info.st_uid == geteuid() && (info.st_mode & 077) == 0 &&
                 read(descriptor, store->secret, sizeof store->secret) == (ssize_t)sizeof store->secret &&
                 read(descriptor, &more, 1) == 0;
    if (descriptor >= 0)
        close(descriptor);
    if (there)
        return GS_OK;
    for (size_t i = 0; i < sizeof store->secret; i += sizeof(uint64_t)) {
        uint64_t number = gs_random_number();
        memcpy(store->secret + i, &number, sizeof number);
    }
    gs_status status = make_path(store, SECRET_NAME, &path, error);
    if (status == GS_OK)
        status = gs_file_write_begin(&file, path.data, error);
    if (status == GS_OK)
        status = gs_file_write_bytes(&file, store->secret, sizeof store->secret, error);
    status = gs_file_write_end(&file, status, error);
    gs_buffer_free(&path);
    return status;
}

/* How the scan went. */
struct findings {
    size_t n_good, n_other, n_damaged, n_foreign;
    uint64_t tokens;
};

/* "p-0123456789abcdef.kv", and, of a write that was cut off, with a dot and six more. */
static bool is_own_name(const char *name, bool *temporary)
{
    size_t size = strlen(name);
    unsigned long long number = 0;
    char same[NAME_BYTES + 1];
    *temporary = size == NAME_BYTES + 7 && name[NAME_BYTES] == '.';
    if ((size != NAME_BYTES && !*temporary) || sscanf(name, "p-%16llx.kv", &number) != 1)
        return false;
    snprintf(same, sizeof same, NAME_FORMAT, number);
    return memcmp(name, same, NAME_BYTES) == 0;
}

static void take_file(struct gs_prefix_store *store, const char *name, struct findings *found)
{
    struct gs_prefix_index index = {0};
    struct stat info;
    struct record *record = NULL;
    int descriptor = openat(store->descriptor, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    enum gs_prefix_verdict verdict = GS_PREFIX_FOREIGN;
    if (descriptor >= 0 && fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode))
        verdict = gs_prefix_index_read(descriptor, (uint64_t)info.st_size, store->options.identity,
                                       store->options.max_tokens, &index);
    if (descriptor >= 0)
        close(descriptor);
    if (verdict == GS_PREFIX_DAMAGED) {
        unlinkat(store->descriptor, name, 0);
        found->n_damaged++;
    } else if (verdict == GS_PREFIX_FOREIGN) {
        found->n_foreign++;
    } else if ((record = calloc(1, sizeof *record))) {
        memcpy(record->name, name, NAME_BYTES);
        record->bytes = (uint64_t)info.st_size;
        record->used = gs_system_modified_ns(&info);
        if (verdict == GS_PREFIX_GOOD) {
            fill_record(record, &index.head, index.tokens, index.places);
            index.tokens = NULL;
            found->n_good++;
            found->tokens += record->count;
        } else {
            found->n_other++;
        }
        link_record(store, record);
    }
    free(index.tokens);
}

static gs_status scan(struct gs_prefix_store *store, struct gs_error *error)
{
    struct findings found = {0};
    struct dirent *item;
    bool temporary;
    DIR *folder = opendir(store->folder.data);
    if (!folder)
        return gs_fail_io(error, errno, "read the cache folder", store->folder.data);
    while ((item = readdir(folder))) {
        const char *name = item->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, SECRET_NAME) == 0)
            continue;
        if (!is_own_name(name, &temporary))
            found.n_foreign++;
        else if (temporary)
            unlinkat(store->descriptor, name, 0);
        else
            take_file(store, name, &found);
    }
    closedir(folder);
    say(store,
        "cache folder: %zu prefixes of %llu tokens; %zu of another model or machine, %zu damaged and "
        "removed, %zu that are none of the server's",
        found.n_good, (unsigned long long)found.tokens, found.n_other, found.n_damaged, found.n_foreign);
    return GS_OK;
}

gs_status gs_prefix_store_open(const struct gs_prefix_store_options *options, struct gs_prefix_store **out,
                               struct gs_error *error)
{
    *out = NULL;
    struct gs_prefix_store *store = calloc(1, sizeof *store);
    if (!store)
        return gs_fail_memory(error, sizeof *store);
    store->options = *options;
    store->descriptor = -1;
    pthread_mutex_init(&store->mutex, NULL);
    pthread_cond_init(&store->changes, NULL);
    gs_status status = open_folder(store, error);
    if (status == GS_OK)
        status = read_secret(store, error);
    if (status == GS_OK)
        status = scan(store, error);
    if (status == GS_OK) {
        const struct record nothing = {0};
        struct record *gone = NULL;
        make_room(store, &nothing, &gone);
        remove_files(store, gone);
        store->has_thread = pthread_create(&store->thread, NULL, write_files, store) == 0;
        if (!store->has_thread)
            status = gs_fail(error, GS_OUT_OF_MEMORY, "cannot start a thread");
    }
    if (status != GS_OK) {
        gs_prefix_store_close(store);
        return status;
    }
    *out = store;
    return GS_OK;
}

void gs_prefix_store_close(struct gs_prefix_store *store)
{
    if (!store)
        return;
    pthread_mutex_lock(&store->mutex);
    store->stops = true;
    pthread_cond_broadcast(&store->changes);
    pthread_mutex_unlock(&store->mutex);
    if (store->has_thread)
        pthread_join(store->thread, NULL);
    while (store->records) {
        struct record *record = store->records;
        store->records = record->after;
        free_record(record);
    }
    if (store->descriptor >= 0)
        close(store->descriptor);
    pthread_cond_destroy(&store->changes);
    pthread_mutex_destroy(&store->mutex);
    gs_buffer_free(&store->folder);
    gs_buffer_free(&store->image);
    free(store);
}
