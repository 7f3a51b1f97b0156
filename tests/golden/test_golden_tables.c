/*
 * What needs no forward pass, against transformers: MXFP4 values (every scale byte x every code, every expert
 * of every model), YaRN frequencies, cosines and sines.
 *
 *   test_golden_tables                 the committed goldens
 *   test_golden_tables MODEL GOLDEN    that pair alone
 */
#include "golden_file.h"

#include <math.h>

#include "model/mxfp4.h"
#include "model/weights.h"
#include "model/yarn.h"

static const struct model_golden {
    const char *model, *golden;
} models[] = GOLDEN_MODELS;

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* ---------------------------------------------------------------- MXFP4 */

/* One group with code c at elements c and 16 + c, dequantised. */
static void all_codes(uint8_t scale, float out[32])
{
    uint8_t blocks[GS_MXFP4_GROUP_BYTES];
    for (unsigned k = 0; k < GS_MXFP4_GROUP_BYTES; k++) {
        blocks[k] = (uint8_t)((2 * k & 15) | ((2 * k + 1) & 15) << 4);
    }
    gs_mxfp4_dequantize(blocks, &scale, GS_MXFP4_GROUP, out);
}

/*
 * Where transformers' value is finite it is exact, and ours must be the same bits. It overflows at scales
 * 253 and 254 (4 and 6, then 2 and 3 as well) and at 255, which is NaN in the format and refused at loading.
 */
static void check_table(struct golden *golden, const char *name, size_t n_finite)
{
    const float *expected = golden_data(golden, name, GS_DTYPE_F32, 256, 16);
    size_t finite = 0;
    for (unsigned scale = 0; scale < GS_MXFP4_SCALE_NAN; scale++) {
        float found[GS_MXFP4_GROUP];
        all_codes((uint8_t)scale, found);
        for (unsigned i = 0; i < GS_MXFP4_GROUP; i++) {
            float value = expected[16 * scale + i % 16];
            if (isfinite(value)) {
                finite += i < 16;
                if (bits_of(found[i]) != bits_of(value)) {
                    fail_msg("scale %u, code %u: %a instead of %a", scale, i % 16, (double)found[i],
                             (double)value);
                }
            }
        }
    }
    assert_int_equal(finite, n_finite);
}

static void test_mxfp4_all_values(void **state)
{
    (void)state;
    struct golden golden;
    golden_open(&golden, "tests/golden/data/mxfp4.safetensors");
    size_t n_finite = 253 * 16 + 12 + 8;
    check_table(&golden, "bfloat16", n_finite);
    check_table(&golden, "float32", n_finite);
    golden_close(&golden);
}

/* As in tools/oracle/mxfp4.py: hash * factor + word; `hash` carries on from row to row. */
static uint64_t checksum(uint64_t hash, const float *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        hash = hash * 0x100000001B3u + bits_of(values[i]);
    }
    return hash;
}

static uint64_t checksum_expert(const struct gs_mxfp4_matrix *matrix, int64_t expert, float *row)
{
    uint64_t hash = 0;
    for (int64_t r = 0; r < matrix->rows; r++) {
        int64_t at = (expert * matrix->rows + r) * matrix->columns;
        gs_mxfp4_dequantize(matrix->blocks + at / 2, matrix->scales + at / GS_MXFP4_GROUP, matrix->columns,
                            row);
        hash = checksum(hash, row, matrix->columns);
    }
    return hash;
}

static size_t check_experts(struct golden *golden, const struct gs_mxfp4_matrix *matrix, int64_t layer,
                            const char *part)
{
    char name[64];
    snprintf(name, sizeof(name), "layers.%lld.%s_checksum", (long long)layer, part);
    const int64_t *expected = golden_data(golden, name, GS_DTYPE_I64, 1, (uint64_t)matrix->n_expert);
    float *row = gs_arena_alloc_array(&golden->arena, (size_t)matrix->columns, sizeof(*row));
    assert_non_null(row);
    for (int64_t expert = 0; expert < matrix->n_expert; expert++) {
        if (checksum_expert(matrix, expert, row) != (uint64_t)expected[expert]) {
            fail_msg("%s: expert %lld dequantises to other bits than transformers'", name, (long long)expert);
        }
    }
    return (size_t)matrix->n_expert;
}

/* ---------------------------------------------------------------- YaRN */

static int64_t ulps_apart(float a, float b)
{
    return llabs((int64_t)bits_of(a) - (int64_t)bits_of(b)); /* both positive */
}

/* The largest difference of any cosine or sine from the golden's. */
static double angle_error(struct golden *golden, const struct gs_yarn *yarn)
{
    size_t n_positions = 0;
    const int32_t *positions = golden_vector(golden, "rope.positions", GS_DTYPE_I32, &n_positions);
    const float *cosines = golden_data(golden, "rope.cos", GS_DTYPE_F32, n_positions, (uint64_t)yarn->n_freq);
    const float *sines = golden_data(golden, "rope.sin", GS_DTYPE_F32, n_positions, (uint64_t)yarn->n_freq);
    double worst = 0;
    for (size_t p = 0; p < n_positions; p++) {
        float cosine[256], sine[256];
        gs_yarn_angles(yarn, positions[p], cosine, sine);
        for (int64_t j = 0; j < yarn->n_freq; j++) {
            int64_t at = (int64_t)p * yarn->n_freq + j;
            worst = fmax(worst, fabs((double)cosine[j] - cosines[at]));
            worst = fmax(worst, fabs((double)sine[j] - sines[at]));
        }
    }
    return worst;
}

/*
 * The last ulp of a frequency hangs on the C library's pow. At position 131071 it moves an angle by up to
 * 0.008, so angles are checked from transformers' frequencies.
 */
static int64_t check_yarn(struct golden *golden, const struct gs_config *config, double *worst)
{
    struct gs_yarn yarn;
    gs_yarn_init(config, &yarn);
    const float *inv_freq = golden_data(golden, "rope.inv_freq", GS_DTYPE_F32, 1, (uint64_t)yarn.n_freq);
    const float *scaling = golden_data(golden, "rope.attention_scaling", GS_DTYPE_F32, 1, 1);
    int64_t ulps = 0;
    for (int64_t j = 0; j < yarn.n_freq; j++) {
        int64_t apart = ulps_apart(yarn.inv_freq[j], inv_freq[j]);
        ulps = apart > ulps ? apart : ulps;
        yarn.inv_freq[j] = inv_freq[j];
    }
    assert_true(bits_of(yarn.attention_scaling) == bits_of(*scaling));
    assert_true(ulps <= 1);
    *worst = fmax(*worst, angle_error(golden, &yarn));
    assert_true(*worst <= 4e-7);

    yarn.inv_freq[1] *= 1.00001f; /* a control */
    assert_true(angle_error(golden, &yarn) > 1e-3);
    return ulps;
}

/* ---------------------------------------------------------------- models */

static size_t check_model(const char *model, const char *path)
{
    struct gs_error error = {0};
    struct gs_checkpoint *checkpoint = NULL;
    struct gs_weights *weights = NULL;
    struct golden golden;
    size_t n_matrices = 0;
    double worst = 0;
    require(gs_checkpoint_open(model, &checkpoint, &error), &error);
    require(gs_weights_bind(checkpoint, NULL, NULL, &weights, &error), &error);
    golden_open(&golden, path);
    int64_t ulps = check_yarn(&golden, &weights->config, &worst);
    for (int64_t layer = 0; layer < weights->config.n_layer; layer++) {
        n_matrices += check_experts(&golden, &weights->layers[layer].gate_up, layer, "gate_up");
        n_matrices += check_experts(&golden, &weights->layers[layer].down, layer, "down");
    }
    printf("  %-34s %4zu expert matrices bit-exact; inv_freq within %lld ulp; cos, sin within %.1e\n", model,
           n_matrices, (long long)ulps, worst);
    golden_close(&golden);
    gs_weights_free(weights);
    gs_checkpoint_close(checkpoint);
    return n_matrices;
}

static void test_experts_and_yarn(void **state)
{
    (void)state;
    size_t n_matrices = 0;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        if (golden_present(models[i].model, models[i].golden)) {
            char path[400];
            snprintf(path, sizeof(path), "%s.safetensors", models[i].golden);
            n_matrices += check_model(models[i].model, path);
        }
    }
    assert_true(n_matrices > 0);
}

/* A checksum that never differs would prove nothing: one bit, and two elements exchanged. */
static void test_checksum_notices(void **state)
{
    (void)state;
    float values[64];
    for (int i = 0; i < 64; i++) {
        values[i] = (float)(i - 20) * 0.5f;
    }
    uint64_t whole = checksum(0, values, 64);
    assert_true(checksum(checksum(0, values, 40), values + 40, 24) == whole);
    for (int i = 0; i < 63; i++) {
        float kept = values[i];
        values[i] = -kept;
        assert_true(checksum(0, values, 64) != whole);
        values[i] = values[i + 1];
        values[i + 1] = kept;
        assert_true(checksum(0, values, 64) != whole);
        values[i + 1] = values[i];
        values[i] = kept;
    }
    assert_true(checksum(0, values, 64) == whole);
}

static void test_pair(void **state)
{
    const struct model_golden *pair = *state;
    check_model(pair->model, pair->golden);
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        struct model_golden pair = {argv[1], argv[2]};
        const struct CMUnitTest one[] = {cmocka_unit_test_prestate(test_pair, &pair)};
        return cmocka_run_group_tests(one, NULL, NULL);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mxfp4_all_values),
        cmocka_unit_test(test_experts_and_yarn),
        cmocka_unit_test(test_checksum_notices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
