/*
 * The metadata of a gpt-oss GGUF -> the numbers of this model, every one range-checked, as model/config does
 * it from config.json. What these files do not say is what the published models have: SwiGLU limit 7 and
 * alpha 1.702, every second layer with a window beginning with the first, YaRN betas 32 and 1, and its ramp's
 * bounds not rounded (as Hugging Face has it; the engine that GGUF comes from rounds them).
 */
#ifndef GS_MODEL_GGUF_CONFIG_H
#define GS_MODEL_GGUF_CONFIG_H

#include "model/config.h"

/*
 * `name` is used in messages. n_vocab is the number of rows of the embedding: the number of tokens, where the
 * file lists them, must be the same. Stop ids: tokenizer.ggml.eos_token_id, then the control tokens
 * <|return|>,
 * <|endoftext|> and <|call|>: those that the published generation_config.json has.
 */
gs_status gs_gguf_config_parse(const char *name, const struct gs_gguf *gguf, int64_t n_vocab,
                               struct gs_config *config, struct gs_error *error);

/* The same of a checkpoint in GGUF layout. */
gs_status gs_gguf_config_read(const struct gs_checkpoint *checkpoint, struct gs_config *config,
                              struct gs_error *error);

#endif
