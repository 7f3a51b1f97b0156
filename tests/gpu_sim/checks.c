#include "tests/gpu_sim/checks.h"

#include "model/matrix.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct check_entry check_entries[] = {
    {"embed", check_embed},
    {"norm", check_norm},
    {"add", check_add},
    {"move", check_move},
    {"linear", check_linear},
    {"argmax", check_argmax},
    {"next", check_next},
    {"draw", check_draw},
    {"draw next", check_draw_next},
    {"rotate", check_rotate},
    {"attention", check_attention},
    {"choose", check_choose},
    {"sort", check_sort},
    {"moe", check_moe},
    {"combine", check_combine},
    {"convert dense", check_convert_dense},
    {"convert quantise", check_convert_quantise},
    {"convert experts", check_convert_experts},
    {"rope", check_rope},
    {"dequantize", check_dequantize},
};
const size_t check_entry_count = sizeof check_entries / sizeof *check_entries;

bool check_run(struct check *check, check_fn *run)
{
    check->n_buffers = 0;
    check->message[0] = '\0';
    check->random = 1;
    check->hash = 0xCBF29CE484222325u;
    run(check);
    check_release(check);
    return !check_failed(check);
}

void check_fail(struct check *check, const char *format, ...)
{
    va_list arguments;
    if (check_failed(check))
        return;
    va_start(arguments, format);
    vsnprintf(check->message, sizeof check->message, format, arguments);
    va_end(arguments);
}

void *check_give(struct check *check, const char *name, const void *from, size_t bytes)
{
    struct sim_buffer *buffer = &check->buffers[check->n_buffers];
    if (check->n_buffers == CHECK_MAX_BUFFERS || !check->sim->buffer_init(buffer, name, bytes, 16)) {
        fprintf(stderr, "no room for %s\n", name);
        abort();
    }
    check->n_buffers++;
    if (from)
        memcpy(buffer->data, from, bytes);
    return buffer->data;
}

void check_release(struct check *check)
{
    struct sim_fault fault;
    for (size_t i = 0; i < check->n_buffers; i++) {
        if (!check->sim->buffer_intact(&check->buffers[i], &fault))
            check_fail(check, "%s", fault.message);
        check->sim->buffer_release(&check->buffers[i]);
    }
    check->n_buffers = 0;
}

void check_launch(struct check *check, const char *kernel, uint32_t x, uint32_t y, uint32_t z, uint32_t block,
                  uint32_t shared_bytes, const void *args)
{
    struct gpu_sim_launch launch = {.kernel = kernel,
                                    .grid = {x, y, z},
                                    .block = block,
                                    .shared_bytes = shared_bytes,
                                    .args = args,
                                    .order = check->order,
                                    .seed = check_random(check),
                                    .sums_whole = check->sums_whole};
    struct sim_fault fault;
    for (size_t i = 0; i < check->sim->count(); i++)
        check->launched |= (uint64_t)(strcmp(check->sim->name(i), kernel) == 0) << i;
    if (!check_failed(check) && !check->sim->run(&launch, &fault))
        check_fail(check, "%s stops: %s", kernel, fault.message);
}

/* ---------------------------------------------------------------- comparing */

static void hash_bytes(struct check *check, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        check->hash = (check->hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001B3u;
}

void check_near(struct check *check, const char *what, const float *found, const double *expected,
                const double *size, size_t n, double tolerance)
{
    hash_bytes(check, found, n * sizeof *found);
    for (size_t i = 0; i < n; i++) {
        double error = fabs((double)found[i] - expected[i]);
        if (!(error <= tolerance * (size ? size[i] : 1.0)))
            check_fail(check, "%s: element %zu of %zu is %g, should be %g", what, i, n, (double)found[i],
                       expected[i]);
    }
}

void check_same(struct check *check, const char *what, const void *found, const void *expected, size_t bytes)
{
    const unsigned char *a = found, *b = expected;
    hash_bytes(check, found, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (a[i] != b[i]) {
            check_fail(check, "%s: byte %zu of %zu is %02x, should be %02x", what, i, bytes, a[i], b[i]);
            return;
        }
}

/* ---------------------------------------------------------------- making */

/* splitmix64 */
uint32_t check_random(struct check *check)
{
    uint64_t z = check->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) >> 32);
}

float check_number(struct check *check)
{
    return (float)((int)(check_random(check) % 257) - 128) / 128.0f;
}

void check_numbers(struct check *check, float *to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = check_number(check);
}

static uint16_t bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16); /* exact for check_number's */
}

/* A normal half: check_number's magnitudes from 2^-7 on are. */
static uint16_t f16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value == 0.0f)
        return (uint16_t)(bits >> 16);
    return (uint16_t)((bits >> 16 & 0x8000u) | (((bits >> 23 & 255u) - 112u) << 10) | (bits >> 13 & 1023u));
}

static void fill(struct check *check, const struct check_matrix *m, void *data, uint16_t *scales)
{
    size_t n = (size_t)m->on_device.rows * (size_t)m->on_device.columns;
    for (size_t i = 0; i < n; i++) {
        float value = check_number(check);
        if (m->on_device.type == GS_GPU_F32)
            ((float *)data)[i] = value;
        else if (m->on_device.type == GS_GPU_BF16)
            ((uint16_t *)data)[i] = bf16_of(value);
        else if (m->on_device.type == GS_GPU_F16)
            ((uint16_t *)data)[i] = f16_of(value);
        else {
            static const float of_block[] = {0.0078125f, 0.01171875f, 0.5f};
            float scale = of_block[i / 32 % 3];
            int8_t code = (int8_t)check_random(check);
            scales[i / 32] = f16_of(scale);
            ((int8_t *)data)[i] = code;
            value = scale * (float)code;
        }
        m->values[i] = value;
    }
}

struct check_matrix check_make_matrix(struct check *check, enum gs_gpu_type type, int32_t rows,
                                      int32_t columns)
{
    static const size_t element_bytes[] = {4, 2, 2, 1};
    size_t n = (size_t)rows * (size_t)columns;
    void *data = check_give(check, "a matrix", NULL, n * element_bytes[type]);
    uint16_t *scales = type == GS_GPU_Q8 ? check_give(check, "its scales", NULL, n / 32 * 2) : NULL;
    struct check_matrix m = {.on_device = {.data = data,
                                           .scales = scales,
                                           .type = (int32_t)type,
                                           .rows = rows,
                                           .columns = columns},
                             .values = calloc(n, sizeof(float))};
    fill(check, &m, data, scales);
    return m;
}
