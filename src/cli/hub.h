/*
 * The hub as the environment describes it, by the variables of Hugging Face's own tools: HF_ENDPOINT;
 * HF_TOKEN, or the file HF_TOKEN_PATH; HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME. And the models that it has
 * brought. Beside it gossamer's own folder for what can be made again.
 */
#ifndef GS_CLI_HUB_H
#define GS_CLI_HUB_H

#include "base/buffer.h"

/* Replaces *path by the cache's folder; GS_INVALID_ARGUMENT if not even HOME is set. */
gs_status gs_hub_cache_folder(struct gs_buffer *path, struct gs_error *error);

/*
 * Replaces *path by the folder for compiled kernels, XDG_CACHE_HOME/gossamer or ~/.cache/gossamer, and
 * returns its text; NULL: there is no such place. Nothing is made.
 */
const char *gs_kernel_cache_folder(struct gs_buffer *path);

/* "https://huggingface.co" or HF_ENDPOINT, without a slash at its end. Replaces *endpoint. */
gs_status gs_hub_endpoint(const char *chosen, struct gs_buffer *endpoint, struct gs_error *error);

/* Replaces *token; empty: there is none. */
gs_status gs_hub_token(struct gs_buffer *token, struct gs_error *error);

/*
 * A command's MODEL: a path, or the name of a model in the cache. *model is then the path, which lives in
 * `path`; the caller frees that.
 */
gs_status gs_find_model(const char **model, struct gs_buffer *path, struct gs_error *error);

/* The vocabulary of such a MODEL, of which nothing else is needed. */
gs_status gs_find_vocab(const char *model, struct gs_vocab **vocab, struct gs_error *error);

#endif
