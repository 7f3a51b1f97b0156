/*
 * The HIP backend on this machine as it is: what is said where there is no library or no device, and the code
 * objects of this build: for the right waves, without scratch. Nothing here needs an AMD GPU;
 * tests/gpu_sim runs the backend in a simulator.
 */
#include "backend/gpu/driver.h"
#include "backend/hip/driver.h"
#include "backend/hip/hip.h"
#include "backend/hip/modules.h"
#include "backend/registry.h"
#include "tests/support/check.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---------------------------------------------------------------- the library */

static void absence_is_told_in_one_line(void **state)
{
    (void)state;
    char description[300];
    struct gs_device_options options = {0};
    struct gs_device *device = NULL;
    struct gs_error error;
    const struct gs_backend *best = NULL;
    bool present = gs_backend_hip.probe(description, sizeof description);
    print_message("%s\n", description);
    assert_null(strchr(description, '\n'));
    assert_true(strlen(description) > 10);
    if (present)
        return;
    assert_fails(gs_backend_hip.open(&options, &device, &error), GS_UNSUPPORTED, "HIP", &error);
    assert_null(device);
    assert_ok(gs_backend_find("auto", &best, &error), &error);
    assert_string_not_equal(best->name, "hip");
}

/* The real library has every function that is asked for: without a device it gets as far as saying so. */
static void the_library_has_every_call(void **state)
{
    (void)state;
    struct gs_hip_driver driver;
    struct gs_error error = {.message = ""};
    gs_status status = gs_hip_driver_open(&driver, &error);
    print_message("%s\n", status == GS_OK ? "it starts" : error.message);
    if (strstr(error.message, "no HIP library here") || gs_hip_module_count == 0) {
        print_message("  the real HIP library is not tried: %s\n", error.message);
        skip();
    }
    if (status != GS_OK && !strstr(error.message, "the HIP library sees no device"))
        fail_msg("%s", error.message);
    gs_gpu_driver_close(&driver.common);
}

static void describe(const struct gs_gpu_driver *driver, int result, const char **name, const char **text)
{
    (void)driver;
    (void)result;
    *name = "hipErrorX";
    *text = "because";
}

static void another_library_is_named(void **state)
{
    (void)state;
    static const char *const none[] = {"libno-such-library.so", "libnor-this.so", NULL};
    static const char *const old[] = {"libno-such-library.so", "libc.so.6", NULL};
    static const char *const calls[] = {
#define NAME(field, cuda, hip, parameters) #hip,
        GS_GPU_CALLS(NAME)
#undef NAME
    };
    struct gs_gpu_vendor vendor = {.name = "hip",
                                   .product = "HIP library",
                                   .needed = "ROCm 5.2 or later",
                                   .file_names = none,
                                   .call_names = calls,
                                   .bytes = sizeof(struct gs_gpu_driver),
                                   .unsupported = (const int[]){7, 0},
                                   .describe = describe};
    struct gs_gpu_driver driver;
    struct gs_error error;
    assert_fails(gs_gpu_driver_open(&driver, &vendor, &error), GS_UNSUPPORTED,
                 "no HIP library here: libno-such-library.so cannot be opened", &error);
    assert_null(driver.handle);
    vendor.file_names = old;
    assert_fails(gs_gpu_driver_open(&driver, &vendor, &error), GS_UNSUPPORTED,
                 "the HIP library here has no hipInit: it is too old, must be of ROCm 5.2 or later", &error);
    assert_null(driver.handle);
    driver.vendor = &vendor;
    assert_fails(gs_gpu_check(&driver, 2, &error, "kernel %s", "k"), GS_OUT_OF_MEMORY,
                 "hip: kernel k: hipErrorX (because)", &error);
    assert_int_equal(gs_gpu_check(&driver, 7, &error, "kernel"), GS_UNSUPPORTED);
    assert_int_equal(gs_gpu_check(&driver, GS_GPU_NO_BINARY, &error, "kernel"), GS_UNSUPPORTED);
    assert_int_equal(gs_gpu_check(&driver, 8, &error, "kernel"), GS_IO);
    assert_int_equal(gs_gpu_check(&driver, 0, &error, "kernel"), GS_OK);
}

/* ---------------------------------------------------------------- code objects */

#define N_KERNELS 30 /* of simple.cu and convert.cu */

/* A code object's end is that of its table of sections. */
static size_t size_of(const unsigned char *image)
{
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)(const void *)image;
    assert_memory_equal(header->e_ident, ELFMAG, SELFMAG);
    assert_int_equal(header->e_machine, 224); /* AMDGPU */
    return (size_t)header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
}

/* The notes as text; NULL: no tool here reads them. */
static char *read_notes(const unsigned char *image)
{
    char path[] = "/tmp/gossamer-test-XXXXXX", command[200];
    const size_t most = 1 << 20;
    int file = mkstemp(path);
    char *text = malloc(most);
    size_t bytes = size_of(image);
    assert_true(file >= 0 && text);
    assert_int_equal(write(file, image, bytes), (ssize_t)bytes);
    close(file);
    snprintf(command, sizeof command,
             "for r in llvm-readelf-19 llvm-readelf-20 llvm-readelf; do"
             " command -v $r >/dev/null && exec $r --notes %s; done",
             path);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(text, 1, most - 1, pipe);
    text[n] = '\0';
    pclose(pipe);
    unlink(path);
    if (n > 0)
        return text;
    free(text);
    return NULL;
}

/* How often `name` occurs as a field, how often with this value. */
static size_t count_field(const char *notes, const char *name, const char *value)
{
    size_t n = 0, length = strlen(name);
    for (const char *at = strstr(notes, name); at; at = strstr(at + 1, name)) {
        const char *found = at + length + strspn(at + length, " ");
        size_t end = strcspn(found, "\n");
        n += !value || (strlen(value) == end && strncmp(found, value, end) == 0);
    }
    return n;
}

static void code_objects_are_for_their_waves_and_need_no_scratch(void **state)
{
    (void)state;
    if (gs_hip_module_count == 0) {
        print_message("  code objects are not read: this build has none\n");
        skip();
    }
    for (size_t i = 0; i < gs_hip_module_count; i++) {
        const char *arch = gs_hip_modules[i].arch;
        char *notes = read_notes(gs_hip_modules[i].image), target[60];
        if (!notes) {
            print_message("  code objects are not read: it needs llvm-readelf\n");
            skip();
        }
        const char *lanes = strncmp(arch, "gfx9", 4) == 0 ? "64" : "32";
        assert_int_equal(count_field(notes, ".wavefront_size:", NULL), N_KERNELS);
        assert_int_equal(count_field(notes, ".wavefront_size:", lanes), N_KERNELS);
        assert_int_equal(count_field(notes, ".private_segment_fixed_size:", "0"), N_KERNELS);
        assert_int_equal(count_field(notes, ".uses_dynamic_stack:", "false"), N_KERNELS);
        assert_int_equal(count_field(notes, ".vgpr_spill_count:", "0"), N_KERNELS);
        assert_int_equal(count_field(notes, ".sgpr_spill_count:", "0"), N_KERNELS);
        assert_int_equal(count_field(notes, ".wavefront_size:", lanes[0] == '6' ? "32" : "64"), 0);
        snprintf(target, sizeof target, "amdgcn-amd-amdhsa--%s", arch);
        assert_non_null(strstr(notes, target));
        free(notes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absence_is_told_in_one_line),
        cmocka_unit_test(the_library_has_every_call),
        cmocka_unit_test(another_library_is_named),
        cmocka_unit_test(code_objects_are_for_their_waves_and_need_no_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
