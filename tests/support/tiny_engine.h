/* An engine of a small random model, in a folder of its own. Every failure fails the running test. */
#ifndef TESTS_SUPPORT_TINY_ENGINE_H
#define TESTS_SUPPORT_TINY_ENGINE_H

#include "tests/support/tiny_model.h"

/* *folder is the model's, for tiny_engine_close. `options` as for gs_engine_open. */
struct gs_engine *tiny_engine_open(const struct tiny_options *model, const struct gs_engine_options *options,
                                   char **folder);

/* Closes the engine and removes the folder; both may be NULL. */
void tiny_engine_close(struct gs_engine *engine, char *folder);

#endif
