/*
 * Reads file names on stdin, one a line; prints for each "OK" and its tensors as name, dtype, shape and
 * offset in the file, or "ERR" and the message. For compare_safetensors.py.
 */
#include "format/safetensors.h"

#include <stdio.h>
#include <string.h>

static void print_file(const char *path)
{
    struct gs_file_map *map;
    struct gs_arena arena = {0};
    struct gs_safetensors found;
    struct gs_error error;
    gs_status status = gs_file_map_open(path, NULL, &map, &error);
    if (status == GS_OK)
        status = gs_safetensors_parse(map, &arena, &found, &error);
    if (status != GS_OK) {
        printf("ERR %s\n", error.message);
    } else {
        printf("OK");
        for (size_t i = 0; i < found.count; i++) {
            const struct gs_tensor *tensor = &found.tensors[i];
            printf("\t");
            for (const char *c = tensor->name; *c; c++)
                printf("%02x", (unsigned)(unsigned char)*c);
            printf(" %s [", gs_dtype_name(tensor->dtype));
            for (size_t k = 0; k < tensor->rank; k++)
                printf("%s%llu", k ? "," : "", (unsigned long long)tensor->shape[k]);
            printf("] %llu %llu", (unsigned long long)(tensor->data - map->data),
                   (unsigned long long)tensor->bytes);
        }
        printf("\n");
    }
    gs_arena_free(&arena);
    gs_file_map_close(map);
}

int main(void)
{
    char line[4096];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        print_file(line);
    }
    return 0;
}
