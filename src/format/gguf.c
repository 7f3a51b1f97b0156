#include "format/gguf.h"

#include "base/checked.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* The least that an entry (size, one byte of key, type, one byte) or a tensor's description takes. */
#define MIN_ENTRY_BYTES  (8 + 1 + 4 + 1)
#define MIN_TENSOR_BYTES (8 + 1 + 4 + 4 + 8)

struct reader {
    const struct gs_file_map *map;
    uint64_t at;
    struct gs_arena *arena;
    struct gs_error *error;
};

/* ---------------------------------------------------------------- types */

static const struct {
    const char *name;
    uint64_t bytes; /* of an element; of a string its least */
} types[GS_GGUF_TYPE_COUNT] = {
    [GS_GGUF_U8] = {"u8", 1},        [GS_GGUF_I8] = {"i8", 1},     [GS_GGUF_U16] = {"u16", 2},
    [GS_GGUF_I16] = {"i16", 2},      [GS_GGUF_U32] = {"u32", 4},   [GS_GGUF_I32] = {"i32", 4},
    [GS_GGUF_F32] = {"f32", 4},      [GS_GGUF_BOOL] = {"bool", 1}, [GS_GGUF_STRING] = {"string", 8},
    [GS_GGUF_ARRAY] = {"array", 12}, [GS_GGUF_U64] = {"u64", 8},   [GS_GGUF_I64] = {"i64", 8},
    [GS_GGUF_F64] = {"f64", 8},
};

/* The tensor types of ggml by number. The unread ones have their name for a message only. */
static const struct {
    const char *name; /* NULL: no such type (any more) */
    bool is_read;
    enum gs_dtype dtype;
} tensor_types[] = {
    [0] = {"F32", true, GS_DTYPE_F32},
    [1] = {"F16", true, GS_DTYPE_F16},
    [2] = {.name = "Q4_0"},
    [3] = {.name = "Q4_1"},
    [6] = {.name = "Q5_0"},
    [7] = {.name = "Q5_1"},
    [8] = {"Q8_0", true, GS_DTYPE_Q8_0},
    [9] = {.name = "Q8_1"},
    [10] = {.name = "Q2_K"},
    [11] = {.name = "Q3_K"},
    [12] = {.name = "Q4_K"},
    [13] = {.name = "Q5_K"},
    [14] = {.name = "Q6_K"},
    [15] = {.name = "Q8_K"},
    [16] = {.name = "IQ2_XXS"},
    [17] = {.name = "IQ2_XS"},
    [18] = {.name = "IQ3_XXS"},
    [19] = {.name = "IQ1_S"},
    [20] = {.name = "IQ4_NL"},
    [21] = {.name = "IQ3_S"},
    [22] = {.name = "IQ2_S"},
    [23] = {.name = "IQ4_XS"},
    [24] = {.name = "I8"},
    [25] = {.name = "I16"},
    [26] = {.name = "I32"},
    [27] = {.name = "I64"},
    [28] = {.name = "F64"},
    [29] = {.name = "IQ1_M"},
    [30] = {"BF16", true, GS_DTYPE_BF16},
    [34] = {.name = "TQ1_0"},
    [35] = {.name = "TQ2_0"},
    [39] = {"MXFP4", true, GS_DTYPE_MXFP4},
};
#define TENSOR_TYPE_COUNT (sizeof tensor_types / sizeof tensor_types[0])

const char *gs_gguf_type_name(enum gs_gguf_type type)
{
    return types[type].name;
}

/* ---------------------------------------------------------------- reading */

static struct gs_quoted shown(const struct reader *reader)
{
    return gs_quote(reader->map->path);
}

static uint64_t left(const struct reader *reader)
{
    return reader->map->size - reader->at;
}

/* `size` bytes to `out`; false at the file's end. */
static bool take(struct reader *reader, void *out, size_t size)
{
    if (left(reader) < size)
        return false;
    memcpy(out, reader->map->data + reader->at, size);
    reader->at += size;
    return true;
}

/* A string's size and a pointer to its bytes, which are skipped; false if the rest of the file is shorter. */
static bool take_string(struct reader *reader, const char **text, uint64_t *size)
{
    if (!take(reader, size, sizeof *size) || left(reader) < *size)
        return false;
    *text = (const char *)reader->map->data + reader->at;
    reader->at += *size;
    return true;
}

static gs_status fail_truncated(const struct reader *reader, const char *what)
{
    return gs_fail(reader->error, GS_MALFORMED, "%s: byte %llu: the file of %llu bytes ends within %s",
                   shown(reader).text, (unsigned long long)reader->at, (unsigned long long)reader->map->size,
                   what);
}

/* ---------------------------------------------------------------- metadata */

static gs_status fail_entry(const struct reader *reader, const struct gs_gguf_entry *entry, const char *rule)
{
    return gs_fail(reader->error, GS_MALFORMED, "%s: %s: %s", shown(reader).text,
                   gs_quote_bytes(entry->key, entry->key_size).text, rule);
}

static bool are_bools(const unsigned char *bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (bytes[i] > 1)
            return false;
    }
    return true;
}

/* The elements of a value whose type and count are known. Each is checked to be in the file. */
static gs_status read_elements(struct reader *reader, struct gs_gguf_entry *entry)
{
    uint64_t start = reader->at;
    entry->data = reader->map->data + start;
    if (entry->count > left(reader) / types[entry->type].bytes)
        return gs_fail(reader->error, GS_MALFORMED,
                       "%s: %s: %llu elements of type %s do not fit in the %llu bytes that are left",
                       shown(reader).text, gs_quote_bytes(entry->key, entry->key_size).text,
                       (unsigned long long)entry->count, types[entry->type].name,
                       (unsigned long long)left(reader));
    if (entry->type != GS_GGUF_STRING) {
        reader->at += entry->count * types[entry->type].bytes;
    } else {
        for (uint64_t i = 0; i < entry->count; i++) {
            const char *text;
            uint64_t size;
            if (!take_string(reader, &text, &size))
                return fail_entry(reader, entry, "a string reaches beyond the end of the file");
        }
    }
    entry->bytes = reader->at - start;
    if (entry->type == GS_GGUF_BOOL && !are_bools(entry->data, entry->count))
        return fail_entry(reader, entry, "a truth value must be 0 or 1");
    return GS_OK;
}

static gs_status check_type(const struct reader *reader, const struct gs_gguf_entry *entry, uint32_t type,
                            bool in_array)
{
    if (type >= GS_GGUF_TYPE_COUNT)
        return gs_fail(reader->error, GS_MALFORMED, "%s: %s: value type %u, must be 0 ... %u",
                       shown(reader).text, gs_quote_bytes(entry->key, entry->key_size).text, type,
                       GS_GGUF_TYPE_COUNT - 1u);
    if (in_array && type == GS_GGUF_ARRAY)
        return fail_entry(reader, entry, "an array of arrays, which is not allowed");
    return GS_OK;
}

static gs_status read_entry(struct reader *reader, struct gs_gguf_entry *entry)
{
    uint64_t key_size;
    uint32_t type;
    if (!take_string(reader, &entry->key, &key_size))
        return fail_truncated(reader, "a key of the metadata");
    entry->key_size = (size_t)key_size;
    if (key_size == 0 || key_size > GS_GGUF_MAX_KEY || memchr(entry->key, '\0', (size_t)key_size))
        return gs_fail(reader->error, GS_MALFORMED,
                       "%s: byte %llu: a key of %llu bytes, must have 1 ... %u, none of them NUL",
                       shown(reader).text, (unsigned long long)(reader->at - key_size),
                       (unsigned long long)key_size, GS_GGUF_MAX_KEY);
    if (!take(reader, &type, sizeof type))
        return fail_truncated(reader, "the type of a value");
    gs_status status = check_type(reader, entry, type, false);
    if (status != GS_OK)
        return status;
    entry->is_array = type == GS_GGUF_ARRAY;
    entry->count = 1;
    if (entry->is_array) {
        if (!take(reader, &type, sizeof type) || !take(reader, &entry->count, sizeof entry->count))
            return fail_truncated(reader, "an array's type and count");
        status = check_type(reader, entry, type, true);
        if (status != GS_OK)
            return status;
    }
    entry->type = (enum gs_gguf_type)type;
    return read_elements(reader, entry);
}

static int compare_keys(const char *a, size_t a_size, const char *b, size_t b_size)
{
    int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
    return order != 0 ? order : (a_size > b_size) - (a_size < b_size);
}

static int compare_entries(const void *a, const void *b)
{
    const struct gs_gguf_entry *x = a, *y = b;
    return compare_keys(x->key, x->key_size, y->key, y->key_size);
}

static gs_status read_metadata(struct reader *reader, uint64_t count, struct gs_gguf *out)
{
    out->entries = gs_arena_alloc_array(reader->arena, (size_t)count, sizeof *out->entries);
    if (!out->entries)
        return gs_fail_memory(reader->error, count * sizeof *out->entries);
    for (uint64_t i = 0; i < count; i++) {
        gs_status status = read_entry(reader, &out->entries[i]);
        if (status != GS_OK)
            return status;
    }
    out->n_entry = (size_t)count;
    if (count > 1)
        qsort(out->entries, out->n_entry, sizeof *out->entries, compare_entries);
    for (size_t i = 1; i < out->n_entry; i++) {
        if (compare_entries(&out->entries[i - 1], &out->entries[i]) == 0)
            return fail_entry(reader, &out->entries[i], "the key is there twice");
    }
    return GS_OK;
}

static gs_status read_alignment(const struct reader *reader, struct gs_gguf *out)
{
    const struct gs_gguf_entry *entry = gs_gguf_find(out, "general.alignment");
    int64_t value;
    out->alignment = GS_GGUF_DEFAULT_ALIGNMENT;
    if (!entry)
        return GS_OK;
    if (entry->is_array || entry->type != GS_GGUF_U32 || !gs_gguf_integer(entry, 0, &value))
        return fail_entry(reader, entry, "must be of type u32");
    if (value == 0 || value > GS_GGUF_MAX_ALIGNMENT || (value & (value - 1)) != 0)
        return gs_fail(reader->error, GS_MALFORMED,
                       "%s: general.alignment: is %lld, must be a power of two up to %u", shown(reader).text,
                       (long long)value, GS_GGUF_MAX_ALIGNMENT);
    out->alignment = (uint32_t)value;
    return GS_OK;
}

/* ---------------------------------------------------------------- tensors */

static gs_status fail_tensor(const struct reader *reader, const struct gs_tensor *tensor, const char *rule)
{
    return gs_fail(reader->error, GS_MALFORMED, "%s: %s: %s", shown(reader).text, gs_quote(tensor->name).text,
                   rule);
}

/* Sizes, fastest axis first in the file; their product in elements, 2^63-1 at most. */
static gs_status read_shape(struct reader *reader, struct gs_tensor *tensor, uint64_t *elements)
{
    uint32_t rank;
    if (!take(reader, &rank, sizeof rank))
        return fail_truncated(reader, "a tensor's rank");
    if (rank > GS_GGUF_MAX_RANK)
        return gs_fail(reader->error, GS_MALFORMED, "%s: %s: has %u dimensions, at most %u are allowed",
                       shown(reader).text, gs_quote(tensor->name).text, rank, GS_GGUF_MAX_RANK);
    uint64_t *shape = gs_arena_alloc_array(reader->arena, rank, sizeof *shape);
    if (!shape)
        return gs_fail_memory(reader->error, rank * sizeof *shape);
    tensor->rank = rank;
    tensor->shape = shape;
    *elements = 1;
    for (uint32_t i = 0; i < rank; i++) {
        uint64_t size;
        if (!take(reader, &size, sizeof size))
            return fail_truncated(reader, "a tensor's shape");
        shape[rank - 1 - i] = size;
        if (size > INT64_MAX || !gs_mul_u64(*elements, size, elements) || *elements > INT64_MAX)
            return fail_tensor(reader, tensor, "the product of the dimensions overflows");
    }
    return GS_OK;
}

static gs_status read_type(struct reader *reader, struct gs_tensor *tensor, uint64_t elements)
{
    uint32_t type;
    if (!take(reader, &type, sizeof type))
        return fail_truncated(reader, "a tensor's type");
    if (type >= TENSOR_TYPE_COUNT || !tensor_types[type].is_read)
        return gs_fail(
            reader->error, GS_UNSUPPORTED,
            "%s: %s: is of type %s (number %u); supported are F32, F16, BF16, Q8_0 and MXFP4",
            shown(reader).text, gs_quote(tensor->name).text,
            type < TENSOR_TYPE_COUNT && tensor_types[type].name ? tensor_types[type].name : "unknown", type);
    tensor->dtype = tensor_types[type].dtype;
    uint64_t block = gs_dtype_block_size(tensor->dtype);
    uint64_t columns = tensor->rank > 0 ? tensor->shape[tensor->rank - 1] : 1;
    if (columns % block != 0)
        return gs_fail(reader->error, GS_MALFORMED,
                       "%s: %s: rows of %llu elements, must be a multiple of %llu, the block of %s",
                       shown(reader).text, gs_quote(tensor->name).text, (unsigned long long)columns,
                       (unsigned long long)block, gs_dtype_name(tensor->dtype));
    if (!gs_mul_u64(elements / block, gs_dtype_block_bytes(tensor->dtype), &tensor->bytes))
        return fail_tensor(reader, tensor, "the size in bytes overflows");
    return GS_OK;
}

/* One description; `expected` is where its data must begin, and then where the next one's must. */
static gs_status read_tensor(struct reader *reader, uint32_t alignment, struct gs_tensor *tensor,
                             uint64_t *expected)
{
    const char *name;
    uint64_t name_size, elements = 0, offset, end;
    if (!take_string(reader, &name, &name_size))
        return fail_truncated(reader, "a tensor's name");
    if (name_size == 0 || name_size > GS_GGUF_MAX_NAME || memchr(name, '\0', (size_t)name_size))
        return gs_fail(reader->error, GS_MALFORMED,
                       "%s: byte %llu: a tensor's name of %llu bytes, must have 1 ... %u, none of them NUL",
                       shown(reader).text, (unsigned long long)(reader->at - name_size),
                       (unsigned long long)name_size, GS_GGUF_MAX_NAME);
    tensor->name = gs_arena_copy(reader->arena, name, (size_t)name_size);
    if (!tensor->name)
        return gs_fail_memory(reader->error, name_size);
    tensor->file = reader->map;
    gs_status status = read_shape(reader, tensor, &elements);
    if (status == GS_OK)
        status = read_type(reader, tensor, elements);
    if (status != GS_OK)
        return status;
    if (!take(reader, &offset, sizeof offset))
        return fail_truncated(reader, "a tensor's offset");
    if (offset != *expected)
        return gs_fail(reader->error, GS_MALFORMED,
                       "%s: %s: its offset is %llu, must be %llu: tensors follow one another, each at a "
                       "multiple of %u",
                       shown(reader).text, gs_quote(tensor->name).text, (unsigned long long)offset,
                       (unsigned long long)*expected, alignment);
    if (!gs_add_u64(offset, tensor->bytes, &end) || !gs_add_u64(end, alignment - 1, expected))
        return fail_tensor(reader, tensor, "offset and size overflow");
    *expected &= ~(uint64_t)(alignment - 1);
    return GS_OK;
}

/* Gives the tensors their data, once it is known where the data part begins: at reader->at, aligned. */
static gs_status place_data(struct reader *reader, struct gs_gguf *out, uint64_t padded_size)
{
    uint64_t mask = out->alignment - 1, start = (reader->at + mask) & ~mask, size = 0, offset = 0;
    if (out->count == 0 && reader->map->size <= start)
        return GS_OK; /* metadata alone need no padding */
    if (reader->map->size < start)
        return fail_truncated(reader, "the padding before the data");
    size = reader->map->size - start;
    for (size_t i = 0; i < out->count; i++) {
        struct gs_tensor *tensor = &out->tensors[i];
        if (offset > size || tensor->bytes > size - offset)
            return gs_fail(reader->error, GS_MALFORMED,
                           "%s: %s: %llu bytes at offset %llu do not fit in the data part of %llu bytes; is "
                           "the file complete?",
                           shown(reader).text, gs_quote(tensor->name).text, (unsigned long long)tensor->bytes,
                           (unsigned long long)offset, (unsigned long long)size);
        tensor->data = reader->map->data + start + offset;
        offset = (offset + tensor->bytes + mask) & ~mask;
    }
    if (size > padded_size)
        return gs_fail(reader->error, GS_MALFORMED, "%s: %llu bytes follow the last tensor",
                       shown(reader).text, (unsigned long long)(size - padded_size));
    return GS_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static gs_status check_names(const struct reader *reader, const struct gs_gguf *out)
{
    gs_status status = GS_OK;
    const char **names = calloc(out->count + 1, sizeof *names);
    if (!names)
        return gs_fail_memory(reader->error, (out->count + 1) * sizeof *names);
    for (size_t i = 0; i < out->count; i++)
        names[i] = out->tensors[i].name;
    qsort(names, out->count, sizeof *names, compare_names);
    for (size_t i = 1; i < out->count && status == GS_OK; i++) {
        if (strcmp(names[i - 1], names[i]) == 0)
            status = gs_fail(reader->error, GS_MALFORMED, "%s: %s: the tensor is there twice",
                             shown(reader).text, gs_quote(names[i]).text);
    }
    free(names);
    return status;
}

static gs_status read_tensors(struct reader *reader, uint64_t count, struct gs_gguf *out)
{
    uint64_t expected = 0;
    out->tensors = gs_arena_alloc_array(reader->arena, (size_t)count, sizeof *out->tensors);
    if (!out->tensors)
        return gs_fail_memory(reader->error, count * sizeof *out->tensors);
    for (uint64_t i = 0; i < count; i++) {
        gs_status status = read_tensor(reader, out->alignment, &out->tensors[i], &expected);
        if (status != GS_OK)
            return status;
    }
    out->count = (size_t)count;
    gs_status status = check_names(reader, out);
    return status == GS_OK ? place_data(reader, out, expected) : status;
}

/* ---------------------------------------------------------------- the whole */

static gs_status read_version(struct reader *reader, struct gs_gguf *out)
{
    char magic[4];
    if (!take(reader, magic, sizeof magic) || memcmp(magic, "GGUF", 4) != 0)
        return gs_fail(reader->error, GS_MALFORMED, "%s: is no GGUF file: it must begin with \"GGUF\"",
                       shown(reader).text);
    if (!take(reader, &out->version, sizeof out->version))
        return fail_truncated(reader, "the header");
    if (out->version != 0 && (out->version & 0xFFFF) == 0)
        return gs_fail(reader->error, GS_UNSUPPORTED, "%s: is big-endian; little-endian files are read",
                       shown(reader).text);
    if (out->version != 2 && out->version != 3)
        return gs_fail(reader->error, GS_UNSUPPORTED, "%s: GGUF version %u; versions 2 and 3 are read",
                       shown(reader).text, out->version);
    return GS_OK;
}

/* A count from the header: no more than there could be in the rest of the file, nor than the limit. */
static gs_status check_count(const struct reader *reader, const char *what, uint64_t count,
                             uint64_t min_bytes, uint64_t limit)
{
    uint64_t room = left(reader) / min_bytes;
    if (count <= limit && count <= room)
        return GS_OK;
    return gs_fail(reader->error, GS_MALFORMED, "%s: claims %llu %s, at most %llu are possible here",
                   shown(reader).text, (unsigned long long)count, what,
                   (unsigned long long)(room < limit ? room : limit));
}

gs_status gs_gguf_parse(const struct gs_file_map *map, struct gs_arena *arena, struct gs_gguf *out,
                        struct gs_error *error)
{
    struct reader reader = {.map = map, .arena = arena, .error = error};
    uint64_t n_tensor = 0, n_entry = 0;
    *out = (struct gs_gguf){0};
    gs_status status = read_version(&reader, out);
    if (status == GS_OK && (!take(&reader, &n_tensor, sizeof n_tensor) || !take(&reader, &n_entry, 8)))
        status = fail_truncated(&reader, "the header");
    if (status == GS_OK)
        status = check_count(&reader, "metadata entries", n_entry, MIN_ENTRY_BYTES, GS_GGUF_MAX_ENTRIES);
    if (status == GS_OK)
        status = check_count(&reader, "tensors", n_tensor, MIN_TENSOR_BYTES, GS_GGUF_MAX_TENSORS);
    if (status == GS_OK)
        status = read_metadata(&reader, n_entry, out);
    if (status == GS_OK)
        status = read_alignment(&reader, out);
    if (status == GS_OK)
        status = read_tensors(&reader, n_tensor, out);
    if (status != GS_OK)
        *out = (struct gs_gguf){0};
    return status;
}

/* ---------------------------------------------------------------- asking */

const struct gs_gguf_entry *gs_gguf_find(const struct gs_gguf *gguf, const char *key)
{
    struct gs_gguf_entry wanted = {.key = key, .key_size = strlen(key)};
    if (gguf->n_entry == 0)
        return NULL;
    return bsearch(&wanted, gguf->entries, gguf->n_entry, sizeof *gguf->entries, compare_entries);
}

bool gs_gguf_integer(const struct gs_gguf_entry *entry, uint64_t index, int64_t *value)
{
    uint64_t bits = 0;
    unsigned bytes = (unsigned)types[entry->type].bytes;
    switch (entry->type) {
    case GS_GGUF_U8:
    case GS_GGUF_U16:
    case GS_GGUF_U32:
    case GS_GGUF_BOOL:
    case GS_GGUF_U64:
    case GS_GGUF_I8:
    case GS_GGUF_I16:
    case GS_GGUF_I32:
    case GS_GGUF_I64:
        break;
    default:
        return false;
    }
    if (index >= entry->count)
        return false;
    memcpy(&bits, entry->data + index * bytes, bytes);
    if (entry->type == GS_GGUF_U64 && bits > INT64_MAX)
        return false;
    bool is_signed = entry->type == GS_GGUF_I8 || entry->type == GS_GGUF_I16 || entry->type == GS_GGUF_I32;
    uint64_t sign = (uint64_t)1 << (8 * bytes - 1);
    if (is_signed && (bits & sign))
        bits |= ~(sign - 1);
    *value = (int64_t)bits;
    return true;
}

bool gs_gguf_real(const struct gs_gguf_entry *entry, double *value)
{
    float single;
    if (entry->is_array || (entry->type != GS_GGUF_F32 && entry->type != GS_GGUF_F64))
        return false;
    if (entry->type == GS_GGUF_F64) {
        memcpy(value, entry->data, sizeof *value);
        return true;
    }
    memcpy(&single, entry->data, sizeof single);
    *value = (double)single;
    return true;
}

struct gs_gguf_strings gs_gguf_strings(const struct gs_gguf_entry *entry)
{
    bool has = entry && entry->type == GS_GGUF_STRING;
    return (struct gs_gguf_strings){
        .at = has ? entry->data : NULL, .left = has ? entry->bytes : 0, .count = has ? entry->count : 0};
}

/* Checks again: the file is mapped, and another process may have written to it since it was parsed. */
bool gs_gguf_strings_next(struct gs_gguf_strings *strings, const char **text, size_t *size)
{
    uint64_t bytes;
    if (strings->count == 0 || strings->left < sizeof bytes)
        return false;
    memcpy(&bytes, strings->at, sizeof bytes);
    if (bytes > strings->left - sizeof bytes)
        return false;
    *text = (const char *)strings->at + sizeof bytes;
    *size = (size_t)bytes;
    strings->at += sizeof bytes + bytes;
    strings->left -= sizeof bytes + bytes;
    strings->count--;
    return true;
}

bool gs_gguf_text(const struct gs_gguf_entry *entry, const char **text, size_t *size)
{
    struct gs_gguf_strings one = gs_gguf_strings(entry);
    return entry && !entry->is_array && gs_gguf_strings_next(&one, text, size);
}
