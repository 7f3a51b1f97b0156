/* Which backends this binary has. */
#ifndef GS_BACKEND_REGISTRY_H
#define GS_BACKEND_REGISTRY_H

#include "backend/backend.h"

#define GS_BACKEND_AUTO "auto" /* asks for the best that works here by name */

size_t gs_backend_count(void);
const struct gs_backend *gs_backend_at(size_t index);

/* By name, or the best that works here for NULL and GS_BACKEND_AUTO. GS_UNSUPPORTED names those there are. */
gs_status gs_backend_find(const char *name, const struct gs_backend **out, struct gs_error *error);

#endif
