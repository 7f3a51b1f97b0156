/*
 * A file that is there whole or not at all: written under a temporary name in its folder, for the owner's
 * eyes alone (0600), brought to the disk, then renamed. Zero-initialise before begin.
 */
#ifndef GS_BASE_FILE_WRITE_H
#define GS_BASE_FILE_WRITE_H

#include "base/buffer.h"

struct gs_file_write {
    const char *path; /* borrowed */
    struct gs_buffer temporary;
    int descriptor;
};

gs_status gs_file_write_begin(struct gs_file_write *file, const char *path, struct gs_error *error);
gs_status gs_file_write_bytes(struct gs_file_write *file, const void *bytes, size_t size,
                              struct gs_error *error);

/*
 * `status` is how the writing went: GS_OK puts the file in its place, all else removes it and is returned.
 * Releases in any case.
 */
gs_status gs_file_write_end(struct gs_file_write *file, gs_status status, struct gs_error *error);

/* Makes the folders of a path, up to its last slash, with mode 0700; those that are there stay as they are.
 */
gs_status gs_make_private_folders(const char *path, struct gs_error *error);

#endif
