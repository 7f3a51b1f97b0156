#include "cli/hub.h"

#include "base/status.h"
#include "hub/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_ENDPOINT "https://huggingface.co"
#define MAX_TOKEN        4096 /* bytes of its file */

/* A variable that is set and not empty, else NULL. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] != '\0' ? value : NULL;
}

/* Appends a folder; "~" at its start is the home folder, since not every variable went through a shell. */
static gs_status append_folder(struct gs_buffer *path, const char *folder, const char *rest,
                               struct gs_error *error)
{
    const char *home = variable("HOME");
    bool tilde = folder[0] == '~' && (folder[1] == '/' || folder[1] == '\0');
    if (tilde && !home)
        return gs_fail(error, GS_INVALID_ARGUMENT, "%s: HOME is not set", gs_quote(folder).text);
    gs_buffer_clear(path);
    return gs_buffer_print(path, error, "%s%s%s", tilde ? home : "", tilde ? folder + 1 : folder, rest);
}

static gs_status home_folder(struct gs_buffer *path, const char *rest, struct gs_error *error)
{
    struct gs_buffer tail = {0};
    const char *home = variable("HF_HOME"), *cache = variable("XDG_CACHE_HOME");
    if (home)
        return append_folder(path, home, rest, error);
    if (!cache && !variable("HOME"))
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "no folder for the cache of models: set HF_HOME (or HOME)");
    gs_status status = gs_buffer_print(&tail, error, "/huggingface%s", rest);
    if (status == GS_OK)
        status = append_folder(path, cache ? cache : "~/.cache", tail.data, error);
    gs_buffer_free(&tail);
    return status;
}

gs_status gs_hub_cache_folder(struct gs_buffer *path, struct gs_error *error)
{
    const char *cache = variable("HF_HUB_CACHE");
    return cache ? append_folder(path, cache, "", error) : home_folder(path, "/hub", error);
}

const char *gs_kernel_cache_folder(struct gs_buffer *path)
{
    const char *cache = variable("XDG_CACHE_HOME");
    if (!cache && !variable("HOME"))
        return NULL;
    gs_status status = append_folder(path, cache ? cache : "~/.cache", "/gossamer", NULL);
    return status == GS_OK ? path->data : NULL;
}

gs_status gs_hub_endpoint(const char *chosen, struct gs_buffer *endpoint, struct gs_error *error)
{
    if (!chosen)
        chosen = variable("HF_ENDPOINT");
    gs_buffer_clear(endpoint);
    gs_status status = gs_buffer_append_text(endpoint, chosen ? chosen : DEFAULT_ENDPOINT, error);
    while (status == GS_OK && endpoint->size > 0 && endpoint->data[endpoint->size - 1] == '/')
        endpoint->data[--endpoint->size] = '\0';
    return status;
}

static gs_status read_token_file(const char *path, struct gs_buffer *token, struct gs_error *error)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return errno == ENOENT ? GS_OK : gs_fail_io(error, errno, "open the token's file", path);
    gs_status status = gs_buffer_reserve(token, MAX_TOKEN, error);
    if (status == GS_OK) {
        ssize_t n = read(descriptor, token->data, MAX_TOKEN);
        if (n < 0)
            status = gs_fail_io(error, errno, "read the token's file", path);
        token->size = n > 0 ? (size_t)n : 0;
        token->data[token->size] = '\0';
    }
    close(descriptor);
    return status;
}

gs_status gs_hub_token(struct gs_buffer *token, struct gs_error *error)
{
    static const char blanks[] = " \t\r\n";
    struct gs_buffer path = {0}, raw = {0};
    const char *value = variable("HF_TOKEN"), *chosen = variable("HF_TOKEN_PATH");
    gs_status status = GS_OK;
    gs_buffer_clear(token);
    if (value) {
        status = gs_buffer_append_text(&raw, value, error);
    } else if (chosen || variable("HF_HOME") || variable("XDG_CACHE_HOME") || variable("HOME")) {
        status = chosen ? append_folder(&path, chosen, "", error) : home_folder(&path, "/token", error);
        if (status == GS_OK)
            status = read_token_file(path.data, &raw, error);
    }
    if (status == GS_OK && raw.size > 0) {
        const char *start = raw.data + strspn(raw.data, blanks);
        size_t size = strlen(start);
        while (size > 0 && strchr(blanks, start[size - 1]))
            size--;
        status = gs_buffer_append(token, start, size, error);
    }
    gs_buffer_free(&path);
    gs_buffer_free(&raw);
    return status;
}

gs_status gs_find_model(const char **model, struct gs_buffer *path, struct gs_error *error)
{
    struct gs_buffer cache = {0};
    if ((*model)[0] == '\0')
        return gs_fail(
            error, GS_INVALID_ARGUMENT,
            "the model's name is empty: a folder, a file, or a name such as openai/gpt-oss-20b is expected");
    gs_status status = gs_hub_cache_folder(&cache, NULL);
    if (status != GS_OK) /* without a cache, paths still are models */
        gs_buffer_clear(&cache);
    status = gs_hub_find(cache.size > 0 ? cache.data : NULL, *model, path, error);
    if (status == GS_OK)
        *model = path->data;
    gs_buffer_free(&cache);
    return status;
}

gs_status gs_find_vocab(const char *model, struct gs_vocab **vocab, struct gs_error *error)
{
    struct gs_buffer path = {0};
    gs_status status = gs_find_model(&model, &path, error);
    if (status == GS_OK)
        status = gs_vocab_open(model, vocab, error);
    gs_buffer_free(&path);
    return status;
}
