/*
 * The name of a model on the hub: "org/name" or "org/name@revision". Only names that are safe as parts of
 * a path and of a URL pass. Owns nothing.
 */
#ifndef GS_HUB_NAME_H
#define GS_HUB_NAME_H

#include "gossamer.h"

#define GS_HUB_MAX_REPO     96
#define GS_HUB_MAX_REVISION 160

struct gs_hub_name {
    char repo[GS_HUB_MAX_REPO + 1];         /* "openai/gpt-oss-20b" */
    char revision[GS_HUB_MAX_REVISION + 1]; /* a branch, a tag or a commit; "main" if none was named */
    char folder[GS_HUB_MAX_REPO + 16];      /* of the cache: "models--openai--gpt-oss-20b" */
};

/* GS_INVALID_ARGUMENT says what a name looks like. `error` may be NULL: is it one at all? */
gs_status gs_hub_name_parse(const char *text, struct gs_hub_name *name, struct gs_error *error);

/* Replaces the revision; errors as above. */
gs_status gs_hub_name_set_revision(struct gs_hub_name *name, const char *revision, struct gs_error *error);

/* Forty lower-case hexadecimal digits: a commit, which stands for itself. */
bool gs_hub_is_commit(const char *text);

#endif
