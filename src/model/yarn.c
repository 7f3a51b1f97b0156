#include "model/yarn.h"

#include "base/math.h"

#include <assert.h>
#include <math.h>

static const double two_pi = 6.283185307179586476925286766559;

/* The dimension (in units of frequency pairs) whose wave makes `rotations` turns in the original context. */
static double correction_dimension(const struct gs_config *config, double rotations)
{
    double log_theta = gs_log64(config->rope_theta);
    return (double)config->d_head * gs_log64(config->rope_original_ctx / (rotations * two_pi)) /
           (2.0 * log_theta);
}

/* 0 where a frequency is kept, 1 where it is divided by the factor, a line from `low` to `high` between. */
static float ramp(float j, double low, double high)
{
    float value = (j - (float)low) / (float)(high - low);
    return value < 0.0f ? 0.0f : value > 1.0f ? 1.0f : value;
}

/*
 * In float32, in the reference's order: where d_head is not a power of two its rounded exponents put it up to
 * 4 ulp from the true frequencies, and far positions multiply that. The bounds alone are in double there too.
 */
void gs_yarn_init(const struct gs_config *config, struct gs_yarn *yarn)
{
    assert(config->d_head >= 2 && config->d_head <= GS_MAX_D_HEAD);
    float factor = (float)config->rope_factor;
    double log_theta = gs_log64(config->rope_theta);
    double low = correction_dimension(config, config->rope_beta_fast);
    double high = correction_dimension(config, config->rope_beta_slow);
    if (config->rope_truncate) {
        low = floor(low);
        high = ceil(high);
    }
    /* The clamps are the reference's: the upper one is d_head - 1 although there are d_head / 2 pairs. */
    low = low < 0.0 ? 0.0 : low;
    high = high > (double)(config->d_head - 1) ? (double)(config->d_head - 1) : high;
    if (low == high) {
        high += 0.001;
    }

    yarn->n_freq = config->d_head / 2;
    for (int64_t j = 0; j < yarn->n_freq; j++) {
        float exponent = (float)(2 * j) / (float)config->d_head;
        float wave = (float)gs_exp64(log_theta * (double)exponent); /* theta^(2j/d_head) */
        float kept = 1.0f / wave;
        float divided = 1.0f / (factor * wave);
        float share = ramp((float)j, low, high);
        float kept_share = 1.0f - share;
        /* Exactly `kept` for factor 1, whatever the ramp: plain RoPE. */
        yarn->inv_freq[j] = factor > 1.0f ? divided * (1.0f - kept_share) + kept * kept_share : kept;
    }
    yarn->attention_scaling =
        config->rope_factor > 1.0 ? (float)(0.1 * gs_log64(config->rope_factor) + 1.0) : 1.0f;
}

void gs_yarn_angles(const struct gs_yarn *yarn, int64_t position, float *cosine, float *sine)
{
    float at = (float)position;
    for (int64_t j = 0; j < yarn->n_freq; j++) {
        float angle = at * yarn->inv_freq[j];
        gs_sincos(angle, &sine[j], &cosine[j]);
        cosine[j] *= yarn->attention_scaling;
        sine[j] *= yarn->attention_scaling;
    }
}
