/*
 * One GPU thread block after another on one CPU thread: each GPU thread is a fiber, and control passes from
 * one to the next only where the threads of a GPU must meet: at a barrier of the block, and where a wave (32
 * or 64 threads; a warp, a SIMD-group) exchanges values. Between two such points a thread runs alone, in an
 * order that the caller picks, so code that needs a barrier and has none computes something else in some
 * order.
 *
 * The kernel is ordinary code compiled for this processor. It learns who it is from sim_self(), waits in
 * sim_barrier(), exchanges in sim_exchange(), and may give up in sim_stop(). Nothing here knows a GPU
 * language.
 *
 * Stops, with one line that says what and where: a wave split between two places (both are named), a barrier
 * that not every thread of the block reaches, a fault in memory, an overrun stack, sim_stop().
 * Not modelled: time, blocks that run at once (a block that waits for another never ends), weak memory order.
 *
 * A struct sim belongs to one CPU thread and may be used again after a stop. Several can coexist.
 */
#ifndef GS_TESTS_SIM_FIBER_H
#define GS_TESTS_SIM_FIBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SIM_MAX_THREADS 1024 /* of a block */
#define SIM_MAX_LANES   64   /* of a wave */
#define SIM_SLOT_BYTES  64   /* what a lane can deposit in one exchange */

/* Where a thread waits: `what` is the function's name as the kernel writes it. The strings outlive the run.
 */
struct sim_site {
    const char *what, *file;
    int line;
};

/*
 * The order in which lanes of a wave, waves of a block and blocks of a grid take their turns. Forward and
 * reverse: by index, each wave as far as the next barrier. Random: waves are picked anew at each exchange,
 * lanes anew at each turn, from `seed` alone.
 */
enum sim_order { SIM_FORWARD, SIM_REVERSE, SIM_RANDOM };

/* The thread that runs. Valid until it returns. */
struct sim_thread {
    int64_t block;
    int index;    /* in the block: wave * n_lane + lane */
    int wave;     /* in the block */
    int lane;     /* in the wave */
    int n_lane;   /* the width of waves: 32 or 64, also where the last wave of the block has fewer threads */
    int n_thread; /* of the block */
};

/* The deposits of a wave. Bit i of `active`: lane i took part; other slots have no meaning. */
struct sim_wave {
    uint64_t active;
    unsigned char (*slots)[SIM_SLOT_BYTES]; /* [n_lane], each aligned to SIM_SLOT_BYTES */
};

/* Runs once for the wave when all have deposited, before any lane goes on; may overwrite the slots. */
typedef void sim_combine(struct sim_wave *wave, void *context);

/* Memory that all threads of a block share; filled with SIM_POISON before each block. */
struct sim_region {
    void *data;
    size_t bytes;
};

/* As a float, a half, a bfloat, a double: not a number. As an integer: -1. */
#define SIM_POISON 0xff

struct sim_fault;

struct sim_launch {
    int64_t n_block;
    int n_thread; /* of a block: 1 ... SIM_MAX_THREADS */
    int n_lane;   /* of a wave: 32 or 64 */
    enum sim_order order;
    uint64_t seed;                 /* of SIM_RANDOM */
    void (*kernel)(void *context); /* runs once a thread */
    void *context;
    const struct sim_region *shared; /* [n_shared] */
    int n_shared;
    /* Or NULL. On the caller's stack, the first after the poison. False ends the run with what it put in
     * *fault. */
    bool (*before_block)(void *context, int64_t block, struct sim_fault *fault);
    bool (*after_block)(void *context, int64_t block, struct sim_fault *fault);
    /* A wave may exchange values after some of its lanes have returned: these are inactive, as GPUs have it.
       Otherwise that is a split. */
    bool returned_lanes_ok;
};

enum sim_fault_kind {
    SIM_NO_FAULT,
    SIM_SPLIT,   /* lanes of a wave wait in different places, one of them an exchange */
    SIM_BARRIER, /* a barrier that some thread of the block does not reach */
    SIM_MEMORY,  /* what the processor refused: SIGSEGV, SIGBUS, SIGFPE, a trap of the compiler's checks */
    SIM_STOPPED, /* sim_stop() */
    SIM_BAD_LAUNCH
};

struct sim_fault {
    enum sim_fault_kind kind;
    char message[512]; /* one line */
};

struct sim;

/* NULL: no memory. */
struct sim *sim_new(void);
void sim_free(struct sim *sim); /* accepts NULL */

/* Runs the grid to its end, or to the first fault: then false, and *fault says what. */
bool sim_run(struct sim *sim, const struct sim_launch *launch, struct sim_fault *fault);

/* The functions below are for the kernel, inside sim_run(). */

const struct sim_thread *sim_self(void);

/* True for one lane of the wave: its first that had not returned when the wave last met. */
bool sim_is_first(void);

/* Returns when every thread of the block has called it from the same site. */
void sim_barrier(const struct sim_site *site);

/*
 * Deposits `bytes` bytes of this lane and returns when every lane of the wave has, from the same site. Then
 * `combine` (or NULL) has run once for the wave, with the `context` of one of its lanes. The result is
 * valid until this lane's next exchange but one. Without a value (bytes 0) it is the wave's own barrier.
 */
const struct sim_wave *sim_exchange(const struct sim_site *site, const void *value, size_t bytes,
                                    sim_combine *combine, void *context);

/* Ends the run with SIM_STOPPED and this message; the thread's name is added. Outside sim_run(): aborts. */
void sim_stop(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* A site made where it is written, for C and C++: sim_barrier(SIM_SITE("barrier")). SIM_SITE_OF names a
 * place. */
#define SIM_SITE(what) SIM_SITE_OF(what, __FILE__, __LINE__)
#ifdef __cplusplus
}
inline const struct sim_site *sim_site_address(const struct sim_site &site)
{
    return &site;
}
extern "C" {
#define SIM_SITE_OF(what, file, line) sim_site_address(sim_site{(what), (file), (line)})
#else
#define SIM_SITE_OF(what, file, line) (&(const struct sim_site){(what), (file), (line)})
#endif

/*
 * Memory between pages that nobody may touch. `data` ends at the second, but for the bytes that `alignment`
 * (a power of two up to a page) makes necessary; those and the ones before `data` hold a pattern.
 * A fault of the kernel near a live buffer names it. `name` is copied.
 */
struct sim_buffer {
    void *data;
    size_t bytes;
    unsigned char *mapping; /* private from here on */
    size_t mapped_bytes;
    char name[48];
    struct sim_buffer *next;
};

/* Filled with SIM_POISON. False: no memory. The struct must not move while it lives. */
bool sim_buffer_init(struct sim_buffer *buffer, const char *name, size_t bytes, size_t alignment);
void sim_buffer_release(struct sim_buffer *buffer); /* accepts NULL and a zeroed struct */

/* False: something wrote into the pattern around `data`; fault->message says on which side. */
bool sim_buffer_intact(const struct sim_buffer *buffer, struct sim_fault *fault);

#ifdef __cplusplus
}
#endif

#endif
