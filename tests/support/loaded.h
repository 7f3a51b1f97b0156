/* A tiny model on the CPU backend, for tests below the engine. */
#ifndef TESTS_SUPPORT_LOADED_H
#define TESTS_SUPPORT_LOADED_H

#include "backend/backend.h"
#include "tests/support/tiny_model.h"

struct loaded {
    char *folder;
    struct gs_checkpoint *checkpoint;
    struct gs_weights *weights;
    const struct gs_backend *backend;
    struct gs_device *device;
};

/* Writes the model to a temporary folder, binds it, opens a device of n_threads and loads it. */
struct loaded loaded_open(const struct tiny_model *model, size_t n_threads);

/* The same with the kernels of one instruction set. */
struct loaded loaded_open_isa(const struct tiny_model *model, const char *isa);

/* The same with any options. */
struct loaded loaded_open_with(const struct tiny_model *model, const struct gs_device_options *options);
void loaded_close(struct loaded *loaded);

struct gs_kv *loaded_kv(const struct loaded *loaded, int64_t capacity);

/* Runs `count` tokens on kv in pieces of at most `piece`; copies the logits of all of them to out (may be
 * NULL). */
void loaded_run(const struct loaded *loaded, struct gs_kv *kv, const int32_t *tokens, size_t count,
                size_t piece, float *out);

#endif
