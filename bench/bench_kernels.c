/*
 * The speed of every variant of every kernel of the CPU backend, on one thread and from the cache: bytes of
 * weights (or of what is converted) and multiplications (or elements) per cycle. Cycles are those of the
 * core, from how long a chain of additions takes, one a cycle.
 *
 *   bench_kernels [--count] [PART OF A KERNEL'S NAME]
 *
 * --count calls each once in count_call, for bench/instructions.sh, and times nothing.
 */
#include "base/clock.h"
#include "tests/support/kernel_cases.h"

#include <stdio.h>
#include <string.h>

#define WIDTH       2880 /* of the published models */
#define N_TRY       7
#define TRY_SECONDS 2e-3
#define CHAIN       2000000

/* Cycles a second: the best of several chains of additions that wait for each other. */
static double measure_frequency(void)
{
    double best = 1e9;
    for (int i = 0; i < N_TRY; i++) {
        uint64_t x = 1, one = 1;
        double start = gs_clock_seconds();
        for (int k = 0; k < CHAIN / 8; k++) {
            __asm__ volatile("" : "+r"(one));
            for (int j = 0; j < 8; j++) {
                x += one;
                __asm__ volatile("" : "+r"(x));
            }
        }
        double seconds = gs_clock_seconds() - start;
        best = seconds < best ? seconds : best;
    }
    return CHAIN / best;
}

/* Seconds of a call: the best of several rows of calls. */
static double time_call(struct kernel_run *run, const struct kernel_variant *variant)
{
    double best = 1e9;
    size_t n_calls = 1;
    run->kernel->call(run, variant);
    for (int i = 0; i < N_TRY;) {
        double start = gs_clock_seconds();
        for (size_t k = 0; k < n_calls; k++)
            run->kernel->call(run, variant);
        double seconds = gs_clock_seconds() - start;
        if (seconds < TRY_SECONDS) {
            n_calls *= 2;
            continue;
        }
        best = seconds / (double)n_calls < best ? seconds / (double)n_calls : best;
        i++;
    }
    return best;
}

/* The function whose instructions callgrind counts. */
__attribute__((noinline)) static void count_call(struct kernel_run *run, const struct kernel_variant *variant)
{
    run->kernel->call(run, variant);
    __asm__ volatile("");
}

/* frequency 0: counting. */
static void show_case(const struct kernel_case *kernel, struct kernel_shape shape, double frequency)
{
    for (size_t v = 0; v < kernel_variant_count(); v++) {
        struct kernel_variant variant = kernel_variant_at(v);
        struct kernel_run run;
        if (!kernel_has(kernel, &variant))
            continue;
        kernel_prepare(&run, kernel, shape, 2);
        double bytes = kernel->bytes(&shape), products = kernel->products(&shape);
        if (frequency > 0.0) {
            double seconds = time_call(&run, &variant), cycles = seconds * frequency;
            printf("  %-22s %5zu %5zu %5zu  %-11s %10.0f %8.2f %8.2f %8.2f\n", kernel->name, shape.n,
                   shape.n_rows, shape.n_x, variant.isa, cycles, bytes / cycles, products / cycles,
                   bytes / seconds / 1e9);
        } else {
            kernel->call(&run, &variant); /* tables that the first call makes */
            count_call(&run, &variant);
            printf("%s\t%zu\t%zu\t%zu\t%s\t%.0f\t%.0f\n", kernel->name, shape.n, shape.n_rows, shape.n_x,
                   variant.isa, bytes, products);
        }
        kernel_release(&run);
    }
}

int main(int argc, char **argv)
{
    bool counting = argc > 1 && strcmp(argv[1], "--count") == 0;
    const char *part = argc > 1 + counting ? argv[1 + counting] : "";
    double frequency = counting ? 0.0 : measure_frequency();
    if (!counting) {
        printf("kernels: one thread, from the cache; a core at %.2f GHz\n", frequency / 1e9);
        printf("  %-22s %5s %5s %5s  %-11s %10s %8s %8s %8s\n", "kernel", "n", "rows", "with", "variant",
               "cycles", "B/cycle", "op/cycle", "GB/s");
    }
    for (size_t i = 0; i < kernel_case_count; i++) {
        const struct kernel_case *kernel = &kernel_cases[i];
        if (!strstr(kernel->name, part))
            continue;
        bool is_attention = kernel->step == 2;
        struct kernel_shape shape = {is_attention ? 64 : WIDTH, is_attention ? 8 : kernel->most_rows, 1};
        size_t several = is_attention ? 4096 : kernel->most_x < 32 ? kernel->most_x : 32;
        if (!is_attention)
            show_case(kernel, shape, frequency);
        shape.n_x = is_attention ? 128 : several;
        if (kernel->most_x > 1)
            show_case(kernel, shape, frequency);
        shape.n_x = several;
        if (is_attention)
            show_case(kernel, shape, frequency);
    }
    return 0;
}
