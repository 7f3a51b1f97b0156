/*
 * One GGUF file (version 2 or 3, little-endian) -> its metadata and tensor views. Checks every rule of the
 * format (docs/formats.md); what the metadata mean is the business of those who ask for them.
 *
 * Values stay in the map and are not copied: strings of an array are read one after the other.
 */
#ifndef GS_FORMAT_GGUF_H
#define GS_FORMAT_GGUF_H

#include "base/arena.h"
#include "format/tensor.h"

#define GS_GGUF_MAX_ENTRIES       65536u
#define GS_GGUF_MAX_TENSORS       65536u
#define GS_GGUF_MAX_KEY           65535u /* bytes */
#define GS_GGUF_MAX_NAME          63u    /* bytes of a tensor's name */
#define GS_GGUF_MAX_RANK          4u
#define GS_GGUF_DEFAULT_ALIGNMENT 32u
#define GS_GGUF_MAX_ALIGNMENT     65536u

/* Numbers as the file has them. */
enum gs_gguf_type {
    GS_GGUF_U8,
    GS_GGUF_I8,
    GS_GGUF_U16,
    GS_GGUF_I16,
    GS_GGUF_U32,
    GS_GGUF_I32,
    GS_GGUF_F32,
    GS_GGUF_BOOL,
    GS_GGUF_STRING,
    GS_GGUF_ARRAY,
    GS_GGUF_U64,
    GS_GGUF_I64,
    GS_GGUF_F64,
    GS_GGUF_TYPE_COUNT,
};

struct gs_gguf_entry {
    const char *key; /* [key_size], not NUL-terminated */
    size_t key_size;
    enum gs_gguf_type type;    /* of the value, or of an array's elements; never GS_GGUF_ARRAY */
    bool is_array;             /* arrays of arrays are refused */
    uint64_t count;            /* elements; 1 if no array */
    const unsigned char *data; /* [bytes]: the elements as they lie; a string is its u64 size and its bytes */
    uint64_t bytes;
};

struct gs_gguf {
    uint32_t version;
    uint32_t alignment;
    struct gs_gguf_entry *entries; /* [n_entry], ascending by key */
    size_t n_entry;
    struct gs_tensor *tensors; /* [count], in the order of their data; shapes slowest axis first */
    size_t count;
};

/*
 * Reads the header of a mapped file. Everything is allocated in `arena`; data point into the map.
 * GS_MALFORMED with "<file>: <place>: <rule>"; GS_UNSUPPORTED for another version, byte order or tensor type.
 * Of `map` only path, data and size are used.
 */
gs_status gs_gguf_parse(const struct gs_file_map *map, struct gs_arena *arena, struct gs_gguf *out,
                        struct gs_error *error);

/* NULL if there is no such key. */
const struct gs_gguf_entry *gs_gguf_find(const struct gs_gguf *gguf, const char *key);

/* "u32", "array of string" */
const char *gs_gguf_type_name(enum gs_gguf_type type);

/* One value, or element `index` < count of an array of fixed-size elements. False if it is of another kind.
 */
bool gs_gguf_integer(const struct gs_gguf_entry *entry, uint64_t index, int64_t *value); /* or a bool */
bool gs_gguf_real(const struct gs_gguf_entry *entry, double *value);                     /* f32, f64 */
bool gs_gguf_text(const struct gs_gguf_entry *entry, const char **text, size_t *size);

/* Reads a string array from its start; a value that is no string array has no strings. */
struct gs_gguf_strings {
    const unsigned char *at;
    uint64_t left; /* bytes */
    uint64_t count;
};
struct gs_gguf_strings gs_gguf_strings(const struct gs_gguf_entry *entry);
bool gs_gguf_strings_next(struct gs_gguf_strings *strings, const char **text, size_t *size);

#endif
