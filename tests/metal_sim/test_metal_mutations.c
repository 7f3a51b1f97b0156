/*
 * Do the tests of the Metal kernels notice a fault? Each case spoils one place of the kernels' source in a
 * way in which such code goes wrong, runs the tests that ought to see it, and demands that they fail. (The
 * simulator's own controls, on small kernels: test_metal_sim.c.)
 */
#include "tests/metal_sim/kernel_fixture.h"
#include "tests/metal_sim/metal_sim.h"
#include "tests/support/check.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#if defined(__SANITIZE_ADDRESS__)
#define WITH_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_SANITIZER 1
#endif
#endif

struct mutation {
    const char *what;
    const char *program, *tests; /* which see it */
    const char *from, *to;
};

#define BARRIER "threadgroup_barrier(mem_flags::mem_threadgroup);"

static const struct mutation mutations[] = {
    /* Barriers. */
    {"no barrier before sums are joined", "kernels", "test_attention_out",
     "shared[simdgroup * n + i] = sums[i];\n    " BARRIER, "shared[simdgroup * n + i] = sums[i];"},
    {"no barrier between a tile's products and its next factors", "prefill", "test_experts_gate_up",
     "tile_multiply(tokens, weights, simdgroup, sums);\n        " BARRIER
     "\n    }\n    tile_store(pool, simdgroup, "
     "sums);\n}",
     "tile_multiply(tokens, weights, simdgroup, sums);\n    }\n    tile_store(pool, simdgroup, sums);\n}"},
    {"sums of two experts share one half of threadgroup memory", "kernels", "test_moe_down",
     "shared + rank % 2 * (GS_METAL_SIMDGROUPS", "shared + 0 * (GS_METAL_SIMDGROUPS"},
    {"a query is read before its SIMD-group has written it", "kernels", "test_attention",
     "q[i] = query[i];\n    simdgroup_barrier(mem_flags::mem_threadgroup);", "q[i] = query[i];"},
    {"values replace keys that others still need", "prefill", "test_attention_tile",
     BARRIER " /* all have met the keys; weights are there */", ""},
    {"a maximum under a condition", "kernels", "test_router",
     "lane < args.n_active ? precise::exp(logit - largest) : 0.0f",
     "lane < args.n_active ? precise::exp(logit - simd_max(logit)) : 0.0f"},
    {"activations are multiplied before all of them are in threadgroup memory", "prefill", "test_linear_few",
     "few_fill(tile, source, n, GS_FEW_WIDTH, x, c, columns, i);\n        " BARRIER,
     "few_fill(tile, source, n, GS_FEW_WIDTH, x, c, columns, i);"},
    {"a piece of activations replaces one that others still need", "prefill", "test_linear_few",
     BARRIER " /* source is there; the piece before is used up */", "if (c == 0) " BARRIER},
    /* Buffers and address spaces. */
    {"bias of k taken for that of q", "kernels", "test_attention_in",
     "const device float *bias = q_bias + row;", "const device float *bias = k_bias + row;"},
    {"keys stored as values", "kernels", "test_attention_in", "is_key ? layer.keys : layer.values",
     "is_key ? layer.values : layer.keys"},
    {"codes and scales swapped", "kernels", "test_moe_gate_up",
     "expert_dots<GS_METAL_SET_ROWS>(codes, scales,", "expert_dots<GS_METAL_SET_ROWS>(scales, codes,"},
    {"two arguments at one index", "kernels", "test_embed",
     "const device int *chosen [[buffer(GS_METAL_CHOSEN)]]",
     "const device int *chosen [[buffer(GS_METAL_HIDDEN)]]"},
    {"threadgroup memory taken for device memory", "kernels", "test_language",
     "ulong at, threadgroup const float *q, uint d,", "ulong at, device const float *q, uint d,"},
    {"more threadgroup memory than there is", "prefill", "test_attention_tile",
     "#define GS_METAL_TILE_D_HEAD 128", "#define GS_METAL_TILE_D_HEAD 256"},
    {"rows past the end of the head", "kernels", "test_head_and_greedy", "min(first + r, args.n_vocab - 1)",
     "first + r"},
    {"every row gets the first one's activations", "prefill", "test_experts_down_few",
     "x + (ulong)source[e / width] * columns", "x + (ulong)source[0] * columns"},
    /* Arithmetic. */
    {"a window of one position more", "kernels", "test_window_reads_no_more", "position - args.window + 1",
     "position - args.window"},
    {"ties of the router go to the higher expert", "kernels", "test_router", "if (logits[e] > best) {",
     "if (logits[e] >= best) {"},
    {"no sink", "kernels", "test_attention", "softmax_begin(&state, sinks[head], 1.0f);\n    else",
     "softmax_begin(&state, sinks[head], 0.0f);\n    else"},
    {"sums of chances without a part of their bits", "kernels", "test_sampling", " + ((ulong)middle << 24)",
     ""},
    {"a draw on the border of two tokens is trusted", "kernels", "test_sampling",
     "target.doubt = (total >> 17) + 2 * args.n_vocab;", "target.doubt = 0;"},
    {"high nibbles first", "kernels", "test_moe_gate_up", "uint odd = ((codes >> 3 & 0x1e1e1e1eu)",
     "uint odd = ((codes << 1 & 0x1e1e1e1eu)"},
    {"subnormal results as zero", "kernels", "test_dequantize*", "return sign | n << (scale + 21u);",
     "return sign;"},
};

/* The exit code of the tests with this change; -1: they did not end by themselves. */
static int exit_code_of(const char *program, const char *tests, const char *from, const char *to)
{
    char self[4096], path[sizeof self + 64];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    char *slash = strrchr(self, '/');
    assert_non_null(slash);
    *slash = '\0';
    snprintf(path, sizeof path, "%s/test_metal_%s", self, program);
    char *arguments[] = {path, (char *)(uintptr_t)tests, (char *)(uintptr_t)from, (char *)(uintptr_t)to,
                         NULL};
    posix_spawn_file_actions_t quiet;
    assert_int_equal(posix_spawn_file_actions_init(&quiet), 0);
    posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&quiet, 2, "/dev/null", O_WRONLY, 0);
    pid_t child;
    int status = 0, spawned = posix_spawn(&child, path, &quiet, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&quiet);
    if (spawned != 0)
        fail_msg("%s does not start: %s", path, strerror(spawned));
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void need_simulator(void)
{
    char why[METALSIM_MESSAGE] = "kernels are not built with the sanitizer: their faults are not its to find";
#ifndef WITH_SANITIZER
    if (metalsim_available(why, sizeof why))
        return;
#endif
    print_message("  skipped: %s\n", why);
    skip();
}

static void test_mutations_are_noticed(void **state)
{
    (void)state;
    need_simulator();
    int unseen = 0;
    for (size_t i = 0; i < sizeof mutations / sizeof *mutations; i++) {
        const struct mutation *m = &mutations[i];
        int code = exit_code_of(m->program, m->tests, m->from, m->to);
        if (code == FIXTURE_NO_SUCH_TEXT)
            print_error("%s: the source does not have that text once\n", m->what);
        else if (code != 1)
            print_error("%s: %s ends with %d\n", m->what, m->tests, code);
        unseen += code != 1;
    }
    assert_int_equal(unseen, 0);
}

/* All tests with a change that changes nothing: so it is not the change as such that they fail of. */
static void test_no_mutation_passes(void **state)
{
    (void)state;
    need_simulator();
    static const char from[] = "#define GS_ROUTER_SETS ", to[] = "#define GS_ROUTER_SETS  ";
    assert_int_equal(exit_code_of("kernels", "test_*", from, to), 0);
    assert_int_equal(exit_code_of("prefill", "test_*", from, to), 0);
    assert_int_equal(exit_code_of("kernels", "test_router", "no such text", ""), FIXTURE_NO_SUCH_TEXT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mutations_are_noticed),
        cmocka_unit_test(test_no_mutation_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
