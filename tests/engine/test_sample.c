/* The sampler against plain restatements of its definition, and its reproducibility. */
#include "base/math.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define N 50

static void make_logits(float logits[N], unsigned seed)
{
    for (int i = 0; i < N; i++) {
        seed = seed * 1664525u + 1013904223u;
        logits[i] = (float)(int32_t)seed * 0x1p-29f;
    }
}

/* Frequencies of n_draws draws. */
static void draw_many(const struct gs_sampling *sampling, const float *logits, const int32_t *seen,
                      size_t n_seen, int n_draws, double frequency[N])
{
    struct gs_sampler *sampler;
    struct gs_error error;
    assert_ok(gs_sampler_open(sampling, N, &sampler, &error), &error);
    memset(frequency, 0, N * sizeof *frequency);
    for (int i = 0; i < n_draws; i++) {
        int32_t token;
        assert_ok(gs_sampler_draw(sampler, logits, seen, n_seen, &token, &error), &error);
        assert_in_range(token, 0, N - 1);
        frequency[token] += 1.0 / n_draws;
    }
    gs_sampler_close(sampler);
}

/* What the settings leave of the softmax: by ranking, without any of the sampler's shortcuts. */
static void expected_distribution(const struct gs_sampling *s, const float *logits, double p[N])
{
    int rank[N];
    double total = 0;
    for (int i = 0; i < N; i++) {
        rank[i] = 0;
        for (int j = 0; j < N; j++)
            rank[i] += logits[j] > logits[i] || (logits[j] == logits[i] && j < i);
        p[i] = exp((double)logits[i] / (double)s->temperature);
        if (s->top_k > 0 && rank[i] >= s->top_k)
            p[i] = 0;
        total += p[i];
    }
    double before[N], best = 0;
    for (int i = 0; i < N; i++) {
        before[i] = 0; /* the probability of all that rank before it */
        for (int j = 0; j < N; j++)
            before[i] += rank[j] < rank[i] ? p[j] / total : 0;
        best = p[i] > best ? p[i] : best;
    }
    double left = 0;
    for (int i = 0; i < N; i++) {
        if (before[i] >= (double)s->top_p || p[i] < (double)s->min_p * best)
            p[i] = 0;
        left += p[i];
    }
    for (int i = 0; i < N; i++)
        p[i] /= left;
}

static void draws_follow_the_distribution(void **state)
{
    (void)state;
    static const struct {
        float temperature, top_p, min_p;
        int32_t top_k;
    } cases[] = {{1, 1, 0, 0},        {0.5f, 1, 0, 0},    {2, 1, 0, 7},    {1, 0.9f, 0, 0},
                 {1, 0.3f, 0, 0},     {1, 0.0001f, 0, 0}, {1, 1, 0.2f, 0}, {1.5f, .8f, 0.1f, 9},
                 {1, 0.7f, 0.05f, 1}, {1, 1, 1, 0},       {0.7f, 1, 0, N}, {1, 0.95f, 0, 20},
                 {3, 0.999f, 0, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (unsigned seed = 1; seed <= 3; seed++) {
            float logits[N];
            double expected[N], seen[N];
            make_logits(logits, seed);
            struct gs_sampling s = gs_sampling_default();
            s.temperature = cases[c].temperature;
            s.top_p = cases[c].top_p;
            s.min_p = cases[c].min_p;
            s.top_k = cases[c].top_k;
            s.seed = seed;
            expected_distribution(&s, logits, expected);
            draw_many(&s, logits, NULL, 0, 20000, seen);
            for (int i = 0; i < N; i++) {
                if (expected[i] == 0)
                    assert_true(seen[i] == 0);
                /* six standard deviations */
                assert_true(fabs(seen[i] - expected[i]) <=
                            6 * sqrt(expected[i] * (1 - expected[i]) / 20000) + 1e-9);
            }
        }
}

static void temperature_zero_takes_the_first_largest(void **state)
{
    (void)state;
    float logits[N];
    double seen[N];
    make_logits(logits, 9);
    logits[31] = logits[12] = 100;
    struct gs_sampling s = gs_sampling_default();
    s.temperature = 0;
    draw_many(&s, logits, NULL, 0, 3, seen);
    assert_true(seen[12] > 0.99);
}

static void a_seed_gives_the_same_tokens_everywhere(void **state)
{
    (void)state;
    /* Uniform logits over 8 tokens: token n is floor(8 u), u from SplitMix64 with seed 42 (docs/sampling.md).
     */
    float logits[8] = {0};
    static const int32_t expected[] = {5, 1, 2, 2, 0, 6, 1, 6};
    struct gs_sampling s = gs_sampling_default();
    s.seed = 42;
    struct gs_sampler *sampler;
    struct gs_error error;
    assert_ok(gs_sampler_open(&s, 8, &sampler, &error), &error);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        int32_t token;
        assert_ok(gs_sampler_draw(sampler, logits, NULL, 0, &token, &error), &error);
        assert_int_equal(token, expected[i]);
    }
    gs_sampler_close(sampler);
}

static void penalties_and_bias(void **state)
{
    (void)state;
    float logits[N] = {0};
    double seen[N];
    logits[3] = 2;
    logits[4] = 1.9f;
    logits[5] = -1;
    struct gs_sampling s = gs_sampling_default();
    s.temperature = 0;
    const int32_t timeline[] = {3, 3, 5};

    draw_many(&s, logits, timeline, 3, 1, seen);
    assert_true(seen[3] == 1);
    s.presence_penalty = 0.05f; /* 1.95 is still the largest */
    draw_many(&s, logits, timeline, 3, 1, seen);
    assert_true(seen[3] == 1);
    s.presence_penalty = 0;
    s.frequency_penalty = 0.06f; /* 2 - 2 * 0.06 = 1.88 < 1.9 */
    draw_many(&s, logits, timeline, 3, 1, seen);
    assert_true(seen[4] == 1);
    s.frequency_penalty = 0;
    s.repetition_penalty = 1.1f; /* once, however often it was seen: 2 / 1.1 < 1.9 */
    draw_many(&s, logits, timeline, 3, 1, seen);
    assert_true(seen[4] == 1);
    s.repetition_penalty = 1.04f; /* 2 / 1.04 > 1.9, but 2 / 1.04^2 < 1.9 */
    draw_many(&s, logits, timeline, 3, 1, seen);
    assert_true(seen[3] == 1);
    s.repetition_penalty = 0.25f; /* a negative logit is multiplied: -0.25; positive 2 / 0.25 = 8 */
    draw_many(&s, logits, timeline, 3, 1, seen);
    assert_true(seen[3] == 1);
    /* Where all are negative, multiplying makes a seen token less likely, not more. */
    float negative[N];
    for (int i = 0; i < N; i++)
        negative[i] = -3;
    negative[3] = -1;
    negative[4] = -1.5f;
    s.repetition_penalty = 2;
    draw_many(&s, negative, timeline, 3, 1, seen);
    assert_true(seen[4] == 1);
    s.repetition_penalty = 1;
    const struct gs_logit_bias bias[] = {{3, -5}, {7, 3}};
    s.bias = bias;
    s.n_bias = 2;
    draw_many(&s, logits, timeline, 3, 1, seen);
    assert_true(seen[7] == 1);
}

static void bad_settings_are_named(void **state)
{
    (void)state;
    struct gs_sampler *sampler;
    struct gs_error error;
#define REFUSED(field, value, part)                                                                          \
    do {                                                                                                     \
        struct gs_sampling s = gs_sampling_default();                                                        \
        s.field = (value);                                                                                   \
        assert_fails(gs_sampler_open(&s, N, &sampler, &error), GS_INVALID_ARGUMENT, part, &error);           \
        assert_null(sampler);                                                                                \
    } while (0)
    REFUSED(temperature, -0.1f, "temperature -0.1: must be 0 or more");
    REFUSED(temperature, NAN, "temperature");
    REFUSED(temperature, INFINITY, "temperature");
    REFUSED(top_p, 0, "top-p");
    REFUSED(top_p, 1.01f, "top-p");
    REFUSED(min_p, -0.1f, "min-p");
    REFUSED(min_p, 1.1f, "min-p");
    REFUSED(top_k, -1, "top-k -1");
    REFUSED(repetition_penalty, 0, "repetition penalty");
    REFUSED(presence_penalty, NAN, "presence penalty");
    REFUSED(frequency_penalty, INFINITY, "frequency penalty");
#undef REFUSED
    struct gs_logit_bias bias = {N, 1};
    struct gs_sampling s = gs_sampling_default();
    s.bias = &bias;
    s.n_bias = 1;
    assert_fails(gs_sampler_open(&s, N, &sampler, &error), GS_INVALID_ARGUMENT, "50: not in 0 ... 49",
                 &error);
}

static void non_finite_logits_are_an_error(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int b = 0; b < 3; b++)
        for (int at = 0; at < N; at += 7)
            for (int greedy = 0; greedy < 2; greedy++) {
                float logits[N], logprob;
                make_logits(logits, 4);
                logits[at] = bad[b];
                struct gs_sampling s = gs_sampling_default();
                s.temperature = greedy ? 0 : 1;
                struct gs_sampler *sampler;
                struct gs_error error;
                int32_t token;
                assert_ok(gs_sampler_open(&s, N, &sampler, &error), &error);
                assert_fails(gs_sampler_draw(sampler, logits, NULL, 0, &token, &error), GS_NON_FINITE,
                             "not a finite number", &error);
                assert_int_equal(token, -1);
                assert_fails(gs_logprobs(logits, N, 1, &logprob, NULL, 0, &error), GS_NON_FINITE, "finite",
                             &error);
                gs_sampler_close(sampler);
            }
}

static void an_overflow_of_penalties_is_an_error(void **state)
{
    (void)state;
    float logits[N];
    make_logits(logits, 4);
    const struct gs_logit_bias twice[] = {{3, 3e38f}, {3, 3e38f}};
    for (int greedy = 0; greedy < 2; greedy++) {
        struct gs_sampling s = gs_sampling_default();
        s.temperature = greedy ? 0 : 1;
        s.bias = twice;
        s.n_bias = 2;
        struct gs_sampler *sampler;
        struct gs_error error;
        int32_t token;
        assert_ok(gs_sampler_open(&s, N, &sampler, &error), &error);
        assert_fails(gs_sampler_draw(sampler, logits, NULL, 0, &token, &error), GS_NON_FINITE,
                     "after penalties and bias logit 3", &error);
        assert_int_equal(token, -1);
        gs_sampler_close(sampler);
    }
}

static void extreme_logits_do_not_break_the_draw(void **state)
{
    (void)state;
    float logits[N];
    double seen[N];
    for (int i = 0; i < N; i++)
        logits[i] = i == 20 ? 3e38f : -3e38f;
    struct gs_sampling s = gs_sampling_default();
    s.temperature = 1e-30f;
    draw_many(&s, logits, NULL, 0, 100, seen);
    assert_true(seen[20] > 0.99);
    s.temperature = 1e30f;
    for (int i = 0; i < N; i++)
        logits[i] = (float)i;
    draw_many(&s, logits, NULL, 0, 20000, seen);
    for (int i = 0; i < N; i++)
        assert_true(fabs(seen[i] - 1.0 / N) < 0.01);
}

/* A mask is the same as a row in which only the allowed tokens exist: with every setting. */
static void a_mask_leaves_only_what_it_allows(void **state)
{
    (void)state;
    static const struct {
        float temperature, top_p;
        int32_t top_k;
    } cases[] = {{0, 1, 0}, {1, 1, 0}, {1, 0.6f, 0}, {1, 1, 3}, {2, 0.9f, 5}};
    struct gs_error error;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (unsigned seed = 1; seed <= 20; seed++) {
            float logits[N], few[N];
            int32_t ids[N];
            size_t n = 0;
            const uint64_t allowed[1] = {(0x2492924c9241a5 * (uint64_t)seed) & (((uint64_t)1 << N) - 1)};
            make_logits(logits, seed);
            for (int32_t i = 0; i < N; i++)
                if (allowed[0] >> i & 1) {
                    few[n] = logits[i];
                    ids[n++] = i;
                }
            struct gs_sampling s = gs_sampling_default();
            s.temperature = cases[c].temperature;
            s.top_p = cases[c].top_p;
            s.top_k = cases[c].top_k;
            s.seed = seed;
            struct gs_sampler *masked, *small;
            assert_ok(gs_sampler_open(&s, N, &masked, &error), &error);
            assert_ok(gs_sampler_open(&s, n, &small, &error), &error);
            for (int draw = 0; draw < 50; draw++) {
                int32_t token, expected;
                assert_ok(gs_sampler_draw_masked(masked, logits, allowed, NULL, 0, &token, &error), &error);
                assert_ok(gs_sampler_draw(small, few, NULL, 0, &expected, &error), &error);
                assert_int_equal(token, ids[expected]);
            }
            gs_sampler_close(masked);
            gs_sampler_close(small);
        }
}

static void an_empty_mask_is_an_error_and_no_draw(void **state)
{
    (void)state;
    float logits[N];
    int32_t token, first, second;
    struct gs_error error;
    struct gs_sampling s = gs_sampling_default();
    const uint64_t none[1] = {0}, beyond[1] = {~(((uint64_t)1 << N) - 1)};
    make_logits(logits, 3);
    struct gs_sampler *a, *b;
    assert_ok(gs_sampler_open(&s, N, &a, &error), &error);
    assert_ok(gs_sampler_open(&s, N, &b, &error), &error);
    for (int draw = 0; draw < 20; draw++) {
        assert_fails(gs_sampler_draw_masked(a, logits, draw % 2 ? none : beyond, NULL, 0, &token, &error),
                     GS_INVALID_ARGUMENT, "mask", &error);
        assert_int_equal(token, -1);
        assert_ok(gs_sampler_draw(a, logits, NULL, 0, &first, &error), &error);
        assert_ok(gs_sampler_draw_masked(b, logits, NULL, NULL, 0, &second, &error), &error);
        assert_int_equal(first, second);
    }
    gs_sampler_close(a);
    gs_sampler_close(b);
}

/* ---------------------------------------------------------------- the filters, by sorting */

struct ranked {
    int32_t id;
    float logit;
    double p;
};

static int best_first(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static int by_id(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static double sum_ranked(const struct ranked *c, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += c[i].p;
    return sum;
}

/* What docs/sampling.md says, word for word, all sorted: c [n] has what is left, by id. */
static size_t filter_by_sorting(const struct gs_sampling *s, const float *logits, size_t n, struct ranked *c)
{
    size_t kept = n;
    for (size_t i = 0; i < n; i++)
        c[i] = (struct ranked){(int32_t)i, logits[i], 0};
    qsort(c, n, sizeof *c, best_first);
    double largest = (double)c[0].logit;
    if (s->top_k > 0 && (size_t)s->top_k < n)
        kept = (size_t)s->top_k;
    for (size_t i = 0; i < kept; i++)
        c[i].p = gs_exp64(((double)c[i].logit - largest) / (double)s->temperature);
    if (s->top_p < 1.0f) {
        qsort(c, kept, sizeof *c, by_id); /* the total is summed in this order */
        double enough = (double)s->top_p * sum_ranked(c, kept), sum = 0;
        qsort(c, kept, sizeof *c, best_first);
        size_t all = kept;
        for (kept = 0; kept < all && (kept == 0 || sum < enough); kept++)
            sum += c[kept].p;
    }
    size_t left = 0;
    for (size_t i = 0; i < kept; i++)
        if (s->min_p == 0.0f || c[i].p >= (double)s->min_p)
            c[left++] = c[i];
    qsort(c, left, sizeof *c, by_id);
    return left;
}

static double uniform_number(uint64_t seed, uint64_t n)
{
    uint64_t z = seed + (n + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static int32_t draw_by_sorting(const struct ranked *c, size_t n, double u)
{
    double target = u * sum_ranked(c, n), sum = 0;
    int32_t chosen = c[0].id;
    for (size_t i = 0; i < n; i++) {
        sum += c[i].p;
        if (c[i].p > 0)
            chosen = c[i].id;
        if (sum > target)
            break;
    }
    return chosen;
}

/* Rows that are hard to cut: all alike, few different values, both zeros, a steep slope, noise. */
static void make_row(float *logits, size_t n, unsigned kind, unsigned seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        float noise = (float)(int32_t)seed * 0x1p-29f;
        logits[i] = kind == 0   ? 1.25f
                    : kind == 1 ? (float)(seed >> 30)
                    : kind == 2 ? (seed >> 31 ? 0.0f : -0.0f)
                    : kind == 3 ? -0.01f * (float)i
                    : kind == 4 ? noise
                                : noise * 20;
    }
}

static void filters_keep_what_sorting_keeps(void **state)
{
    (void)state;
    enum { MOST = 2000 };
    static const size_t sizes[] = {1, 2, 37, 1000, MOST};
    static const float top_ps[] = {1e-6f, 0.25f, 0.5f, 0.75f, 0.9f, 0.999f, 1.0f};
    static const int32_t top_ks[] = {0, 1, 20, 999};
    struct ranked *c = calloc(MOST, sizeof *c);
    float *logits = calloc(MOST, sizeof *logits);
    assert_true(c && logits);
    for (size_t z = 0; z < sizeof sizes / sizeof *sizes; z++)
        for (unsigned kind = 0; kind < 6; kind++)
            for (size_t p = 0; p < sizeof top_ps / sizeof *top_ps; p++)
                for (size_t k = 0; k < sizeof top_ks / sizeof *top_ks; k++) {
                    size_t n = sizes[z];
                    struct gs_sampler *sampler;
                    struct gs_error error;
                    struct gs_sampling s = gs_sampling_default();
                    s.top_p = top_ps[p];
                    s.top_k = top_ks[k];
                    s.min_p = (p + k) % 3 == 2 ? 0.1f : 0.0f;
                    s.temperature = kind % 2 ? 0.7f : 1.3f;
                    s.seed = 77 * z + kind;
                    make_row(logits, n, kind, (unsigned)(z + 100 * p + 10 * k));
                    size_t left = filter_by_sorting(&s, logits, n, c);
                    assert_ok(gs_sampler_open(&s, n, &sampler, &error), &error);
                    for (uint64_t draw = 0; draw < 20; draw++) {
                        int32_t token;
                        assert_ok(gs_sampler_draw(sampler, logits, NULL, 0, &token, &error), &error);
                        assert_int_equal(token, draw_by_sorting(c, left, uniform_number(s.seed, draw)));
                    }
                    gs_sampler_close(sampler);
                }
    free(c);
    free(logits);
}

static void logprobs_are_log_softmax(void **state)
{
    (void)state;
    float logits[N], logprob;
    make_logits(logits, 5);
    logits[8] = logits[40] = 5.5f; /* the best two: a tie */
    double total = 0;
    for (int i = 0; i < N; i++)
        total += exp((double)logits[i]);
    struct gs_logprob top[N];
    struct gs_error error;
    for (int32_t t = 0; t < N; t++) {
        assert_ok(gs_logprobs(logits, N, t, &logprob, top, 5, &error), &error);
        assert_true(fabs((double)logprob - ((double)logits[t] - log(total))) < 1e-6);
    }
    assert_int_equal(top[0].id, 8);
    assert_int_equal(top[1].id, 40);
    assert_ok(gs_logprobs(logits, N, 0, &logprob, top, N, &error), &error);
    double sum = 0;
    for (int i = 0; i < N; i++) {
        sum += exp((double)top[i].logprob);
        assert_true(i == 0 || top[i - 1].logprob >= top[i].logprob);
        assert_true(fabs((double)top[i].logprob - ((double)logits[top[i].id] - log(total))) < 1e-6);
    }
    assert_true(fabs(sum - 1) < 1e-6);
    assert_fails(gs_logprobs(logits, N, N, &logprob, top, 5, &error), GS_INVALID_ARGUMENT, "50", &error);
    assert_fails(gs_logprobs(logits, N, 0, &logprob, top, N + 1, &error), GS_INVALID_ARGUMENT, "51", &error);
}

/* SplitMix64's draw n of a seed, as docs/sampling.md has it. */
static double uniform(uint64_t seed, uint64_t n)
{
    uint64_t z = seed + (n + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

#define MANY 3001

/*
 * Step 9 of docs/sampling.md, one value after the other: each draw must be exactly that, also where many
 * tokens are as likely as each other and where sums end next to the target.
 */
static void draws_are_those_of_the_definition(void **state)
{
    (void)state;
    static float logits[MANY];
    static const float temperatures[] = {1, 0.3f, 2};
    unsigned random = 5;
    for (unsigned round = 0; round < 60; round++) {
        struct gs_sampler *sampler;
        struct gs_error error;
        size_t n = round % 4 == 0 ? MANY : round % 4 == 1 ? 64 : 1 + round * 37 % MANY;
        float largest = -1e30f;
        for (size_t i = 0; i < n; i++) {
            random = random * 1664525u + 1013904223u;
            logits[i] = round % 5 == 0 ? 0.0f : (float)(int32_t)random * (round % 3 ? 0x1p-28f : 0x1p-24f);
            largest = logits[i] > largest ? logits[i] : largest;
        }
        struct gs_sampling s = gs_sampling_default();
        s.temperature = temperatures[round % 3];
        s.seed = round;
        assert_ok(gs_sampler_open(&s, n, &sampler, &error), &error);
        double total = 0.0;
        for (size_t i = 0; i < n; i++)
            total += gs_exp64(((double)logits[i] - (double)largest) / (double)s.temperature);
        for (uint64_t draw = 0; draw < 50; draw++) {
            double target = uniform(s.seed, draw) * total, sum = 0.0;
            int32_t expected = -1, token;
            for (size_t i = 0; i < n && sum <= target; i++, expected++)
                sum += gs_exp64(((double)logits[i] - (double)largest) / (double)s.temperature);
            assert_ok(gs_sampler_draw(sampler, logits, NULL, 0, &token, &error), &error);
            assert_int_equal(token, expected);
        }
        gs_sampler_close(sampler);
    }
}

/* ---------------------------------------------------------------- where the order of a sum decides */

/* The x of which z is x ^ x >> n. */
static uint64_t undo_shift(uint64_t z, int n)
{
    uint64_t x = z;
    for (int known = n; known < 64; known += n)
        x = z ^ x >> n;
    return x;
}

/* The factor that undoes a multiplication by an odd one: each round doubles the bits that are right. */
static uint64_t inverse(uint64_t odd)
{
    uint64_t x = odd;
    for (int round = 0; round < 5; round++)
        x *= 2 - odd * x;
    return x;
}

/* The seed whose first draw is top53 * 2^-53: SplitMix64 backwards. */
static uint64_t seed_of(uint64_t top53)
{
    uint64_t z = undo_shift(top53 << 11, 31) * inverse(0x94D049BB133111EBu);
    z = undo_shift(z, 27) * inverse(0xBF58476D1CE4E5B9u);
    return undo_shift(z, 30) - 0x9E3779B97F4A7C15u;
}

/* Weights 1 - k 2^-53 with k below `spread`: sums of another order are others, by their last bits. */
static void make_close_row(float *logits, size_t n, unsigned seed, unsigned spread)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        logits[i] = (float)((seed >> 8) % spread) * -0x1p-53f;
    }
    logits[n / 2] = 0.0f; /* the largest */
}

/* Draws whose target is a few last bits before or behind the end of a token, by the sum in order. */
static void draws_at_a_tokens_end_are_in_order(void **state)
{
    (void)state;
    enum { SIZE = 1000 };
    static float logits[SIZE];
    struct gs_sampling s = gs_sampling_default();
    struct gs_error error;
    for (unsigned round = 0; round < 20; round++) {
        make_close_row(logits, SIZE, round, 1u << 20);
        double total = 0.0, end = 0.0;
        size_t at = 40 + 47 * round;
        for (size_t i = 0; i < SIZE; i++) {
            total += gs_exp64((double)logits[i]);
            end = i == at ? total : end;
        }
        uint64_t middle = (uint64_t)(end / total * 0x1p53);
        for (uint64_t top53 = middle - 30; top53 < middle + 30; top53++) {
            struct gs_sampler *sampler;
            double target = (double)top53 * 0x1p-53 * total, sum = 0.0;
            int32_t expected = -1, token;
            for (size_t i = 0; i < SIZE && sum <= target; i++, expected++)
                sum += gs_exp64((double)logits[i]);
            s.seed = seed_of(top53);
            assert_true(uniform(s.seed, 0) == (double)top53 * 0x1p-53);
            assert_ok(gs_sampler_open(&s, SIZE, &sampler, &error), &error);
            assert_ok(gs_sampler_draw(sampler, logits, NULL, 0, &token, &error), &error);
            assert_int_equal(token, expected);
            gs_sampler_close(sampler);
        }
    }
}

/* Sets that reach top-p, or do not, by the last bits of the sum best first. */
static void sets_that_just_reach_top_p_are_summed_best_first(void **state)
{
    (void)state;
    enum { SIZE = 600 };
    static float logits[SIZE];
    static struct ranked c[SIZE];
    static const float top_ps[] = {0.5f, 0.25f, 0.75f, 0.125f};
    struct gs_error error;
    for (unsigned round = 0; round < 600; round++) {
        struct gs_sampler *sampler;
        struct gs_sampling s = gs_sampling_default();
        size_t n = 8 * (20 + round % 50);
        make_close_row(logits, n, round, 2u << round % 13);
        s.top_p = top_ps[round % 4];
        s.seed = round;
        size_t left = filter_by_sorting(&s, logits, n, c);
        assert_ok(gs_sampler_open(&s, n, &sampler, &error), &error);
        for (uint64_t draw = 0; draw < 20; draw++) {
            int32_t token;
            assert_ok(gs_sampler_draw(sampler, logits, NULL, 0, &token, &error), &error);
            assert_int_equal(token, draw_by_sorting(c, left, uniform(s.seed, draw)));
        }
        gs_sampler_close(sampler);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(temperature_zero_takes_the_first_largest),
        cmocka_unit_test(a_seed_gives_the_same_tokens_everywhere),
        cmocka_unit_test(penalties_and_bias),
        cmocka_unit_test(bad_settings_are_named),
        cmocka_unit_test(non_finite_logits_are_an_error),
        cmocka_unit_test(an_overflow_of_penalties_is_an_error),
        cmocka_unit_test(extreme_logits_do_not_break_the_draw),
        cmocka_unit_test(a_mask_leaves_only_what_it_allows),
        cmocka_unit_test(an_empty_mask_is_an_error_and_no_draw),
        cmocka_unit_test(filters_keep_what_sorting_keeps),
        cmocka_unit_test(logprobs_are_log_softmax),
        cmocka_unit_test(draws_are_those_of_the_definition),
        cmocka_unit_test(draws_at_a_tokens_end_are_in_order),
        cmocka_unit_test(sets_that_just_reach_top_p_are_summed_best_first),
    };
    return cmocka_run_group_tests_name("engine/sample", tests, NULL, NULL);
}
