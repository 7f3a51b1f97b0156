/*
 * Read-only mappings of files. A mapping owns its pages and its descriptor until it is closed.
 *
 * If the file shrinks while mapped, a read past its new end would be a SIGBUS. Every mapping sees to it
 * that our SIGBUS handler is installed, which replaces the missing page and those after it with zeros and
 * marks the mapping; other SIGBUS go to whoever handled them before. So a read never crashes, and
 * gs_file_map_check tells.
 */
#ifndef GS_FORMAT_FILE_MAP_H
#define GS_FORMAT_FILE_MAP_H

#include "gossamer.h"

#define GS_FILE_MAP_MAX 1024 /* mappings at a time in one process */

struct gs_file_map {
    char *path; /* as opened, for messages */
    const unsigned char *data;
    uint64_t size;
    int descriptor;
    int64_t modified_ns; /* mtime when opened */
    int slot;            /* in the handler's table; -1: none */
};

/*
 * Maps a regular file; an empty one maps to size 0 and data NULL. `folder` (may be NULL) confines symbolic
 * links: the file must really lie in that folder, or in the folder ../../blobs beside it, where the hub's
 * cache layout keeps the contents of its snapshots (../../../blobs for a folder within a snapshot).
 * GS_MALFORMED for a link that leads elsewhere, GS_INVALID_ARGUMENT for what is no regular file.
 */
gs_status gs_file_map_open(const char *path, const char *folder, struct gs_file_map **out,
                           struct gs_error *error);
void gs_file_map_close(struct gs_file_map *map);

/* GS_FILE_CHANGED if the file shrank under a read, or its size or time differ from when it was opened. */
gs_status gs_file_map_check(const struct gs_file_map *map, struct gs_error *error);

/* Cheap: has a read hit a missing page? Safe from any thread. */
bool gs_file_map_damaged(const struct gs_file_map *map);

#endif
