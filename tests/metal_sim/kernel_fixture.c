#include "tests/metal_sim/kernel_fixture.h"

#include "backend/cpu/device.h"
#include "backend/metal/source.h"
#include "model/mxfp4.h"
#include "tests/metal_sim/around.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* ---------------------------------------------------------------- the library */

#define MAX_LIBRARIES 32

/* One for each set of constants that was asked for. */
static struct {
    struct gs_buffer source;
    const char *from, *to; /* of a mutation; NULL: none */
    bool fast_math;
    int n;
    struct gs_metal_tuning tuning[MAX_LIBRARIES];
    struct metalsim_library *libraries[MAX_LIBRARIES];
} opened;

const char *fixture_source(void)
{
    struct gs_error error = {0};
    struct gs_buffer whole = {0};
    if (opened.source.size > 0)
        return (const char *)opened.source.data;
    assert_ok(gs_metal_source(&whole, &error), &error);
    if (!opened.from)
        assert_ok(gs_buffer_append(&opened.source, whole.data, whole.size, &error), &error);
    else {
        const char *text = (const char *)whole.data, *at = strstr(text, opened.from);
        if (!at || strstr(at + 1, opened.from))
            _exit(FIXTURE_NO_SUCH_TEXT);
        assert_ok(gs_buffer_append(&opened.source, text, (size_t)(at - text), &error), &error);
        assert_ok(gs_buffer_append_text(&opened.source, opened.to, &error), &error);
        assert_ok(gs_buffer_append_text(&opened.source, at + strlen(opened.from), &error), &error);
    }
    gs_buffer_free(&whole);
    return (const char *)opened.source.data;
}

static void close_libraries(void)
{
    for (int i = 0; i < opened.n; i++)
        metalsim_library_free(opened.libraries[i]);
    gs_buffer_free(&opened.source);
    memset(&opened, 0, sizeof opened);
}

int fixture_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n)
{
    int failed = 0, n_mode = argc == 4 ? 1 : 2;
    if (argc == 4) {
        cmocka_set_test_filter(argv[1]);
        opened.from = argv[2];
        opened.to = argv[3];
    }
    for (int mode = 0; mode < n_mode; mode++) {
        opened.fast_math = mode != 0;
        failed += _cmocka_run_group_tests(mode ? "fast math" : "precise math", tests, n, NULL, NULL);
        close_libraries();
    }
    return failed;
}

static const struct metalsim_library *find_library(const struct gs_metal_tuning *tuning)
{
    for (int i = 0; i < opened.n; i++)
        if (memcmp(&opened.tuning[i], tuning, sizeof *tuning) == 0)
            return opened.libraries[i];
    static char message[METALSIM_MESSAGE];
    bool scalar_load = tuning->scalar_load != 0, kv_f32 = tuning->kv_f32 != 0;
    const struct metalsim_constant constants[] = {
        {GS_METAL_CONSTANT_SIMDGROUPS, METALSIM_UINT, &tuning->simdgroups},
        {GS_METAL_CONSTANT_MXFP4_SIMDGROUPS, METALSIM_UINT, &tuning->mxfp4_simdgroups},
        {GS_METAL_CONSTANT_SCALAR_LOAD, METALSIM_BOOL, &scalar_load},
        {GS_METAL_CONSTANT_KV_F32, METALSIM_BOOL, &kv_f32},
        {GS_METAL_CONSTANT_CONTROL, METALSIM_UINT, &tuning->control},
    };
    struct metalsim_options options = {.fast_math = opened.fast_math,
                                       .run_once = opened.from != NULL,
                                       .constants = constants,
                                       .n_constant = GS_METAL_CONSTANT_COUNT};
    struct metalsim_library *library =
        metalsim_library_new(fixture_source(), &options, message, sizeof message);
    if (!library)
        fail_msg("%s", message);
    assert_true(opened.n < MAX_LIBRARIES);
    opened.tuning[opened.n] = *tuning;
    opened.libraries[opened.n++] = library;
    return library;
}

void fixture_run_once(struct fixture *f, enum gs_metal_kernel kernel, int order)
{
    static char message[METALSIM_MESSAGE];
    static const enum sim_order orders[FIXTURE_ORDERS] = {SIM_FORWARD, SIM_REVERSE, SIM_RANDOM};
    struct gs_metal_launch launch = gs_metal_launch_of(kernel, &f->args, &f->tuning);
    struct metalsim_bound bound[GS_METAL_BUFFER_COUNT] = {
        {.index = GS_METAL_ARGS, .data = &f->args, .bytes = sizeof f->args}};
    int n = 1;
    for (int i = 1; i < GS_METAL_BUFFER_COUNT; i++)
        if (f->buffers[i].data)
            bound[n++] =
                (struct metalsim_bound){.index = i, .data = f->buffers[i].data, .bytes = f->buffers[i].size};
    struct metalsim_shared shared = {.index = 0, .bytes = launch.threadgroup_bytes};
    struct metalsim_dispatch dispatch = {
        .n_threadgroup = {launch.grid[0], launch.grid[1], launch.grid[2]},
        .n_thread = {launch.threads, 1, 1},
        .buffers = bound,
        .n_buffer = n,
        .shared = &shared,
        .n_shared = launch.threadgroup_bytes > 0,
        .order = orders[order],
        .seed = f->random,
    };
    if (!metalsim_run(find_library(&f->tuning), gs_metal_kernel_name(kernel), &dispatch, message,
                      sizeof message))
        fail_msg("%s", message);
}

/* ---------------------------------------------------------------- buffers */

void fixture_init(struct fixture *f, uint64_t seed)
{
    need_simulator();
    memset(f, 0, sizeof *f);
    f->random = seed * 2654435761u + 12345;
    f->args = (struct gs_metal_args){.d_model = 96,
                                     .d_head = 8,
                                     .n_head = 6,
                                     .n_kv_head = 2,
                                     .n_expert = 5,
                                     .n_active = 3,
                                     .d_ff = 32,
                                     .n_vocab = 100,
                                     .n_layer = 1,
                                     .rms_norm_eps = 1e-5f,
                                     .swiglu_limit = 7.0f,
                                     .swiglu_alpha = 1.702f,
                                     .n_rows = 1,
                                     .n_split = 1,
                                     .n_logit_rows = 1,
                                     .n_ranks = 3};
    f->tuning = (struct gs_metal_tuning){.simdgroups = GS_METAL_SIMDGROUPS_DEFAULT,
                                         .mxfp4_simdgroups = GS_METAL_MXFP4_SIMDGROUPS_DEFAULT,
                                         .kv_f32 = 1};
}

void fixture_free(struct fixture *f)
{
    for (int i = 0; i < GS_METAL_BUFFER_COUNT; i++)
        free(f->buffers[i].data);
    memset(f, 0, sizeof *f);
}

uint32_t fixture_random(struct fixture *f, uint32_t below)
{
    f->random = f->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(f->random >> 33) % below;
}

float fixture_uniform(struct fixture *f, float low, float high)
{
    return low + (high - low) * (float)fixture_random(f, 1u << 20) / (float)(1u << 20);
}

void *fixture_output(struct fixture *f, enum gs_metal_buffer index, size_t size)
{
    free(f->buffers[index].data);
    f->buffers[index].data = malloc(size > 0 ? size : 1);
    assert_non_null(f->buffers[index].data);
    memset(f->buffers[index].data, 0xff, size);
    f->buffers[index].size = size;
    return f->buffers[index].data;
}

float *fixture_floats(struct fixture *f, enum gs_metal_buffer index, size_t n, float scale)
{
    float *values = fixture_output(f, index, n * sizeof *values);
    for (size_t i = 0; i < n; i++)
        values[i] = fixture_uniform(f, -scale, scale);
    return values;
}

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* A normal half in [-scale, scale) and the float that it is. */
static uint16_t random_half(struct fixture *f, float *value)
{
    uint32_t exponent = 8 + fixture_random(f, 7), mantissa = fixture_random(f, 1024),
             sign = fixture_random(f, 2);
    *value = ldexpf((float)(1024 + mantissa), (int)exponent - 25) * (sign ? -1.0f : 1.0f);
    return (uint16_t)(sign << 15 | exponent << 10 | mantissa);
}

/* Codes [rows][columns], and from the next multiple of 16 bytes on scales [rows][columns/32]. */
static void fill_q8(struct fixture *f, uint32_t slot, uint32_t rows, uint32_t columns, float *values)
{
    size_t n = (size_t)rows * columns, scales_at = (n + 15) / 16;
    uint8_t *bytes = fixture_output(f, GS_METAL_WEIGHT_0 + slot, scales_at * 16 + n / 32 * 2);
    f->args.scales_at[slot] = (uint32_t)scales_at;
    for (size_t group = 0; group < n / 32; group++) {
        float scale;
        uint16_t bits = random_half(f, &scale);
        memcpy(bytes + scales_at * 16 + group * 2, &bits, sizeof bits);
        for (size_t i = group * 32; i < group * 32 + 32; i++) {
            int code = (int)fixture_random(f, 255) - 127;
            bytes[i] = (uint8_t)(int8_t)code;
            values[i] = (float)code * scale;
        }
    }
}

float *fixture_matrix(struct fixture *f, uint32_t slot, enum gs_metal_type type, uint32_t rows,
                      uint32_t columns)
{
    size_t n = (size_t)rows * columns;
    float *values = malloc(n * sizeof *values);
    assert_non_null(values);
    enum gs_metal_buffer index = GS_METAL_WEIGHT_0 + slot;
    f->args.type[slot] = type;
    f->args.scales_at[slot] = 0;
    if (type == GS_METAL_Q8) {
        fill_q8(f, slot, rows, columns, values);
        return values;
    }
    void *data = fixture_output(f, index, n * (type == GS_METAL_F32 ? 4 : 2));
    for (size_t i = 0; i < n; i++) {
        float value = fixture_uniform(f, -1.0f, 1.0f);
        if (type == GS_METAL_F16) {
            ((uint16_t *)data)[i] = random_half(f, &value);
        } else if (type == GS_METAL_BF16) {
            ((uint16_t *)data)[i] = (uint16_t)(bits_of_float(value) >> 16);
            value = float_of_bits(bits_of_float(value) & 0xffff0000u);
        } else {
            ((float *)data)[i] = value;
        }
        values[i] = value;
    }
    return values;
}

float *fixture_experts(struct fixture *f, uint32_t rows, uint32_t columns)
{
    size_t n_row = (size_t)f->args.n_expert * rows, groups = columns / 32;
    uint8_t *codes = fixture_output(f, GS_METAL_WEIGHT_0, n_row * groups * 16);
    uint8_t *scales = fixture_output(f, GS_METAL_WEIGHT_1, n_row * groups);
    float *values = malloc(n_row * columns * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < n_row * groups * 16; i++)
        codes[i] = (uint8_t)fixture_random(f, 256);
    for (size_t i = 0; i < n_row * groups; i++)
        scales[i] = (uint8_t)(119 + fixture_random(f, 8));
    for (size_t r = 0; r < n_row; r++)
        gs_mxfp4_dequantize(codes + r * groups * 16, scales + r * groups, columns, values + r * columns);
    return values;
}

struct gs_metal_row *fixture_rows(struct fixture *f, uint32_t n, uint32_t first_position)
{
    struct gs_metal_row *rows = fixture_output(f, GS_METAL_ROWS, n * sizeof *rows);
    memset(rows, 0, n * sizeof *rows);
    f->args.n_rows = n;
    for (uint32_t t = 0; t < n; t++)
        rows[t].position = (int32_t)(first_position + t);
    return rows;
}

void fixture_kv(struct fixture *f, uint32_t n_timeline, uint32_t n_slot, bool seven_bits)
{
    f->args.n_layer = 2;
    f->args.layer = 1;
    struct gs_metal_kv_layer *table =
        fixture_output(f, GS_METAL_KV_TABLE, n_timeline * 2 * sizeof(struct gs_metal_kv_layer));
    size_t element = f->tuning.kv_f32 ? 4 : 2, at = 0;
    for (uint32_t i = 0; i < n_timeline * 2; i++) {
        uint32_t slots = n_slot + i / 2;
        size_t size = (size_t)f->args.n_kv_head * slots * f->args.d_head * element;
        table[i] =
            (struct gs_metal_kv_layer){.keys = at, .values = at + (size + 15) / 16 * 16, .n_slot = slots};
        at += (size + 15) / 16 * 16 * 2;
    }
    uint8_t *kv = fixture_output(f, GS_METAL_KV, at);
    for (size_t i = 0; i + element <= at; i += element) {
        float value =
            seven_bits ? (float)((int)fixture_random(f, 255) - 127) / 64.0f : fixture_uniform(f, -1.0f, 1.0f);
        memcpy(kv + i, (const uint8_t *)&value + (4 - element), element);
    }
}

void fixture_attention(struct fixture *f, const struct attention_shape *shape)
{
    f->args.d_head = shape->d_head;
    f->args.n_head = shape->n_head;
    f->args.n_kv_head = shape->n_kv_head;
    f->args.window = shape->window;
    f->args.attention_scale = 1.0f / sqrtf((float)shape->d_head);
    f->tuning.kv_f32 = shape->kv_f32;
}

void fixture_actives(struct fixture *f, uint32_t n, bool uneven)
{
    struct gs_metal_active *active =
        fixture_output(f, GS_METAL_ACTIVE, (size_t)n * f->args.n_active * sizeof *active);
    f->args.n_rows = n;
    for (uint32_t t = 0; t < n; t++) {
        uint32_t left = f->args.n_active, k = 0;
        for (uint32_t e = 0; e < f->args.n_expert; e++) {
            uint32_t rest = f->args.n_expert - e, of = uneven && e == 0 ? left + 1 : rest;
            if (left == rest || (left > 0 && fixture_random(f, of) < left)) {
                left--;
                active[t * f->args.n_active + k++] =
                    (struct gs_metal_active){(int32_t)e, fixture_uniform(f, 0.1f, 0.5f)};
            }
        }
    }
}

void fixture_run(struct fixture *f, enum gs_metal_kernel kernel)
{
    void *before[GS_METAL_BUFFER_COUNT] = {NULL}, *first[GS_METAL_BUFFER_COUNT] = {NULL};
    for (int i = 0; i < GS_METAL_BUFFER_COUNT; i++)
        if (f->buffers[i].data) {
            before[i] = malloc(f->buffers[i].size + 1);
            first[i] = malloc(f->buffers[i].size + 1);
            assert_true(before[i] && first[i]);
            memcpy(before[i], f->buffers[i].data, f->buffers[i].size);
        }
    for (int order = 0; order < FIXTURE_ORDERS; order++) {
        for (int i = 0; order > 0 && i < GS_METAL_BUFFER_COUNT; i++)
            if (before[i])
                memcpy(f->buffers[i].data, before[i], f->buffers[i].size);
        fixture_run_once(f, kernel, order);
        for (int i = 0; i < GS_METAL_BUFFER_COUNT; i++) {
            if (!before[i])
                continue;
            if (order == 0)
                memcpy(first[i], f->buffers[i].data, f->buffers[i].size);
            else if (memcmp(first[i], f->buffers[i].data, f->buffers[i].size) != 0)
                fail_msg("%s: buffer %d has other bits in order %d of the lanes",
                         gs_metal_kernel_name(kernel), i, order);
        }
    }
    for (int i = 0; i < GS_METAL_BUFFER_COUNT; i++) {
        free(before[i]);
        free(first[i]);
    }
}

/* ---------------------------------------------------------------- the scalar CPU code */

void cpu_linear(const float *matrix, const float *bias, const float *x, uint32_t rows, uint32_t columns,
                float *out)
{
    const struct gs_kernels *kernels = gs_kernels_find("generic");
    for (uint32_t r = 0; r < rows; r++) {
        kernels->dot(matrix + (size_t)r * columns, &x, 1, columns, &out[r]);
        out[r] += bias ? bias[r] : 0.0f;
    }
}

void cpu_norm(const struct fixture *f, const float *x, const float *weight, float *out)
{
    const struct gs_kernels *kernels = gs_kernels_find("generic");
    float squares;
    kernels->dot(x, &x, 1, f->args.d_model, &squares);
    float scale = 1.0f / sqrtf(squares / (float)f->args.d_model + f->args.rms_norm_eps);
    for (uint32_t i = 0; i < f->args.d_model; i++)
        out[i] = weight[i] * (x[i] * scale);
}

static struct gs_config config_of(const struct fixture *f)
{
    return (struct gs_config){.d_model = f->args.d_model,
                              .d_head = f->args.d_head,
                              .n_head = f->args.n_head,
                              .n_kv_head = f->args.n_kv_head,
                              .n_expert = f->args.n_expert,
                              .n_active = f->args.n_active,
                              .d_ff = f->args.d_ff,
                              .swiglu_limit = f->args.swiglu_limit,
                              .swiglu_alpha = f->args.swiglu_alpha};
}

void cpu_rotate(const struct fixture *f, const float *angles, float *heads, uint32_t n_head)
{
    float cosine[GS_METAL_MAX_D_HEAD / 2], sine[GS_METAL_MAX_D_HEAD / 2];
    for (uint32_t i = 0; i < f->args.d_head / 2; i++) {
        cosine[i] = angles[2 * i];
        sine[i] = angles[2 * i + 1];
    }
    struct gs_config config = config_of(f);
    gs_cpu_reference_stages.rotate(&config, cosine, sine, heads, n_head);
}

void cpu_choose(const struct fixture *f, const float *logits, int32_t *choice, float *weight)
{
    float chosen[GS_METAL_MAX_ACTIVE];
    struct gs_config config = config_of(f);
    gs_cpu_reference_stages.choose_experts(&config, logits, chosen, weight);
    for (uint32_t k = 0; k < f->args.n_active; k++)
        choice[k] = (int32_t)chosen[k];
}

void cpu_activate(const struct fixture *f, const float *gate_up, float *out)
{
    struct gs_weights weights = {.config = config_of(f)};
    struct gs_device device = {.weights = &weights};
    gs_cpu_reference_stages.activate(&device, gate_up, out);
}

/* The place of an element in the cache. */
static size_t kv_place(const struct fixture *f, uint32_t timeline, bool value, uint32_t kv_head,
                       uint32_t position, uint32_t i)
{
    const struct gs_metal_kv_layer *layer =
        (const struct gs_metal_kv_layer *)f->buffers[GS_METAL_KV_TABLE].data + timeline * f->args.n_layer +
        f->args.layer;
    size_t at = ((size_t)kv_head * layer->n_slot + position % layer->n_slot) * f->args.d_head + i;
    return (value ? layer->values : layer->keys) + at * (f->tuning.kv_f32 ? 4 : 2);
}

float cpu_kv(const struct fixture *f, uint32_t timeline, bool value, uint32_t kv_head, uint32_t position,
             uint32_t i)
{
    const uint8_t *at =
        (const uint8_t *)f->buffers[GS_METAL_KV].data + kv_place(f, timeline, value, kv_head, position, i);
    float wide;
    uint16_t narrow;
    if (f->tuning.kv_f32) {
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    memcpy(&narrow, at, sizeof narrow);
    return float_of_bits((uint32_t)narrow << 16);
}

float cpu_kv_rounded(const struct fixture *f, float value)
{
    if (f->tuning.kv_f32)
        return value;
    uint32_t bits = bits_of_float(value);
    return float_of_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
}

void cpu_attention(const struct fixture *f, uint32_t t, float *out)
{
    const struct gs_metal_args *args = &f->args;
    const struct gs_metal_row *row = (const struct gs_metal_row *)f->buffers[GS_METAL_ROWS].data + t;
    const float *qkv = (const float *)f->buffers[GS_METAL_QKV].data +
                       (size_t)t * (args->n_head + 2 * args->n_kv_head) * args->d_head;
    const float *sinks = f->buffers[GS_METAL_SINKS].data;
    uint32_t d = args->d_head, p = (uint32_t)row->position;
    uint32_t first = args->window > 0 && p >= args->window ? p - args->window + 1 : 0;
    for (uint32_t head = 0; head < args->n_head; head++) {
        uint32_t kv_head = head / (args->n_head / args->n_kv_head);
        double sum = 0.0, total[GS_METAL_MAX_D_HEAD] = {0.0};
        double *scores = malloc((p + 1) * sizeof *scores), largest = (double)sinks[head];
        assert_non_null(scores);
        for (uint32_t key = first; key <= p; key++) {
            scores[key] = 0.0;
            for (uint32_t i = 0; i < d; i++)
                scores[key] += (double)qkv[head * d + i] *
                               (double)cpu_kv(f, (uint32_t)row->timeline, false, kv_head, key, i);
            scores[key] *= (double)args->attention_scale;
            largest = fmax(largest, scores[key]);
        }
        sum = exp((double)sinks[head] - largest);
        for (uint32_t key = first; key <= p; key++) {
            double weight = exp(scores[key] - largest);
            sum += weight;
            for (uint32_t i = 0; i < d; i++)
                total[i] += weight * (double)cpu_kv(f, (uint32_t)row->timeline, true, kv_head, key, i);
        }
        for (uint32_t i = 0; i < d; i++)
            out[head * d + i] = (float)(total[i] / sum);
        free(scores);
    }
}

void expect_close(const char *what, const float *got, const float *expected, size_t n, double tolerance)
{
    double largest = 0.0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)expected[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)expected[i]) <= tolerance * largest))
            fail_msg("%s: element %zu of %zu is %.9g, not %.9g (largest %g)", what, i, n, (double)got[i],
                     (double)expected[i], largest);
}

void expect_activated(const struct fixture *f, const float *weights)
{
    const uint32_t d_ff = f->args.d_ff, d_model = f->args.d_model, n_active = f->args.n_active;
    const struct gs_metal_active *active = f->buffers[GS_METAL_ACTIVE].data;
    const float *bias = f->buffers[GS_METAL_BIAS_0].data, *normed = f->buffers[GS_METAL_NORMED].data;
    const float *activated = f->buffers[GS_METAL_ACTIVATED].data;
    float *gate_up = malloc((size_t)2 * d_ff * sizeof *gate_up), *expected = malloc(d_ff * sizeof *expected);
    assert_true(gate_up && expected);
    for (uint32_t route = 0; route < f->args.n_rows * n_active; route++) {
        size_t row = (size_t)active[route].expert * 2 * d_ff;
        cpu_linear(weights + row * d_model, bias + row, normed + route / n_active * d_model, 2 * d_ff,
                   d_model, gate_up);
        cpu_activate(f, gate_up, expected);
        expect_close("activated", activated + (size_t)route * d_ff, expected, d_ff, FLOAT_TOLERANCE);
    }
    free(gate_up);
    free(expected);
}

void expect_experts_down(const struct fixture *f, const float *weights, const float *before)
{
    const uint32_t d_ff = f->args.d_ff, d_model = f->args.d_model, n_active = f->args.n_active;
    const struct gs_metal_active *active = f->buffers[GS_METAL_ACTIVE].data;
    const float *bias = f->buffers[GS_METAL_BIAS_0].data, *activated = f->buffers[GS_METAL_ACTIVATED].data;
    const float *out = f->buffers[GS_METAL_EXPERT_OUT].data, *hidden = f->buffers[GS_METAL_HIDDEN].data;
    const float *projected = f->buffers[GS_METAL_PROJECTED].data;
    float *expected = malloc(d_model * sizeof *expected), *moe = malloc(d_model * sizeof *moe);
    assert_true(expected && moe);
    for (size_t t = 0; t < f->args.n_rows; t++) {
        memset(moe, 0, d_model * sizeof *moe);
        for (size_t route = t * n_active; route < (t + 1) * n_active; route++) {
            size_t row = (size_t)active[route].expert * d_model;
            cpu_linear(weights + row * d_ff, bias + row, activated + route * d_ff, d_model, d_ff, expected);
            if (out)
                expect_close("expert_out", out + route * d_model, expected, d_model, FLOAT_TOLERANCE);
            for (uint32_t r = 0; r < d_model; r++)
                moe[r] += expected[r] * active[route].weight;
        }
        expect_close("moe", projected + t * d_model, moe, d_model, FLOAT_TOLERANCE);
        for (uint32_t r = 0; r < d_model; r++)
            moe[r] += before[t * d_model + r];
        expect_close("hidden", hidden + t * d_model, moe, d_model, FLOAT_TOLERANCE);
    }
    free(expected);
    free(moe);
}
