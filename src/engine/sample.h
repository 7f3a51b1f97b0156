/* What other files of the engine need to know of a sampler; the rest is in gossamer.h. */
#ifndef GS_ENGINE_SAMPLE_H
#define GS_ENGINE_SAMPLE_H

#include "backend/backend.h"
#include "gossamer.h"

/* The length of the rows that it draws from. */
size_t gs_sampler_vocab(const struct gs_sampler *sampler);

/*
 * Do its draws hang on the row, its temperature and its generator alone? Then a device may make them: where
 * it is greedy without a gs_draw, else by that of its `ahead`-th next draw, and each is counted when it is
 * used.
 */
bool gs_sampler_is_plain(const struct gs_sampler *sampler);
bool gs_sampler_is_greedy(const struct gs_sampler *sampler);
struct gs_draw gs_sampler_ahead(const struct gs_sampler *sampler, uint64_t ahead);
void gs_sampler_count(struct gs_sampler *sampler);

#endif
