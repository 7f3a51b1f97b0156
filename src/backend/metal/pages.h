/*
 * Which pages of the mapped files the GPU sees, as buffers without a copy. Tensors that lie one after the
 * other share a buffer; one that would become larger than the device's buffers may be is split between two
 * tensors.
 */
#ifndef GS_BACKEND_METAL_PAGES_H
#define GS_BACKEND_METAL_PAGES_H

#include "backend/metal/metal.h"

struct gs_metal_span {
    const unsigned char *begin;
    uint64_t bytes;
    bool between; /* nobody reads it there: it only fills the space between two that are read */
};

/* Whole pages, and the buffer over them. */
struct gs_metal_window {
    const unsigned char *begin;
    uint64_t bytes;
    bool is_read; /* by somebody */
    struct gs_metal_memory memory;
};

/*
 * Sorts `spans` [n] and covers them with windows of at most `largest` bytes: *out [*n_out], to be freed. They
 * have no buffers yet. GS_OUT_OF_MEMORY also for a span that no window may hold.
 */
gs_status gs_metal_windows_plan(struct gs_metal_span *spans, size_t n, uint64_t largest,
                                struct gs_metal_window **out, size_t *n_out, struct gs_error *error);

/* Where an address is; nowhere if no window has it. */
struct gs_metal_place gs_metal_windows_find(const struct gs_metal_window *windows, size_t n,
                                            const unsigned char *address);

#endif
