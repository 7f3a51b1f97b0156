/* What needs no forward pass: the values of the MXFP4 elements, and the rotary frequencies. */
#include "base/status.h"
#include "engine/verify_checks.h"
#include "model/yarn.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* ---------------------------------------------------------------- MXFP4 */

/* Every scale byte times every code, from the format's definition: E2M1 with bias 1, E8M0 with bias 127. */
struct mxfp4_values {
    float of[256][16];
};

static void define_values(struct mxfp4_values *values)
{
    for (int scale = 0; scale < 256; scale++)
        for (int code = 0; code < 16; code++) {
            int sign = code >> 3, exponent = code >> 1 & 3, mantissa = code & 1;
            /* in halves: a subnormal has no leading one and the exponent of the smallest normal */
            int halves = exponent == 0 ? mantissa : 2 + mantissa;
            int power = (exponent == 0 ? 1 : exponent) - 1 - 1 + scale - 127;
            float magnitude = ldexpf((float)halves, power);
            values->of[scale][code] = sign ? -magnitude : magnitude;
        }
}

/* A row straight from the file's bytes, in either form (model/mxfp4.h). */
static void define_row(const struct mxfp4_values *values, const struct gs_mxfp4_row *row, int64_t columns,
                       float *out)
{
    for (int64_t group = 0; group < columns / GS_MXFP4_GROUP; group++, out += GS_MXFP4_GROUP) {
        if (row->scales) {
            const uint8_t *codes = row->blocks + group * GS_MXFP4_GROUP_BYTES;
            const float *of = values->of[row->scales[group]];
            for (int i = 0; i < GS_MXFP4_GROUP; i++)
                out[i] = of[codes[i / 2] >> (i % 2 ? 4 : 0) & 15];
        } else {
            const uint8_t *block = row->blocks + group * GS_MXFP4_BLOCK_BYTES;
            const float *of = values->of[block[0]];
            for (int i = 0; i < GS_MXFP4_GROUP; i++)
                out[i] = of[block[1 + i % 16] >> (i < 16 ? 0 : 4) & 15];
        }
    }
}

struct tally {
    const struct mxfp4_values *values;
    float *found, *expected; /* [columns] */
    uint64_t elements, differing;
    double worst; /* largest |difference|, NaN and infinities included */
    uint64_t sums_compared, sums_differing;
};

static void compare_row(struct tally *tally, const struct gs_mxfp4_row *row, int64_t columns)
{
    define_row(tally->values, row, columns, tally->expected);
    tally->elements += (uint64_t)columns;
    if (memcmp(tally->found, tally->expected, (size_t)columns * sizeof(float)) == 0)
        return;
    for (int64_t i = 0; i < columns; i++) {
        if (bits_of(tally->found[i]) == bits_of(tally->expected[i]))
            continue;
        double d = fabs((double)tally->found[i] - (double)tally->expected[i]);
        tally->differing++;
        tally->worst = isnan(tally->worst) || d <= tally->worst ? tally->worst : d;
    }
}

/* Of one matrix; sums [n_expert] are transformers' checksums, NULL: none. */
static gs_status compare_matrix(struct tally *tally, const struct gs_subject *subject,
                                const struct gs_mxfp4_matrix *matrix, const int64_t *sums,
                                const struct gs_watch *watch, struct gs_error *error)
{
    for (int64_t expert = 0; expert < matrix->n_expert; expert++) {
        uint64_t hash = 0;
        if (watch->cancelled && atomic_load_explicit(watch->cancelled, memory_order_relaxed))
            return gs_fail(error, GS_CANCELLED, "cancelled");
        for (int64_t r = 0; r < matrix->rows; r++) {
            struct gs_mxfp4_row row = gs_mxfp4_find_row(matrix, expert, r);
            subject->backend->dequantize(subject->device, matrix, expert, r, 1, tally->found);
            compare_row(tally, &row, matrix->columns);
            for (int64_t i = 0; sums && i < matrix->columns; i++)
                hash = hash * 0x100000001B3u + bits_of(tally->found[i]); /* tools/oracle/mxfp4.py */
        }
        tally->sums_compared += sums != NULL;
        tally->sums_differing += sums != NULL && hash != (uint64_t)sums[expert];
    }
    return GS_OK;
}

static gs_status add_mxfp4(struct gs_verify_report *report, const struct tally *tally, struct gs_error *error)
{
    struct gs_check check = {.component = "mxfp4",
                             .measure = "differing elements",
                             .layer = -1,
                             .compared = tally->elements,
                             .measured = (double)tally->differing,
                             .bar = GS_BAR_AT_MOST,
                             .at = -1};
    gs_status status = gs_check_add(report, check, error);
    check.measure = "worst difference";
    check.measured = tally->worst;
    if (status == GS_OK)
        status = gs_check_add(report, check, error);
    check.measure = "differing experts";
    check.compared = tally->sums_compared;
    check.measured = (double)tally->sums_differing;
    if (status == GS_OK && tally->sums_compared > 0)
        status = gs_check_add(report, check, error);
    report->n_elements = tally->elements;
    return status;
}

gs_status gs_check_mxfp4(struct gs_verify_report *report, const struct gs_subject *subject,
                         const struct gs_golden *golden, const struct gs_watch *watch, struct gs_error *error)
{
    const struct gs_config *c = &subject->weights->config;
    size_t columns = (size_t)(c->d_model > c->d_ff ? c->d_model : c->d_ff);
    bool has_sums = golden && golden->is_complete;
    struct mxfp4_values *values = malloc(sizeof *values);
    float *rows = malloc(2 * columns * sizeof *rows);
    gs_status status = GS_OK;
    if (!values || !rows) {
        status = gs_fail_memory(error, 2 * columns * sizeof *rows);
        goto cleanup;
    }
    define_values(values);
    struct tally tally = {.values = values, .found = rows, .expected = rows + columns};
    for (int64_t layer = 0; status == GS_OK && layer < c->n_layer; layer++) {
        const struct gs_layer_weights *w = &subject->weights->layers[layer];
        status = compare_matrix(&tally, subject, &w->gate_up, has_sums ? golden->gate_up_sums[layer] : NULL,
                                watch, error);
        if (status == GS_OK)
            status = compare_matrix(&tally, subject, &w->down, has_sums ? golden->down_sums[layer] : NULL,
                                    watch, error);
    }
    if (status == GS_OK)
        status = add_mxfp4(report, &tally, error);

cleanup:
    free(values);
    free(rows);
    return status;
}

/* ---------------------------------------------------------------- rotary frequencies */

/* Frequency j of YaRN (Peng et al. 2023) in float64, from the C library's functions. */
static double define_frequency(const struct gs_config *c, int64_t j)
{
    const double pi = 3.14159265358979323846;
    double d = (double)c->d_head, wave = pow(c->rope_theta, 2.0 * (double)j / d);
    if (c->rope_factor <= 1.0)
        return 1.0 / wave;
    double low = d * log(c->rope_original_ctx / (c->rope_beta_fast * 2.0 * pi)) / (2.0 * log(c->rope_theta));
    double high = d * log(c->rope_original_ctx / (c->rope_beta_slow * 2.0 * pi)) / (2.0 * log(c->rope_theta));
    if (c->rope_truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, d - 1.0);
    double share = ((double)j - low) / (high == low ? 0.001 : high - low);
    share = fmin(fmax(share, 0.0), 1.0);
    return share / (c->rope_factor * wave) + (1.0 - share) / wave;
}

/* Largest difference of any cosine or sine from those of its float32 angle. */
static double angle_error(const struct gs_config *config, const struct gs_yarn *yarn)
{
    static const int64_t positions[] = {0, 1, 2, 127, 128, 129, 4095, 4096, 65537, 131071};
    float cosine[GS_MAX_D_HEAD / 2], sine[GS_MAX_D_HEAD / 2];
    double worst = 0.0;
    for (size_t p = 0; p < sizeof positions / sizeof *positions; p++) {
        if (positions[p] >= config->max_ctx)
            break;
        gs_yarn_angles(yarn, positions[p], cosine, sine);
        for (int64_t j = 0; j < yarn->n_freq; j++) {
            double angle = (double)((float)positions[p] * yarn->inv_freq[j]);
            double scaling = (double)yarn->attention_scaling;
            worst = fmax(worst, fabs((double)cosine[j] - cos(angle) * scaling));
            worst = fmax(worst, fabs((double)sine[j] - sin(angle) * scaling));
        }
    }
    return worst;
}

/* The same against the golden's, from the golden's frequencies: a last bit of one moves far angles a lot. */
static double golden_angle_error(const struct gs_golden *golden, const struct gs_yarn *yarn)
{
    struct gs_yarn same = *yarn;
    float cosine[GS_MAX_D_HEAD / 2], sine[GS_MAX_D_HEAD / 2];
    double worst = 0.0;
    memcpy(same.inv_freq, golden->inv_freq, (size_t)same.n_freq * sizeof *same.inv_freq);
    for (size_t p = 0; p < golden->n_rope; p++) {
        gs_yarn_angles(&same, golden->rope_positions[p], cosine, sine);
        for (int64_t j = 0; j < same.n_freq; j++) {
            int64_t at = (int64_t)p * same.n_freq + j;
            worst = fmax(worst, fabs((double)cosine[j] - (double)golden->cosine[at]));
            worst = fmax(worst, fabs((double)sine[j] - (double)golden->sine[at]));
        }
    }
    return worst;
}

static gs_status add_golden_rotary(struct gs_verify_report *report, const struct gs_golden *golden,
                                   const struct gs_yarn *yarn, struct gs_error *error)
{
    double ulps = 0.0;
    for (int64_t j = 0; j < yarn->n_freq; j++) {
        int64_t apart = (int64_t)bits_of(yarn->inv_freq[j]) - (int64_t)bits_of(golden->inv_freq[j]);
        ulps = fmax(ulps, fabs((double)apart));
    }
    int64_t apart = (int64_t)bits_of(yarn->attention_scaling) - (int64_t)bits_of(golden->attention_scaling);
    struct gs_check check = {.component = "yarn",
                             .measure = "frequencies, ulps",
                             .layer = -1,
                             .compared = (uint64_t)yarn->n_freq,
                             .measured = ulps,
                             .limit = 1.0,
                             .bar = GS_BAR_AT_MOST,
                             .at = -1};
    gs_status status = gs_check_add(report, check, error);
    check.measure = "scaling, ulps";
    check.compared = 1;
    check.measured = fabs((double)apart);
    check.limit = 0.0;
    if (status == GS_OK)
        status = gs_check_add(report, check, error);
    check.measure = "cos, sin of golden";
    check.compared = 2 * golden->n_rope * (uint64_t)yarn->n_freq;
    check.measured = golden_angle_error(golden, yarn);
    check.limit = report->thresholds->angle_error;
    if (status == GS_OK)
        status = gs_check_add(report, check, error);
    return status;
}

gs_status gs_check_rotary(struct gs_verify_report *report, const struct gs_subject *subject,
                          const struct gs_golden *golden, struct gs_error *error)
{
    const struct gs_config *config = &subject->weights->config;
    struct gs_yarn yarn;
    double worst = 0.0, scaling = config->rope_factor > 1.0 ? 0.1 * log(config->rope_factor) + 1.0 : 1.0;
    subject->backend->rotary(subject->device, &yarn);
    for (int64_t j = 0; j < yarn.n_freq; j++) {
        double should = define_frequency(config, j);
        worst = fmax(worst, fabs((double)yarn.inv_freq[j] - should) / should);
    }
    struct gs_check check = {.component = "yarn",
                             .measure = "frequencies",
                             .layer = -1,
                             .compared = (uint64_t)yarn.n_freq,
                             .measured = worst,
                             .limit = report->thresholds->yarn_error,
                             .bar = GS_BAR_AT_MOST,
                             .at = -1};
    gs_status status = gs_check_add(report, check, error);
    check.measure = "attention scaling";
    check.compared = 1;
    check.measured = fabs((double)yarn.attention_scaling - scaling) / scaling;
    if (status == GS_OK)
        status = gs_check_add(report, check, error);
    check.measure = "cos, sin";
    check.compared = (uint64_t)yarn.n_freq;
    check.measured = angle_error(config, &yarn);
    check.limit = report->thresholds->angle_error;
    if (status == GS_OK)
        status = gs_check_add(report, check, error);
    if (status == GS_OK && golden && golden->is_complete)
        status = add_golden_rotary(report, golden, &yarn, error);
    return status;
}
