#include "base/file_write.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

gs_status gs_file_write_begin(struct gs_file_write *file, const char *path, struct gs_error *error)
{
    *file = (struct gs_file_write){.path = path, .descriptor = -1};
    gs_status status = gs_buffer_print(&file->temporary, error, "%s.XXXXXX", path);
    if (status != GS_OK)
        return status;
    file->descriptor = mkostemp(file->temporary.data, O_CLOEXEC); /* mode 0600 */
    if (file->descriptor < 0) {
        status = gs_fail_io(error, errno, "write", path);
        gs_buffer_free(&file->temporary);
    }
    return status;
}

gs_status gs_file_write_bytes(struct gs_file_write *file, const void *bytes, size_t size,
                              struct gs_error *error)
{
    const char *at = bytes;
    while (size > 0) {
        ssize_t n = write(file->descriptor, at, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return gs_fail_io(error, errno, "write", file->path);
        at += n;
        size -= (size_t)n;
    }
    return GS_OK;
}

/* The new name itself is on the disk only once its folder is. */
static void sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    int descriptor = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (descriptor >= 0) {
        fsync(descriptor);
        close(descriptor);
    }
    free(folder);
}

gs_status gs_file_write_end(struct gs_file_write *file, gs_status status, struct gs_error *error)
{
    if (file->descriptor < 0)
        return status;
    if (status == GS_OK && fsync(file->descriptor) != 0)
        status = gs_fail_io(error, errno, "write", file->path);
    if (close(file->descriptor) != 0 && status == GS_OK)
        status = gs_fail_io(error, errno, "write", file->path);
    if (status == GS_OK && rename(file->temporary.data, file->path) != 0)
        status = gs_fail_io(error, errno, "write", file->path);
    if (status == GS_OK)
        sync_folder(file->path);
    else
        unlink(file->temporary.data);
    gs_buffer_free(&file->temporary);
    file->descriptor = -1;
    return status;
}

gs_status gs_make_private_folders(const char *path, struct gs_error *error)
{
    char *copy = strdup(path);
    gs_status status = copy ? GS_OK : gs_fail_memory(error, strlen(path));
    for (char *at = copy; status == GS_OK && (at = strchr(at + 1, '/')) != NULL;) {
        *at = '\0';
        if (mkdir(copy, 0700) != 0 && errno != EEXIST)
            status = gs_fail_io(error, errno, "make the folder", copy);
        *at = '/';
    }
    free(copy);
    return status;
}
