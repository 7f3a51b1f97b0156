/* Every variant of the exact dot product gives the same bits as the order that kernels.h states. */
#include "backend/cpu/kernels.h"
#include "model/mxfp4.h"
#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_N    700
#define MAX_DOTS 13

/* The stated order, word for word. */
static float dot_as_stated(const float *w, const float *x, size_t n)
{
    float lanes[32] = {0};
    for (size_t i = 0; i < n; i++) {
        volatile float product = w[i] * x[i]; /* rounded before it is added */
        lanes[i % 32] += product;
    }
    for (size_t half = 16; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lanes[l] += lanes[l + half];
    return lanes[0];
}

static float random_float(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(int32_t)*seed * 0x1p-28f;
}

/* n floats that end where a page without access begins: a read past the end would crash. */
static float *guarded(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (n * sizeof(float) + page - 1) / page * page + page;
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    assert_int_equal(mprotect(memory + size - page, page, PROT_NONE), 0);
    return (float *)(void *)(memory + size - page - n * sizeof(float));
}

static void unguard(float *data, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (n * sizeof(float) + page - 1) / page * page + page;
    munmap((char *)(data + n) + page - size, size);
}

static void check_size(size_t n, size_t n_x, unsigned *seed)
{
    float *w = guarded(n), *x[MAX_DOTS];
    for (size_t i = 0; i < n; i++)
        w[i] = random_float(seed);
    for (size_t j = 0; j < n_x; j++) {
        x[j] = guarded(n);
        for (size_t i = 0; i < n; i++)
            x[j][i] = random_float(seed);
    }
    for (size_t v = 0; v < gs_kernels_count(); v++) {
        float *out = guarded(n_x);
        memset(out, 0xFF, n_x * sizeof *out);
        gs_kernels_at(v)->dot(w, (const float *const *)x, n_x, n, out);
        for (size_t j = 0; j < n_x; j++) {
            float stated = dot_as_stated(w, x[j], n);
            if (memcmp(&out[j], &stated, sizeof stated) != 0)
                fail_msg("%s: n %zu, vector %zu: %a, not %a", gs_kernels_at(v)->isa, n, j, (double)out[j],
                         (double)stated);
        }
        unguard(out, n_x);
    }
    unguard(w, n);
    for (size_t j = 0; j < n_x; j++)
        unguard(x[j], n);
}

static void variants_give_the_stated_bits(void **state)
{
    (void)state;
    unsigned seed = 1;
    for (size_t n = 0; n <= 100; n++)
        check_size(n, 1 + n % MAX_DOTS, &seed);
    for (size_t n = 101; n <= MAX_N; n += 37)
        for (size_t n_x = 1; n_x <= MAX_DOTS; n_x += 3)
            check_size(n, n_x, &seed);
    check_size(2880, MAX_DOTS, &seed);
    for (size_t v = 0; v < gs_kernels_count(); v++)
        printf("  variant %s\n", gs_kernels_at(v)->isa);
}

/* All codes under all scales but NaN, in every place of a row. */
static void mxfp4_variants_give_the_same_bits(void **state)
{
    (void)state;
    enum { N = 32 * 9 };
    unsigned seed = 3;
    for (int scale = 0; scale < 255; scale++) {
        uint8_t blocks[N / 2], scales[N / 32];
        float expected[N];
        for (size_t i = 0; i < sizeof blocks; i++) {
            seed = seed * 1664525u + 1013904223u;
            blocks[i] = i < 16 ? (uint8_t)(i * 16 + 15 - i) : (uint8_t)(seed >> 24);
        }
        for (size_t i = 0; i < sizeof scales; i++)
            scales[i] = (uint8_t)((scale + (int)i * 28) % 255);
        gs_mxfp4_dequantize(blocks, scales, N, expected);
        for (size_t v = 0; v < gs_kernels_count(); v++) {
            float *out = guarded(N);
            gs_kernels_at(v)->dequantize_mxfp4(blocks, scales, N, out);
            assert_memory_equal(out, expected, sizeof expected);
            unguard(out, N);
        }
    }
}

/* The order matters: summing the same terms in another order must be noticed. */
static void another_order_is_noticed(void **state)
{
    (void)state;
    unsigned seed = 2;
    size_t n_different = 0;
    for (int round = 0; round < 100; round++) {
        float w[320], x[320], plain = 0, stated;
        const float *vectors[] = {x};
        for (size_t i = 0; i < 320; i++) {
            w[i] = random_float(&seed);
            x[i] = random_float(&seed);
            plain += w[i] * x[i];
        }
        gs_kernels_best()->dot(w, vectors, 1, 320, &stated);
        n_different += plain != stated;
    }
    assert_true(n_different > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variants_give_the_stated_bits),
        cmocka_unit_test(mxfp4_variants_give_the_same_bits),
        cmocka_unit_test(another_order_is_noticed),
    };
    return cmocka_run_group_tests_name("backend/kernels", tests, NULL, NULL);
}
