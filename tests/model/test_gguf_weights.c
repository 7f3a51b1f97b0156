/* A GGUF of a model holds the very values that its safetensors form holds: every element of every tensor. */
#include "tests/support/check.h"
#include "tests/support/files.h"
#include "tests/support/tiny_gguf.h"

#include "model/weights.h"

#include <stdio.h>
#include <stdlib.h>

struct bound {
    struct gs_checkpoint *checkpoint;
    struct gs_weights *weights;
};

static struct bound bind_path(const char *path)
{
    struct bound bound;
    struct gs_error error;
    assert_ok(gs_checkpoint_open(path, &bound.checkpoint, &error), &error);
    assert_ok(gs_weights_bind(bound.checkpoint, NULL, NULL, &bound.weights, &error), &error);
    return bound;
}

static void release(struct bound *bound)
{
    gs_weights_free(bound->weights);
    gs_checkpoint_close(bound->checkpoint);
}

/* ---------------------------------------------------------------- comparing */

static void assert_same_matrix(const struct gs_matrix *a, const struct gs_matrix *b)
{
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->columns, b->columns);
    size_t bytes = (size_t)a->columns * sizeof(float);
    float *x = malloc(bytes), *y = malloc(bytes);
    assert_true(x && y);
    for (int64_t row = 0; row < a->rows; row++) {
        gs_matrix_row(a, row, x);
        gs_matrix_row(b, row, y);
        assert_memory_equal(x, y, bytes);
        for (int64_t column = 0; column < a->columns; column++) {
            float one = gs_matrix_element(b, row, column);
            assert_memory_equal(&one, &y[column], sizeof one);
        }
    }
    free(x);
    free(y);
}

static void read_row(const struct gs_mxfp4_matrix *matrix, int64_t expert, int64_t row, float *out)
{
    struct gs_mxfp4_row at = gs_mxfp4_find_row(matrix, expert, row);
    if (at.scales)
        gs_mxfp4_dequantize(at.blocks, at.scales, matrix->columns, out);
    else
        gs_mxfp4_dequantize_gguf(at.blocks, matrix->columns, out);
}

static void assert_same_experts(const struct gs_mxfp4_matrix *a, const struct gs_mxfp4_matrix *b)
{
    assert_int_equal(a->n_expert, b->n_expert);
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->columns, b->columns);
    assert_true(a->scales && !b->scales);
    size_t bytes = (size_t)a->columns * sizeof(float);
    float *x = malloc(bytes), *y = malloc(bytes);
    assert_true(x && y);
    for (int64_t expert = 0; expert < a->n_expert; expert++) {
        for (int64_t row = 0; row < a->rows; row++) {
            read_row(a, expert, row, x);
            read_row(b, expert, row, y);
            assert_memory_equal(x, y, bytes);
        }
    }
    free(x);
    free(y);
}

static void assert_same_layer(const struct gs_layer_weights *a, const struct gs_layer_weights *b)
{
    assert_same_matrix(&a->attention_norm, &b->attention_norm);
    assert_same_matrix(&a->q, &b->q);
    assert_same_matrix(&a->k, &b->k);
    assert_same_matrix(&a->v, &b->v);
    assert_same_matrix(&a->q_bias, &b->q_bias);
    assert_same_matrix(&a->k_bias, &b->k_bias);
    assert_same_matrix(&a->v_bias, &b->v_bias);
    assert_same_matrix(&a->sinks, &b->sinks);
    assert_same_matrix(&a->o, &b->o);
    assert_same_matrix(&a->o_bias, &b->o_bias);
    assert_same_matrix(&a->mlp_norm, &b->mlp_norm);
    assert_same_matrix(&a->router, &b->router);
    assert_same_matrix(&a->router_bias, &b->router_bias);
    assert_same_experts(&a->gate_up, &b->gate_up);
    assert_same_matrix(&a->gate_up_bias, &b->gate_up_bias);
    assert_same_experts(&a->down, &b->down);
    assert_same_matrix(&a->down_bias, &b->down_bias);
}

static void assert_same_weights(const struct gs_weights *a, const struct gs_weights *b)
{
    assert_same_matrix(&a->embedding, &b->embedding);
    assert_same_matrix(&a->norm, &b->norm);
    assert_same_matrix(&a->head, &b->head);
    for (int64_t i = 0; i < a->config.n_layer; i++)
        assert_same_layer(&a->layers[i], &b->layers[i]);
    assert_true(a->n_param == b->n_param && a->n_param_active == b->n_param_active);
}

/* The matrices of a model as F32, rounded as Q8_0 rounds them. */
static void round_to_q8_0(struct tiny_model *model)
{
    for (size_t i = 0; i < model->count; i++) {
        struct tiny_tensor *tensor = &model->tensors[i];
        bool is_matrix =
            tensor->rank == 2 && !strstr(tensor->name, "router") && !strstr(tensor->name, "_bias");
        if (!is_matrix)
            continue;
        uint64_t count = tensor->shape[0] * tensor->shape[1];
        float *values = malloc(count * sizeof *values);
        unsigned char *blocks = malloc(count / 32 * 34);
        assert_true(values && blocks);
        for (uint64_t k = 0; k < count; k++) {
            uint32_t bits = (uint32_t)(tensor->data[2 * k] | tensor->data[2 * k + 1] << 8) << 16;
            memcpy(&values[k], &bits, sizeof bits);
        }
        tiny_q8_0_quantize(values, count, blocks);
        tiny_q8_0_dequantize(blocks, count, values);
        free(blocks);
        free(tensor->data);
        tensor->data = (unsigned char *)values;
        tensor->dtype = GS_DTYPE_F32;
        tensor->bytes = count * sizeof *values;
    }
}

/* ---------------------------------------------------------------- tests */

static void every_element_is_the_same(void **state)
{
    (void)state;
    const struct tiny_gguf_options variants[] = {
        {.dense = GS_DTYPE_BF16},
        {.dense = GS_DTYPE_F16, .version = 2},
        {.dense = GS_DTYPE_F32, .alignment = 1},
        {.dense = GS_DTYPE_BF16, .alignment = 4096, .has_vocabulary = true},
        {.dense = GS_DTYPE_Q8_0},
        {.dense = GS_DTYPE_BF16, .n_parts = 3},
    };
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        struct tiny_options options = tiny_options_default();
        options.seed = i + 1;
        struct tiny_model *model = tiny_model_make(&options);
        char *gguf_folder = test_folder_make(), *folder = test_folder_make();
        tiny_gguf_write(model, &variants[i], gguf_folder, "model");
        if (variants[i].dense == GS_DTYPE_Q8_0)
            round_to_q8_0(model);
        tiny_model_write(model, folder);
        struct bound a = bind_path(folder), b = bind_path(gguf_folder);
        assert_int_equal(gs_checkpoint_layout(b.checkpoint), GS_LAYOUT_GGUF);
        assert_same_weights(a.weights, b.weights);
        assert_int_equal(b.weights->layers[0].q.type, variants[i].dense == GS_DTYPE_Q8_0   ? GS_WEIGHT_Q8_0
                                                      : variants[i].dense == GS_DTYPE_F32  ? GS_WEIGHT_F32
                                                      : variants[i].dense == GS_DTYPE_BF16 ? GS_WEIGHT_BF16
                                                                                           : GS_WEIGHT_F16);
        release(&a);
        release(&b);
        test_folder_remove(folder);
        test_folder_remove(gguf_folder);
        tiny_model_free(model);
    }
}

static void odd_sizes(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    options.n_layer = 1;
    options.d_model = 32;
    options.d_ff = 160;
    options.n_expert = 3;
    options.n_active = 3;
    options.n_vocab = 7;
    struct tiny_model *model = tiny_model_make(&options);
    char *folder = test_folder_make();
    tiny_model_write(model, folder);
    tiny_gguf_write(model, &(struct tiny_gguf_options){.dense = GS_DTYPE_BF16}, folder, "m");
    struct bound a = bind_path(folder), b = bind_path(test_path_join(folder, "m.gguf").text);
    assert_same_weights(a.weights, b.weights);
    release(&a);
    release(&b);
    test_folder_remove(folder);
    tiny_model_free(model);
}

/* Opens and binds a file that must be refused. The file's parts are released. */
static void assert_refused(struct gguf_file *file, gs_status status, const char *part)
{
    struct gs_buffer bytes = gguf_finish(file);
    char *folder = test_folder_make();
    struct gs_checkpoint *checkpoint;
    struct gs_weights *weights;
    struct gs_error error;
    test_file_write(test_path_join(folder, "m.gguf").text, bytes.data, bytes.size);
    assert_ok(gs_checkpoint_open(folder, &checkpoint, &error), &error);
    assert_fails(gs_weights_bind(checkpoint, NULL, NULL, &weights, &error), status, part, &error);
    assert_null(weights);
    gs_checkpoint_close(checkpoint);
    test_folder_remove(folder);
    gs_buffer_free(&bytes);
}

/* The model's file with the first `from` in its tensors' names replaced. */
static struct gguf_file renamed(const struct tiny_model *model, const char *from, const char *to)
{
    struct gguf_file file = tiny_gguf_begin(model, &(struct tiny_gguf_options){.dense = GS_DTYPE_BF16});
    char *at = memmem(file.infos.data, file.infos.size, from, strlen(from));
    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
    return file;
}

static void missing_and_unexpected_tensors(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    options.n_layer = 1;
    struct tiny_model *model = tiny_model_make(&options);
    static const struct {
        const char *from, *to, *message;
    } cases[] = {
        {"blk.0.attn_norm.weight", "blk.0.attn_nose.weight",
         "m.gguf: tensor \"blk.0.attn_norm.weight\" is missing, must be F32, F16, BF16 or Q8_0 [64]"},
        {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_date_exps.weight",
         "tensor \"blk.0.ffn_gate_exps.weight\" is missing, must be MXFP4 [8, 96, 64]"},
        {"blk.0.ffn_up_exps.weight", "blk.0.ffn_mp_exps.weight", "must be MXFP4 [8, 96, 64]"},
        {"blk.0.ffn_down_exps.weight", "blk.0.ffn_town_exps.weight", "must be MXFP4 [8, 64, 96]"},
        {"blk.0.ffn_up_exps.bias", "blk.0.ffn_mp_exps.bias", "or Q8_0 [8, 96]"},
        {"token_embd.weight", "token_embb.weight", "\"token_embd.weight\" must be there"},
        {"output.weight", "outpux.weight", "tensor \"output.weight\" is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gguf_file file = renamed(model, cases[i].from, cases[i].to);
        assert_refused(&file, GS_MALFORMED, cases[i].message);
    }
    struct gguf_file file = tiny_gguf_begin(model, &(struct tiny_gguf_options){.dense = GS_DTYPE_BF16});
    gguf_tensor(&file, "rope_freqs.weight", GGUF_F32, 1, (uint64_t[]){1}, "\0\0\0", 4);
    assert_refused(&file, GS_MALFORMED, "tensor \"rope_freqs.weight\" is not expected");
    tiny_model_free(model);
}

static void wrong_types_and_shapes(void **state)
{
    (void)state;
    static const unsigned char zeros[8 * 96 * 64 * 4];
    struct tiny_options options = tiny_options_default();
    options.n_layer = 1;
    struct tiny_model *model = tiny_model_make(&options);

    struct gguf_file file = renamed(model, "blk.0.ffn_up_exps.weight", "unused.0.exps.weight____");
    gguf_tensor(&file, "blk.0.ffn_up_exps.weight", GGUF_BF16, 3, (uint64_t[]){64, 96, 8}, zeros, 98304);
    assert_refused(&file, GS_MALFORMED,
                   "\"blk.0.ffn_up_exps.weight\" is BF16 [8, 96, 64], must be MXFP4 [8, 96, 64]");

    file = renamed(model, "blk.0.ffn_up_exps.weight", "unused.0.exps.weight____");
    gguf_tensor(&file, "blk.0.ffn_up_exps.weight", GGUF_MXFP4, 3, (uint64_t[]){96, 64, 8}, zeros,
                8 * 96 * 2 * 17);
    assert_refused(&file, GS_MALFORMED, "is MXFP4 [8, 64, 96], must be MXFP4 [8, 96, 64]");

    file = renamed(model, "blk.0.attn_sinks.weight", "unused.0.sinks.weight__");
    gguf_tensor(&file, "blk.0.attn_sinks.weight", GGUF_MXFP4, 1, (uint64_t[]){32}, zeros, 17);
    assert_refused(&file, GS_MALFORMED, "is MXFP4 [32], must be F32, F16, BF16 or Q8_0 [8]");

    /* Gate and up are read as one matrix, so they must be of one type. */
    file = renamed(model, "blk.0.ffn_up_exps.bias", "unused.0.exps.bias____");
    gguf_tensor(&file, "blk.0.ffn_up_exps.bias", GGUF_F16, 2, (uint64_t[]){96, 8}, zeros, 96 * 8 * 2);
    assert_refused(&file, GS_UNSUPPORTED,
                   "\"blk.0.ffn_up_exps.bias\" is F16, must be of the type of the gate");
    tiny_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_is_the_same),
        cmocka_unit_test(odd_sizes),
        cmocka_unit_test(missing_and_unexpected_tensors),
        cmocka_unit_test(wrong_types_and_shapes),
    };
    return cmocka_run_group_tests_name("model/gguf_weights", tests, NULL, NULL);
}
