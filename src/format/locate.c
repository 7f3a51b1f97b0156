#include "format/locate.h"

#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define INDEX_NAME  "model.safetensors.index.json"
#define SINGLE_NAME "model.safetensors"
#define MAX_LOOSE   512 /* *.safetensors files in a folder without an index, *.gguf files, parts of one */
#define MAX_NAMES   8   /* of what was found instead, in a message */

/* What a folder holds, by name. */
struct listing {
    const char **loose; /* [n_loose] *.safetensors, ascending */
    size_t n_loose;
    bool has_index, has_single, has_original;
    const char **gguf; /* [n_gguf] *.gguf, ascending */
    size_t n_gguf;
    const char *pickle;  /* a PyTorch file's */
    const char *metal;   /* model.bin */
    const char *partial; /* a download that did not end */
    bool has_tokenizer;
    char names[400]; /* the first few, for messages */
    size_t n_name;
};

/* ---------------------------------------------------------------- paths */

const char *gs_path_join(struct gs_arena *arena, const char *folder, const char *name)
{
    size_t length = strlen(folder), name_length = strlen(name);
    bool slash = length > 0 && folder[length - 1] != '/';
    char *path = gs_arena_alloc(arena, length + slash + name_length + 1);
    if (!path)
        return NULL;
    memcpy(path, folder, length);
    if (slash)
        path[length] = '/';
    memcpy(path + length + slash, name, name_length);
    return path;
}

static bool is_regular(const char *path)
{
    struct stat info;
    return path && stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

static bool is_folder(const char *path)
{
    struct stat info;
    return path && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The folder's parent, links resolved; NULL if it has none. *name is the folder's own name. */
static const char *parent_of(struct gs_arena *arena, const char *folder, const char **name)
{
    char *real = realpath(folder, NULL);
    const char *copy = real ? gs_arena_copy(arena, real, strlen(real)) : NULL;
    const char *parent = NULL;
    free(real);
    const char *slash = copy ? strrchr(copy, '/') : NULL;
    if (!slash || slash[1] == '\0')
        return NULL;
    *name = slash + 1;
    parent = gs_arena_copy(arena, copy, slash == copy ? 1 : (size_t)(slash - copy));
    return parent;
}

const char *gs_locate_beside(struct gs_arena *arena, const char *folder, const char *name)
{
    const char *path = gs_path_join(arena, folder, name);
    if (is_regular(path))
        return path;
    const char *own_name;
    const char *parent = parent_of(arena, folder, &own_name);
    path = parent ? gs_path_join(arena, parent, name) : NULL;
    return is_regular(path) ? path : NULL;
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t length = strlen(name), suffix_length = strlen(suffix);
    return length > suffix_length && strcasecmp(name + length - suffix_length, suffix) == 0;
}

/* ---------------------------------------------------------------- listing a folder */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_pickle(const char *name)
{
    return ends_with(name, ".pt") || ends_with(name, ".pth") || ends_with(name, ".ckpt") ||
           (ends_with(name, ".bin") && strncmp(name, "pytorch_model", 13) == 0);
}

static void remember_name(struct listing *listing, const char *name)
{
    size_t used = strlen(listing->names);
    if (listing->n_name++ < MAX_NAMES)
        snprintf(listing->names + used, sizeof listing->names - used, "%s%.60s", used == 0 ? "" : ", ",
                 gs_quote(name).text);
}

static gs_status note_name(struct listing *listing, const char *folder, const char *name,
                           struct gs_error *error)
{
    remember_name(listing, name);
    if (ends_with(name, ".safetensors")) {
        if (listing->n_loose == MAX_LOOSE)
            return gs_fail(error, GS_UNSUPPORTED, "%s: more than %d .safetensors files",
                           gs_quote(folder).text, MAX_LOOSE);
        listing->loose[listing->n_loose++] = name;
        listing->has_single |= strcmp(name, SINGLE_NAME) == 0;
    }
    listing->has_index |= strcmp(name, INDEX_NAME) == 0;
    listing->has_original |= strcmp(name, "original") == 0;
    listing->has_tokenizer |= strncmp(name, "tokenizer", 9) == 0;
    if (ends_with(name, ".gguf") && listing->n_gguf < MAX_LOOSE)
        listing->gguf[listing->n_gguf++] = name;
    if (is_pickle(name))
        listing->pickle = name;
    if (strcmp(name, "model.bin") == 0)
        listing->metal = name;
    if (ends_with(name, ".part") || ends_with(name, ".incomplete") || ends_with(name, ".download"))
        listing->partial = name;
    return GS_OK;
}

static gs_status list_folder(const char *folder, struct gs_arena *arena, struct listing *listing,
                             struct gs_error *error)
{
    *listing = (struct listing){0};
    listing->loose = gs_arena_alloc_array(arena, MAX_LOOSE, sizeof *listing->loose);
    listing->gguf = gs_arena_alloc_array(arena, MAX_LOOSE, sizeof *listing->gguf);
    if (!listing->loose || !listing->gguf)
        return gs_fail_memory(error, MAX_LOOSE * sizeof *listing->loose);
    DIR *stream = opendir(folder);
    if (!stream)
        return gs_fail_io(error, errno, "open", folder);
    gs_status status = GS_OK;
    const struct dirent *item;
    while (status == GS_OK && (item = readdir(stream)) != NULL) {
        if (item->d_name[0] == '.')
            continue;
        const char *name = gs_arena_copy(arena, item->d_name, strlen(item->d_name));
        status = name ? note_name(listing, folder, name, error) : gs_fail_memory(error, NAME_MAX);
    }
    closedir(stream);
    if (listing->n_loose > 1)
        qsort(listing->loose, listing->n_loose, sizeof *listing->loose, compare_names);
    if (listing->n_gguf > 1)
        qsort(listing->gguf, listing->n_gguf, sizeof *listing->gguf, compare_names);
    return status;
}

/* ---------------------------------------------------------------- deciding */

static gs_status take_files(struct gs_location *out, struct gs_arena *arena, const char *const *names,
                            size_t count, struct gs_error *error)
{
    const char **files = gs_arena_alloc_array(arena, count, sizeof *files);
    if (!files)
        return gs_fail_memory(error, count * sizeof *files);
    for (size_t i = 0; i < count; i++) {
        files[i] = gs_path_join(arena, out->folder, names[i]);
        if (!files[i])
            return gs_fail_memory(error, strlen(out->folder) + NAME_MAX);
    }
    out->kind = GS_LOCATION_LOOSE;
    out->files = files;
    out->n_file = count;
    out->confined = true;
    return GS_OK;
}

/* A name like "model-00002-of-00003.gguf": its size up to the first number, and the numbers. */
struct part {
    int stem;
    unsigned number, count;
};

static bool parse_part(const char *name, struct part *part)
{
    static const char form[] = "-00000-of-00000.gguf";
    size_t length = strlen(name), size = sizeof form - 1;
    if (length <= size)
        return false;
    const char *end = name + length - size;
    for (size_t i = 0; i < size; i++) {
        bool digit = end[i] >= '0' && end[i] <= '9';
        if (form[i] == '0' ? !digit : end[i] != form[i])
            return false;
    }
    part->stem = (int)(length - size);
    part->number = (unsigned)strtoul(end + 1, NULL, 10);
    part->count = (unsigned)strtoul(end + 10, NULL, 10);
    return part->count > 1;
}

static bool same_model(const char *a, const char *b)
{
    struct part x, y;
    return parse_part(a, &x) && parse_part(b, &y) && x.stem == y.stem && x.count == y.count &&
           strncmp(a, b, (size_t)x.stem) == 0;
}

/* Is there one GGUF model in the folder, in one file or in parts? */
static bool has_one_gguf(const struct listing *listing)
{
    for (size_t i = 1; i < listing->n_gguf; i++) {
        if (!same_model(listing->gguf[0], listing->gguf[i]))
            return false;
    }
    return listing->n_gguf > 0;
}

/* The file of this name in out->folder, or all parts that its name says there are. */
static gs_status take_gguf(struct gs_location *out, struct gs_arena *arena, const char *name,
                           struct gs_error *error)
{
    struct part part;
    const char *const *names = &name;
    size_t count = 1;
    if (parse_part(name, &part)) {
        if (part.count > MAX_LOOSE)
            return gs_fail(error, GS_UNSUPPORTED, "%s: one of %u parts; at most %d are read",
                           gs_quote(name).text, part.count, MAX_LOOSE);
        size_t size = strlen(name) + 1;
        const char **all = gs_arena_alloc_array(arena, part.count, sizeof *all);
        for (count = 0; all && count < part.count; count++) {
            char *text = gs_arena_alloc(arena, size);
            if (!text)
                return gs_fail_memory(error, size);
            snprintf(text, size, "%.*s-%05u-of-%05u.gguf", part.stem, name, (unsigned)count + 1, part.count);
            all[count] = text;
        }
        names = all;
    }
    if (!names)
        return gs_fail_memory(error, part.count * sizeof *names);
    gs_status status = take_files(out, arena, names, count, error);
    out->kind = GS_LOCATION_GGUF;
    return status;
}

/* The weights in this very folder. *found false: there are none. */
static gs_status take_folder(const char *folder, const struct listing *listing, struct gs_arena *arena,
                             struct gs_location *out, bool *found, struct gs_error *error)
{
    static const char *const single[] = {SINGLE_NAME};
    *found = true;
    out->folder = folder;
    if (listing->has_index) {
        out->kind = GS_LOCATION_INDEX;
        out->index = gs_path_join(arena, folder, INDEX_NAME);
        return out->index ? GS_OK : gs_fail_memory(error, strlen(folder) + sizeof INDEX_NAME + 1);
    }
    if (listing->has_single)
        return take_files(out, arena, single, 1, error);
    if (listing->n_loose > 0)
        return take_files(out, arena, listing->loose, listing->n_loose, error);
    *found = false;
    return GS_OK;
}

/* The weights in this folder or else in the original/ folder within it. */
static gs_status take_root(const char *folder, struct gs_arena *arena, struct listing *listing,
                           struct gs_location *out, bool *found, struct gs_error *error)
{
    gs_status status = list_folder(folder, arena, listing, error);
    if (status == GS_OK)
        status = take_folder(folder, listing, arena, out, found, error);
    if (status != GS_OK || *found || !listing->has_original)
        return status;
    const char *original = gs_path_join(arena, folder, "original");
    if (!original)
        return gs_fail_memory(error, strlen(folder) + 10);
    if (!is_folder(original))
        return GS_OK;
    struct listing inner;
    status = list_folder(original, arena, &inner, error);
    return status == GS_OK ? take_folder(original, &inner, arena, out, found, error) : status;
}

static gs_status fail_not_found(const char *folder, const struct listing *listing, struct gs_error *error)
{
    struct gs_quoted shown = gs_quote(folder);
    if (listing->n_gguf > 0)
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "%s: holds %zu .gguf files that are not parts of one model; give one of them, such as "
                       "%s",
                       shown.text, listing->n_gguf, gs_quote(listing->gguf[0]).text);
    if (listing->pickle)
        return gs_fail(error, GS_UNSUPPORTED,
                       "%s: holds %s, a PyTorch file, which is not read; give the model's .safetensors files",
                       shown.text, gs_quote(listing->pickle).text);
    if (listing->metal)
        return gs_fail(error, GS_UNSUPPORTED,
                       "%s: holds model.bin, the Metal container, which is not read; give the model's "
                       ".safetensors files (in its root or in original/)",
                       shown.text);
    if (listing->n_name == 0)
        return gs_fail(error, GS_IO,
                       "%s: the folder is empty; looked for " INDEX_NAME ", " SINGLE_NAME
                       ", *.safetensors and original/",
                       shown.text);
    const char *hint = "";
    if (listing->partial)
        hint = "; a download seems not to have ended";
    else if (listing->has_tokenizer)
        hint = "; a tokenizer without weights: fetch the .safetensors files too";
    return gs_fail(error, GS_IO,
                   "%s: no weights; looked for " INDEX_NAME ", " SINGLE_NAME
                   ", *.safetensors and original/; found only %s%s%s",
                   shown.text, listing->names, listing->n_name > MAX_NAMES ? ", ..." : "", hint);
}

static gs_status locate_folder(const char *folder, struct gs_arena *arena, struct gs_location *out,
                               struct gs_error *error)
{
    struct listing listing;
    bool found;
    gs_status status = take_root(folder, arena, &listing, out, &found, error);
    if (status != GS_OK || found)
        return status;
    if (has_one_gguf(&listing)) {
        out->folder = folder;
        return take_gguf(out, arena, listing.gguf[0], error);
    }
    /* A download's original/ or metal/ folder was given, and the weights lie beside it. */
    const char *name = "";
    const char *parent = parent_of(arena, folder, &name);
    if (parent && (strcmp(name, "original") == 0 || strcmp(name, "metal") == 0)) {
        struct listing outer;
        status = take_root(parent, arena, &outer, out, &found, error);
        if (status != GS_OK || found)
            return status;
    }
    return fail_not_found(folder, &listing, error);
}

/*
 * "...-00001-of-00007.safetensors": a part that is no model by itself. Numbers start at 1, or at 0 and then
 * the second one is the last shard's, so that 00001-of-00001 is whole and 00000-of-00001 is not.
 */
bool gs_shard_of_many(const char *name)
{
    static const char digits[] = "0123456789";
    const char *of = strstr(name, "-of-");
    if (!of)
        return false;
    const char *number = of, *last = of + strlen("-of-");
    while (number > name && number[-1] >= '0' && number[-1] <= '9')
        number--;
    size_t n_digits = strspn(last, digits);
    if (number == of || n_digits == 0 || last[n_digits] != '.')
        return false;
    unsigned long n_last = strtoul(last, NULL, 10);
    return n_last > 1 || (n_last == 1 && strtoul(number, NULL, 10) == 0);
}

static gs_status locate_file(const char *path, struct gs_arena *arena, struct gs_location *out,
                             struct gs_error *error)
{
    struct gs_quoted shown = gs_quote(path);
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (is_pickle(name) || ends_with(name, ".bin"))
        return gs_fail(error, GS_UNSUPPORTED, "%s: a %s is not read; give a folder of .safetensors files",
                       shown.text, strcmp(name, "model.bin") == 0 ? "Metal container" : "PyTorch file");
    bool is_gguf = ends_with(name, ".gguf");
    if (!is_gguf && !ends_with(name, ".safetensors"))
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "%s: is no .safetensors or .gguf file; give one, or the folder of a model",
                       shown.text);
    if (!is_gguf && gs_shard_of_many(name))
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "%s: is one shard of several; give the folder that holds "
                       "all of them",
                       shown.text);
    const char **files = gs_arena_alloc_array(arena, 1, sizeof *files);
    if (files)
        files[0] = gs_arena_copy(arena, path, strlen(path));
    if (!slash)
        out->folder = ".";
    else
        out->folder = gs_arena_copy(arena, path, slash == path ? 1 : (size_t)(slash - path));
    if (!files || !files[0] || !out->folder)
        return gs_fail_memory(error, strlen(path));
    if (is_gguf) {
        gs_status status = take_gguf(out, arena, name, error);
        out->confined = out->n_file > 1;
        return status;
    }
    out->kind = GS_LOCATION_FILE;
    out->files = files;
    out->n_file = 1;
    return GS_OK;
}

gs_status gs_locate(const char *path, struct gs_arena *arena, struct gs_location *out, struct gs_error *error)
{
    *out = (struct gs_location){0};
    struct stat info;
    if (stat(path, &info) != 0)
        return gs_fail_io(error, errno, "open", path);
    if (!S_ISDIR(info.st_mode))
        return locate_file(path, arena, out, error);
    const char *folder = gs_arena_copy(arena, path, strlen(path));
    return folder ? locate_folder(folder, arena, out, error) : gs_fail_memory(error, strlen(path));
}

const char *gs_locate_gguf(const char *path, struct gs_arena *arena)
{
    struct gs_location location = {0};
    struct stat info;
    struct listing listing;
    if (stat(path, &info) != 0)
        return NULL;
    if (S_ISDIR(info.st_mode)) {
        if (list_folder(path, arena, &listing, NULL) != GS_OK || !has_one_gguf(&listing))
            return NULL;
        location.folder = path;
        if (take_gguf(&location, arena, listing.gguf[0], NULL) != GS_OK)
            return NULL;
    } else if (!ends_with(path, ".gguf") || locate_file(path, arena, &location, NULL) != GS_OK) {
        return NULL;
    }
    return location.files[0];
}
