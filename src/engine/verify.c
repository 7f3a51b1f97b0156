#include "engine/verify.h"

#include "backend/registry.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/threads.h"
#include "engine/verify_proof.h"

#include <stdio.h>
#include <string.h>

#define AGAINST_TOKENS 64 /* that two backends run in turn */

static gs_status open_subject(const struct gs_proof *proof, size_t n_threads, enum gs_control control,
                              struct gs_subject *out, struct gs_error *error)
{
    struct gs_device_options kind = proof->device;
    kind.n_threads = n_threads;
    kind.control = control;
    return gs_subject_open(proof->backend, proof->weights, &kind, out, error);
}

/* ---------------------------------------------------------------- against a golden */

/* Runs the tokens and keeps what the golden has of them. */
static gs_status compare_golden(struct gs_proof *proof, const struct gs_subject *subject,
                                struct gs_record **record, struct gs_verify_report *report,
                                struct gs_error *error)
{
    const struct gs_selection *has = &proof->golden->record->kept;
    struct gs_selection kept = {.rows = gs_first_positions(has->rows, proof->n_tokens),
                                .choices = gs_first_positions(has->choices, proof->n_tokens),
                                .logits = gs_first_positions(has->logits, proof->n_tokens),
                                .argmax = gs_first_positions(has->argmax, proof->n_tokens)};
    struct gs_comparison *comparison = NULL;
    int64_t n_layer = proof->weights->config.n_layer;
    gs_status status = gs_record_open(n_layer, &kept, record, error);
    if (status == GS_OK)
        status = gs_subject_run(subject, proof->tokens, proof->n_tokens, &gs_cuts_whole, *record,
                                &proof->watch, error);
    if (status == GS_OK)
        status = gs_comparison_open(n_layer, &comparison, error);
    if (status == GS_OK) {
        gs_compare(comparison, *record, proof->golden->record);
        status = gs_check_comparison(report, comparison, error);
    }
    gs_comparison_close(comparison);
    return status;
}

/* ---------------------------------------------------------------- against another backend */

struct pair {
    const struct gs_subject *subject, *reference;
    struct gs_kv *subject_kv, *reference_kv;
    struct gs_comparison *comparison;
};

/* The next tokens on both. */
static gs_status compare_piece(struct gs_proof *proof, struct pair *pair, size_t begin, size_t end,
                               struct gs_error *error)
{
    struct gs_record *found = NULL, *expected = NULL;
    struct gs_positions span = {0};
    gs_status status = gs_proof_span(proof, begin, end, &span, error);
    struct gs_selection kept = {span, span, span, span};
    int64_t n_layer = pair->comparison->n_layer;
    if (status == GS_OK)
        status = gs_record_open(n_layer, &kept, &expected, error);
    if (status == GS_OK)
        status = gs_record_open(n_layer, &kept, &found, error);
    if (status == GS_OK)
        status = gs_subject_continue(pair->reference, pair->reference_kv, proof->tokens + begin, end - begin,
                                     &gs_cuts_whole, expected, &proof->watch, error);
    if (status == GS_OK)
        status = gs_subject_continue(pair->subject, pair->subject_kv, proof->tokens + begin, end - begin,
                                     &gs_cuts_whole, found, &proof->watch, error);
    if (status == GS_OK)
        gs_compare(pair->comparison, found, expected);
    gs_record_close(found);
    gs_record_close(expected);
    return status;
}

/* In pieces, so that the intermediates of long sequences of large models need not be kept. */
static gs_status compare_backends(struct gs_proof *proof, const struct gs_subject *subject,
                                  const struct gs_subject *reference, struct gs_verify_report *report,
                                  struct gs_error *error)
{
    struct pair pair = {.subject = subject, .reference = reference};
    int64_t n = (int64_t)proof->n_tokens;
    gs_status status = gs_comparison_open(proof->weights->config.n_layer, &pair.comparison, error);
    if (status == GS_OK)
        status = subject->backend->kv_create(subject->device, n, &pair.subject_kv, error);
    if (status == GS_OK)
        status = reference->backend->kv_create(reference->device, n, &pair.reference_kv, error);
    for (size_t at = 0; status == GS_OK && at < proof->n_tokens; at += AGAINST_TOKENS) {
        size_t end = at + AGAINST_TOKENS;
        status = compare_piece(proof, &pair, at, end < proof->n_tokens ? end : proof->n_tokens, error);
    }
    if (status == GS_OK)
        status = gs_check_comparison(report, pair.comparison, error);
    subject->backend->kv_free(pair.subject_kv);
    reference->backend->kv_free(pair.reference_kv);
    gs_comparison_close(pair.comparison);
    return status;
}

/* "cpu:exact" */
static gs_status find_reference(const char *text, const struct gs_backend **backend,
                                struct gs_device_options *kind, struct gs_error *error)
{
    char name[32];
    const char *colon = strchr(text, ':');
    if (!colon || (size_t)(colon - text) >= sizeof name)
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "cannot compare with \"%s\": it should be BACKEND:PRECISION, as in cpu:exact",
                       gs_quote(text).text);
    snprintf(name, sizeof name, "%.*s", (int)(colon - text), text);
    gs_status status = gs_backend_find(name, backend, error);
    return status == GS_OK ? gs_proof_choose_kind(colon + 1, "native", kind, error) : status;
}

static gs_status compare_against(struct gs_proof *proof, const struct gs_verify_options *options,
                                 const struct gs_subject *subject, struct gs_verify_report *report,
                                 struct gs_error *error)
{
    struct gs_subject reference = {0};
    struct gs_device_options kind = proof->device;
    const struct gs_backend *backend = proof->backend;
    gs_status status = options->against ? find_reference(options->against, &backend, &kind, error) : GS_OK;
    if (backend != proof->backend)
        kind.index = 0;
    if (options->against)
        kind.isa = NULL;
    if (status == GS_OK)
        status = gs_subject_open(backend, proof->weights, &kind, &reference, error);
    if (status != GS_OK)
        return status;
    report->reference = options->against ? options->against : "itself without the control";
    report->thresholds =
        gs_thresholds_find(report->thresholds->precision, report->thresholds->weights, "float32");
    status = compare_backends(proof, subject, &reference, report, error);
    gs_subject_close(&reference);
    return status;
}

/* ---------------------------------------------------------------- against itself */

/* A number of threads that the subject does not run on. */
static gs_status choose_threads(size_t n_threads, size_t *other, struct gs_error *error)
{
    struct gs_threads *pool = NULL;
    gs_status status = n_threads == 0 ? gs_threads_open(0, &pool, error) : GS_OK;
    if (status == GS_OK)
        *other = (pool ? gs_threads_count(pool) : n_threads) == 3 ? 2 : 3;
    gs_threads_close(pool);
    return status;
}

/*
 * The first `n` tokens in other calls, on another number of threads. `record` may be NULL: it is made here.
 */
static gs_status compare_cuts(struct gs_proof *proof, const struct gs_verify_options *options,
                              const struct gs_subject *subject, const struct gs_record *record, size_t n,
                              struct gs_verify_report *report, struct gs_error *error)
{
    struct gs_record *whole = NULL, *pieces = NULL;
    struct gs_subject other = {0};
    struct gs_positions span = {0};
    size_t n_threads;
    bool promised = proof->device.precision == GS_PRECISION_EXACT || proof->backend->fast_keeps_bits;
    gs_status status = choose_threads(options->n_threads, &n_threads, error);
    if (status == GS_OK)
        status = gs_proof_span(proof, 0, n, &span, error);
    struct gs_selection kept = {span, span, span, span};
    int64_t n_layer = proof->weights->config.n_layer;
    if (status == GS_OK && !record)
        status = gs_record_open(n_layer, &kept, &whole, error);
    if (status == GS_OK && !record)
        status = gs_subject_run(subject, proof->tokens, n, &gs_cuts_whole, whole, &proof->watch, error);
    if (status == GS_OK)
        status = gs_record_open(n_layer, &kept, &pieces, error);
    if (status == GS_OK)
        status = open_subject(proof, n_threads, options->control, &other, error);
    if (status == GS_OK)
        status = gs_subject_run(&other, proof->tokens, n, &gs_cuts_mixed, pieces, &proof->watch, error);
    if (status == GS_OK)
        status = gs_check_same_bits(report, pieces, record ? record : whole, "other bits in other cuts",
                                    promised, error);
    gs_subject_close(&other);
    gs_record_close(pieces);
    gs_record_close(whole);
    return status;
}

/* ---------------------------------------------------------------- all of it */

static gs_status run_checks(struct gs_proof *proof, const struct gs_verify_options *options,
                            struct gs_verify_report *report, struct gs_error *error)
{
    struct gs_subject subject = {0};
    struct gs_record *record = NULL;
    bool spoilt = options->control != GS_CONTROL_NONE;
    /* What a golden in bfloat16 lets pass is too wide a bar for a control. */
    bool golden = proof->golden && (proof->golden->is_complete || !spoilt);
    bool against = !golden && (options->against || spoilt);
    /* Against itself the cuts are the whole comparison: then they take every token that was asked for. */
    size_t n = proof->n_tokens, few = gs_proof_few_tokens(proof);
    size_t n_cut = few < n && (golden || against) ? few : n;
    proof->watch.total = (golden ? n : against ? 2 * n : 0) + (spoilt ? 0 : golden ? n_cut : 2 * n_cut);
    gs_status status = open_subject(proof, options->n_threads, options->control, &subject, error);
    if (status == GS_OK)
        status = gs_check_mxfp4(report, &subject, proof->golden, &proof->watch, error);
    if (status == GS_OK)
        status = gs_check_rotary(report, &subject, proof->golden, error);
    if (status == GS_OK && golden)
        status = compare_golden(proof, &subject, &record, report, error);
    else if (status == GS_OK && against)
        status = compare_against(proof, options, &subject, report, error);
    /* A control need not keep the same bits in other cuts, nor is that what it is for. */
    if (status == GS_OK && !spoilt)
        status = compare_cuts(proof, options, &subject, record, n_cut, report, error);
    if (status == GS_OK)
        status = gs_proof_check_files(proof, error);
    gs_record_close(record);
    gs_subject_close(&subject);
    return status;
}

gs_status gs_verify(const char *path, const struct gs_verify_options *options,
                    struct gs_verify_report *report, struct gs_error *error)
{
    double began = gs_clock_seconds();
    struct gs_proof proof;
    *report = (struct gs_verify_report){0};
    if (options->golden && options->against)
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "a golden and another backend to compare with: only one of them can be the reference");
    gs_status status = gs_proof_open(path, options, &proof, error);
    if (status != GS_OK)
        return status;
    size_t wanted = proof.golden ? proof.golden->n_tokens : gs_proof_few_tokens(&proof);
    status = gs_proof_choose_tokens(&proof, options, wanted, error);
    report->backend = proof.backend->name;
    report->reference = proof.reference;
    report->thresholds = proof.thresholds;
    report->n_tokens = proof.n_tokens;
    if (status == GS_OK)
        status = run_checks(&proof, options, report, error);
    gs_proof_close(&proof);
    report->seconds = gs_clock_seconds() - began;
    if (status != GS_OK)
        gs_verify_report_free(report);
    return status;
}
