/* Metal source to a shared object or to a list of errors, by clang. Objects are kept by a hash of all that
 * went in. */
#ifndef GS_TESTS_METAL_SIM_COMPILE_H
#define GS_TESTS_METAL_SIM_COMPILE_H

#include "tests/metal_sim/scan.h"

#include "tests/metal_sim/metal_sim.h"

#include <stddef.h>

/* True, and the object's path in `path`; or false, and what the compiler said (several lines) in `message`.
 */
bool metalsim_compile(const char *source, const struct metalsim_options *options, char *path,
                      size_t path_size, char *message, size_t size);

#endif
