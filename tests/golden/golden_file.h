/*
 * A golden (tools/oracle/README.md): tensors by name, copied out of the mapped file so that they are aligned.
 * For the golden tests only; everything that is not as it should be fails the running test.
 */
#ifndef GS_TESTS_GOLDEN_FILE_H
#define GS_TESTS_GOLDEN_FILE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "format/safetensors.h"

struct golden {
    struct gs_file_map *map;
    struct gs_arena arena;
    struct gs_safetensors file;
};

static inline void require(gs_status status, const struct gs_error *error)
{
    if (status != GS_OK) {
        fail_msg("%s", error->message);
    }
}

static inline void golden_open(struct golden *golden, const char *path)
{
    struct gs_error error = {0};
    memset(golden, 0, sizeof(*golden));
    require(gs_file_map_open(path, NULL, &golden->map, &error), &error);
    require(gs_safetensors_parse(golden->map, &golden->arena, &golden->file, &error), &error);
}

static inline void golden_close(struct golden *golden)
{
    gs_arena_free(&golden->arena);
    gs_file_map_close(golden->map);
}

static inline const struct gs_tensor *golden_find(const struct golden *golden, const char *name)
{
    for (size_t i = 0; i < golden->file.count; i++) {
        if (strcmp(golden->file.tensors[i].name, name) == 0) {
            return &golden->file.tensors[i];
        }
    }
    return NULL;
}

/* The elements of a tensor [rows][columns], or of a vector [columns] if rows is 1. */
static inline void *golden_data(struct golden *golden, const char *name, enum gs_dtype dtype, uint64_t rows,
                                uint64_t columns)
{
    const struct gs_tensor *tensor = golden_find(golden, name);
    if (tensor == NULL) {
        fail_msg("%s has no tensor %s", golden->map->path, name);
        return NULL;
    }
    bool vector = rows == 1 && tensor->rank == 1 && tensor->shape[0] == columns;
    bool matrix = tensor->rank == 2 && tensor->shape[0] == rows && tensor->shape[1] == columns;
    if (tensor->dtype != dtype || !(vector || matrix)) {
        char shape[100];
        gs_tensor_shape_text(tensor, shape, sizeof(shape));
        fail_msg("%s: %s is %s %s instead of %s [%llu, %llu]", golden->map->path, name,
                 gs_dtype_name(tensor->dtype), shape, gs_dtype_name(dtype), (unsigned long long)rows,
                 (unsigned long long)columns);
    }
    void *copy = gs_arena_alloc(&golden->arena, (size_t)tensor->bytes);
    assert_non_null(copy);
    memcpy(copy, tensor->data, (size_t)tensor->bytes);
    return copy;
}

/* The same for a vector whose length the golden decides. */
static inline void *golden_vector(struct golden *golden, const char *name, enum gs_dtype dtype, size_t *count)
{
    const struct gs_tensor *tensor = golden_find(golden, name);
    *count = tensor != NULL && tensor->rank == 1 ? (size_t)tensor->shape[0] : 0;
    return golden_data(golden, name, dtype, 1, *count);
}

/* The models whose goldens are committed; the demo model counts only where it is (see golden_present). */
#define GOLDEN_MODELS                                                                                        \
    {                                                                                                        \
        {"tests/golden/models/one-layer", "tests/golden/data/one-layer"},                                    \
            {"tests/golden/models/two-layers", "tests/golden/data/two-layers"},                              \
            {"tests/golden/models/three-layers", "tests/golden/data/three-layers"},                          \
            {"tests/golden/models/published-pattern", "tests/golden/data/published-pattern"},                \
            {"tests/golden/models/five-layers", "tests/golden/data/five-layers"},                            \
            {"tests/golden/models/one-expert", "tests/golden/data/one-expert"},                              \
        {                                                                                                    \
            "models/demo", "models/demo/golden"                                                              \
        }                                                                                                    \
    }

/* false: neither the model nor its golden is there. One without the other fails. */
static inline bool golden_present(const char *model, const char *golden)
{
    char config[400], file[400];
    snprintf(config, sizeof(config), "%s/config.json", model);
    snprintf(file, sizeof(file), "%s.safetensors", golden);
    bool has_model = access(config, R_OK) == 0, has_golden = access(file, R_OK) == 0;
    if (has_model != has_golden) {
        fail_msg("%s is there, but not %s; make it with tools/oracle/make_golden.py",
                 has_model ? config : file, has_model ? file : config);
    }
    if (!has_model) {
        printf("golden: %s is not there and was left out\n", model);
    }
    return has_model;
}

#endif
