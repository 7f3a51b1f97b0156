/*
 * A library in libamdhip64.so's place: devices that are tests/sim, memory that is the host's between guard
 * pages. Device 0 has waves of 64 lanes, device 1 of 32; they are of the kinds that `kinds` says (gfx942 and
 * gfx1100), device 2 is one that no kernel is compiled for. Code objects are read as far as a loader must: is
 * it one for this device, and does it have the kernel of that name? Then the simulator's kernel of the same
 * name runs.
 *
 * A test finds HIP_SIM_CONTROL in the library. The program sets the same by the environment: HIP_SIM_FAIL_AT,
 * HIP_SIM_FAIL_CODE, HIP_SIM_ORDER (forward, reverse, random), HIP_SIM_MEMORY (bytes), HIP_SIM_DEVICES (how
 * many; 0: hipInit fails as it does without a device), HIP_SIM_KINDS ("4c,41").
 */
#ifndef GS_TESTS_GPU_SIM_HIP_H
#define GS_TESTS_GPU_SIM_HIP_H

#include "tests/sim/fiber.h"

struct hip_sim_control {
    unsigned long fail_at; /* this call, counted from 1, fails with fail_code; 0: none */
    int fail_code;
    int n_device;
    uint64_t memory;   /* bytes of a device */
    unsigned kinds[2]; /* which code objects devices 0 and 1 take, by their flags; 0: those named above */
    enum sim_order order;
    uint64_t seed;
    bool sums_exchanged; /* every step of a sum over a wave is an exchange of its own */

    unsigned long n_calls, n_launch;
    unsigned long n_held; /* memory, streams, modules, graphs that were not given back */
    bool device_lost;     /* the call that failed was the one that enters the device */
    char misuse[256];     /* the first call that a real library need not survive; empty: none */
};

#define HIP_SIM_KIND_MASK 0xffu             /* of a code object's e_flags */
#define HIP_SIM_CONTROL   "hip_sim_control" /* a struct hip_sim_control in the library */

#endif
