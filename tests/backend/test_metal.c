/*
 * The metal backend without a simulator. Where there is no Metal: it says so in one line and the engine goes
 * on without it. Which pages of files become buffers. And the file that talks to Objective-C, compiled for
 * Apple's processors by a compiler that has no SDK.
 */
#include "backend/metal/backend.h"
#include "backend/metal/pages.h"
#include "backend/registry.h"
#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void absence_is_told_in_one_line(void **state)
{
    (void)state;
    struct gs_device_options options = {0};
    struct gs_device *device = NULL;
    struct gs_error error;
    char description[300];
    bool present = gs_backend_metal.probe(description, sizeof description);
    print_message("%s\n", description);
    assert_null(strchr(description, '\n'));
    assert_true(strlen(description) > 10);
    assert_non_null(strstr(gs_backend_metal.untested, "never run on a Mac"));
    if (present)
        return;
    assert_fails(gs_backend_metal.open(&options, &device, &error), GS_UNSUPPORTED, "no Metal here", &error);
    assert_null(device);
    const struct gs_backend *best = NULL;
    assert_ok(gs_backend_find("auto", &best, &error), &error);
    assert_string_not_equal(best->name, "metal");
}

static void levers_are_the_metal_backends(void **state)
{
    (void)state;
    const struct gs_backend *cpu = NULL;
    struct gs_error error;
    struct gs_levers legacy = {.decode = GS_DECODE_LEGACY}, scalar = {.scalar_load = true};
    struct gs_levers groups = {.simdgroups = 2}; /* of the environment: not about one backend */
    assert_ok(gs_backend_find("cpu", &cpu, &error), &error);
    assert_fails(gs_backend_check_levers(cpu, &legacy, &error), GS_UNSUPPORTED, "--decode", &error);
    assert_fails(gs_backend_check_levers(cpu, &scalar, &error), GS_UNSUPPORTED, "--scalar-load", &error);
    assert_ok(gs_backend_check_levers(cpu, &groups, &error), &error);
    assert_ok(gs_backend_check_levers(&gs_backend_metal, &legacy, &error), &error);
}

/* ---------------------------------------------------------------- pages */

/* Addresses stand for memory; nothing is read. */
static const unsigned char *at(uint64_t address)
{
    return (const unsigned char *)(uintptr_t)address;
}

static void tensors_that_follow_share_a_window(void **state)
{
    (void)state;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), base = 64 * page;
    struct gs_metal_window *windows = NULL;
    size_t n = 0;
    struct gs_error error;
    /* A file from base + 100 on: three tensors end to end, the middle one read by nobody, then one in the
     * same page after a gap. At 30 pages another file, one page behind the end of the first. */
    struct gs_metal_span spans[] = {
        {at(base + 30 * page + 40), 50, false},          {at(base + 100), 10 * page, false},
        {at(base + 100 + 10 * page), 5 * page, true},    {at(base + 100 + 15 * page), 14 * page + 10, false},
        {at(base + 29 * page + 200), page - 200, false},
    };
    assert_ok(gs_metal_windows_plan(spans, 5, 1000 * page, &windows, &n, &error), &error);
    assert_int_equal(n, 2);
    assert_ptr_equal(windows[0].begin, at(base));
    assert_int_equal(windows[0].bytes, 30 * page);
    assert_ptr_equal(windows[1].begin, at(base + 30 * page)); /* it touches, but may be another mapping */
    assert_int_equal(windows[1].bytes, page);
    free(windows);
}

static void long_windows_are_split_between_tensors(void **state)
{
    (void)state;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), base = 64 * page;
    struct gs_metal_window *windows = NULL;
    size_t n = 0;
    struct gs_error error;
    struct gs_metal_span spans[40];
    for (uint64_t i = 0; i < 40; i++)
        spans[i] = (struct gs_metal_span){at(base + 8 + i * (page + 24)), page + 24, i % 8 == 3};
    assert_ok(gs_metal_windows_plan(spans, 40, 6 * page, &windows, &n, &error), &error);
    assert_true(n >= 8 && n <= 12);
    for (size_t i = 0; i < n; i++) {
        assert_true(windows[i].bytes <= 6 * page && windows[i].bytes % page == 0);
        assert_int_equal((uintptr_t)windows[i].begin % page, 0);
        windows[i].memory.object = (gs_objc_id)(void *)&windows[i];
    }
    for (size_t i = 0; i < 40; i++) { /* each lies in one window, whole */
        struct gs_metal_place place = gs_metal_windows_find(windows, n, spans[i].begin);
        const struct gs_metal_window *window = (const struct gs_metal_window *)(void *)place.buffer;
        if (spans[i].between)
            continue;
        assert_non_null(window);
        assert_ptr_equal(window->begin + place.offset, spans[i].begin);
        assert_true(place.offset + spans[i].bytes <= window->bytes);
    }
    assert_null(gs_metal_windows_find(windows, n, at(base - 1)).buffer);
    free(windows);
    assert_fails(gs_metal_windows_plan(spans, 40, page, &windows, &n, &error), GS_OUT_OF_MEMORY, "at most",
                 &error);
    free(windows);
}

/* What nobody reads gets no buffer of its own. */
static void gaps_alone_are_left_out(void **state)
{
    (void)state;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), base = 64 * page;
    struct gs_metal_window *windows = NULL;
    size_t n = 1;
    struct gs_error error;
    struct gs_metal_span spans[] = {{at(base), page, true}, {at(base + 5 * page), page, true}};
    assert_ok(gs_metal_windows_plan(spans, 2, 9 * page, &windows, &n, &error), &error);
    assert_int_equal(n, 0);
    free(windows);
}

/* ---------------------------------------------------------------- Apple's targets */

static void it_compiles_for_apple_without_an_sdk(void **state)
{
    (void)state;
    static const char *const targets[] = {"arm64-apple-macos13", "x86_64-apple-macos13"};
    char command[400];
    if (system("clang-19 --version >/dev/null 2>&1") != 0) {
        print_message("  skipped: there is no clang-19\n");
        skip();
    }
    for (size_t i = 0; i < 2; i++) {
        snprintf(
            command, sizeof command,
            "clang-19 -target %s -ffreestanding -fsyntax-only -std=c11 -Wall -Wextra -Wpedantic -Wconversion "
            "-Werror -Iinclude -Isrc src/backend/metal/metal.c",
            targets[i]);
        assert_int_equal(system(command), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absence_is_told_in_one_line),
        cmocka_unit_test(levers_are_the_metal_backends),
        cmocka_unit_test(tensors_that_follow_share_a_window),
        cmocka_unit_test(long_windows_are_split_between_tensors),
        cmocka_unit_test(gaps_alone_are_left_out),
        cmocka_unit_test(it_compiles_for_apple_without_an_sdk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
