/*
 * Loops that do nothing but multiply and add on registers, with the best instructions of this processor: the
 * arithmetic that a kernel could do at most if its numbers cost nothing to bring.
 */
#ifndef GS_BACKEND_CPU_MEASURE_PEAK_H
#define GS_BACKEND_CPU_MEASURE_PEAK_H

#include <stdint.h>

/* Runs `rounds` rounds; what it returns depends on all of them. */
typedef uint64_t gs_peak_fn(uint64_t rounds);

struct gs_peak {
    gs_peak_fn *loop;
    uint64_t products; /* multiplications of a round, each with its addition */
    const char *name;  /* of the instruction: "vpdpbusd, 512 bits" */
};

struct gs_peak gs_peak_f32(void);
struct gs_peak gs_peak_int8(void);

#endif
