#include "format/safetensors.h"

#include "base/checked.h"
#include "base/json_reader.h"
#include "base/status.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES 8u /* the header's length, before the header */

struct entry {
    struct gs_tensor tensor;
    uint64_t begin, end; /* in the data part */
    size_t order;        /* in the header */
};

/* A key of __metadata__, which may hold NULs. */
struct key {
    const char *bytes;
    size_t size;
};

/* A growable array of `item`-sized things, outside the arena because it moves. */
struct list {
    void *items;
    size_t count, capacity;
};

struct parser {
    const struct gs_file_map *map;
    struct gs_arena *arena;
    struct gs_error *error;
    struct gs_json_reader reader;
    const char *header;
    uint64_t header_size;
    struct list entries; /* struct entry */
    struct list keys;    /* struct key */
    struct list shape;   /* uint64_t, of the entry being read */
    bool has_metadata;
};

/* ---------------------------------------------------------------- errors and lists */

/* "<file>: <tensor>: <rule>"; `name` NULL: a rule of the whole file. */
__attribute__((format(printf, 3, 4))) static gs_status fail(const struct parser *parser, const char *name,
                                                            const char *format, ...)
{
    char rule[500];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(rule, sizeof rule, format, arguments);
    va_end(arguments);
    struct gs_quoted file = gs_quote(parser->map->path);
    if (!name)
        return gs_fail(parser->error, GS_MALFORMED, "%s: %s", file.text, rule);
    return gs_fail(parser->error, GS_MALFORMED, "%s: %s: %s", file.text, gs_quote(name).text, rule);
}

/* A new last item, not initialised; NULL without memory. */
static void *list_add(struct list *list, size_t item)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 16 : list->capacity * 2, bytes;
        if (__builtin_mul_overflow(capacity, item, &bytes))
            return NULL;
        void *items = realloc(list->items, bytes);
        if (!items)
            return NULL;
        list->items = items;
        list->capacity = capacity;
    }
    return (char *)list->items + item * list->count++;
}

/* The next event, its error with the file's name before it. */
static gs_status next(struct parser *parser, enum gs_json_event *event)
{
    struct gs_error inner;
    gs_status status = gs_json_next(&parser->reader, event, &inner);
    if (status == GS_MALFORMED)
        return fail(parser, NULL, "header, %s", inner.message);
    if (status != GS_OK)
        return gs_fail(parser->error, status, "%s: %s", gs_quote(parser->map->path).text, inner.message);
    return GS_OK;
}

static struct gs_quoted shown(const struct parser *parser, enum gs_json_event event)
{
    static const char *const words[] = {
        [GS_JSON_OBJECT_BEGIN] = "an object",
        [GS_JSON_OBJECT_END] = "nothing",
        [GS_JSON_ARRAY_BEGIN] = "an array",
        [GS_JSON_ARRAY_END] = "nothing",
        [GS_JSON_KEY] = "a key",
        [GS_JSON_STRING] = "a string",
        [GS_JSON_NUMBER] = "a number",
        [GS_JSON_TRUE] = "true",
        [GS_JSON_FALSE] = "false",
        [GS_JSON_NULL] = "null",
        [GS_JSON_END] = "the end",
    };
    if (event == GS_JSON_NUMBER || event == GS_JSON_STRING)
        return gs_quote_bytes(parser->reader.string, parser->reader.string_size);
    return gs_quote(words[event]);
}

/* ---------------------------------------------------------------- the header as bytes */

static bool starts_with(const struct gs_file_map *map, const char *text)
{
    size_t length = strlen(text);
    return map->size >= length && memcmp(map->data, text, length) == 0;
}

/* What the file is instead, where it is something that people often have under this name. */
static const char *mistaken_for(const struct gs_file_map *map)
{
    if (starts_with(map, "version https://git-lfs"))
        return " (this is a Git LFS pointer, not the file itself: run git lfs pull)";
    if (starts_with(map, "GGUF"))
        return " (this is a GGUF file, which is not supported yet)";
    if (starts_with(map, "<"))
        return " (this looks like a web page: download the file again)";
    if (starts_with(map, "PK"))
        return " (this looks like a PyTorch file: convert it to safetensors)";
    return "";
}

static gs_status find_header(struct parser *parser)
{
    const struct gs_file_map *map = parser->map;
    if (map->size <= LENGTH_BYTES)
        return fail(parser, NULL, "no header: the file has %" PRIu64 " bytes, a header needs at least %u",
                    map->size, LENGTH_BYTES + 2);
    uint64_t size = 0;
    for (unsigned i = 0; i < LENGTH_BYTES; i++)
        size |= (uint64_t)map->data[i] << (8 * i);
    if (size > GS_SAFETENSORS_MAX_HEADER)
        return fail(parser, NULL, "header too large: %" PRIu64 " bytes, at most %u are allowed%s", size,
                    GS_SAFETENSORS_MAX_HEADER, mistaken_for(map));
    if (size > map->size - LENGTH_BYTES)
        return fail(parser, NULL,
                    "truncated header: %" PRIu64 " bytes are announced and %" PRIu64 " bytes follow%s", size,
                    map->size - LENGTH_BYTES, mistaken_for(map));
    if (size == 0)
        return fail(parser, NULL, "no header: its length is 0, it must be at least 2");
    parser->header = (const char *)map->data + LENGTH_BYTES;
    parser->header_size = size;
    if (!gs_utf8_valid(parser->header, (size_t)size))
        return fail(parser, NULL, "the header is not UTF-8");
    if (parser->header[0] != '{')
        return fail(parser, NULL, "the header must begin with '{'%s", mistaken_for(map));
    return GS_OK;
}

/* ---------------------------------------------------------------- one entry */

/* `what` is "dimension" or "offset". */
static gs_status read_u64(struct parser *parser, const char *name, const char *what, enum gs_json_event event,
                          uint64_t *value)
{
    if (event == GS_JSON_NUMBER && gs_json_u64(&parser->reader, value))
        return GS_OK;
    return fail(parser, name, "bad %s: %s; it must be a number below 2^64 of decimal digits only", what,
                shown(parser, event).text);
}

static gs_status read_dtype(struct parser *parser, struct entry *entry)
{
    enum gs_json_event event;
    gs_status status = next(parser, &event);
    if (status != GS_OK)
        return status;
    if (event != GS_JSON_STRING)
        return fail(parser, entry->tensor.name, "bad dtype: %s; it must be a string like \"BF16\"",
                    shown(parser, event).text);
    if (!gs_dtype_parse(parser->reader.string, parser->reader.string_size, &entry->tensor.dtype))
        return fail(parser, entry->tensor.name, "unknown dtype: %s; the format has BF16, U8, F32 and others",
                    shown(parser, event).text);
    return GS_OK;
}

static gs_status read_shape(struct parser *parser, struct entry *entry)
{
    enum gs_json_event event;
    gs_status status = next(parser, &event);
    if (status != GS_OK)
        return status;
    if (event != GS_JSON_ARRAY_BEGIN)
        return fail(parser, entry->tensor.name, "bad shape: %s; it must be an array of dimensions",
                    shown(parser, event).text);
    parser->shape.count = 0;
    while ((status = next(parser, &event)) == GS_OK && event != GS_JSON_ARRAY_END) {
        if (parser->shape.count == GS_SAFETENSORS_MAX_RANK)
            return fail(parser, entry->tensor.name, "bad shape: more than %u dimensions",
                        GS_SAFETENSORS_MAX_RANK);
        uint64_t *dimension = list_add(&parser->shape, sizeof *dimension);
        if (!dimension)
            return gs_fail_memory(parser->error, parser->shape.count * sizeof *dimension);
        status = read_u64(parser, entry->tensor.name, "dimension", event, dimension);
        if (status != GS_OK)
            return status;
    }
    if (status != GS_OK)
        return status;
    size_t rank = parser->shape.count;
    uint64_t *shape = gs_arena_alloc_array(parser->arena, rank, sizeof *shape);
    if (!shape)
        return gs_fail_memory(parser->error, rank * sizeof *shape);
    if (rank > 0)
        memcpy(shape, parser->shape.items, rank * sizeof *shape);
    entry->tensor.shape = shape;
    entry->tensor.rank = rank;
    return GS_OK;
}

static gs_status read_offsets(struct parser *parser, struct entry *entry)
{
    const char *name = entry->tensor.name;
    uint64_t offsets[2] = {0, 0};
    size_t count = 0;
    enum gs_json_event event;
    gs_status status = next(parser, &event);
    if (status != GS_OK)
        return status;
    if (event != GS_JSON_ARRAY_BEGIN)
        return fail(parser, name, "bad data_offsets: %s; it must be an array of two offsets",
                    shown(parser, event).text);
    while ((status = next(parser, &event)) == GS_OK && event != GS_JSON_ARRAY_END) {
        if (count == 2)
            return fail(parser, name, "bad data_offsets: more than two; it must be [begin, end]");
        status = read_u64(parser, name, "offset", event, &offsets[count++]);
        if (status != GS_OK)
            return status;
    }
    if (status != GS_OK)
        return status;
    if (count != 2)
        return fail(parser, name, "bad data_offsets: %zu of them; it must be [begin, end]", count);
    entry->begin = offsets[0];
    entry->end = offsets[1];
    return GS_OK;
}

/*
 * The product runs from the left, starting at 1, and every step is checked, as the reference library does
 * it: [0, 2^64-1] and [2^64-1, 0] have no elements, [2^64-1, 2, 0] overflows before its 0 is reached.
 */
static gs_status check_size(const struct parser *parser, struct entry *entry)
{
    struct gs_tensor *tensor = &entry->tensor;
    uint64_t n = 1, bits;
    char shape[160];
    gs_tensor_shape_text(tensor, shape, sizeof shape);
    bool fits = true;
    for (size_t i = 0; i < tensor->rank && fits; i++)
        fits = gs_mul_u64(n, tensor->shape[i], &n);
    if (!fits || !gs_mul_u64(n, gs_dtype_bits(tensor->dtype), &bits))
        return fail(parser, tensor->name, "overflow: shape %s of %s needs more than 2^64 bits", shape,
                    gs_dtype_name(tensor->dtype));
    if (bits % 8 != 0)
        return fail(parser, tensor->name, "partial byte: shape %s of %s is no whole number of bytes", shape,
                    gs_dtype_name(tensor->dtype));
    tensor->bytes = bits / 8;
    if (entry->end < entry->begin)
        return fail(parser, tensor->name,
                    "reversed offsets: [%" PRIu64 ", %" PRIu64 "]; the end must not be before the begin",
                    entry->begin, entry->end);
    if (entry->end - entry->begin != tensor->bytes)
        return fail(parser, tensor->name,
                    "size mismatch: shape %s of %s takes %" PRIu64 " bytes, offsets [%" PRIu64 ", %" PRIu64
                    "] give it %" PRIu64,
                    shape, gs_dtype_name(tensor->dtype), tensor->bytes, entry->begin, entry->end,
                    entry->end - entry->begin);
    return GS_OK;
}

enum { KEY_DTYPE, KEY_SHAPE, KEY_OFFSETS, KEY_COUNT };

static const char *const entry_keys[KEY_COUNT] = {
    [KEY_DTYPE] = "dtype", [KEY_SHAPE] = "shape", [KEY_OFFSETS] = "data_offsets"};

static gs_status read_value(struct parser *parser, struct entry *entry, bool seen[KEY_COUNT])
{
    unsigned key = 0;
    while (key < KEY_COUNT && !gs_json_is(&parser->reader, entry_keys[key]))
        key++;
    if (key == KEY_COUNT)
        return fail(parser, entry->tensor.name,
                    "unknown key: %s; an entry has dtype, shape and data_offsets only",
                    shown(parser, GS_JSON_STRING).text);
    if (seen[key])
        return fail(parser, entry->tensor.name, "duplicate key: %s stands twice in the entry",
                    entry_keys[key]);
    seen[key] = true;
    if (key == KEY_DTYPE)
        return read_dtype(parser, entry);
    return key == KEY_SHAPE ? read_shape(parser, entry) : read_offsets(parser, entry);
}

/* The value of the tensor name that was just read. */
static gs_status read_entry(struct parser *parser)
{
    struct entry entry = {.order = parser->entries.count};
    bool seen[KEY_COUNT] = {false};
    size_t name_size = parser->reader.string_size;
    if (memchr(parser->reader.string, '\0', name_size))
        return fail(parser, NULL, "bad name: %s; a tensor's name must not hold a NUL",
                    shown(parser, GS_JSON_STRING).text);
    const char *name = gs_arena_copy(parser->arena, parser->reader.string, name_size);
    if (!name)
        return gs_fail_memory(parser->error, name_size + 1);
    entry.tensor.name = name;
    entry.tensor.file = parser->map;

    enum gs_json_event event;
    gs_status status = next(parser, &event);
    if (status != GS_OK)
        return status;
    if (event != GS_JSON_OBJECT_BEGIN)
        return fail(parser, name, "bad entry: %s; it must be an object with dtype, shape and data_offsets",
                    shown(parser, event).text);
    while ((status = next(parser, &event)) == GS_OK && event == GS_JSON_KEY) {
        status = read_value(parser, &entry, seen);
        if (status != GS_OK)
            return status;
    }
    if (status != GS_OK)
        return status;
    for (unsigned key = 0; key < KEY_COUNT; key++) {
        if (!seen[key])
            return fail(parser, name, "missing key: the entry has no %s", entry_keys[key]);
    }
    status = check_size(parser, &entry);
    if (status != GS_OK)
        return status;
    struct entry *added = list_add(&parser->entries, sizeof *added);
    if (!added)
        return gs_fail_memory(parser->error, parser->entries.count * sizeof *added);
    *added = entry;
    return GS_OK;
}

/* ---------------------------------------------------------------- __metadata__ and duplicates */

static int compare_keys(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, x->size < y->size ? x->size : y->size);
    return order != 0 ? order : (x->size > y->size) - (x->size < y->size);
}

/*
 * Sorts and compares neighbours: names are an attacker's choice, and a hash table's worst case would be
 * his, too. NULL if all differ.
 */
static const struct key *find_duplicate(struct list *keys)
{
    struct key *items = keys->items;
    if (keys->count > 1)
        qsort(items, keys->count, sizeof *items, compare_keys);
    for (size_t i = 1; i < keys->count; i++) {
        if (compare_keys(&items[i - 1], &items[i]) == 0)
            return &items[i];
    }
    return NULL;
}

static gs_status add_key(struct parser *parser, const char *bytes, size_t size)
{
    struct key *key = list_add(&parser->keys, sizeof *key);
    if (!key)
        return gs_fail_memory(parser->error, parser->keys.count * sizeof *key);
    key->bytes = bytes;
    key->size = size;
    return GS_OK;
}

static gs_status read_metadata(struct parser *parser)
{
    if (parser->has_metadata)
        return fail(parser, NULL, "duplicate key: __metadata__ stands twice in the header");
    parser->has_metadata = true;
    enum gs_json_event event;
    gs_status status = next(parser, &event);
    if (status != GS_OK)
        return status;
    if (event != GS_JSON_OBJECT_BEGIN)
        return fail(parser, "__metadata__", "bad value: %s; it must be an object of strings",
                    shown(parser, event).text);
    while ((status = next(parser, &event)) == GS_OK && event == GS_JSON_KEY) {
        size_t size = parser->reader.string_size;
        const char *bytes = gs_arena_copy(parser->arena, parser->reader.string, size);
        status = bytes ? add_key(parser, bytes, size) : gs_fail_memory(parser->error, size + 1);
        if (status == GS_OK)
            status = next(parser, &event);
        if (status != GS_OK)
            return status;
        if (event != GS_JSON_STRING)
            return fail(parser, "__metadata__", "bad value: %s is %s; every value must be a string",
                        gs_quote_bytes(bytes, size).text, shown(parser, event).text);
    }
    if (status != GS_OK)
        return status;
    const struct key *twice = find_duplicate(&parser->keys);
    if (twice)
        return fail(parser, "__metadata__", "duplicate key: %s stands twice",
                    gs_quote_bytes(twice->bytes, twice->size).text);
    return GS_OK;
}

static gs_status check_names(struct parser *parser)
{
    const struct entry *entries = parser->entries.items;
    gs_status status = GS_OK;
    parser->keys.count = 0;
    for (size_t i = 0; i < parser->entries.count && status == GS_OK; i++)
        status = add_key(parser, entries[i].tensor.name, strlen(entries[i].tensor.name));
    if (status != GS_OK)
        return status;
    const struct key *twice = find_duplicate(&parser->keys);
    return twice ? fail(parser, twice->bytes, "duplicate key: the tensor stands twice in the header") : GS_OK;
}

/* ---------------------------------------------------------------- the whole file */

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

/* The tensors must cover the data part exactly, from its first byte to its last. */
static gs_status check_tiling(struct parser *parser)
{
    uint64_t data_size = parser->map->size - LENGTH_BYTES - parser->header_size;
    struct entry *entries = parser->entries.items;
    size_t count = parser->entries.count;
    if (count > 1)
        qsort(entries, count, sizeof *entries, compare_entries);
    uint64_t covered = 0;
    for (size_t i = 0; i < count; i++) {
        const struct entry *entry = &entries[i];
        const char *name = entry->tensor.name;
        if (entry->begin < covered)
            return fail(parser, name,
                        "overlap: its data begin at byte %" PRIu64 ", those of %s end at %" PRIu64,
                        entry->begin, gs_quote(entries[i - 1].tensor.name).text, covered);
        if (entry->begin > covered)
            return fail(parser, name,
                        "hole: its data begin at byte %" PRIu64 ", no tensor has bytes %" PRIu64
                        " to %" PRIu64,
                        entry->begin, covered, entry->begin - 1);
        if (entry->end > data_size)
            return fail(parser, name,
                        "truncated: its data end at byte %" PRIu64 ", the file has %" PRIu64 " bytes of data",
                        entry->end, data_size);
        covered = entry->end;
    }
    if (covered < data_size)
        return fail(parser, NULL,
                    "trailing data: the tensors end at byte %" PRIu64 ", the file has %" PRIu64
                    " bytes of data",
                    covered, data_size);
    return GS_OK;
}

static gs_status parse_header(struct parser *parser)
{
    gs_json_reader_init(&parser->reader, parser->header, (size_t)parser->header_size,
                        GS_SAFETENSORS_MAX_DEPTH, GS_SAFETENSORS_MAX_STRING);
    enum gs_json_event event;
    gs_status status = next(parser, &event); /* OBJECT_BEGIN: the header starts with '{' */
    while (status == GS_OK && (status = next(parser, &event)) == GS_OK && event == GS_JSON_KEY)
        status = gs_json_is(&parser->reader, "__metadata__") ? read_metadata(parser) : read_entry(parser);
    if (status == GS_OK)
        status = next(parser, &event); /* END, or the reader's complaint about what follows */
    return status;
}

gs_status gs_safetensors_parse(const struct gs_file_map *map, struct gs_arena *arena,
                               struct gs_safetensors *out, struct gs_error *error)
{
    *out = (struct gs_safetensors){0};
    struct parser parser = {.map = map, .arena = arena, .error = error};
    gs_status status = find_header(&parser);
    if (status == GS_OK)
        status = parse_header(&parser);
    if (status == GS_OK)
        status = check_names(&parser);
    if (status == GS_OK)
        status = check_tiling(&parser);
    if (status != GS_OK)
        goto cleanup;

    size_t count = parser.entries.count;
    struct gs_tensor *tensors = gs_arena_alloc_array(arena, count, sizeof *tensors);
    if (!tensors) {
        status = gs_fail_memory(error, count * sizeof *tensors);
        goto cleanup;
    }
    const unsigned char *data = map->data + LENGTH_BYTES + parser.header_size;
    const struct entry *entries = parser.entries.items;
    for (size_t i = 0; i < count; i++) {
        tensors[i] = entries[i].tensor;
        tensors[i].data = data + entries[i].begin;
    }
    out->tensors = tensors;
    out->count = count;
cleanup:
    gs_json_reader_free(&parser.reader);
    free(parser.entries.items);
    free(parser.keys.items);
    free(parser.shape.items);
    return status;
}
