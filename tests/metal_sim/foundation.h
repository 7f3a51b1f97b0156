/* Methods of foundation.c, for the table in methods.c. */
#ifndef GS_TESTS_METAL_SIM_FOUNDATION_H
#define GS_TESTS_METAL_SIM_FOUNDATION_H

#include "tests/metal_sim/objects.h"

void *any_retain(void *self, selector cmd);
void any_release(void *self, selector cmd);
void *any_autorelease(void *self, selector cmd);
unsigned long any_retain_count(void *self, selector cmd);
void *any_alloc(void *self, selector cmd);
void *any_init(void *self, selector cmd);
void *any_new(void *self, selector cmd);
void *string_with_utf8(void *self, selector cmd, const char *text);
void *string_init_with_bytes(void *self, selector cmd, const void *bytes, unsigned long n,
                             unsigned long encoding);
const char *string_utf8(void *self, selector cmd);
unsigned long string_length(void *self, selector cmd);
void *error_description(void *self, selector cmd);
long error_code(void *self, selector cmd);
void options_set_fast_math(void *self, selector cmd, bool fast);
void options_set_version(void *self, selector cmd, unsigned long version);
void constants_set(void *self, selector cmd, const void *value, unsigned long type, unsigned long index);

#endif
