/*
 * What a compiled Metal library and the simulator know of each other: C on one side, C++ on the other. The
 * scanner lists each kernel's arguments as its attributes name them; the header's templates add what only the
 * compiler knows, their types.
 */
#ifndef GS_TESTS_METAL_SIM_MODULE_H
#define GS_TESTS_METAL_SIM_MODULE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define METALSIM_MAX_INDEX     31 /* buffer and threadgroup indices are below this, as Metal has it */
#define METALSIM_MAX_ARGUMENTS 40

/* Where an argument's value comes from: one for each attribute. */
enum metalsim_from {
    METALSIM_BUFFER,
    METALSIM_THREADGROUP,
    METALSIM_THREAD_POSITION_IN_GRID,
    METALSIM_THREAD_POSITION_IN_THREADGROUP,
    METALSIM_THREADGROUP_POSITION_IN_GRID,
    METALSIM_THREADS_PER_GRID,
    METALSIM_THREADS_PER_THREADGROUP,
    METALSIM_THREADGROUPS_PER_GRID,
    METALSIM_THREAD_INDEX_IN_THREADGROUP,
    METALSIM_THREAD_INDEX_IN_SIMDGROUP,
    METALSIM_SIMDGROUP_INDEX_IN_THREADGROUP,
    METALSIM_SIMDGROUPS_PER_THREADGROUP,
    METALSIM_THREADS_PER_SIMDGROUP
};

struct metalsim_argument {
    enum metalsim_from from;
    int index; /* of a buffer or of threadgroup memory */
    const char *name;
    int line;
};

struct metalsim_type {
    size_t bytes;     /* of what a pointer or reference leads to, or of the value; 1 for void */
    size_t alignment; /* likewise */
    int is_reference; /* so the buffer must hold one whole */
    int is_written;   /* a pointer or reference to something that is not const */
};

/* One dispatch, as its threads see it. Sizes and positions are x, y, z. */
struct metalsim_call {
    void *buffers[METALSIM_MAX_INDEX];
    void *shared[METALSIM_MAX_INDEX];       /* threadgroup memory */
    uint32_t n_threadgroup[3], n_thread[3]; /* of the grid, of a threadgroup */
    uint32_t position[3];                   /* of the running threadgroup */
};

struct metalsim_kernel {
    const char *name;
    const struct metalsim_argument *arguments; /* [n_argument] */
    const struct metalsim_type *types;         /* [n_argument] */
    int n_argument;
    int max_threads;                                  /* max_total_threads_per_threadgroup, or 0 */
    void (*invoke)(const struct metalsim_call *call); /* one thread */
};

/* Every library has this symbol: its kernels, the last with a NULL name. */
#define METALSIM_KERNELS "metalsim_kernels"

/* Offered to the libraries. */

/*
 * A variable of threadgroup memory in the running kernel: the same address for every thread of the
 * threadgroup. `slot` is one object for each declaration.
 */
struct metalsim_slot {
    uint64_t dispatch; /* that `offset` holds for */
    size_t offset;
};
void *metalsim_threadgroup_variable(struct metalsim_slot *slot, size_t bytes, size_t alignment,
                                    const char *name);

/* The value of a function constant while a library is opened: copies `bytes` bytes of a value of MTLDataType
 * `type`. */
void metalsim_constant(int index, int type, void *value, size_t bytes, const char *name);

/* MTLDataType */
enum {
    METALSIM_FLOAT = 3,
    METALSIM_HALF = 16,
    METALSIM_INT = 29,
    METALSIM_UINT = 33,
    METALSIM_SHORT = 37,
    METALSIM_USHORT = 41,
    METALSIM_CHAR = 45,
    METALSIM_UCHAR = 49,
    METALSIM_BOOL = 53,
    METALSIM_LONG = 81,
    METALSIM_ULONG = 85,
    METALSIM_BFLOAT = 121
};

#ifdef __cplusplus
}
#endif

#endif
