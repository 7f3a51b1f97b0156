/* Where the Objective-C runtime and Metal are opened. */
#include "backend/metal/metal.h"
#include "base/status.h"

#include <dlfcn.h>
#include <string.h>

/*
 * A build for tests names a library that stands in for both. In a program without windows Metal may find its
 * device only once Core Graphics is loaded.
 */
#ifdef GS_METAL_LIBRARY
static const char *const objc_path = GS_METAL_LIBRARY, *const metal_path = GS_METAL_LIBRARY;
static const char *const graphics_path = NULL;
#else
static const char *const objc_path = "/usr/lib/libobjc.A.dylib";
static const char *const metal_path = "/System/Library/Frameworks/Metal.framework/Metal";
static const char *const graphics_path = "/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics";
#endif

static void *find(const struct gs_metal *metal, const char *name)
{
    for (size_t i = 0; i < 2; i++) {
        void *found = dlsym(metal->libraries[i], name);
        if (found)
            return found;
    }
    return NULL;
}

static gs_status find_functions(struct gs_metal *metal, struct gs_error *error)
{
    void *found;
    /* A data pointer to a function pointer: POSIX allows it, C does not; memcpy says what is meant. */
#define GS_OBJC_FIND(field, name, result, parameters)                                                        \
    found = find(metal, name);                                                                               \
    if (!found)                                                                                              \
        return gs_fail(error, GS_UNSUPPORTED, "metal: the system has no %s: it must be macOS 13 or later",   \
                       name);                                                                                \
    memcpy(&metal->objc.field, &found, sizeof found);
    GS_OBJC_FUNCTIONS(GS_OBJC_FIND)
    GS_OBJC_FIND(send, "objc_msgSend", void, (void))
#undef GS_OBJC_FIND
    return GS_OK;
}

gs_status gs_metal_libraries_open(struct gs_metal *metal, struct gs_error *error)
{
    /* Never unmapped again: classes stay registered, and Metal has threads of its own. */
    int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
    metal->libraries[0] = dlopen(objc_path, flags);
    metal->libraries[1] = metal->libraries[0] ? dlopen(metal_path, flags) : NULL;
    metal->libraries[2] = metal->libraries[1] && graphics_path ? dlopen(graphics_path, flags) : NULL;
    if (!metal->libraries[1]) {
        const char *missing = metal->libraries[0] ? metal_path : objc_path;
        gs_metal_libraries_close(metal);
        return gs_fail(error, GS_UNSUPPORTED, "no Metal here, which macOS has: %s cannot be opened", missing);
    }
    gs_status status = find_functions(metal, error);
    if (status != GS_OK)
        gs_metal_libraries_close(metal);
    return status;
}

void gs_metal_libraries_close(struct gs_metal *metal)
{
    for (size_t i = 0; i < sizeof metal->libraries / sizeof *metal->libraries; i++) {
        if (metal->libraries[i])
            dlclose(metal->libraries[i]);
        metal->libraries[i] = NULL;
    }
}
