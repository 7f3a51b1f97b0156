/*
 * Rotary embedding with YaRN scaling (Peng et al. 2023), as transformers computes it: static frequencies,
 * attention scaling multiplied into cosine and sine, the angle a float32 product. Frequencies are evaluated
 * in float32 in its order, from elementary functions that have the same bits on every machine.
 */
#ifndef GS_MODEL_YARN_H
#define GS_MODEL_YARN_H

#include "model/config.h"

struct gs_yarn {
    int64_t n_freq;                    /* d_head / 2 */
    float inv_freq[GS_MAX_D_HEAD / 2]; /* [n_freq], radians a position, at most 1 */
    float attention_scaling;           /* 0.1 ln(factor) + 1; 1 for factor 1 */
};

void gs_yarn_init(const struct gs_config *config, struct gs_yarn *yarn);

/* cosine, sine [n_freq] of `position` (0 ... GS_MAX_CONTEXT-1), times the attention scaling. */
void gs_yarn_angles(const struct gs_yarn *yarn, int64_t position, float *cosine, float *sine);

#endif
