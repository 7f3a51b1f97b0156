/*
 * The negative controls of the verifier on the Metal backend, host and kernels in the simulator: every one
 * behaves as theory says, those of the window and of the ring of cached keys included, on a small model whose
 * window is short. Another model and its golden as arguments: the same on it, all that it can show.
 */
#include "engine/verify.h"
#include "tests/metal_sim/around.h"

#define MODEL  "tests/golden/models/one-layer"
#define GOLDEN "tests/golden/data/one-layer.safetensors"

static const char *model = MODEL, *golden = GOLDEN;

static void every_control_behaves(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__)
    print_message("  not under a sanitizer: skipped\n"); /* minutes, of a host that other tests run there */
    skip();
#endif
    need_stand_in(false);
    struct gs_controls_report report;
    struct gs_error error;
    struct gs_verify_options options = {.golden = golden, .backend = "metal", .n_threads = 1};
    assert_ok(gs_verify_controls(model, &options, &report, &error), &error);
    print_message("%lld tokens, window %lld, ring %lld, %.1f s\n", (long long)report.n_tokens,
                  (long long)report.window, (long long)report.ring, report.seconds);
    for (int c = GS_CONTROL_NONE + 1; c < GS_CONTROL_COUNT; c++) {
        const struct gs_control_result *r = &report.results[c];
        print_message("%-28s%lld tokens, first change %lld (expected %lld)%s%s\n",
                      gs_control_name(r->control), (long long)r->n_tokens, (long long)r->first_found,
                      (long long)r->first_expected, r->behaves ? "" : ": ", r->problem);
        assert_true(r->behaves);
        assert_int_equal(gs_control_exercise(r), GS_EXERCISED);
    }
    assert_int_equal(report.n_misbehaved, 0);
    assert_int_equal(report.results[GS_CONTROL_WINDOW].first_found, report.window);
    assert_int_equal(report.results[GS_CONTROL_KV_RING].first_found, report.ring);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_control_behaves)};
    if (argc == 3) {
        model = argv[1];
        golden = argv[2];
    }
    return cmocka_run_group_tests_name("metal_controls", tests, NULL, NULL);
}
