/* A loaded model, as sessions see it. */
#ifndef GS_ENGINE_ENGINE_H
#define GS_ENGINE_ENGINE_H

#include "backend/backend.h"

#include <pthread.h>
#include <stdatomic.h>

struct gs_engine {
    struct gs_checkpoint *checkpoint;
    struct gs_weights *weights;
    const struct gs_backend *backend;
    struct gs_device *device;
    const struct gs_backend *passed_over; /* a better one that failed to open or to load; NULL: none */
    struct gs_error why;                  /* it failed */
    struct gs_model_info info;
    enum gs_precision precision;
    enum gs_weight_format weight_format;
    uint64_t kernels;      /* hash of the instruction set and the levers that were asked for */
    pthread_mutex_t mutex; /* one forward at a time; its logits are copied out, or lent (batch.h) */
    bool has_mutex;
    /* So many bytes sessions may still take without asking how much is free, until then (gs_clock_seconds).
     */
    _Atomic uint64_t spare_bytes;
    _Atomic double spare_until;
};

/*
 * GS_OUT_OF_MEMORY, with the numbers and the largest context that fits, for a plan that does not fit in what
 * is free. A plan that does, or a machine that does not say what is free, is GS_OK.
 */
gs_status gs_plan_check(const struct gs_memory_plan *plan, struct gs_error *error);

#endif
