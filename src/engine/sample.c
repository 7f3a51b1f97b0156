/*
 * Logits -> one token. The draws are reproducible everywhere: the generator is integer arithmetic, the
 * probabilities are made by base/math.h, and every sum has a fixed order (docs/sampling.md).
 */
#include "engine/sample.h"

#include "base/status.h"
#include "engine/row.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
    int32_t id;
    float logit;
    double probability; /* not normalised: exp(logit - largest) */
};

struct gs_sampler {
    struct gs_sampling sampling;
    struct gs_logit_bias *bias;
    size_t n_vocab;
    uint64_t n_draws;
    /* NULL where the settings do not need them */
    float *logits;                /* [n_vocab]: after penalties and bias */
    int32_t *counts;              /* [n_vocab]: occurrences in the timeline, zero between draws */
    double *weights;              /* [n_vocab] */
    double *sums;                 /* of blocks of them */
    struct candidate *candidates; /* [n_vocab]; of top-k, top-p and min-p */
};

struct gs_sampling gs_sampling_default(void)
{
    return (struct gs_sampling){.temperature = 1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f};
}

static gs_status check_number(const char *name, float value, bool in_range, const char *range,
                              struct gs_error *error)
{
    if (in_range && __builtin_isfinite(value))
        return GS_OK;
    return gs_fail(error, GS_INVALID_ARGUMENT, "%s %g: must be %s", name, (double)value, range);
}

static gs_status check(const struct gs_sampling *s, size_t n_vocab, struct gs_error *error)
{
    gs_status status = check_number("temperature", s->temperature, s->temperature >= 0, "0 or more", error);
    if (status == GS_OK)
        status =
            check_number("top-p", s->top_p, s->top_p > 0 && s->top_p <= 1, "above 0 and at most 1", error);
    if (status == GS_OK)
        status = check_number("min-p", s->min_p, s->min_p >= 0 && s->min_p <= 1, "0 to 1", error);
    if (status == GS_OK)
        status = check_number("repetition penalty", s->repetition_penalty, s->repetition_penalty > 0,
                              "above 0", error);
    if (status == GS_OK)
        status = check_number("presence penalty", s->presence_penalty, true, "a finite number", error);
    if (status == GS_OK)
        status = check_number("frequency penalty", s->frequency_penalty, true, "a finite number", error);
    if (status == GS_OK && s->top_k < 0)
        status = gs_fail(error, GS_INVALID_ARGUMENT, "top-k %d: must be 0 (off) or more", (int)s->top_k);
    for (size_t i = 0; status == GS_OK && i < s->n_bias; i++) {
        if (s->bias[i].id < 0 || (size_t)s->bias[i].id >= n_vocab)
            status = gs_fail(error, GS_INVALID_ARGUMENT, "logit bias for token id %d: not in 0 ... %zu",
                             (int)s->bias[i].id, n_vocab - 1);
        else
            status = check_number("logit bias", s->bias[i].bias, true, "a finite number", error);
    }
    return status;
}

static bool has_penalties(const struct gs_sampling *s)
{
    return s->repetition_penalty != 1.0f || s->presence_penalty != 0.0f || s->frequency_penalty != 0.0f;
}

/* A server has one sampler for each answer under way: no memory that the settings have no use for. */
static gs_status allocate(struct gs_sampler *sampler, struct gs_error *error)
{
    const struct gs_sampling *s = &sampler->sampling;
    size_t n = sampler->n_vocab;
    bool penalties = has_penalties(s), changes = penalties || s->n_bias > 0, draws = s->temperature > 0.0f;
    bool filters = draws && (s->top_k > 0 || s->top_p < 1.0f || s->min_p > 0.0f);
    if (penalties)
        sampler->counts = calloc(n, sizeof *sampler->counts);
    if (changes)
        sampler->logits = calloc(n, sizeof *sampler->logits);
    if (draws) {
        sampler->weights = calloc(n, sizeof *sampler->weights);
        sampler->sums = calloc(n / GS_ROW_BLOCK + 1, sizeof *sampler->sums);
    }
    if (filters)
        sampler->candidates = calloc(n, sizeof *sampler->candidates);
    bool done = (!penalties || sampler->counts) && (!changes || sampler->logits) &&
                (!draws || (sampler->weights && sampler->sums)) && (!filters || sampler->candidates);
    return done ? GS_OK : gs_fail_memory(error, n * (sizeof *sampler->candidates + 16));
}

gs_status gs_sampler_open(const struct gs_sampling *sampling, size_t n_vocab, struct gs_sampler **out,
                          struct gs_error *error)
{
    *out = NULL;
    if (n_vocab == 0)
        return gs_fail(error, GS_INVALID_ARGUMENT, "a sampler needs a vocabulary");
    gs_status status = check(sampling, n_vocab, error);
    if (status != GS_OK)
        return status;
    struct gs_sampler *sampler = calloc(1, sizeof *sampler);
    if (!sampler)
        return gs_fail_memory(error, sizeof *sampler);
    sampler->sampling = *sampling;
    sampler->n_vocab = n_vocab;
    sampler->bias = calloc(sampling->n_bias + 1, sizeof *sampler->bias);
    status = sampler->bias ? allocate(sampler, error)
                           : gs_fail_memory(error, sampling->n_bias * sizeof *sampler->bias);
    if (status != GS_OK) {
        gs_sampler_close(sampler);
        return status;
    }
    if (sampling->n_bias > 0)
        memcpy(sampler->bias, sampling->bias, sampling->n_bias * sizeof *sampler->bias);
    sampler->sampling.bias = sampler->bias;
    *out = sampler;
    return GS_OK;
}

void gs_sampler_close(struct gs_sampler *sampler)
{
    if (!sampler)
        return;
    free(sampler->candidates);
    free(sampler->weights);
    free(sampler->sums);
    free(sampler->counts);
    free(sampler->logits);
    free(sampler->bias);
    free(sampler);
}

/*
 * SplitMix64 (Steele, Lea and Flood 2014) as a function of the draw's number: the state before draw n is
 * seed + n * 0x9E3779B97F4A7C15. The top 53 bits make a number in [0, 1).
 */
static double uniform(uint64_t seed, uint64_t n)
{
    uint64_t z = seed + (n + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-53;
}

static void apply_penalties(struct gs_sampler *sampler, const int32_t *seen, size_t n_seen)
{
    const struct gs_sampling *s = &sampler->sampling;
    if (has_penalties(s)) {
        for (size_t i = 0; i < n_seen; i++)
            sampler->counts[seen[i]]++;
        for (size_t i = 0; i < n_seen; i++) {
            int32_t count = sampler->counts[seen[i]];
            float *logit = &sampler->logits[seen[i]];
            if (count == 0)
                continue; /* an earlier occurrence was this one's turn */
            *logit = *logit > 0 ? *logit / s->repetition_penalty : *logit * s->repetition_penalty;
            *logit -= s->presence_penalty + (float)count * s->frequency_penalty;
            sampler->counts[seen[i]] = 0;
        }
    }
    for (size_t i = 0; i < s->n_bias; i++)
        sampler->logits[s->bias[i].id] += s->bias[i].bias;
}

typedef int compare_fn(const struct candidate *x, const struct candidate *y);

/* Best first; equal logits by ascending id, so that the order is total. */
static int compare_candidates(const struct candidate *x, const struct candidate *y)
{
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static int compare_ids(const struct candidate *x, const struct candidate *y)
{
    return (x->id > y->id) - (x->id < y->id);
}

/* Lets c[at] sink until no child of it in the heap c [n] comes after it. */
static void sift_down(struct candidate *c, size_t at, size_t n, compare_fn *compare)
{
    struct candidate moving = c[at];
    for (size_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && compare(&c[child], &c[child + 1]) < 0)
            child++;
        if (compare(&moving, &c[child]) >= 0)
            break;
        c[at] = c[child];
        at = child;
    }
    c[at] = moving;
}

/* Heapsort: the C library's qsort may allocate, which decoding must not. */
static void sort(struct candidate *c, size_t n, compare_fn *compare)
{
    for (size_t i = n / 2; i > 0; i--)
        sift_down(c, i - 1, n, compare);
    for (size_t end = n; end > 1; end--) {
        struct candidate last = c[end - 1];
        c[end - 1] = c[0];
        c[0] = last;
        sift_down(c, 0, end - 1, compare);
    }
}

static double sum_of(const struct candidate *candidates, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++)
        sum += candidates[i].probability;
    return sum;
}

/* Drops candidates below `least`, keeping the order; returns how many are left. */
static size_t drop_below(struct candidate *c, size_t n, double least)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (c[i].probability >= least)
            c[kept++] = c[i];
    return kept;
}

#define KEY_BITS    32
#define DIGIT_BITS  11
#define DIGIT_COUNT (1u << DIGIT_BITS)

/* Larger for a larger logit, the same for both zeros. */
static uint32_t order_key(float logit)
{
    uint32_t bits;
    float value = logit == 0.0f ? 0.0f : logit;
    memcpy(&bits, &value, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* What is kept of candidates: those with a larger key, and the first n_tie of that very key. */
struct cut {
    uint32_t key;
    size_t n_tie;
    double without, with; /* the weight of what is kept, without its last candidate and with it */
};

/*
 * Where the weight of the best reaches `enough`: by their number, or by their probability, summed in no
 * particular order. One digit of the key after the other, from the highest: nothing is moved or sorted. The
 * candidates [n], n >= 1, are in ascending order of the id.
 */
static struct cut find_cut(const struct candidate *c, size_t n, bool by_number, double enough)
{
    struct cut cut = {0};
    uint32_t known = 0;
    for (unsigned left = KEY_BITS; left > 0;) {
        double weights[DIGIT_COUNT] = {0};
        unsigned digit = DIGIT_COUNT, last = 0, width = left < DIGIT_BITS ? left : DIGIT_BITS;
        left -= width;
        uint32_t mask = (1u << width) - 1;
        for (size_t i = 0; i < n; i++) {
            uint32_t key = order_key(c[i].logit);
            if ((key & known) == cut.key)
                weights[key >> left & mask] += by_number ? 1.0 : c[i].probability;
        }
        double before = cut.without, last_before = before;
        for (; digit > 0 && before < enough; digit--) {
            if (weights[digit - 1] <= 0.0)
                continue;
            last = digit - 1;
            last_before = before;
            before += weights[digit - 1];
        }
        cut.without = last_before;
        cut.key |= last << left;
        known |= mask << left;
    }
    cut.with = cut.without;
    for (size_t i = 0; i < n && (cut.n_tie == 0 || cut.with < enough); i++)
        if (order_key(c[i].logit) == cut.key) {
            cut.without = cut.with;
            cut.with += by_number ? 1.0 : c[i].probability;
            cut.n_tie++;
        }
    return cut;
}

/* Keeps the order; returns how many are left. */
static size_t apply_cut(struct candidate *c, size_t n, struct cut cut)
{
    size_t kept = 0, ties = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t key = order_key(c[i].logit);
        if (key > cut.key || (key == cut.key && ties++ < cut.n_tie))
            c[kept++] = c[i];
    }
    return kept;
}

/*
 * The smallest set of the best whose probability, summed best first, reaches top_p of `total`; in ascending
 * order of the id. Sums in another order are off by less than `doubt`: only where that could make a
 * difference are the candidates sorted.
 */
static size_t take_top_p(struct candidate *c, size_t n, double top_p, double total, double doubt)
{
    double enough = top_p * total, sum = 0.0;
    struct cut cut = find_cut(c, n, false, enough);
    bool first = cut.without == 0.0;
    if ((first || cut.without < enough - doubt) && cut.with >= enough + doubt)
        return apply_cut(c, n, cut);
    sort(c, n, compare_candidates);
    size_t kept = 0;
    while (kept < n && (kept == 0 || sum < enough))
        sum += c[kept++].probability;
    sort(c, kept, compare_ids);
    return kept;
}

/* In ascending order of the id, as all that is random hangs on it. */
static double sum_in_order(const double *weights, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++)
        sum += weights[i];
    return sum;
}

/* Those whose weight is positive and at least `least`, in ascending order of the id; returns how many. */
static size_t collect(struct gs_sampler *sampler, const float *logits, double least)
{
    size_t n = 0;
    for (size_t at = 0; at < sampler->n_vocab; at += GS_ROW_BLOCK) {
        size_t end = at + GS_ROW_BLOCK < sampler->n_vocab ? at + GS_ROW_BLOCK : sampler->n_vocab;
        if (sampler->sums[at / GS_ROW_BLOCK] < least) /* a sum is never below one of its parts */
            continue;
        for (size_t i = at; i < end; i++)
            if (sampler->weights[i] >= least && sampler->weights[i] > 0.0)
                sampler->candidates[n++] = (struct candidate){(int32_t)i, logits[i], sampler->weights[i]};
    }
    return n;
}

/*
 * What top-k, top-p and min-p keep of the weights [n_vocab], in the candidates; returns how many, in
 * ascending order of the id.
 */
static size_t filter(struct gs_sampler *sampler, const float *logits)
{
    const struct gs_sampling *s = &sampler->sampling;
    struct candidate *c = sampler->candidates;
    double share = 1.0 - (double)s->top_p, n_all = (double)sampler->n_vocab, total, doubt;
    size_t n;
    if (s->top_k > 0) {
        n = collect(sampler, logits, 0.0);
        if ((size_t)s->top_k < n)
            n = apply_cut(c, n, find_cut(c, n, true, (double)s->top_k));
        total = sum_of(c, n);
    } else {
        /* All that this leaves out are less than 1 - top_p of the total together: the rest reaches top_p. */
        total = sum_in_order(sampler->weights, sampler->n_vocab);
        n = collect(sampler, logits, s->top_p < 1.0f ? 0.5 * share * total / n_all : (double)s->min_p);
    }
    doubt = 4.0 * n_all * DBL_EPSILON * total;
    if (s->top_p < 1.0f)
        n = take_top_p(c, n, (double)s->top_p, total, doubt);
    if (s->min_p > 0.0f) /* the best one has probability exp(0) = 1 */
        n = drop_below(c, n, (double)s->min_p);
    return n;
}

/* The first that is no finite number; n: none. */
static size_t find_wrong(const float *logits, size_t n)
{
    size_t i = 0;
    while (i < n && __builtin_isfinite(logits[i]))
        i++;
    return i;
}

/* One of `logits` is no finite number: was it as `given`? */
static gs_status fail_finite(const struct gs_sampler *sampler, const float *given, const float *logits,
                             struct gs_error *error)
{
    size_t at = find_wrong(given, sampler->n_vocab);
    bool was = at < sampler->n_vocab;
    return gs_fail(error, GS_NON_FINITE, "%s %zu of draw %llu is not a finite number",
                   was ? "logit" : "after penalties and bias logit",
                   was ? at : find_wrong(logits, sampler->n_vocab), (unsigned long long)sampler->n_draws);
}

size_t gs_sampler_vocab(const struct gs_sampler *sampler)
{
    return sampler->n_vocab;
}

bool gs_sampler_is_plain(const struct gs_sampler *sampler)
{
    return !sampler->logits && !sampler->candidates;
}

bool gs_sampler_is_greedy(const struct gs_sampler *sampler)
{
    return sampler->sampling.temperature == 0.0f;
}

struct gs_draw gs_sampler_ahead(const struct gs_sampler *sampler, uint64_t ahead)
{
    return (struct gs_draw){.uniform = uniform(sampler->sampling.seed, sampler->n_draws + ahead),
                            .temperature = sampler->sampling.temperature};
}

void gs_sampler_count(struct gs_sampler *sampler)
{
    sampler->n_draws++;
}

/* The first candidate, in ascending order of the id, at which the cumulated probability passes u of all. */
static int32_t draw_candidate(const struct candidate *c, size_t n, double u)
{
    double target = u * sum_of(c, n), sum = 0.0;
    size_t chosen = 0;
    for (size_t i = 0; i < n; i++) {
        sum += c[i].probability;
        if (c[i].probability > 0.0)
            chosen = i;
        if (sum > target)
            break;
    }
    return c[chosen].id;
}

/* The same of all weights. */
static int32_t draw_in_order(const struct gs_sampler *sampler, double u)
{
    double target = u * sum_in_order(sampler->weights, sampler->n_vocab), sum = 0.0;
    size_t chosen = 0;
    for (size_t i = 0; i < sampler->n_vocab; i++) {
        sum += sampler->weights[i];
        if (sampler->weights[i] > 0.0)
            chosen = i;
        if (sum > target)
            break;
    }
    return (int32_t)chosen;
}

/*
 * The same by sums of blocks, `total` of all: such sums are off from those in order by less than `doubt`.
 * Where that could make another token of it, the sums are made in order.
 */
static int32_t draw_weight(const struct gs_sampler *sampler, double u, double total)
{
    double target = u * total, before = 0.0, doubt = 4.0 * (double)sampler->n_vocab * DBL_EPSILON * total;
    size_t at = 0;
    while (at + GS_ROW_BLOCK < sampler->n_vocab && before + sampler->sums[at / GS_ROW_BLOCK] <= target) {
        before += sampler->sums[at / GS_ROW_BLOCK];
        at += GS_ROW_BLOCK;
    }
    while (at + 1 < sampler->n_vocab && before + sampler->weights[at] <= target)
        before += sampler->weights[at++];
    bool is_behind = before == 0.0 || before + doubt <= target; /* a sum of zeros is one in any order */
    if (sampler->weights[at] > 0.0 && is_behind && before + sampler->weights[at] > target + doubt)
        return (int32_t)at;
    return draw_in_order(sampler, u);
}

gs_status gs_sampler_draw(struct gs_sampler *sampler, const float *logits, const int32_t *seen, size_t n_seen,
                          int32_t *token, struct gs_error *error)
{
    return gs_sampler_draw_masked(sampler, logits, NULL, seen, n_seen, token, error);
}

gs_status gs_sampler_draw_masked(struct gs_sampler *sampler, const float *logits, const uint64_t *allowed,
                                 const int32_t *seen, size_t n_seen, int32_t *token, struct gs_error *error)
{
    const float *given = logits;
    int32_t best;
    *token = -1;
    for (size_t i = 0; i < n_seen; i++)
        if (seen[i] < 0 || (size_t)seen[i] >= sampler->n_vocab)
            return gs_fail(error, GS_INVALID_ARGUMENT, "seen token id %d is not in 0 ... %zu", (int)seen[i],
                           sampler->n_vocab - 1);
    if (sampler->logits) {
        memcpy(sampler->logits, logits, sampler->n_vocab * sizeof *logits);
        apply_penalties(sampler, seen, n_seen);
        logits = sampler->logits;
    }
    if (!gs_row_best(logits, sampler->n_vocab, allowed, &best))
        return fail_finite(sampler, given, logits, error);
    if (best < 0)
        return gs_fail(error, GS_INVALID_ARGUMENT, "the mask allows none of %zu tokens", sampler->n_vocab);
    double u = uniform(sampler->sampling.seed, sampler->n_draws++);
    if (sampler->sampling.temperature == 0.0f) {
        *token = best;
        return GS_OK;
    }
    double total = gs_row_weights(logits, sampler->n_vocab, allowed, (double)logits[best],
                                  (double)sampler->sampling.temperature, sampler->weights, sampler->sums);
    *token = sampler->candidates ? draw_candidate(sampler->candidates, filter(sampler, logits), u)
                                 : draw_weight(sampler, u, total);
    return GS_OK;
}
