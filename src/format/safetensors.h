/* One .safetensors file -> tensor views. Checks every rule of the format (docs/formats.md). */
#ifndef GS_FORMAT_SAFETENSORS_H
#define GS_FORMAT_SAFETENSORS_H

#include "base/arena.h"
#include "format/tensor.h"

#define GS_SAFETENSORS_MAX_HEADER 100000000u /* bytes of JSON */
#define GS_SAFETENSORS_MAX_DEPTH  8u         /* nested objects and arrays */
#define GS_SAFETENSORS_MAX_RANK   64u        /* dimensions of a tensor: numpy's and PyTorch's own limit */
#define GS_SAFETENSORS_MAX_STRING 65536u     /* bytes of a name, or of any other string, decoded */

struct gs_safetensors {
    struct gs_tensor *tensors; /* [count], in the order of their data */
    size_t count;
};

/*
 * Reads the header of a mapped file. Everything is allocated in `arena`; tensor data point into the map.
 * GS_MALFORMED with "<file>: <tensor>: <rule>" otherwise. Of `map` only path, data and size are used.
 */
gs_status gs_safetensors_parse(const struct gs_file_map *map, struct gs_arena *arena,
                               struct gs_safetensors *out, struct gs_error *error);

#endif
