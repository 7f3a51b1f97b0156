#include "hub/name.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

/* [A-Za-z0-9][A-Za-z0-9._-]*, without ".." (a path) and "--" (what the cache separates names by). */
static bool is_part(const char *text, size_t size)
{
    if (size == 0 || !strchr(LETTERS, text[0]) || text[size - 1] == '-' || text[size - 1] == '.')
        return false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\0' || !strchr(LETTERS "._-", text[i]))
            return false;
        if (i > 0 && text[i] == text[i - 1] && (text[i] == '.' || text[i] == '-'))
            return false;
    }
    return true;
}

/* Parts separated by single slashes, none of which hides or climbs: a path below refs/. */
static bool is_revision(const char *text)
{
    size_t size = strlen(text);
    if (size == 0 || size > GS_HUB_MAX_REVISION || strspn(text, LETTERS "._-/") != size)
        return false;
    bool starts = true;
    for (size_t i = 0; i < size; i++) {
        if (starts && !strchr(LETTERS "_", text[i]))
            return false;
        if (text[i] == '.' && text[i + 1] == '.')
            return false;
        starts = text[i] == '/';
    }
    return !starts;
}

gs_status gs_hub_name_set_revision(struct gs_hub_name *name, const char *revision, struct gs_error *error)
{
    if (!is_revision(revision))
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "\"%s\" is no revision: a branch, a tag or a commit is letters, digits, '.', '_', '-' "
                       "and '/'",
                       gs_quote(revision).text);
    memcpy(name->revision, revision, strlen(revision) + 1);
    return GS_OK;
}

gs_status gs_hub_name_parse(const char *text, struct gs_hub_name *name, struct gs_error *error)
{
    *name = (struct gs_hub_name){0};
    size_t size = strcspn(text, "@");
    size_t org = strcspn(text, "/@");
    if (size > GS_HUB_MAX_REPO || org >= size || !is_part(text, org) ||
        !is_part(text + org + 1, size - org - 1))
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "\"%s\" is no model's name: it should look like openai/gpt-oss-20b, or with a "
                       "revision openai/gpt-oss-20b@main",
                       gs_quote(text).text);
    memcpy(name->repo, text, size);
    snprintf(name->folder, sizeof name->folder, "models--%.*s--%.*s", (int)org, text, (int)(size - org - 1),
             text + org + 1);
    return gs_hub_name_set_revision(name, text[size] == '@' ? text + size + 1 : "main", error);
}

bool gs_hub_is_commit(const char *text)
{
    return strlen(text) == 40 && strspn(text, "0123456789abcdef") == 40;
}
