#include "backend/metal/pipelines.h"

#include "backend/metal/archive.h"
#include "backend/metal/source.h"
#include "base/buffer.h"
#include "base/file_write.h"
#include "base/hash.h"
#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX ".pipelines"

static void release_all(struct gs_device *device)
{
    for (size_t k = 0; k < GS_METAL_KERNEL_COUNT; k++)
        gs_metal_pipeline_release(&device->metal, &device->pipelines[k]);
}

/* All of them; `archive` may be NULL. After a failure none is left. */
static gs_status make_all(struct gs_device *device, struct gs_metal_archive *archive, struct gs_error *error)
{
    const struct gs_metal_tuning *t = &device->tuning;
    const struct gs_metal_value values[] = {
        {GS_METAL_CONSTANT_SIMDGROUPS, GS_METAL_TYPE_UINT, t->simdgroups},
        {GS_METAL_CONSTANT_MXFP4_SIMDGROUPS, GS_METAL_TYPE_UINT, t->mxfp4_simdgroups},
        {GS_METAL_CONSTANT_SCALAR_LOAD, GS_METAL_TYPE_BOOL, t->scalar_load},
        {GS_METAL_CONSTANT_KV_F32, GS_METAL_TYPE_BOOL, t->kv_f32},
        {GS_METAL_CONSTANT_CONTROL, GS_METAL_TYPE_UINT, t->control},
    };
    gs_status status = GS_OK;
    for (int k = 0; status == GS_OK && k < GS_METAL_KERNEL_COUNT; k++) {
        status =
            gs_metal_pipeline_make(&device->metal, gs_metal_kernel_name((enum gs_metal_kernel)k), values,
                                   sizeof values / sizeof *values, archive, &device->pipelines[k], error);
        uint32_t width = device->pipelines[k].width;
        if (status == GS_OK && width != GS_METAL_LANES)
            status = gs_fail(error, GS_UNSUPPORTED, "metal: %s: SIMD-groups of %u threads, must be of %d",
                             device->metal.name, width, GS_METAL_LANES);
    }
    if (status != GS_OK)
        release_all(device);
    return status;
}

/* ---------------------------------------------------------------- the folder */

struct place {
    struct gs_buffer folder;
    struct gs_buffer path;   /* FOLDER/metal-<what for>-<what makes it stale>.pipelines */
    struct gs_buffer prefix; /* the name up to the second hash: all of them but one are stale */
    char system[160];
};

static void place_free(struct place *place)
{
    gs_buffer_free(&place->folder);
    gs_buffer_free(&place->path);
    gs_buffer_free(&place->prefix);
}

static gs_status find_place(struct gs_device *device, const char *folder, const struct gs_buffer *source,
                            struct place *out, struct gs_error *error)
{
    const struct gs_metal_tuning *t = &device->tuning;
    const uint32_t fields[] = {t->simdgroups, t->mxfp4_simdgroups, t->scalar_load, t->kv_f32, t->control};
    gs_metal_system(&device->metal, out->system, sizeof out->system);
    if (!*out->system)
        return gs_fail(error, GS_UNSUPPORTED, "the system does not tell its version");
    uint64_t what = gs_hash_mix(gs_hash_bytes(device->metal.name, strlen(device->metal.name)),
                                gs_hash_bytes(fields, sizeof fields) | 1);
    uint64_t stale = gs_hash_mix(gs_hash_bytes(out->system, strlen(out->system)),
                                 gs_hash_bytes(source->data, source->size) | 1);
    gs_status status = gs_buffer_print(&out->prefix, error, "metal-%016llx-", (unsigned long long)what);
    if (status == GS_OK)
        status = gs_buffer_print(&out->folder, error, "%s/", folder);
    if (status == GS_OK)
        status = gs_buffer_print(&out->path, error, "%s%s%016llx" SUFFIX, out->folder.data, out->prefix.data,
                                 (unsigned long long)stale);
    return status;
}

/* Makes the folder if need be. Whoever else can write there could give this process kernels of his own. */
static gs_status own_folder(const struct place *place, struct gs_error *error)
{
    struct stat found;
    gs_status status = gs_make_private_folders(place->path.data, error);
    if (status == GS_OK && stat(place->folder.data, &found) != 0)
        status = gs_fail_io(error, errno, "read", place->folder.data);
    if (status == GS_OK && (found.st_uid != geteuid() || (found.st_mode & (S_IWGRP | S_IWOTH)) != 0))
        status = gs_fail(error, GS_UNSUPPORTED, "%s: must belong to this user, and nobody else may write it",
                         gs_quote(place->folder.data).text);
    return status;
}

/* Of one device and specialisation one file is enough. */
static void remove_stale(const struct place *place)
{
    const char *name = place->path.data + place->folder.size;
    DIR *entries = opendir(place->folder.data);
    for (struct dirent *e = entries ? readdir(entries) : NULL; e; e = readdir(entries)) {
        size_t n = strlen(e->d_name), suffix = strlen(SUFFIX);
        if (strncmp(e->d_name, place->prefix.data, place->prefix.size) == 0 && n > suffix &&
            strcmp(e->d_name + n - suffix, SUFFIX) == 0 && strcmp(e->d_name, name) != 0)
            unlinkat(dirfd(entries), e->d_name, 0);
    }
    if (entries)
        closedir(entries);
}

/*
 * Written in a folder of this call's own first: whoever reads meanwhile finds all of it or nothing, and
 * others who write, in this process too, do not meet.
 */
static gs_status keep(struct gs_device *device, const struct gs_metal_archive *archive,
                      const struct place *place, struct gs_error *error)
{
    struct gs_buffer apart = {0}, temporary = {0};
    gs_status status = gs_buffer_print(&apart, error, "%s.XXXXXX", place->path.data);
    bool is_made = status == GS_OK && mkdtemp(apart.data) != NULL;
    if (status == GS_OK && !is_made)
        status = gs_fail_io(error, errno, "write", place->path.data);
    if (status == GS_OK)
        status = gs_buffer_print(&temporary, error, "%s/new", apart.data);
    if (status == GS_OK)
        status = gs_metal_archive_write(&device->metal, archive, temporary.data, error);
    if (status == GS_OK && rename(temporary.data, place->path.data) != 0)
        status = gs_fail_io(error, errno, "write", place->path.data);
    if (status == GS_OK)
        remove_stale(place);
    else if (temporary.data)
        unlink(temporary.data);
    if (is_made)
        rmdir(apart.data);
    gs_buffer_free(&temporary);
    gs_buffer_free(&apart);
    return status;
}

/* ---------------------------------------------------------------- all of it */

/* From the file, if it is there and has all of them. */
static bool read_kept(struct gs_device *device, const struct place *place, struct gs_error *why)
{
    struct gs_metal_archive archive;
    if (access(place->path.data, R_OK) != 0)
        return false;
    gs_status status = gs_metal_archive_open(&device->metal, place->path.data, &archive, why);
    if (status == GS_OK)
        status = make_all(device, &archive, why);
    gs_metal_archive_close(&device->metal, &archive);
    return status == GS_OK;
}

/* Compiled into an archive, which is kept. GS_OK: the kernels are there, kept or not; `why` not, if not. */
static gs_status compile_and_keep(struct gs_device *device, const struct place *place, bool *is_kept,
                                  struct gs_error *why)
{
    struct gs_metal_archive archive;
    gs_status status = gs_metal_archive_open(&device->metal, NULL, &archive, why);
    if (status == GS_OK)
        status = make_all(device, &archive, why);
    if (status == GS_OK && archive.is_short)
        gs_fail(why, GS_UNSUPPORTED, "Metal does not take all of them into an archive");
    else if (status == GS_OK)
        *is_kept = keep(device, &archive, place, why) == GS_OK;
    gs_metal_archive_close(&device->metal, &archive);
    return status;
}

static gs_status make_or_find(struct gs_device *device, const struct place *place, struct gs_error *error)
{
    struct gs_error why = {.message = ""};
    bool is_kept = false, was_there = access(place->path.data, F_OK) == 0;
    if (read_kept(device, place, &why)) {
        device->n_kept = GS_METAL_KERNEL_COUNT;
        gs_format(device->kernels_note, sizeof device->kernels_note, "%d kernels, as kept in %s",
                  GS_METAL_KERNEL_COUNT, place->path.data);
        return GS_OK;
    }
    /* Without an archive, where it is what fails. */
    if (compile_and_keep(device, place, &is_kept, &why) != GS_OK) {
        gs_status status = make_all(device, NULL, error);
        if (status != GS_OK)
            return status;
    }
    device->n_compiled = GS_METAL_KERNEL_COUNT;
    gs_format(device->kernels_note, sizeof device->kernels_note, "%d kernels compiled, %s%s%s",
              GS_METAL_KERNEL_COUNT, is_kept && was_there ? "since those that were kept are of no use; " : "",
              is_kept ? "kept in " : "not kept: ", is_kept ? place->path.data : why.message);
    return GS_OK;
}

gs_status gs_metal_pipelines_make(struct gs_device *device, const char *folder, struct gs_error *error)
{
    struct gs_buffer source = {0};
    struct place place = {0};
    struct gs_error why = {.message = ""};
    gs_status status = gs_metal_source(&source, error);
    if (status == GS_OK)
        status = gs_metal_compile(&device->metal, source.data, source.size, error);
    if (status == GS_OK && folder && find_place(device, folder, &source, &place, &why) == GS_OK &&
        own_folder(&place, &why) == GS_OK) {
        status = make_or_find(device, &place, error);
    } else if (status == GS_OK) {
        status = make_all(device, NULL, error);
        device->n_compiled = GS_METAL_KERNEL_COUNT;
        gs_format(device->kernels_note, sizeof device->kernels_note, "%d kernels compiled, not kept: %s",
                  GS_METAL_KERNEL_COUNT, folder ? why.message : "no folder is given");
    }
    place_free(&place);
    gs_buffer_free(&source);
    return status;
}
