#include "hub/cache.h"

#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---------------------------------------------------------------- finding */

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The commit written in a file of refs/; false if there is none. */
static bool read_ref(const char *path, char commit[41])
{
    char text[64];
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return false;
    ssize_t size = read(descriptor, text, sizeof text - 1);
    close(descriptor);
    if (size < 40)
        return false;
    text[size] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    if (!gs_hub_is_commit(text))
        return false;
    memcpy(commit, text, 41);
    return true;
}

static bool has_gguf(const char *folder)
{
    static const char ending[] = ".gguf";
    bool found = false;
    DIR *entries = opendir(folder);
    if (!entries)
        return false;
    for (const struct dirent *entry; !found && (entry = readdir(entries));) {
        size_t size = strlen(entry->d_name);
        found = size >= sizeof ending && strcmp(entry->d_name + size + 1 - sizeof ending, ending) == 0;
    }
    closedir(entries);
    return found;
}

/* Is a model there, or only a part of one? config.json is linked last; other tools may have brought a GGUF.
 */
static gs_status is_complete(const char *snapshot, bool *complete, struct gs_error *error)
{
    struct gs_buffer config = {0};
    gs_status status = gs_buffer_print(&config, error, "%s/config.json", snapshot);
    if (status == GS_OK)
        *complete = access(config.data, F_OK) == 0 || has_gguf(snapshot);
    gs_buffer_free(&config);
    return status;
}

/* Replaces *path by the name's snapshot; an empty path if the cache does not have it. */
static gs_status find_snapshot(const char *cache, const struct gs_hub_name *name, struct gs_buffer *path,
                               struct gs_error *error)
{
    char commit[41];
    gs_buffer_clear(path);
    gs_status status = gs_buffer_print(path, error, "%s/%s/refs/%s", cache, name->folder, name->revision);
    if (status != GS_OK)
        return status;
    if (!read_ref(path->data, commit)) {
        gs_buffer_clear(path);
        if (!gs_hub_is_commit(name->revision))
            return GS_OK;
        memcpy(commit, name->revision, sizeof commit);
    }
    gs_buffer_clear(path);
    status = gs_buffer_print(path, error, "%s/%s/snapshots/%s", cache, name->folder, commit);
    bool complete = false;
    if (status == GS_OK)
        status = is_complete(path->data, &complete, error);
    if (!complete)
        gs_buffer_clear(path);
    return status;
}

gs_status gs_hub_find(const char *cache, const char *model, struct gs_buffer *path, struct gs_error *error)
{
    struct gs_hub_name name;
    gs_status status = GS_OK;
    gs_buffer_clear(path);
    bool is_name = access(model, F_OK) != 0 && gs_hub_name_parse(model, &name, NULL) == GS_OK;
    if (!is_name)
        return gs_buffer_append_text(path, model, error);
    if (cache)
        status = find_snapshot(cache, &name, path, error);
    if (status != GS_OK || path->size > 0)
        return status;
    return gs_fail(error, GS_IO,
                   "%s is no path, and not (or not completely) in the cache %s: gossamer pull %s fetches it",
                   gs_quote(model).text, cache ? gs_quote(cache).text : "(HOME is not set)",
                   gs_quote(model).text);
}

/* ---------------------------------------------------------------- folders */

gs_status gs_hub_store_name(const char *cache, const struct gs_hub_name *name, const char *commit,
                            struct gs_hub_store *store, struct gs_error *error)
{
    gs_status status = gs_buffer_print(&store->root, error, "%s/%s", cache, name->folder);
    if (status == GS_OK)
        status = gs_buffer_print(&store->blobs, error, "%s/blobs", store->root.data);
    if (status == GS_OK)
        status = gs_buffer_print(&store->snapshot, error, "%s/snapshots/%s", store->root.data, commit);
    if (status == GS_OK)
        status = gs_buffer_print(&store->locks, error, "%s/.locks/%s", cache, name->folder);
    return status;
}

void gs_hub_store_free(struct gs_hub_store *store)
{
    if (!store)
        return;
    gs_buffer_free(&store->root);
    gs_buffer_free(&store->blobs);
    gs_buffer_free(&store->snapshot);
    gs_buffer_free(&store->locks);
}

gs_status gs_make_folders(const char *path, struct gs_error *error)
{
    struct gs_buffer part = {0};
    gs_status status = GS_OK;
    for (size_t at = 0; status == GS_OK; at++) {
        at += strcspn(path + at, "/");
        gs_buffer_clear(&part);
        status = gs_buffer_append(&part, path, at, error);
        if (status == GS_OK && at > 0 && mkdir(part.data, 0777) != 0 && !is_folder(part.data))
            status = gs_fail_io(error, errno, "create folder", part.data);
        if (path[at] == '\0')
            break;
    }
    gs_buffer_free(&part);
    return status;
}

gs_status gs_hub_store_create(const struct gs_hub_store *store, struct gs_error *error)
{
    gs_status status = gs_make_folders(store->blobs.data, error);
    if (status == GS_OK)
        status = gs_make_folders(store->locks.data, error);
    return status;
}

gs_status gs_sync_folder(const char *path, struct gs_error *error)
{
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return gs_fail_io(error, errno, "open folder", path);
    /* Some file systems cannot sync a folder, and say so: nothing more can be done there. */
    gs_status status = GS_OK;
    if (fsync(descriptor) != 0 && errno != EINVAL && errno != ENOTSUP)
        status = gs_fail_io(error, errno, "sync folder", path);
    close(descriptor);
    return status;
}

/* ---------------------------------------------------------------- writing */

gs_status gs_hub_store_lock(const struct gs_hub_store *store, const char *digest, int *descriptor,
                            struct gs_error *error)
{
    struct gs_buffer path = {0};
    *descriptor = -1;
    gs_status status = gs_buffer_print(&path, error, "%s/%s.lock", store->locks.data, digest);
    if (status == GS_OK && (*descriptor = open(path.data, O_RDWR | O_CREAT | O_CLOEXEC, 0666)) < 0)
        status = gs_fail_io(error, errno, "create", path.data);
    if (status == GS_OK && flock(*descriptor, LOCK_EX | LOCK_NB) != 0) {
        status = errno == EWOULDBLOCK
                     ? gs_fail(error, GS_IO, "another process is fetching the same file: it holds %s",
                               gs_quote(path.data).text)
                     : gs_fail_io(error, errno, "lock", path.data);
        close(*descriptor);
        *descriptor = -1;
    }
    gs_buffer_free(&path);
    return status;
}

gs_status gs_hub_store_link(const struct gs_hub_store *store, const char *file, const char *digest,
                            struct gs_error *error)
{
    struct gs_buffer path = {0}, fresh = {0}, target = {0};
    char present[128];
    gs_status status = gs_buffer_print(&path, error, "%s/%s", store->snapshot.data, file);
    if (status == GS_OK)
        status = gs_buffer_print(&fresh, error, "%s.%ld.new", path.data, (long)getpid());
    if (status == GS_OK)
        status = gs_buffer_print(&target, error, "../../blobs/%s", digest);
    if (status == GS_OK)
        status = gs_make_folders(store->snapshot.data, error);
    if (status != GS_OK)
        goto cleanup;
    ssize_t size = readlink(path.data, present, sizeof present);
    if (size == (ssize_t)target.size && memcmp(present, target.data, target.size) == 0)
        goto cleanup;
    unlink(fresh.data);
    if (symlink(target.data, fresh.data) != 0)
        status = gs_fail_io(error, errno, "create the link", fresh.data);
    else if (rename(fresh.data, path.data) != 0) {
        status = gs_fail_io(error, errno, "replace", path.data);
        unlink(fresh.data);
    } else {
        status = gs_sync_folder(store->snapshot.data, error);
    }
cleanup:
    gs_buffer_free(&path);
    gs_buffer_free(&fresh);
    gs_buffer_free(&target);
    return status;
}

/* Replaces a small file's contents as a whole. */
static gs_status replace_file(const char *path, const char *text, struct gs_error *error)
{
    struct gs_buffer fresh = {0};
    size_t size = strlen(text);
    gs_status status = gs_buffer_print(&fresh, error, "%s.%ld.new", path, (long)getpid());
    if (status != GS_OK)
        goto cleanup;
    int descriptor = open(fresh.data, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor < 0) {
        status = gs_fail_io(error, errno, "create", fresh.data);
        goto cleanup;
    }
    bool written = write(descriptor, text, size) == (ssize_t)size && fsync(descriptor) == 0;
    int cause = errno;
    written = close(descriptor) == 0 && written;
    if (!written || rename(fresh.data, path) != 0) {
        status = gs_fail_io(error, written ? errno : cause, "write", path);
        unlink(fresh.data);
    }
cleanup:
    gs_buffer_free(&fresh);
    return status;
}

gs_status gs_hub_store_refer(const struct gs_hub_store *store, const struct gs_hub_name *name,
                             const char *commit, struct gs_error *error)
{
    struct gs_buffer path = {0};
    if (strcmp(name->revision, commit) == 0)
        return GS_OK;
    gs_status status = gs_buffer_print(&path, error, "%s/refs/%s", store->root.data, name->revision);
    if (status != GS_OK)
        goto cleanup;
    char *slash = strrchr(path.data, '/');
    *slash = '\0';
    status = gs_make_folders(path.data, error);
    *slash = '/';
    if (status == GS_OK)
        status = replace_file(path.data, commit, error);
    *slash = '\0';
    if (status == GS_OK)
        status = gs_sync_folder(path.data, error);
cleanup:
    gs_buffer_free(&path);
    return status;
}
