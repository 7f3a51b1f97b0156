/*
 * A set of compiled kernels that Metal can write to a file and read again (MTLBinaryArchive). It holds what
 * the second half of the compiler makes, for one device and one version of the system; the first half, from
 * source to a library, has no form that a program may keep.
 */
#ifndef GS_BACKEND_METAL_ARCHIVE_H
#define GS_BACKEND_METAL_ARCHIVE_H

#include "backend/metal/metal.h"

struct gs_metal_archive {
    gs_objc_id object; /* NULL: none; released with gs_metal_archive_close */
    bool is_read;      /* from a file: a kernel that it has not is an error, not compiled */
    bool is_short;     /* a kernel could not be put into it */
};

/* `path`: a file that was written before; NULL: an empty one, to be filled. GS_UNSUPPORTED: damaged, or of
 * others. */
gs_status gs_metal_archive_open(struct gs_metal *metal, const char *path, struct gs_metal_archive *out,
                                struct gs_error *error);
gs_status gs_metal_archive_write(struct gs_metal *metal, const struct gs_metal_archive *archive,
                                 const char *path, struct gs_error *error);
void gs_metal_archive_close(struct gs_metal *metal, struct gs_metal_archive *archive);

/* metal.c's: the pipeline of a function by way of the archive; NULL, and why in *cause. */
gs_objc_id gs_metal_archive_state(struct gs_metal *metal, struct gs_metal_archive *archive,
                                  gs_objc_id function, gs_objc_id *cause);

/* The system's version and build, "Version 13.6 (Build 22G120)": what compiled kernels are good for. */
void gs_metal_system(struct gs_metal *metal, char *text, size_t size);

#endif
