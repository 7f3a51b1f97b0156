/*
 * libmetalsim.so in the place of Metal and of the Objective-C runtime: it exports objc_msgSend,
 * objc_getClass, sel_registerName, objc_autoreleasePoolPush and Pop, MTLCreateSystemDefaultDevice. A program
 * that opens it by dlopen() and talks to it as to Metal gets its kernels run by the simulator. A test sees
 * and sets the rest here.
 *
 * As a Mac would, it demands: page alignment of memory that is not copied, threadgroup lengths of multiples
 * of 16, encoders that end before a commit, at most 4,096 bytes in setBytes. What Metal's own validation
 * would stop at ends the process here too, with "metalsim: " and a line on stderr: also a message that an
 * object does not know, one to an object that is gone, and a release too many. What goes wrong while a kernel
 * runs is the command buffer's error.
 *
 * Work runs where a wait asks for it, not at the commit: so reading a result before waiting gives what was
 * there before, and writing to a buffer after the commit is seen. `run_at_commit` is the other order.
 *
 * One CPU thread at a time.
 */
#ifndef GS_TESTS_METAL_SIM_STAND_IN_H
#define GS_TESTS_METAL_SIM_STAND_IN_H

#include "tests/metal_sim/metal_sim.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All zero is the usual case. At the start from the environment: METALSIM_ORDER=reverse|random[:SEED],
   METALSIM_ENCODE_ONLY=1, METALSIM_RUN_AT_COMMIT=1, METALSIM_NO_DEVICE=1, METALSIM_PAGE=16384. */
struct metalsim_controls {
    enum sim_order order;
    uint64_t seed;
    bool run_at_commit;
    bool encode_only; /* counts, checks arguments, runs nothing; buffers are not filled, so they cost no
                         memory */
    bool no_device;
    bool old_device;      /* of no family that has SIMD-group matrices */
    bool log;             /* keep the messages for metalsim_log() */
    uint64_t fail_at;     /* the how manyeth call that may fail (metalsim_counts.calls) does; 0: none */
    uint64_t lost_at;     /* the how manyeth command buffer, and every later one, ends in an error; 0: none */
    uint32_t max_threads; /* of a pipeline; 0: 1024 */
    uint32_t width;       /* threadExecutionWidth, as told; 0: 32 */
    uint64_t max_buffer;  /* maxBufferLength; 0: 64 GiB */
    uint64_t working_set; /* recommendedMaxWorkingSetSize; 0: 96 GiB */
    const char *system;   /* operatingSystemVersionString; NULL: a macOS 13 */
    uint64_t page;        /* alignment of memory that is not copied; 0: the system's page */
    /* Called with the line that would end the process, without its beginning; it may leave by longjmp().
     * NULL: none. */
    void (*on_stop)(const char *line);
};

/* The process's own: change it at will. */
struct metalsim_controls *metalsim_controls(void);

struct metalsim_counts {
    uint64_t command_buffers, encoders, dispatches; /* begun */
    uint64_t barriers;
    uint64_t set_buffers, set_bytes, bytes_set; /* setBuffer, setBytes, and the bytes of the latter */
    uint64_t threadgroups;                      /* dispatched */
    uint64_t run;                               /* dispatches that ran */
    uint64_t calls;                             /* messages that may fail */
    uint64_t compiled;                          /* libraries made */
    uint64_t pipelines_compiled;                /* functions made ready to run, in an archive or not ... */
    uint64_t pipelines_found;                   /* ... and those that an archive had */
    uint64_t live_objects;                      /* now */
    uint64_t live_buffer_bytes;                 /* now, of buffers that hold memory of their own */
    uint64_t autoreleased_without_pool;
};
struct metalsim_counts metalsim_counts(void);
void metalsim_reset_counts(void); /* but for what is live */

/* The live objects, "MTLBuffer 3, NSString 1"; the same pointer each time. */
const char *metalsim_live(void);

/* Message i since the log was switched on: "MTLComputeCommandEncoder setBuffer:offset:atIndex:". NULL: no
 * more. */
const char *metalsim_log(size_t i);
void metalsim_clear_log(void);

/*
 * Row i of all methods that the stand-in knows, as in data/selectors.txt: class, + or - and selector, result,
 * argument types. NULL: no more.
 */
const char *metalsim_method(size_t i);

#endif
