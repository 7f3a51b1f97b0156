#include "text/vocab.h"

#include "base/status.h"
#include "format/locate.h"
#include "text/gguf_vocab.h"
#include "text/tokenizer_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static gs_status parse_gguf(const char *text, size_t size, struct gs_vocab *vocab, struct gs_error *error)
{
    char name[] = "the file";
    struct gs_file_map map = {
        .path = name, .data = (const unsigned char *)text, .size = size, .descriptor = -1, .slot = -1};
    struct gs_arena arena = {0};
    struct gs_gguf gguf;
    gs_status status = gs_gguf_parse(&map, &arena, &gguf, error);
    if (status == GS_OK)
        status = gs_gguf_vocab_read(&gguf, &vocab->bpe, &vocab->added, error);
    gs_arena_free(&arena);
    return status;
}

gs_status gs_vocab_parse(const char *name, const char *text, size_t size, struct gs_vocab **out,
                         struct gs_error *error)
{
    *out = NULL;
    struct gs_vocab *vocab = calloc(1, sizeof(*vocab));
    if (!vocab)
        return gs_fail_memory(error, sizeof(*vocab));
    struct gs_error fault = {0};
    bool is_gguf = size >= 4 && memcmp(text, "GGUF", 4) == 0;
    gs_status status = is_gguf ? parse_gguf(text, size, vocab, &fault)
                               : gs_tokenizer_parse(text, size, &vocab->bpe, &vocab->added, &fault);
    if (status != GS_OK) {
        gs_vocab_close(vocab);
        return gs_fail(error, status, "%s: %s", gs_quote(name).text, fault.message);
    }
    *out = vocab;
    return GS_OK;
}

static bool exists(const char *path, bool *is_folder)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return false;
    *is_folder = S_ISDIR(info.st_mode);
    return true;
}

/* Appends the path of the GGUF that `path` means, if it means one. */
static gs_status locate_gguf(const char *path, struct gs_buffer *file, struct gs_error *error)
{
    struct gs_arena arena = {0};
    const char *gguf = gs_locate_gguf(path, &arena);
    gs_status status = gguf ? gs_buffer_append_text(file, gguf, error) : GS_OK;
    gs_arena_free(&arena);
    return status;
}

/* How much of the path of a .safetensors file is its folder's, with the slash; -1: it is no such file's. */
static int weights_folder(const char *path)
{
    static const char suffix[] = ".safetensors";
    size_t size = strlen(path);
    if (size < sizeof suffix || strcmp(path + size - (sizeof suffix - 1), suffix) != 0)
        return -1;
    const char *slash = strrchr(path, '/');
    return slash ? (int)(slash - path) + 1 : 0;
}

static gs_status locate_in_folder(const char *path, struct gs_buffer *file, struct gs_error *error)
{
    static const char *const places[] = {"/tokenizer.json", "/../tokenizer.json"};
    bool is_folder;
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        gs_buffer_clear(file);
        gs_status found = i > 0 ? locate_gguf(path, file, error) : GS_OK;
        if (found != GS_OK || file->size > 0)
            return found;
        gs_status status = gs_buffer_append_text(file, path, error);
        if (status == GS_OK)
            status = gs_buffer_append_text(file, places[i], error);
        if (status != GS_OK)
            return status;
        if (exists(file->data, &is_folder) && !is_folder)
            return GS_OK;
    }
    return gs_fail(error, GS_IO, "no tokenizer.json in %s or in the folder above it", gs_quote(path).text);
}

/*
 * The file itself; or tokenizer.json in the folder, a GGUF there, or tokenizer.json beside it (a download's
 * original/ has none). Weights in one file have their vocabulary beside them.
 */
static gs_status locate(const char *path, struct gs_buffer *file, struct gs_error *error)
{
    bool is_folder;
    if (!exists(path, &is_folder))
        return gs_fail_io(error, errno, "open", path);
    if (is_folder)
        return locate_in_folder(path, file, error);
    int size = weights_folder(path);
    if (size < 0) {
        gs_status status = locate_gguf(path, file, error);
        return status == GS_OK && file->size == 0 ? gs_buffer_append_text(file, path, error) : status;
    }
    struct gs_buffer folder = {0};
    gs_status status = gs_buffer_print(&folder, error, "%.*s.", size, path);
    if (status == GS_OK)
        status = locate_in_folder(folder.data, file, error);
    gs_buffer_free(&folder);
    return status;
}

gs_status gs_vocab_open(const char *path, struct gs_vocab **out, struct gs_error *error)
{
    *out = NULL;
    struct gs_buffer file = {0};
    struct gs_file_map *map = NULL;
    gs_status status = locate(path, &file, error);
    if (status != GS_OK)
        goto cleanup;
    status = gs_file_map_open(file.data, NULL, &map, error);
    if (status != GS_OK)
        goto cleanup;
    status = gs_vocab_parse(file.data, (const char *)map->data, (size_t)map->size, out, error);
    /* A file that changed under the reader is the cause, whatever the reader made of it. */
    gs_status changed = gs_file_map_check(map, status == GS_OK ? error : NULL);
    if (changed != GS_OK && status != GS_OK)
        gs_file_map_check(map, error);
    if (changed != GS_OK) {
        gs_vocab_close(*out);
        *out = NULL;
        status = changed;
    }
cleanup:
    gs_file_map_close(map);
    gs_buffer_free(&file);
    return status;
}

void gs_vocab_close(struct gs_vocab *vocab)
{
    if (!vocab)
        return;
    gs_bpe_free(&vocab->bpe);
    gs_added_tokens_free(&vocab->added);
    free(vocab);
}

size_t gs_vocab_size(const struct gs_vocab *vocab)
{
    return vocab->bpe.table.size;
}

int32_t gs_vocab_special(const struct gs_vocab *vocab, const char *text)
{
    const struct gs_added_token *token = gs_added_tokens_find(&vocab->added, text, strlen(text));
    return token && token->special ? (int32_t)token->id : -1;
}

bool gs_vocab_is_special(const struct gs_vocab *vocab, int32_t id)
{
    return id >= 0 && gs_added_tokens_is_special(&vocab->added, (uint32_t)id);
}

const char *gs_vocab_bytes(const struct gs_vocab *vocab, int32_t id, size_t *size)
{
    const struct gs_token_table *table = &vocab->bpe.table;
    *size = 0;
    if (id < 0 || (size_t)id >= table->size || table->tokens[id].size == 0)
        return NULL;
    *size = table->tokens[id].size;
    return table->bytes.data + table->tokens[id].offset;
}
