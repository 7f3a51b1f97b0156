/* Opening a compiled library: what library.c offers the stand-in beside metal_sim.h. */
#ifndef GS_TESTS_METAL_SIM_LIBRARY_H
#define GS_TESTS_METAL_SIM_LIBRARY_H

#include "tests/metal_sim/metal_sim.h"

/* NULL: a constant is missing or of another type, or the object cannot be opened; the message says which. */
struct metalsim_library *metalsim_library_open(const char *path, const struct metalsim_options *options,
                                               char *message, size_t size);

/* Compiles and throws the result away: it is in the cache for the functions. */
bool metalsim_library_compile(const char *source, const struct metalsim_options *options, char *message,
                              size_t size);

#endif
