/*
 * A model folder for the commands: a tiny random model whose vocabulary is that of the demo model's
 * tokenizer.json, and a second folder that holds only that tokenizer.
 */
#ifndef TESTS_CLI_MODEL_H
#define TESTS_CLI_MODEL_H

#include "tests/support/check.h"
#include "tests/support/files.h"
#include "tests/support/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define TOKENIZER "models/demo/tokenizer.json"

struct cli_model {
    char *root;
    char folder[600]; /* the model, in a folder whose name is not ASCII */
    char words[600];  /* only the tokenizer */
    struct gs_vocab *vocab;
    int64_t n_vocab;  /* of the model: a few more ids than there are tokens */
    char stop_id[24]; /* the model's first stop id, as text */
};

static inline void copy_file(const char *from, const char *to)
{
    size_t size;
    char *bytes = test_file_read(from, &size);
    test_file_write(to, bytes, size);
    free(bytes);
}

static inline struct cli_model *cli_model_make(void)
{
    struct cli_model *model = calloc(1, sizeof *model);
    struct gs_error error;
    assert_non_null(model);
    assert_ok(gs_vocab_open(TOKENIZER, &model->vocab, &error), &error);
    model->root = test_folder_make();
    snprintf(model->folder, sizeof model->folder, "%s/模型 é", model->root);
    snprintf(model->words, sizeof model->words, "%s/words", model->root);
    assert_int_equal(mkdir(model->folder, 0700), 0);
    assert_int_equal(mkdir(model->words, 0700), 0);

    struct tiny_options options = tiny_options_default();
    options.n_vocab = (int64_t)gs_vocab_size(model->vocab) + 4;
    model->n_vocab = options.n_vocab;
    options.max_ctx = 65536;
    options.rope_factor = 16;
    tiny_checkpoint_write(&options, model->folder);
    snprintf(model->stop_id, sizeof model->stop_id, "%lld", (long long)options.n_vocab - 1);
    copy_file(TOKENIZER, test_path_join(model->folder, "tokenizer.json").text);
    copy_file(TOKENIZER, test_path_join(model->words, "tokenizer.json").text);
    return model;
}

static inline void cli_model_free(struct cli_model *model)
{
    if (!model)
        return;
    gs_vocab_close(model->vocab);
    test_folder_remove(model->root);
    free(model);
}

static inline int cli_model_setup(void **state)
{
    *state = cli_model_make();
    return 0;
}

static inline int cli_model_teardown(void **state)
{
    cli_model_free(*state);
    return 0;
}

/* A script in the model's root whose lines are the tokens of these texts (special ones too). */
static inline struct test_path cli_script(const struct cli_model *model, const char *const *texts, size_t n)
{
    struct test_path path = test_path_join(model->root, "script.txt");
    FILE *file = fopen(path.text, "w");
    assert_non_null(file);
    for (size_t i = 0; i < n; i++) {
        struct gs_tokens tokens = {0};
        struct gs_error error;
        assert_ok(gs_vocab_encode_special(model->vocab, texts[i], strlen(texts[i]), &tokens, &error), &error);
        for (size_t t = 0; t < tokens.count; t++)
            fprintf(file, "%s%d", t % 2 ? ", " : t ? " " : "", (int)tokens.ids[t]);
        fputc('\n', file);
        gs_tokens_free(&tokens);
    }
    assert_int_equal(fclose(file), 0);
    return path;
}

#define cli_script_of(model, ...)                                                                            \
    cli_script(model, (const char *const[]){__VA_ARGS__},                                                    \
               sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

/* A script of exactly this text. */
static inline struct test_path cli_script_text(const struct cli_model *model, const char *text)
{
    struct test_path path = test_path_join(model->root, "script.txt");
    test_file_write(path.text, text, strlen(text));
    return path;
}

#endif
