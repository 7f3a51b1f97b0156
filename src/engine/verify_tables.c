/* What needs no forward pass: the values of the MXFP4 elements, and the rotary frequencies. */
#include "base/status.h"
#include "base/threads.h"
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

#define MOST_EXPERTS 16 /* compared at a time, each by one thread */
#define MOST_ROWS    64 /* of each of them */

struct tally {
    uint64_t elements, differing;
    double worst; /* largest |difference|, NaN and infinities included */
    uint64_t sums_compared, sums_differing;
};

/* Rows first_row ... first_row+n_rows-1 of some experts, as the backend has them. */
struct comparison {
    struct gs_threads *threads;
    const struct mxfp4_values *values;
    const struct gs_mxfp4_matrix *matrix;
    const int64_t *sums; /* [n_expert]: transformers' checksums; NULL: none */
    float *found;        /* [MOST_EXPERTS][MOST_ROWS][columns] */
    float *expected;     /* [MOST_EXPERTS][columns] */
    int64_t first_expert, first_row, n_rows;
    uint64_t hash[MOST_EXPERTS];
    struct tally tally[MOST_EXPERTS];
};

static void compare_row(struct tally *tally, const float *found, const float *expected, int64_t columns)
{
    tally->elements += (uint64_t)columns;
    if (memcmp(found, expected, (size_t)columns * sizeof(float)) == 0)
        return;
    for (int64_t i = 0; i < columns; i++) {
        if (bits_of(found[i]) == bits_of(expected[i]))
            continue;
        double d = fabs((double)found[i] - (double)expected[i]);
        tally->differing++;
        tally->worst = isnan(tally->worst) || d <= tally->worst ? tally->worst : d;
    }
}

/* A gs_task_fn: an item is an expert. */
static void compare_experts(void *user, size_t begin, size_t end, size_t thread)
{
    struct comparison *c = user;
    int64_t columns = c->matrix->columns;
    (void)thread;
    for (size_t e = begin; e < end; e++) {
        float *expected = c->expected + (int64_t)e * columns;
        uint64_t hash = c->hash[e];
        for (int64_t r = 0; r < c->n_rows; r++) {
            const float *found = c->found + ((int64_t)e * MOST_ROWS + r) * columns;
            struct gs_mxfp4_row row =
                gs_mxfp4_find_row(c->matrix, c->first_expert + (int64_t)e, c->first_row + r);
            define_row(c->values, &row, columns, expected);
            compare_row(&c->tally[e], found, expected, columns);
            for (int64_t i = 0; c->sums && i < columns; i++)
                hash = hash * 0x100000001B3u + bits_of(found[i]); /* tools/oracle/mxfp4.py */
        }
        c->hash[e] = hash;
    }
}

static void add_tally(struct tally *to, const struct tally *from)
{
    to->elements += from->elements;
    to->differing += from->differing;
    to->worst = isnan(to->worst) || from->worst <= to->worst ? to->worst : from->worst;
    to->sums_compared += from->sums_compared;
    to->sums_differing += from->sums_differing;
}

/* n experts of c->matrix from c->first_expert on. The backend is asked by this thread alone. */
static void compare_some(struct comparison *c, const struct gs_subject *subject, size_t n,
                         struct tally *tally)
{
    const struct gs_mxfp4_matrix *matrix = c->matrix;
    memset(c->hash, 0, sizeof c->hash);
    memset(c->tally, 0, sizeof c->tally);
    for (c->first_row = 0; c->first_row < matrix->rows; c->first_row += c->n_rows) {
        c->n_rows = matrix->rows - c->first_row < MOST_ROWS ? matrix->rows - c->first_row : MOST_ROWS;
        for (size_t e = 0; e < n; e++)
            subject->backend->dequantize(subject->device, matrix, c->first_expert + (int64_t)e, c->first_row,
                                         c->n_rows, c->found + (int64_t)e * MOST_ROWS * matrix->columns);
        gs_threads_run(c->threads, compare_experts, c, n, 1);
    }
    for (size_t e = 0; e < n; e++) {
        if (c->sums) {
            c->tally[e].sums_compared = 1;
            c->tally[e].sums_differing = c->hash[e] != (uint64_t)c->sums[c->first_expert + (int64_t)e];
        }
        add_tally(tally, &c->tally[e]);
    }
}

static size_t experts_at_a_time(const struct gs_threads *threads)
{
    size_t n = gs_threads_count(threads);
    return n < MOST_EXPERTS ? n : MOST_EXPERTS;
}

static gs_status compare_matrix(struct comparison *c, const struct gs_subject *subject,
                                const struct gs_mxfp4_matrix *matrix, const int64_t *sums,
                                struct tally *tally, const struct gs_watch *watch, struct gs_error *error)
{
    int64_t most = (int64_t)experts_at_a_time(c->threads);
    c->matrix = matrix;
    c->sums = sums;
    for (c->first_expert = 0; c->first_expert < matrix->n_expert; c->first_expert += most) {
        int64_t left = matrix->n_expert - c->first_expert;
        if (watch->cancelled && atomic_load_explicit(watch->cancelled, memory_order_relaxed))
            return gs_fail(error, GS_CANCELLED, "cancelled");
        compare_some(c, subject, (size_t)(left < most ? left : most), tally);
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
    const struct gs_config *config = &subject->weights->config;
    size_t columns = (size_t)(config->d_model > config->d_ff ? config->d_model : config->d_ff);
    bool has_sums = golden && golden->is_complete;
    struct mxfp4_values *values = malloc(sizeof *values);
    struct comparison c = {.values = values};
    struct tally tally = {0};
    size_t n = 0;
    gs_status status = gs_threads_open(0, &c.threads, error);
    if (status != GS_OK)
        goto cleanup;
    n = experts_at_a_time(c.threads) * (MOST_ROWS + 1) * columns;
    c.found = malloc(n * sizeof *c.found);
    if (!values || !c.found) {
        status = gs_fail_memory(error, n * sizeof *c.found);
        goto cleanup;
    }
    c.expected = c.found + experts_at_a_time(c.threads) * MOST_ROWS * columns;
    define_values(values);
    for (int64_t layer = 0; status == GS_OK && layer < config->n_layer; layer++) {
        const struct gs_layer_weights *w = &subject->weights->layers[layer];
        status = compare_matrix(&c, subject, &w->gate_up, has_sums ? golden->gate_up_sums[layer] : NULL,
                                &tally, watch, error);
        if (status == GS_OK)
            status = compare_matrix(&c, subject, &w->down, has_sums ? golden->down_sums[layer] : NULL, &tally,
                                    watch, error);
    }
    if (status == GS_OK)
        status = add_mxfp4(report, &tally, error);

cleanup:
    gs_threads_close(c.threads);
    free(values);
    free(c.found);
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
