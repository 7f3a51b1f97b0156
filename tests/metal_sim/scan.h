/*
 * Metal source, already preprocessed, becomes C++ for metalsim.hpp, line by line:
 *   - attributes [[...]] go; a kernel's arguments with theirs become a table at the end;
 *   - `threadgroup T a[N];` in a kernel becomes a reference to memory that the threadgroup shares;
 *   - `constant T k [[function_constant(n)]];` gets an initialiser.
 * What clang's C++ accepts and Metal does not is an error here: double, goto, static locals, lambdas, clang's
 * own names, OpenCL's swizzles; so is what this simulator would read differently, (float4)x.
 */
#ifndef GS_TESTS_METAL_SIM_SCAN_H
#define GS_TESTS_METAL_SIM_SCAN_H

#include <stdbool.h>
#include <stddef.h>

/* Strict mode declares threadgroup variables in their address space, and nowhere. */
enum metalsim_mode { METALSIM_FLAT, METALSIM_STRICT_CHECK };

#define METALSIM_NEWEST 196609 /* MTLLanguageVersion 3.1, the first with bfloat */

/*
 * The C++ text, to be freed, or NULL and a message "FILE:LINE: error: ..." of one line.
 * `version` is an MTLLanguageVersion. `source` ends with a NUL; its lines are counted by the preprocessor's
 * own markers.
 */
char *metalsim_scan(const char *source, enum metalsim_mode mode, unsigned long version, char *message,
                    size_t size);

#endif
