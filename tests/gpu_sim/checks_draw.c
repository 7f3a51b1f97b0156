/* Tokens drawn from rows of logits. */
#include "base/math.h"
#include "tests/gpu_sim/checks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 7

/* A row's token by sums in ascending order; its distance from a border of two tokens, of the sum of all. */
static int32_t draw_in_order(const float *logits, int32_t n, struct gs_gpu_draw draw, double *distance)
{
    int32_t best = 0, chosen = -1;
    double total = 0.0, sum = 0.0, target;
    for (int32_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    *distance = 1.0;
    if (draw.temperature == 0.0f)
        return best;
    for (int32_t i = 0; i < n; i++)
        total += gs_exp64(((double)logits[i] - logits[best]) / (double)draw.temperature);
    target = draw.uniform * total;
    for (int32_t i = 0; i < n && chosen < 0; i++) {
        double before = sum;
        sum += gs_exp64(((double)logits[i] - logits[best]) / (double)draw.temperature);
        if (sum > target) {
            chosen = i;
            *distance = fmin(sum - target, before == 0.0 ? 1.0 : target - before) / total;
        }
    }
    return chosen;
}

static uint64_t argmax_of(const float *logits, int32_t n)
{
    uint64_t best = 0;
    for (int32_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        uint64_t packed = gs_gpu_pack_argmax(bits, (uint32_t)i);
        best = packed > best ? packed : best;
    }
    return best;
}

/* Everything that the kernels read of rows of n logits. */
static struct gs_gpu_args give_rows(struct check *check, const float *logits, int32_t n, int32_t n_rows,
                                    const struct gs_gpu_draw *draws)
{
    struct gs_gpu_args args = {.dims = {.n_vocab = n}};
    uint64_t best[ROWS];
    for (int32_t row = 0; row < n_rows; row++)
        best[row] = argmax_of(logits + row * n, n);
    args.s.logits = check_give(check, "logits", logits, (size_t)(n_rows * n) * sizeof *logits);
    args.s.argmax = check_give(check, "argmax", best, (size_t)n_rows * sizeof *best);
    args.s.draws = check_give(check, "draws", draws, (size_t)n_rows * sizeof *draws);
    args.s.draw_sums =
        check_give(check, "draw sums", NULL, (size_t)n_rows * GS_SIMPLE_PARTS * sizeof *args.s.draw_sums);
    args.s.picked = check_give(check, "picked", NULL, (size_t)n_rows * sizeof *args.s.picked);
    return args;
}

static void launch(struct check *check, const struct gs_gpu_args *args, uint32_t n_rows)
{
    check_launch(check, "gs_simple_weigh", GS_SIMPLE_PARTS, n_rows, 1, GS_SIMPLE_THREADS, 0, args);
    check_launch(check, "gs_simple_pick", n_rows, 1, 1, GS_SIMPLE_THREADS, 0, args);
}

/* Random rows: flat ones, steep ones, most of it at weight zero. */
static void draw_rows(struct check *check, int32_t n)
{
    static const float temperatures[ROWS] = {1.0f, 0.7f, 2.5f, 0.0f, 0.01f, 1.0f, 0.3f};
    float *logits = calloc(ROWS * (size_t)n, sizeof *logits);
    struct gs_gpu_draw draws[ROWS];
    for (int32_t i = 0; i < ROWS * n; i++)
        logits[i] = check_number(check) * (i / n == 5 ? 600.0f : i / n == 6 ? 0.0f : 4.0f) - 3.0f;
    for (int32_t row = 0; row < ROWS; row++)
        draws[row] = (struct gs_gpu_draw){.uniform = (double)check_random(check) * 0x1p-32,
                                          .temperature = temperatures[row]};
    struct gs_gpu_args args = give_rows(check, logits, n, ROWS, draws);
    launch(check, &args, ROWS);
    for (int32_t row = 0; row < ROWS; row++) {
        double distance;
        int32_t expected = draw_in_order(logits + row * n, n, draws[row], &distance);
        if (args.s.picked[row] != expected && (args.s.picked[row] != -1 || distance > 1e-8))
            check_fail(check, "draw: row %d of %d tokens: %d, expected %d, %g from a border", row, n,
                       args.s.picked[row], expected, distance);
    }
    check_same(check, "draw: argmax", &args.s.argmax[ROWS - 1],
               &(uint64_t){argmax_of(logits + (ROWS - 1) * n, n)}, sizeof(uint64_t));
    free(logits);
    check_release(check);
}

/* Where a device must not decide: on a border, and where a logit is no finite number. */
static void leave_to_the_host(struct check *check)
{
    enum { N = 130 };
    float logits[ROWS * N];
    struct gs_gpu_draw draws[ROWS];
    static const int32_t expected[ROWS] = {-1, -1, 0, -1, -1, -1, 77};
    for (int32_t i = 0; i < ROWS * N; i++)
        logits[i] = i % N < 64 ? 2.0f : -2000.0f; /* 64 equal ones: borders at 64ths */
    for (int32_t row = 0; row < ROWS; row++)
        draws[row] = (struct gs_gpu_draw){.uniform = 0.5, .temperature = 1.0f};
    draws[1].uniform = nextafter(0.25, 0.0);
    draws[2].uniform = 0.0;
    logits[3 * N + 100] = INFINITY;
    logits[4 * N + 1] = -NAN;
    logits[5 * N + 129] = -INFINITY;
    draws[5].temperature = 0.0f;
    for (int32_t i = 0; i < N; i++) /* the larger zero is no larger */
        logits[6 * N + i] = i < 77 ? -1.0f : i == 77 ? -0.0f : 0.0f;
    draws[6].temperature = 0.0f;
    struct gs_gpu_args args = give_rows(check, logits, N, ROWS, draws);
    launch(check, &args, ROWS);
    check_same(check, "draw: what is left", args.s.picked, expected, sizeof expected);
    check_release(check);
}

void check_draw(struct check *check)
{
    static const int32_t sizes[] = {1, 63, 100, 5000, 20011};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        draw_rows(check, sizes[k]);
    leave_to_the_host(check);
}

/* Two steps of a chain on the same logits; the second cannot be told. */
void check_draw_next(struct check *check)
{
    enum { N = 300 };
    float logits[N];
    struct gs_gpu_draw draws[ROWS] = {[2] = {0.401, 1.0f, 0}, [3] = {0.5, 1.0f, 0}};
    struct gs_gpu_row row = {.token = 4, .position = 9};
    int32_t tokens[6] = {2, 5, 6, 0, 0, -9}, expected[6] = {4, 5, 6, 0, -1, -9};
    uint64_t zero = 0;
    for (int32_t i = 0; i < N; i++)
        logits[i] = 0.0f;
    expected[3] = draw_in_order(logits, N, draws[2], &(double){0.0});
    struct gs_gpu_args args = give_rows(check, logits, N, 1, draws);
    uint64_t best = args.s.argmax[0];
    args.s.draws = check_give(check, "draws of steps", draws, sizeof draws);
    args.s.rows = check_give(check, "rows", &row, sizeof row);
    args.s.tokens = check_give(check, "tokens", tokens, sizeof tokens);
    for (int step = 0; step < 2; step++) {
        args.s.argmax[0] = best;
        check_launch(check, "gs_simple_weigh_next", GS_SIMPLE_PARTS, 1, 1, GS_SIMPLE_THREADS, 0, &args);
        check_launch(check, "gs_simple_pick_next", 1, 1, 1, GS_SIMPLE_THREADS, 0, &args);
        row.token = step == 0 ? expected[3] : 0;
        row.position++;
        check_same(check, "draw next: row", args.s.rows, &row, sizeof row);
        check_same(check, "draw next: argmax", args.s.argmax, &zero, sizeof zero);
    }
    check_same(check, "draw next", args.s.tokens, expected, sizeof expected);
}
