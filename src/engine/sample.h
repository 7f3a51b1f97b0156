/* What other files of the engine need to know of a sampler; the rest is in gossamer.h. */
#ifndef GS_ENGINE_SAMPLE_H
#define GS_ENGINE_SAMPLE_H

#include "gossamer.h"

/* The length of the rows that it draws from. */
size_t gs_sampler_vocab(const struct gs_sampler *sampler);

#endif
