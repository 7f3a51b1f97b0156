/*
 * METALSIM_ROOT: the folder that tests/ stands in. METALSIM_CXX: clang++-19 or later, or "" where there is
 * none. METALSIM_CXX_FLAGS: for a cross build, its target. All three come from the Makefile.
 */
#include "tests/metal_sim/compile.h"

#include "tests/metal_sim/metal_sim.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Half rounds after each operation, 1.0 is a float: as in Metal. Array bounds are checked where clang knows
 * them. */
#define LANGUAGE                                                                                             \
    "-x c++ -Wno-everything -Werror=vla -fno-exceptions -fno-rtti -flax-vector-conversions=none "            \
    "-ferror-limit=8 "                                                                                       \
    "-fno-color-diagnostics "                                                                                \
    "-fno-caret-diagnostics -Xclang -cl-single-precision-constant -Xclang -ffloat16-excess-precision=none "
#define HEADER                                                                                               \
    "-isystem '" METALSIM_ROOT "/tests/metal_sim/include' -isystem '" METALSIM_ROOT                          \
    "' -include metalsim/metalsim.hpp "
#define PREPROCESS                                                                                           \
    "-E -x c++ -std=c++20 -nostdinc -D__METAL__=1 -D__HAVE_BFLOAT__=1 "                                      \
    "-isystem '" METALSIM_ROOT "/tests/metal_sim/include' -fno-color-diagnostics -fno-caret-diagnostics "
#define EXECUTE "-std=c++20 -fPIC -shared -nostdlib++ -fsanitize=array-bounds -fsanitize-trap=array-bounds "

struct work {
    char folder[PATH_MAX]; /* of its own, for one compilation */
    char *message;
    size_t size;
};

/* The folder of libmetalsim.so, and its path. */
static const char *own_path(void)
{
    static char path[PATH_MAX];
    Dl_info info;
    if (!path[0] && dladdr(__extension__(void *) own_path, &info) && info.dli_fname)
        if (!realpath(info.dli_fname, path))
            path[0] = '\0';
    return path;
}

bool metalsim_available(char *message, size_t size)
{
    if (METALSIM_CXX[0])
        return true;
    snprintf(message, size, "the Metal simulator needs clang 19 or later (scripts/setup.sh installs it)");
    return false;
}

static char *read_file(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t size = 0, got = 0;
    while (file && !ferror(file)) {
        if (got + 1 >= size) {
            size = size ? 2 * size : 65536;
            char *grown = realloc(text, size);
            if (!grown)
                break;
            text = grown;
        }
        size_t now = fread(text + got, 1, size - got - 1, file);
        got += now;
        if (now == 0)
            break;
    }
    if (file)
        fclose(file);
    if (text)
        text[got] = '\0';
    *n = got;
    return text;
}

static bool write_file(struct work *work, const char *name, const char *text)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", work->folder, name);
    FILE *file = fopen(path, "wb");
    bool ok = file && fputs(text, file) >= 0;
    ok = file && fclose(file) == 0 && ok;
    if (!ok)
        snprintf(work->message, work->size, "%s: %s", path, strerror(errno));
    return ok;
}

/* Runs the compiler in the work folder; where it fails, its words are the message. */
static bool run_compiler(struct work *work, const char *arguments)
{
    static const char form[] = "cd '%s' && " METALSIM_CXX " " METALSIM_CXX_FLAGS " %s 2>log";
    size_t n = sizeof form + strlen(work->folder) + strlen(arguments);
    char *command = malloc(n), log_path[PATH_MAX + 32];
    if (!command)
        return false;
    snprintf(command, n, form, work->folder, arguments);
    int status = system(command); // NOLINT(cert-env33-c)
    free(command);
    if (status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    snprintf(log_path, sizeof log_path, "%s/log", work->folder);
    size_t log_n;
    char *log = read_file(log_path, &log_n);
    snprintf(work->message, work->size, "%s", log && log_n ? log : "the compiler did not start");
    free(log);
    return false;
}

static bool open_work(struct work *work, const char *folder, char *message, size_t size)
{
    *work = (struct work){.message = message, .size = size};
    snprintf(work->folder, sizeof work->folder, "%.4000s/work-XXXXXX", folder);
    if ((mkdir(folder, 0777) == 0 || errno == EEXIST) && mkdtemp(work->folder))
        return true;
    snprintf(message, size, "%s: %s", work->folder, strerror(errno));
    work->folder[0] = '\0';
    return false;
}

static void close_work(struct work *work)
{
    static const char *const names[] = {"k.metal", "k.ii", "k.cpp", "k.so", "log"};
    char path[PATH_MAX + 32];
    for (size_t i = 0; i < sizeof names / sizeof names[0] && work->folder[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", work->folder, names[i]);
        unlink(path);
    }
    if (work->folder[0])
        rmdir(work->folder);
}

/* k.metal, k.ii and k.cpp in the work folder. */
static bool make_cpp(struct work *work, const char *source, const char *defines, enum metalsim_mode mode,
                     unsigned long version)
{
    char arguments[4096], path[PATH_MAX + 32];
    const char *named = "#line 1 \"program_source\"\n";
    size_t n = strlen(named) + strlen(source) + 1;
    char *text = malloc(n), *preprocessed = NULL, *cpp = NULL;
    if (!text)
        return false;
    snprintf(text, n, "%s%s", named, source);
    snprintf(arguments, sizeof arguments, PREPROCESS "-D__METAL_VERSION__=%lu %s k.metal -o k.ii",
             (version >> 16) * 100 + (version & 0xffff) * 10, defines);
    bool ok = write_file(work, "k.metal", text) && run_compiler(work, arguments);
    free(text);
    if (!ok)
        return false;
    snprintf(path, sizeof path, "%s/k.ii", work->folder);
    preprocessed = read_file(path, &n);
    cpp = preprocessed ? metalsim_scan(preprocessed, mode, version, work->message, work->size) : NULL;
    ok = cpp && write_file(work, "k.cpp", cpp);
    free(preprocessed);
    free(cpp);
    return ok;
}

/* FNV-1a */
static void hash(uint64_t *state, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        *state = (*state ^ (unsigned char)text[i]) * 0x100000001b3u;
}

/* Over the source, the options and the headers. */
static uint64_t hash_of(const char *source, const char *flags)
{
    static const char *const headers[] = {"tests/metal_sim/include/metalsim/metalsim.hpp",
                                          "tests/metal_sim/include/metalsim/vectors.hpp",
                                          "tests/metal_sim/include/metalsim/math.hpp",
                                          "tests/metal_sim/include/metalsim/simdgroup.hpp",
                                          "tests/metal_sim/include/metalsim/atomics.hpp",
                                          "tests/metal_sim/include/metalsim/kernel.hpp",
                                          "tests/metal_sim/module.h",
                                          "tests/sim/fiber.h",
                                          "tests/metal_sim/scan.c",
                                          "tests/metal_sim/compile.c"};
    uint64_t state = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        char path[PATH_MAX];
        size_t n;
        snprintf(path, sizeof path, "%s/%s", METALSIM_ROOT, headers[i]);
        char *text = read_file(path, &n);
        hash(&state, text, text ? n : 0);
        free(text);
    }
    hash(&state, flags, strlen(flags));
    hash(&state, source, strlen(source));
    return state;
}

bool metalsim_compile(const char *source, const struct metalsim_options *options, char *path,
                      size_t path_size, char *message, size_t size)
{
    char folder[PATH_MAX], arguments[PATH_MAX + 4096], made[PATH_MAX + 32];
    struct work work;
    if (!metalsim_available(message, size))
        return false;
    unsigned long version = options->version ? options->version : METALSIM_NEWEST;
    const char *defines = options->apple8 ? "-DMETALSIM_APPLE8" : "";
    const char *math = options->fast_math ? "-ffast-math" : "-ffp-contract=off";
    int n =
        snprintf(arguments, sizeof arguments,
                 LANGUAGE HEADER EXECUTE "%s %s %s -DMETALSIM_VERSION=%lu k.cpp -o k.so -x none '%.3000s'",
                 options->run_once ? "-O0" : "-O2", defines, math, version, own_path());
    snprintf(folder, sizeof folder, "%.4000s", own_path());
    *(strrchr(folder, '/') ? strrchr(folder, '/') : folder) = '\0';
    strncat(folder, "/metalsim_cache", sizeof folder - strlen(folder) - 1);
    n = snprintf(path, path_size, "%s/%016llx.so", folder,
                 (unsigned long long)hash_of(source, arguments) ^ (unsigned long long)(n < 0));
    if (n < 0 || (size_t)n >= path_size)
        return false;
    if (access(path, R_OK) == 0)
        return true;
    if (!open_work(&work, folder, message, size))
        return false;
    bool ok = make_cpp(&work, source, defines, METALSIM_FLAT, version) && run_compiler(&work, arguments);
    snprintf(made, sizeof made, "%s/k.so", work.folder);
    if (ok && rename(made, path)) {
        snprintf(message, size, "%s: %s", path, strerror(errno));
        ok = false;
    }
    close_work(&work);
    return ok;
}

bool metalsim_check_strict(const char *source, char *message, size_t size)
{
    struct work work;
    const char *temporary = getenv("TMPDIR");
    if (!metalsim_available(message, size) ||
        !open_work(&work, temporary ? temporary : "/tmp", message, size))
        return false;
    bool ok =
        make_cpp(&work, source, "", METALSIM_STRICT_CHECK, METALSIM_NEWEST) &&
        run_compiler(&work, LANGUAGE HEADER "-DMETALSIM_STRICT -std=c++20 -fsyntax-only k.cpp") &&
        run_compiler(
            &work, LANGUAGE HEADER
            "-DMETALSIM_STRICT -std=c++14 -Wc++17-extensions -Wc++20-extensions -Werror=c++17-extensions "
            "-Werror=c++20-extensions -fsyntax-only k.cpp");
    close_work(&work);
    return ok;
}
