#include "backend/registry.h"

#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"
#include "backend/hip/hip.h"
#include "backend/metal/backend.h"
#include "base/status.h"

#include <string.h>

/* Best first. */
static const struct gs_backend *const backends[] = {
    &gs_backend_cuda,
    &gs_backend_hip,
    &gs_backend_metal,
    &gs_backend_cpu,
};

size_t gs_backend_count(void)
{
    return sizeof backends / sizeof backends[0];
}

const struct gs_backend *gs_backend_at(size_t index)
{
    return backends[index];
}

gs_status gs_backend_find(const char *name, const struct gs_backend **out, struct gs_error *error)
{
    struct gs_buffer names = {0};
    *out = NULL;
    if (name && strcmp(name, GS_BACKEND_AUTO) == 0)
        name = NULL;
    for (size_t i = 0; i < gs_backend_count() && !*out; i++) {
        char description[200];
        bool wanted = !name || strcmp(name, backends[i]->name) == 0;
        if (wanted && (name || backends[i]->probe(description, sizeof description)))
            *out = backends[i];
        gs_buffer_print(&names, NULL, "%s%s", i > 0 ? ", " : "", backends[i]->name);
    }
    gs_status status = GS_OK;
    if (!*out)
        status = gs_fail(error, GS_UNSUPPORTED,
                         "no backend %s: this build has %s, and auto for the best that works here",
                         gs_quote(name ? name : "").text, names.data ? names.data : "none");
    gs_buffer_free(&names);
    return status;
}

const struct gs_backend *gs_backend_after(const struct gs_backend *backend)
{
    char description[200];
    bool passed = false;
    for (size_t i = 0; i < gs_backend_count(); i++) {
        if (passed && backends[i]->probe(description, sizeof description))
            return backends[i];
        passed = passed || backends[i] == backend;
    }
    return NULL;
}

/* The number of SIMD-groups comes from the environment, which is not about one backend: it is passed over. */
gs_status gs_backend_check_levers(const struct gs_backend *backend, const struct gs_levers *levers,
                                  struct gs_error *error)
{
    if (backend->has_levers || (levers->decode == GS_DECODE_FUSED && !levers->scalar_load))
        return GS_OK;
    return gs_fail(error, GS_UNSUPPORTED,
                   "the %s backend decodes in one way: --decode and --scalar-load are of the metal backend",
                   backend->name);
}
