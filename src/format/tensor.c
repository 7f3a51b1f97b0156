#include "format/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned bits;
} dtypes[] = {
    [GS_DTYPE_F4] = {"F4", 4},
    [GS_DTYPE_F6_E2M3] = {"F6_E2M3", 6},
    [GS_DTYPE_F6_E3M2] = {"F6_E3M2", 6},
    [GS_DTYPE_BOOL] = {"BOOL", 8},
    [GS_DTYPE_U8] = {"U8", 8},
    [GS_DTYPE_I8] = {"I8", 8},
    [GS_DTYPE_F8_E5M2] = {"F8_E5M2", 8},
    [GS_DTYPE_F8_E4M3] = {"F8_E4M3", 8},
    [GS_DTYPE_F8_E8M0] = {"F8_E8M0", 8},
    [GS_DTYPE_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [GS_DTYPE_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [GS_DTYPE_I16] = {"I16", 16},
    [GS_DTYPE_U16] = {"U16", 16},
    [GS_DTYPE_F16] = {"F16", 16},
    [GS_DTYPE_BF16] = {"BF16", 16},
    [GS_DTYPE_I32] = {"I32", 32},
    [GS_DTYPE_U32] = {"U32", 32},
    [GS_DTYPE_F32] = {"F32", 32},
    [GS_DTYPE_C64] = {"C64", 64},
    [GS_DTYPE_F64] = {"F64", 64},
    [GS_DTYPE_I64] = {"I64", 64},
    [GS_DTYPE_U64] = {"U64", 64},
    [GS_DTYPE_Q8_0] = {"Q8_0", 0},
    [GS_DTYPE_MXFP4] = {"MXFP4", 0},
};

const char *gs_dtype_name(enum gs_dtype dtype)
{
    return dtypes[dtype].name;
}

unsigned gs_dtype_bits(enum gs_dtype dtype)
{
    return dtypes[dtype].bits;
}

unsigned gs_dtype_block_size(enum gs_dtype dtype)
{
    return dtypes[dtype].bits == 0 ? 32 : 1;
}

unsigned gs_dtype_block_bytes(enum gs_dtype dtype)
{
    if (dtype == GS_DTYPE_Q8_0)
        return 34;
    return dtype == GS_DTYPE_MXFP4 ? 17 : dtypes[dtype].bits / 8;
}

bool gs_dtype_parse(const char *name, size_t size, enum gs_dtype *dtype)
{
    for (unsigned i = 0; i < GS_DTYPE_COUNT; i++) {
        if (strlen(dtypes[i].name) == size && memcmp(dtypes[i].name, name, size) == 0) {
            *dtype = (enum gs_dtype)i;
            return true;
        }
    }
    return false;
}

void gs_tensor_shape_text(const struct gs_tensor *tensor, char *text, size_t size)
{
    size_t used = 0;
    if (size == 0)
        return;
    text[0] = '\0';
    for (size_t i = 0; i < tensor->rank && used < size; i++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s%" PRIu64, i == 0 ? "[" : ", ", tensor->shape[i]);
    if (used < size)
        snprintf(text + used, size - used, tensor->rank == 0 ? "[]" : "]");
}
