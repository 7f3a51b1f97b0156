/* A long cache of the CPU backend moves to large pages: what it holds stays, and it grows by little more. */
#include "backend/cpu/kv.h"
#include "backend/cpu/kv_pages.h"
#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define D_HEAD   64
#define N_HEAD   2
#define CAPACITY 40000
#define PAGE     16384 /* positions of a head in a large page: 2 MiB of 64 halves */
#define STEP     500   /* tokens at a time, as max_step allows */

static const struct gs_config config = {.n_layer = 2,
                                        .d_head = D_HEAD,
                                        .n_head = N_HEAD,
                                        .n_kv_head = N_HEAD,
                                        .window = 128,
                                        .layer_is_window = {true, false}};

static struct gs_kv *open_kv(int64_t capacity)
{
    struct gs_kv *kv;
    struct gs_error error;
    if (gs_kv_open(&config, GS_KV_BF16, capacity, STEP, &kv, &error) != GS_OK)
        fail_msg("%s", error.message);
    return kv;
}

/* An element of a key (what = 0) or value (1). */
static uint16_t element(int64_t what, int64_t head, int64_t position, int64_t j)
{
    return (uint16_t)((position * 131 + head * 7919 + what * 104729 + j * 17) % 65521);
}

static void write_tokens(struct gs_kv *kv, int64_t n)
{
    gs_kv_begin_write(kv, n);
    for (int64_t p = kv->length; p < kv->length + n; p++)
        for (int64_t layer = 0; layer < 2; layer++)
            for (int64_t head = 0; head < N_HEAD; head++) {
                uint16_t key[D_HEAD], value[D_HEAD];
                for (int64_t j = 0; j < D_HEAD; j++) {
                    key[j] = element(0, head, p, j);
                    value[j] = element(1, head, p, j);
                }
                gs_kv_store_bf16(kv, layer, head, p, key, value);
            }
    kv->length += n;
}

/* Keys [n_slot/16][d/2][16][2], values [n_slot/2][d][2], of the full layer. */
static void check_contents(const struct gs_kv *kv)
{
    for (int64_t head = 0; head < N_HEAD; head++) {
        const uint16_t *keys = gs_kv_head_keys(kv, 1, head), *values = gs_kv_head_values(kv, 1, head);
        for (int64_t p = 0; p < kv->length; p++)
            for (int64_t j = 0; j < D_HEAD; j++)
                if (keys[p / 16 * 16 * D_HEAD + j / 2 * 32 + p % 16 * 2 + j % 2] != element(0, head, p, j) ||
                    values[p / 2 * 2 * D_HEAD + 2 * j + p % 2] != element(1, head, p, j))
                    fail_msg("head %d, position %d: element %d is another", (int)head, (int)p, (int)j);
    }
}

static void contents_stay(void **state)
{
    (void)state;
    struct gs_kv *kv = open_kv(CAPACITY), *copy = open_kv(CAPACITY), *prefix = open_kv(CAPACITY + 999);
    struct gs_error error;
    while (kv->length < CAPACITY - STEP) {
        int64_t before = kv->n_enlarged;
        write_tokens(kv, STEP);
        int64_t expected = (kv->length + PAGE / 2 - 1) / PAGE * PAGE; /* pages that are more than half full */
        assert_int_equal(kv->n_enlarged, expected);
        if (kv->n_enlarged > before)
            check_contents(kv);
    }
    assert_int_equal(kv->n_enlarged, 2 * PAGE);
    check_contents(kv);
    assert_int_equal(gs_kv_copy(copy, kv, &error), GS_OK);
    assert_int_equal(copy->n_enlarged, kv->n_enlarged);
    check_contents(copy);
    assert_int_equal(gs_kv_copy_prefix(prefix, kv, kv->length - 100, NULL, 0, &error), GS_OK);
    assert_int_equal(prefix->n_enlarged, kv->n_enlarged);
    check_contents(prefix);
    gs_kv_free(kv);
    gs_kv_free(copy);
    gs_kv_free(prefix);
}

/* A copy in pieces, while the other goes on and overwrites its rings: what was there when it began. */
static void pieces_are_of_one_moment(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 100, 627, 640, 2000, 9007};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct gs_kv *kv = open_kv(CAPACITY), *copy = open_kv(lengths[i]);
        struct gs_error error;
        int64_t at = 0, length = lengths[i];
        while (kv->length < length)
            write_tokens(kv, length - kv->length < STEP ? length - kv->length : STEP);
        int64_t first = kv->ring_first;
        for (size_t n = 0; at == 0 || at < copy->length; n++) {
            assert_true(n <= (size_t)length / 100);
            assert_int_equal(gs_kv_copy_part(copy, kv, &at, 100, &error), GS_OK);
            write_tokens(kv, 300);
        }
        assert_int_equal(copy->length, length);
        assert_int_equal(copy->ring_first, first);
        check_contents(copy);
        for (int64_t head = 0; head < N_HEAD; head++)
            for (int64_t p = first; p < length; p++)
                for (int64_t j = 0, slot = p % copy->layers[0].n_slot; j < D_HEAD; j++) {
                    assert_int_equal(
                        gs_kv_head_keys(copy, 0,
                                        head)[slot / 16 * 16 * D_HEAD + j / 2 * 32 + slot % 16 * 2 + j % 2],
                        element(0, head, p, j));
                    assert_int_equal(
                        gs_kv_head_values(copy, 0, head)[slot / 2 * 2 * D_HEAD + 2 * j + slot % 2],
                        element(1, head, p, j));
                }
        gs_kv_free(kv);
        gs_kv_free(copy);
    }
}

/* Bytes of this process that are in memory; 0: unknown. */
static int64_t resident_bytes(void)
{
    long long size, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%lld %lld", &size, &resident) != 2)
        resident = 0;
    if (file)
        fclose(file);
    return (int64_t)resident * sysconf(_SC_PAGESIZE);
}

/* Half a page of positions makes no page large, one more a page for each head's keys and values, no more. */
static void memory_grows_by_a_page_a_head(void **state)
{
    (void)state;
    struct gs_kv *kv = open_kv(CAPACITY);
    int64_t before = resident_bytes(), least = 2 * N_HEAD * ((int64_t)2 << 20);
    gs_kv_enlarge_pages(kv, PAGE / 2, INT64_MAX);
    assert_int_equal(kv->n_enlarged, 0);
    assert_true(resident_bytes() - before < (int64_t)1 << 20);
    gs_kv_enlarge_pages(kv, PAGE / 2 + 1, INT64_MAX);
    assert_int_equal(kv->n_enlarged, PAGE);
    assert_true(resident_bytes() - before < least + ((int64_t)1 << 20));
    gs_kv_enlarge_pages(kv, 1, INT64_MAX); /* cut back, and on again */
    assert_int_equal(kv->n_enlarged, PAGE);
    gs_kv_enlarge_pages(kv, CAPACITY, INT64_MAX);
    assert_int_equal(kv->n_enlarged, 2 * PAGE); /* of the third page there is less than half */
    assert_true(resident_bytes() - before <
                (int64_t)gs_kv_bytes(&config, GS_KV_BF16, CAPACITY, STEP) + ((int64_t)1 << 20));
    gs_kv_free(kv);
}

/* A token waits for one page, not for those of all heads and layers. */
static void a_page_a_token(void **state)
{
    (void)state;
    struct gs_kv *kv = open_kv(CAPACITY);
    while (kv->length < PAGE / 2)
        write_tokens(kv, PAGE / 2 - kv->length < STEP ? PAGE / 2 - kv->length : STEP);
    for (int64_t token = 0; token < 2 * N_HEAD; token++) {
        int64_t before = resident_bytes();
        assert_int_equal(kv->n_enlarged, 0);
        write_tokens(kv, 1);
        assert_true(resident_bytes() - before < ((int64_t)2 << 20) + ((int64_t)1 << 18));
    }
    assert_int_equal(kv->n_enlarged, PAGE);
    check_contents(kv);
    gs_kv_free(kv);
}

/* A cache that is smaller than a page, or has no full layer's worth of one, is left alone. */
static void small_caches(void **state)
{
    (void)state;
    static const int64_t capacities[] = {1, 64, 700, 5000, PAGE};
    for (size_t i = 0; i < sizeof capacities / sizeof *capacities; i++) {
        struct gs_kv *kv = open_kv(capacities[i]);
        while (kv->length < capacities[i])
            write_tokens(kv, capacities[i] - kv->length < STEP ? capacities[i] - kv->length : STEP);
        check_contents(kv);
        gs_kv_free(kv);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contents_stay),
        cmocka_unit_test(pieces_are_of_one_moment),
        cmocka_unit_test(memory_grows_by_a_page_a_head),
        cmocka_unit_test(a_page_a_token),
        cmocka_unit_test(small_caches),
    };
    return cmocka_run_group_tests_name("backend/kv_pages", tests, NULL, NULL);
}
