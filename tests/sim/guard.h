/* Between fiber.c and guard.c alone. */
#ifndef GS_TESTS_SIM_GUARD_H
#define GS_TESTS_SIM_GUARD_H

#include "tests/sim/fiber.h"

/* Where an address lies relative to the live buffers, in words. Callable in a signal handler, as printing
 * goes. */
void sim_describe_address(const void *address, char *text, size_t size);

#endif
