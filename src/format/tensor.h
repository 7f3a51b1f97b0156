/* A named, typed, bounds-checked view into a mapped file: the bytes on disk, not converted. */
#ifndef GS_FORMAT_TENSOR_H
#define GS_FORMAT_TENSOR_H

#include "format/file_map.h"

/*
 * The dtypes that safetensors defines, then the block types of GGUF. A checkpoint of this model holds BF16
 * and U8, sometimes F32 and F16; in GGUF form F32, Q8_0 and MXFP4.
 */
enum gs_dtype {
    GS_DTYPE_F4,
    GS_DTYPE_F6_E2M3,
    GS_DTYPE_F6_E3M2,
    GS_DTYPE_BOOL,
    GS_DTYPE_U8,
    GS_DTYPE_I8,
    GS_DTYPE_F8_E5M2,
    GS_DTYPE_F8_E4M3,
    GS_DTYPE_F8_E8M0,
    GS_DTYPE_F8_E4M3FNUZ,
    GS_DTYPE_F8_E5M2FNUZ,
    GS_DTYPE_I16,
    GS_DTYPE_U16,
    GS_DTYPE_F16,
    GS_DTYPE_BF16,
    GS_DTYPE_I32,
    GS_DTYPE_U32,
    GS_DTYPE_F32,
    GS_DTYPE_C64,
    GS_DTYPE_F64,
    GS_DTYPE_I64,
    GS_DTYPE_U64,
    GS_DTYPE_COUNT, /* so many does safetensors define */

    GS_DTYPE_Q8_0 = GS_DTYPE_COUNT, /* blocks of 32: an F16 scale, 32 I8 */
    GS_DTYPE_MXFP4,                 /* blocks of 32: an F8_E8M0 scale, 16 bytes of F4 pairs k, k+16 */
};

const char *gs_dtype_name(enum gs_dtype dtype); /* "BF16" */
unsigned gs_dtype_bits(enum gs_dtype dtype);    /* 16: of an element; 0 for the block types */

/* Elements and bytes of a block; the other types, if of whole bytes, have blocks of one element. */
unsigned gs_dtype_block_size(enum gs_dtype dtype);
unsigned gs_dtype_block_bytes(enum gs_dtype dtype);

/* One of the dtypes of safetensors by its name. */
bool gs_dtype_parse(const char *name, size_t size, enum gs_dtype *dtype);

struct gs_tensor {
    const char *name; /* NUL-terminated UTF-8 without NUL inside */
    enum gs_dtype dtype;
    size_t rank;
    const uint64_t *shape; /* [rank], slowest axis first */
    const unsigned char *data;
    uint64_t bytes;
    const struct gs_file_map *file;
};

/* "[32, 5760, 90, 16]" into text, cut to fit. */
void gs_tensor_shape_text(const struct gs_tensor *tensor, char *text, size_t size);

#endif
