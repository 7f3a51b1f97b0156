#include "tests/support/loaded.h"

#include "backend/registry.h"
#include "tests/support/check.h"
#include "tests/support/files.h"

struct loaded loaded_open_with(const struct tiny_model *model, const struct gs_device_options *options)
{
    struct loaded loaded = {.folder = test_folder_make()};
    struct gs_error error;
    tiny_model_write(model, loaded.folder);
    assert_ok(gs_checkpoint_open(loaded.folder, &loaded.checkpoint, &error), &error);
    assert_ok(gs_weights_bind(loaded.checkpoint, NULL, NULL, &loaded.weights, &error), &error);
    assert_ok(gs_backend_find("cpu", &loaded.backend, &error), &error);
    assert_ok(loaded.backend->open(options, &loaded.device, &error), &error);
    assert_ok(loaded.backend->load(loaded.device, loaded.weights, NULL, NULL, &error), &error);
    return loaded;
}

struct loaded loaded_open(const struct tiny_model *model, size_t n_threads)
{
    struct gs_device_options options = {.n_threads = n_threads};
    return loaded_open_with(model, &options);
}

struct loaded loaded_open_isa(const struct tiny_model *model, const char *isa)
{
    struct gs_device_options options = {.n_threads = 1, .isa = isa};
    return loaded_open_with(model, &options);
}

void loaded_close(struct loaded *loaded)
{
    loaded->backend->close(loaded->device);
    gs_weights_free(loaded->weights);
    gs_checkpoint_close(loaded->checkpoint);
    test_folder_remove(loaded->folder);
}

struct gs_kv *loaded_kv(const struct loaded *loaded, int64_t capacity)
{
    struct gs_kv *kv;
    struct gs_error error;
    assert_ok(loaded->backend->kv_create(loaded->device, capacity, &kv, &error), &error);
    return kv;
}

void loaded_run(const struct loaded *loaded, struct gs_kv *kv, const int32_t *tokens, size_t count,
                size_t piece, float *out)
{
    size_t n_vocab = (size_t)loaded->weights->config.n_vocab;
    for (size_t done = 0; done < count;) {
        size_t n = count - done < piece ? count - done : piece;
        struct gs_step step = {kv, tokens + done, n, out ? GS_WANT_ALL : GS_WANT_NONE, NULL};
        struct gs_error error;
        assert_ok(loaded->backend->forward(loaded->device, &step, 1, NULL, &error), &error);
        for (size_t i = 0; out && i < n; i++)
            memcpy(out + (done + i) * n_vocab, loaded->backend->logits(loaded->device, i),
                   n_vocab * sizeof *out);
        done += n;
    }
}
