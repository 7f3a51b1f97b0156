/* A compiled library, opened as a copy of its own, so that its function constants are its own too. */
#include "tests/metal_sim/library.h"

#include "tests/metal_sim/compile.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

struct metalsim_library {
    void *handle;
    int file;
    const struct metalsim_kernel *kernels;
};

/* While a library is opened on this thread: the values that its initialisers ask for. */
static _Thread_local struct opening {
    const struct metalsim_options *options;
    char *message;
    size_t size;
    bool failed;
} * opening;

void metalsim_constant(int index, int type, void *value, size_t bytes, const char *name)
{
    const struct metalsim_options *options = opening ? opening->options : NULL;
    for (int i = 0; options && i < options->n_constant; i++) {
        const struct metalsim_constant *constant = &options->constants[i];
        if (constant->index != index)
            continue;
        if (constant->type == type) {
            memcpy(value, constant->value, bytes);
            return;
        }
        snprintf(opening->message, opening->size,
                 "function constant %d, %s, has MTLDataType %d and was given %d", index, name, type,
                 constant->type);
        opening->failed = true;
        return;
    }
    if (!opening)
        return;
    snprintf(opening->message, opening->size, "function constant %d, %s, is not set", index, name);
    opening->failed = true;
}

/* A copy in memory of the file at `path`; -1: it could not be made. */
static int copy_of(const char *path)
{
    struct stat status;
    int from = open(path, O_RDONLY | O_CLOEXEC), to = memfd_create("metalsim", MFD_CLOEXEC);
    bool ok = from >= 0 && to >= 0 && fstat(from, &status) == 0;
    for (off_t at = 0; ok && at < status.st_size;)
        ok = sendfile(to, from, &at, (size_t)(status.st_size - at)) > 0;
    if (from >= 0)
        close(from);
    if (ok)
        return to;
    if (to >= 0)
        close(to);
    return -1;
}

struct metalsim_library *metalsim_library_open(const char *path, const struct metalsim_options *options,
                                               char *message, size_t size)
{
    struct opening values = {.options = options, .message = message, .size = size};
    struct metalsim_library *library = calloc(1, sizeof *library);
    char copy[64];
    if (!library)
        return NULL;
    library->file = copy_of(path);
    snprintf(copy, sizeof copy, "/proc/self/fd/%d", library->file);
    opening = &values;
    library->handle = library->file >= 0 ? dlopen(copy, RTLD_NOW | RTLD_LOCAL) : NULL;
    opening = NULL;
    library->kernels = library->handle ? dlsym(library->handle, METALSIM_KERNELS) : NULL;
    if (library->kernels && !values.failed)
        return library;
    if (!values.failed)
        snprintf(message, size, "%s: %s", path, library->file >= 0 ? dlerror() : "it cannot be copied");
    metalsim_library_free(library);
    return NULL;
}

struct metalsim_library *metalsim_library_new(const char *source, const struct metalsim_options *options,
                                              char *message, size_t size)
{
    char path[PATH_MAX];
    static const struct metalsim_options none;
    options = options ? options : &none;
    if (!metalsim_compile(source, options, path, sizeof path, message, size))
        return NULL;
    return metalsim_library_open(path, options, message, size);
}

bool metalsim_library_compile(const char *source, const struct metalsim_options *options, char *message,
                              size_t size)
{
    char path[PATH_MAX];
    return metalsim_compile(source, options, path, sizeof path, message, size);
}

void metalsim_library_free(struct metalsim_library *library)
{
    if (!library)
        return;
    if (library->handle)
        dlclose(library->handle);
    if (library->file >= 0)
        close(library->file);
    free(library);
}

const struct metalsim_kernel *metalsim_library_find(const struct metalsim_library *library, const char *name)
{
    for (const struct metalsim_kernel *kernel = library->kernels; kernel->name; kernel++)
        if (!strcmp(kernel->name, name))
            return kernel;
    return NULL;
}
