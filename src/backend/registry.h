/* Which backends this binary has. */
#ifndef GS_BACKEND_REGISTRY_H
#define GS_BACKEND_REGISTRY_H

#include "backend/backend.h"

#define GS_BACKEND_AUTO "auto" /* asks for the best that works here by name */

size_t gs_backend_count(void);
const struct gs_backend *gs_backend_at(size_t index);

/* By name, or the best that works here for NULL and GS_BACKEND_AUTO. GS_UNSUPPORTED names those there are. */
gs_status gs_backend_find(const char *name, const struct gs_backend **out, struct gs_error *error);

/* The best that works here of those that come after `backend`; NULL: none. */
const struct gs_backend *gs_backend_after(const struct gs_backend *backend);

/* GS_UNSUPPORTED for a lever that was asked for by name of a backend that has none. */
gs_status gs_backend_check_levers(const struct gs_backend *backend, const struct gs_levers *levers,
                                  struct gs_error *error);

#endif
