/*
 * What the simulator takes for Metal and what it refuses: each row is a piece of a kernel and the words of
 * the error, or none where it must be accepted. Strict mode judges address spaces, types and the language
 * version; flat mode what only the compiler of the whole kernel sees.
 */
#include "tests/metal_sim/around.h"
#include "tests/metal_sim/scan.h"

#include <stdio.h>
#include <stdlib.h>

static char message[METALSIM_MESSAGE];

/* Pieces stand in line 7, in a kernel; before it stand a structure, a function and declarations. */
static const char form[] =
    "#include <metal_stdlib>\n"
    "using namespace metal;\n"
    "struct pair { float a; uint b; };\n"
    "static inline float of_device(const device float *x) { return x[0]; }\n"
    "%s\n"
    "kernel void k(device float *out [[buffer(0)]], constant pair &args [[buffer(1)]], "
    "const device half4 *halves [[buffer(2)]], uint tid [[thread_position_in_grid]]) {\n"
    "%s\n"
    "}\n";

static const char *source_of(const char *before, const char *piece)
{
    static char source[4096];
    snprintf(source, sizeof source, form, before, piece);
    return source;
}

struct piece {
    const char *text, *says; /* NULL: accepted */
};

/* ---------------------------------------------------------------- the scanner alone */

static void words_that_metal_lacks_are_refused(void **state)
{
    (void)state;
    static const struct piece pieces[] = {
        {"double x = 1;", "'double'"},
        {"goto end; end: return;", "'goto'"},
        {"static uint n; n++;", "static variables in functions"},
        {"for (;;) { static const float f = 1; }", "static variables in functions"},
        {"float4 v = 0; out[0] = v.s0;", "OpenCL's swizzle"},
        {"float4 v = 0; out[0] = v.s01.x;", "OpenCL's swizzle"},
        {"try { out[0] = 1; } catch (...) {}", "'try'"},
        {"auto f = [](float x) { return x; }; out[0] = f(1);", "lambda"},
        {"out[0] = __builtin_sqrtf(2.0f);", "__builtin_sqrtf"},
        {"out[0] = lgamma(2.0f);", "'lgamma'"},
        {"int4 v = 1; out[0] = ((float4)v).x;", "write float4(x)"},
        {"threadgroup float shared[4] = {0};", "no initialiser"},
        {"threadgroup float p[4], q[4];", "one threadgroup variable a declaration"},
        {"bfloat x = bfloat(1.0f);", NULL},
        {"struct item { float seed; }; item i; i.seed = 1; out[0] = i.seed;", NULL},
        {"float4 v = (float4) {1, 2, 3, 4}; out[0] = v.x;", NULL},
        {"threadgroup float *none = nullptr; (void)none;", NULL},
        {"const float two[2] = {1, 2}; out[tid] = two[1 & tid];", NULL},
        {"/* double */ // goto\nout[0] = 0;", NULL},
    };
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        char *text = metalsim_scan(source_of("", pieces[i].text), METALSIM_FLAT, METALSIM_NEWEST, message,
                                   sizeof message);
        if (pieces[i].says && text)
            fail_msg("'%s' is accepted", pieces[i].text);
        if (!pieces[i].says && !text)
            fail_msg("'%s': %s", pieces[i].text, message);
        if (pieces[i].says &&
            (!strstr(message, pieces[i].says) || strncmp(message, "program_source:7: error: ", 25)))
            fail_msg("'%s': '%s' lacks '%s' or the line", pieces[i].text, message, pieces[i].says);
        free(text);
    }
}

static void kernels_need_what_the_simulator_reads(void **state)
{
    (void)state;
    static const struct piece pieces[] = {
        {"kernel void f(device float *x) {}", "needs a name and one attribute"},
        {"kernel void f(device float *x [[texture(0)]]) {}", "'texture' is not known"},
        {"kernel void f(device float *x [[buffer]]) {}", "'buffer' is not known"},
        {"kernel float f(device float *x [[buffer(0)]]) { return 0; }", "kernel void name"},
        {"template <uint N> kernel void f(device float *x [[buffer(0)]]) {}",
         "a template cannot be a kernel"},
        {"static void f() { threadgroup float x[4]; }", "a kernel's own body"},
        {"constant uint n [[function_constant(0)]] = 1;", "constant T name [[function_constant(n)]];"},
        {"kernel void f(device float *x [[buffer(0)]]) { x[0] = (1; }", "has no partner"},
        {"constant uint n [[function_constant(0)]];", NULL},
        {"enum { AT = 3 }; kernel void f(device float *x [[buffer(AT + 1)]]) {}", NULL},
    };
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        char *text = metalsim_scan(source_of(pieces[i].text, ""), METALSIM_FLAT, METALSIM_NEWEST, message,
                                   sizeof message);
        if ((text == NULL) != (pieces[i].says != NULL) ||
            (pieces[i].says && !strstr(message, pieces[i].says)))
            fail_msg("'%s': %s", pieces[i].text, text ? "accepted" : message);
        free(text);
    }
}

static void bfloat_needs_its_version(void **state)
{
    (void)state;
    assert_null(metalsim_scan("constant bfloat x = 1;", METALSIM_FLAT, 196608, message, sizeof message));
    assert_non_null(strstr(message, "'bfloat' needs language version 3.1"));
    char *text = metalsim_scan("// bfloat\nconstant uint no_bfloat = 1;", METALSIM_FLAT, 196608, message,
                               sizeof message);
    assert_non_null(text);
    free(text);
}

/* The trap: A * B in an array's size is no pointer. */
static void threadgroup_arrays_are_told_from_pointers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool variable;
    } cases[] = {
        {"threadgroup float x[A * B];", true},
        {"threadgroup half x[A & B][2 * C];", true},
        {"threadgroup vec<float, 2 * 2> x[4];", true},
        {"threadgroup uint x;", true},
        {"threadgroup float *x = shared;", false},
        {"threadgroup float &x = shared[0];", false},
        {"threadgroup const half4 *x = (threadgroup half4 *)(shared + A * B);", false},
        {"f((threadgroup float *)shared, A * B);", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = metalsim_scan(source_of("", cases[i].text), METALSIM_FLAT, METALSIM_NEWEST, message,
                                   sizeof message);
        assert_non_null(text);
        if ((strstr(text, "metalsim_slot_x") != NULL) != cases[i].variable)
            fail_msg("'%s' is %staken for a variable", cases[i].text, cases[i].variable ? "not " : "");
        int lines = 0;
        for (const char *c = text; *c && strncmp(c, "\n#line", 6); c++)
            lines += *c == '\n';
        assert_int_equal(lines, 9 - 1 + 1); /* as many as it had */
        free(text);
    }
}

/* ---------------------------------------------------------------- strict mode, C++14 */

static void strict_mode_judges_address_spaces_and_types(void **state)
{
    (void)state;
    need_simulator();
    static const struct piece pieces[] = {
        {"threadgroup float shared[4]; out[0] = of_device(shared);", "no matching function"},
        {"threadgroup float shared[4]; const device float *x = shared; out[0] = *x;", "program_source:7"},
        {"args.b = 1;", "program_source:7"},
        {"const float *x = out; out[0] = *x;", "program_source:7"},
        {"float4 v = float4(1, 2, 3); out[0] = v.x;", "constructor"},
        {"float4 v = halves[tid]; out[0] = v.x;", "program_source:7"},
        {"out[0] = *simd_sum(out);", "pointer"},
        {"float x[tid]; out[0] = x[0];", "program_source:7"},
        {"if constexpr (true) out[0] = 1;", "C++17"},
        {"auto [p, q] = pair{1, 2}; out[0] = p + q;", "C++17"},
        {"out[0] = min(tid, 3);", "no matching function"},
        {"const pair copy = {args.a, args.b}; threadgroup float shared[4 * 2]; threadgroup float *x = "
         "shared; "
         "x[tid] = copy.a; threadgroup_barrier(mem_flags::mem_threadgroup); "
         "out[tid] = of_device(out) + x[0] + float4(halves[tid]).x;",
         NULL},
    };
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        bool accepted = metalsim_check_strict(source_of("", pieces[i].text), message, sizeof message);
        if (accepted != (pieces[i].says == NULL) || (pieces[i].says && !strstr(message, pieces[i].says)))
            fail_msg("'%s': %s", pieces[i].text, accepted ? "accepted" : message);
    }
}

/* ---------------------------------------------------------------- flat mode */

static void signatures_are_checked(void **state)
{
    (void)state;
    need_simulator();
    static const struct piece pieces[] = {
        {"kernel void f(device float *x [[buffer(0)]], device float *y [[buffer(0)]]) {}",
         "two arguments have the same index"},
        {"kernel void f(device float x [[buffer(0)]]) {}", "is a pointer or a reference"},
        {"kernel void f(device float *x [[buffer(0)]], float i [[thread_position_in_grid]]) {}",
         "uint or ushort"},
        {"kernel void f(uint2 g [[threadgroup_position_in_grid]], uint t [[thread_position_in_threadgroup]]) "
         "{}",
         "same number of components"},
        {"kernel void f(uint2 l [[thread_index_in_simdgroup]]) {}", "is a scalar"},
        {"kernel void f(device atomic<ulong> *x [[buffer(0)]]) { atomic_min_explicit(x, 1ul, "
         "memory_order_relaxed); }",
         "atomic_min_explicit"},
        {"kernel void f(device float *x [[buffer(0)]]) { x[0] = nothing; }", "program_source:5:"},
    };
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        struct metalsim_library *library =
            metalsim_library_new(source_of(pieces[i].text, ""), NULL, message, sizeof message);
        if (library || !strstr(message, pieces[i].says))
            fail_msg("'%s': %s", pieces[i].text, library ? "accepted" : message);
    }
    struct metalsim_options apple8 = {.apple8 = true};
    struct metalsim_library *library =
        metalsim_library_new(source_of(pieces[5].text, ""), &apple8, message, sizeof message);
    if (!library)
        fail_msg("%s", message);
    metalsim_library_free(library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_that_metal_lacks_are_refused),
        cmocka_unit_test(kernels_need_what_the_simulator_reads),
        cmocka_unit_test(bfloat_needs_its_version),
        cmocka_unit_test(threadgroup_arrays_are_told_from_pointers),
        cmocka_unit_test(strict_mode_judges_address_spaces_and_types),
        cmocka_unit_test(signatures_are_checked),
    };
    return cmocka_run_group_tests_name("metal_language", tests, NULL, NULL);
}
