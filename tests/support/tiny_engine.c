#include "tests/support/tiny_engine.h"

#include "tests/support/check.h"
#include "tests/support/files.h"

struct gs_engine *tiny_engine_open(const struct tiny_options *model, const struct gs_engine_options *options,
                                   char **folder)
{
    struct gs_engine *engine = NULL;
    struct gs_error error;
    *folder = test_folder_make();
    tiny_checkpoint_write(model, *folder);
    assert_ok(gs_engine_open(*folder, options, &engine, &error), &error);
    return engine;
}

void tiny_engine_close(struct gs_engine *engine, char *folder)
{
    gs_engine_close(engine);
    test_folder_remove(folder);
}
