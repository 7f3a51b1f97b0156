/*
 * Fuzzes src/format/safetensors.c. Input: a byte that is even before the bytes of a file; or one that is odd,
 * two bytes with the size of the data part, and a header, so that the length always fits.
 */
#include "format/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

/* The tensors cover the file's data part exactly, in order. */
static void check_views(const struct gs_file_map *map, const struct gs_safetensors *found)
{
    uint64_t header_size = 0, covered;
    for (unsigned i = 0; i < 8; i++)
        header_size |= (uint64_t)map->data[i] << (8 * i);
    covered = 8 + header_size;
    for (size_t i = 0; i < found->count; i++) {
        const struct gs_tensor *tensor = &found->tensors[i];
        uint64_t bits = gs_dtype_bits(tensor->dtype);
        for (size_t k = 0; k < tensor->rank; k++)
            bits *= tensor->shape[k];
        check(tensor->bytes == bits / 8);
        check(tensor->data == map->data + covered);
        check(tensor->file == map);
        check(strlen(tensor->name) <= GS_SAFETENSORS_MAX_STRING);
        covered += tensor->bytes;
    }
    check(covered == map->size);
}

static void parse(const unsigned char *bytes, size_t size)
{
    static char path[] = "fuzz";
    struct gs_file_map map = {.path = path, .data = bytes, .size = size, .descriptor = -1, .slot = -1};
    struct gs_arena arena = {0};
    struct gs_safetensors found;
    struct gs_error error;
    if (gs_safetensors_parse(&map, &arena, &found, &error) == GS_OK) {
        check_views(&map, &found);
    } else {
        check(error.code == GS_MALFORMED);
        check(!found.tensors && found.count == 0);
        check(!strpbrk(error.message, "\n\r\033"));
    }
    gs_arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    if (size < 3)
        return 0;
    if (input[0] % 2 == 0) {
        parse(input + 1, size - 1);
        return 0;
    }
    size_t header_size = size - 3, data_size = input[1] + 256u * input[2];
    unsigned char *file = calloc(1, 8 + header_size + data_size);
    check(file != NULL);
    for (unsigned i = 0; i < 8; i++)
        file[i] = (unsigned char)((uint64_t)header_size >> (8 * i));
    memcpy(file + 8, input + 3, header_size);
    parse(file, 8 + header_size + data_size);
    free(file);
    return 0;
}
