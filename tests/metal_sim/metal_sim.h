/*
 * The simulator of the Metal language, without Objective-C: compile a source, run a kernel, see what it did.
 * docs/silicon.md says what this proves. metal_stand_in.h is the other way in, the one that gossamer takes.
 *
 * Everything is checked while it runs: bounds of buffers (guard pages) and of threadgroup arrays, threadgroup
 * memory that is read before it is written (not a number), SIMD-groups that split, barriers that not all
 * reach, buffers that are not set. A check that fails ends the run with one line.
 *
 * Needs clang++-19 or later when it runs. Compiled libraries are kept in `metalsim_cache` beside
 * libmetalsim.so.
 */
#ifndef GS_TESTS_METAL_SIM_H
#define GS_TESTS_METAL_SIM_H

#include "tests/metal_sim/module.h"
#include "tests/sim/fiber.h"

#include <stdbool.h>

#define METALSIM_WIDTH         32    /* threads of a SIMD-group */
#define METALSIM_MAX_THREADS   1024  /* of a threadgroup */
#define METALSIM_MAX_SHARED    32768 /* bytes of threadgroup memory */
#define METALSIM_MAX_SET_BYTES 4096  /* of setBytes */
#define METALSIM_MESSAGE       4000

/* True, or false and a line that says what is missing: then a test skips. */
bool metalsim_available(char *message, size_t size);

/* A value for a function constant: `type` is its MTLDataType (module.h). */
struct metalsim_constant {
    int index, type;
    const void *value;
};

struct metalsim_options {
    bool fast_math;                            /* -ffast-math: Metal's default */
    bool apple8;                               /* 64-bit atomics */
    bool run_once;                             /* compiled in a fifth of the time, without optimisation */
    unsigned long version;                     /* MTLLanguageVersion; 0: the newest known, 3.1 */
    const struct metalsim_constant *constants; /* [n_constant] */
    int n_constant;
};

struct metalsim_library;

/* NULL: the message is the compiler's, its lines counted in `source`. `options` may be NULL. */
struct metalsim_library *metalsim_library_new(const char *source, const struct metalsim_options *options,
                                              char *message, size_t size);
void metalsim_library_free(struct metalsim_library *library); /* accepts NULL */

/* NULL: there is none. */
const struct metalsim_kernel *metalsim_library_find(const struct metalsim_library *library, const char *name);

/*
 * The strict check: address spaces and types (C++20, as the simulator runs it), then the language version
 * (C++14, which Metal 2 and 3 are). False: the first errors.
 */
bool metalsim_check_strict(const char *source, char *message, size_t size);

/* Memory bound to a [[buffer(index)]]. `data` + `offset` is what the kernel gets. */
struct metalsim_bound {
    int index;
    void *data;
    size_t bytes; /* of `data`, in all */
    size_t offset;
};

struct metalsim_shared {
    int index;
    size_t bytes;
};

struct metalsim_dispatch {
    uint32_t n_threadgroup[3], n_thread[3];
    const struct metalsim_bound *buffers; /* [n_buffer] */
    int n_buffer;
    const struct metalsim_shared *shared; /* [n_shared], [[threadgroup(index)]] */
    int n_shared;
    enum sim_order order;
    uint64_t seed;
};

/* Runs one dispatch on the memory as given (no guards around it but those the caller made). */
bool metalsim_dispatch(const struct metalsim_kernel *kernel, const struct metalsim_dispatch *dispatch,
                       char *message, size_t size);

/*
 * For tests of kernels: the same with each buffer copied to memory that ends at a guard page, and copied back
 * after. Run it in all three orders: a missing barrier may show in only one of them.
 */
bool metalsim_run(const struct metalsim_library *library, const char *kernel,
                  const struct metalsim_dispatch *dispatch, char *message, size_t size);

#endif
