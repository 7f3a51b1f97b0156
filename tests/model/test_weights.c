/* Binding: every tensor in its place in both layouts, and every wrong checkpoint refused by name. */
#include "model/weights.h"
#include "tests/support/check.h"
#include "tests/support/files.h"
#include "tests/support/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>

/* A model written to a folder and opened. */
struct opened {
    char *folder;
    struct gs_checkpoint *checkpoint;
    struct gs_weights *weights;
};

static struct opened open_model(const struct tiny_model *model)
{
    struct opened opened = {.folder = test_folder_make()};
    struct gs_error error;
    tiny_model_write(model, opened.folder);
    assert_ok(gs_checkpoint_open(opened.folder, &opened.checkpoint, &error), &error);
    return opened;
}

static void close_model(struct opened *opened)
{
    gs_weights_free(opened->weights);
    gs_checkpoint_close(opened->checkpoint);
    test_folder_remove(opened->folder);
}

static struct opened bind_options(const struct tiny_options *options)
{
    struct tiny_model *model = tiny_model_make(options);
    struct opened opened = open_model(model);
    struct gs_error error;
    assert_ok(gs_weights_bind(opened.checkpoint, NULL, NULL, &opened.weights, &error), &error);
    tiny_model_free(model);
    return opened;
}

/* Releases the model. The message must hold both parts. */
static void assert_refused(struct tiny_model *model, gs_status code, const char *part, const char *also)
{
    struct opened opened = open_model(model);
    struct gs_error error;
    assert_fails(gs_weights_bind(opened.checkpoint, NULL, NULL, &opened.weights, &error), code, part, &error);
    if (!strstr(error.message, also))
        fail_msg("message \"%s\" lacks \"%s\"", error.message, also);
    assert_null(opened.weights);
    close_model(&opened);
    tiny_model_free(model);
}

static struct tiny_model *make_default(void)
{
    struct tiny_options options = tiny_options_default();
    return tiny_model_make(&options);
}

/* ---------------------------------------------------------------- what is right */

static void assert_matrix(const struct gs_matrix *matrix, int64_t rows, int64_t columns)
{
    assert_int_equal(matrix->rows, rows);
    assert_int_equal(matrix->columns, columns);
}

static void assert_experts(const struct gs_mxfp4_matrix *matrix, int64_t n_expert, int64_t rows,
                           int64_t columns)
{
    assert_int_equal(matrix->n_expert, n_expert);
    assert_int_equal(matrix->rows, rows);
    assert_int_equal(matrix->columns, columns);
    assert_non_null(matrix->blocks);
    assert_non_null(matrix->scales);
}

static void assert_shapes(const struct gs_weights *weights, const struct tiny_options *o)
{
    int64_t query = o->n_head * o->d_head, key = o->n_kv_head * o->d_head;
    assert_matrix(&weights->embedding, o->n_vocab, o->d_model);
    assert_matrix(&weights->norm, 1, o->d_model);
    assert_matrix(&weights->head, o->n_vocab, o->d_model);
    for (int64_t i = 0; i < o->n_layer; i++) {
        const struct gs_layer_weights *layer = &weights->layers[i];
        assert_matrix(&layer->attention_norm, 1, o->d_model);
        assert_matrix(&layer->q, query, o->d_model);
        assert_matrix(&layer->k, key, o->d_model);
        assert_matrix(&layer->v, key, o->d_model);
        assert_matrix(&layer->q_bias, 1, query);
        assert_matrix(&layer->k_bias, 1, key);
        assert_matrix(&layer->v_bias, 1, key);
        assert_matrix(&layer->sinks, 1, o->n_head);
        assert_matrix(&layer->o, o->d_model, query);
        assert_matrix(&layer->o_bias, 1, o->d_model);
        assert_matrix(&layer->mlp_norm, 1, o->d_model);
        assert_matrix(&layer->router, o->n_expert, o->d_model);
        assert_matrix(&layer->router_bias, 1, o->n_expert);
        assert_experts(&layer->gate_up, o->n_expert, 2 * o->d_ff, o->d_model);
        assert_matrix(&layer->gate_up_bias, o->n_expert, 2 * o->d_ff);
        assert_experts(&layer->down, o->n_expert, o->d_model, o->d_ff);
        assert_matrix(&layer->down_bias, o->n_expert, o->d_model);
    }
}

static void assert_same_rows(const struct gs_matrix *a, const struct gs_matrix *b)
{
    assert_matrix(a, b->rows, b->columns);
    float *left = malloc((size_t)a->columns * sizeof *left);
    float *right = malloc((size_t)a->columns * sizeof *right);
    assert_non_null(left);
    assert_non_null(right);
    for (int64_t row = 0; row < a->rows; row++) {
        gs_matrix_row(a, row, left);
        gs_matrix_row(b, row, right);
        assert_memory_equal(left, right, (size_t)a->columns * sizeof *left);
    }
    free(left);
    free(right);
}

static void assert_same_experts(const struct gs_mxfp4_matrix *a, const struct gs_mxfp4_matrix *b)
{
    assert_experts(a, b->n_expert, b->rows, b->columns);
    size_t groups = (size_t)(a->n_expert * a->rows * a->columns / 32);
    assert_memory_equal(a->blocks, b->blocks, groups * 16);
    assert_memory_equal(a->scales, b->scales, groups);
}

static void assert_same_weights(const struct gs_weights *a, const struct gs_weights *b)
{
    assert_int_equal(a->n_param, b->n_param);
    assert_int_equal(a->n_param_active, b->n_param_active);
    assert_same_rows(&a->embedding, &b->embedding);
    assert_same_rows(&a->norm, &b->norm);
    assert_same_rows(&a->head, &b->head);
    for (int64_t i = 0; i < a->config.n_layer; i++) {
        const struct gs_layer_weights *x = &a->layers[i];
        const struct gs_layer_weights *y = &b->layers[i];
        assert_same_rows(&x->attention_norm, &y->attention_norm);
        assert_same_rows(&x->q, &y->q);
        assert_same_rows(&x->k, &y->k);
        assert_same_rows(&x->v, &y->v);
        assert_same_rows(&x->q_bias, &y->q_bias);
        assert_same_rows(&x->k_bias, &y->k_bias);
        assert_same_rows(&x->v_bias, &y->v_bias);
        assert_same_rows(&x->sinks, &y->sinks);
        assert_same_rows(&x->o, &y->o);
        assert_same_rows(&x->o_bias, &y->o_bias);
        assert_same_rows(&x->mlp_norm, &y->mlp_norm);
        assert_same_rows(&x->router, &y->router);
        assert_same_rows(&x->router_bias, &y->router_bias);
        assert_same_experts(&x->gate_up, &y->gate_up);
        assert_same_rows(&x->gate_up_bias, &y->gate_up_bias);
        assert_same_experts(&x->down, &y->down);
        assert_same_rows(&x->down_bias, &y->down_bias);
    }
}

/* A view holds the bytes of the tensor of this name. */
static void assert_holds(const struct gs_matrix *matrix, const struct tiny_model *model, const char *name)
{
    struct tiny_tensor *tensor = tiny_model_find((struct tiny_model *)(uintptr_t)model, name);
    assert_int_equal(matrix->rows * gs_weight_bytes(matrix->type, matrix->columns), tensor->bytes);
    assert_memory_equal(matrix->data, tensor->data, tensor->bytes);
}

static void every_tensor_in_its_place(void **state)
{
    (void)state;
    struct tiny_model *model = make_default();
    struct opened opened = open_model(model);
    struct gs_error error;
    assert_ok(gs_weights_bind(opened.checkpoint, NULL, NULL, &opened.weights, &error), &error);
    const struct gs_weights *weights = opened.weights;
    assert_shapes(weights, &model->options);
    assert_holds(&weights->embedding, model, "model.embed_tokens.weight");
    assert_holds(&weights->norm, model, "model.norm.weight");
    assert_holds(&weights->head, model, "lm_head.weight");
    const struct gs_layer_weights *layer = &weights->layers[3];
    assert_holds(&layer->attention_norm, model, "model.layers.3.input_layernorm.weight");
    assert_holds(&layer->q, model, "model.layers.3.self_attn.q_proj.weight");
    assert_holds(&layer->k, model, "model.layers.3.self_attn.k_proj.weight");
    assert_holds(&layer->v, model, "model.layers.3.self_attn.v_proj.weight");
    assert_holds(&layer->q_bias, model, "model.layers.3.self_attn.q_proj.bias");
    assert_holds(&layer->k_bias, model, "model.layers.3.self_attn.k_proj.bias");
    assert_holds(&layer->v_bias, model, "model.layers.3.self_attn.v_proj.bias");
    assert_holds(&layer->sinks, model, "model.layers.3.self_attn.sinks");
    assert_holds(&layer->o, model, "model.layers.3.self_attn.o_proj.weight");
    assert_holds(&layer->o_bias, model, "model.layers.3.self_attn.o_proj.bias");
    assert_holds(&layer->mlp_norm, model, "model.layers.3.post_attention_layernorm.weight");
    assert_holds(&layer->router, model, "model.layers.3.mlp.router.weight");
    assert_holds(&layer->router_bias, model, "model.layers.3.mlp.router.bias");
    assert_holds(&layer->gate_up_bias, model, "model.layers.3.mlp.experts.gate_up_proj_bias");
    assert_holds(&layer->down_bias, model, "model.layers.3.mlp.experts.down_proj_bias");
    struct tiny_tensor *tensor = tiny_model_find(model, "model.layers.3.mlp.experts.gate_up_proj_blocks");
    assert_memory_equal(layer->gate_up.blocks, tensor->data, tensor->bytes);
    tensor = tiny_model_find(model, "model.layers.3.mlp.experts.gate_up_proj_scales");
    assert_memory_equal(layer->gate_up.scales, tensor->data, tensor->bytes);
    tensor = tiny_model_find(model, "model.layers.3.mlp.experts.down_proj_blocks");
    assert_memory_equal(layer->down.blocks, tensor->data, tensor->bytes);
    tensor = tiny_model_find(model, "model.layers.3.mlp.experts.down_proj_scales");
    assert_memory_equal(layer->down.scales, tensor->data, tensor->bytes);

    uint64_t bytes = 0;
    for (size_t i = 0; i < model->count; i++)
        bytes += model->tensors[i].bytes;
    assert_int_equal(weights->bytes, bytes);
    close_model(&opened);
    tiny_model_free(model);
}

/* The counts of the model card follow from the published shapes: here the same sums on a small model. */
static void parameters_are_counted(void **state)
{
    (void)state;
    struct tiny_options o = tiny_options_default();
    struct opened opened = bind_options(&o);
    uint64_t d = 64, ff = 96, e = 8, query = 128, key = 32, head = 8;
    uint64_t attention = d + (query + 2 * key) * (d + 1) + head + d * query + d;
    uint64_t router = d + e * d + e;
    uint64_t expert = 2 * ff * d + 2 * ff + d * ff + d;
    uint64_t table = 128 * d;
    assert_int_equal(opened.weights->n_param, 4 * (attention + router + e * expert) + 2 * table + d);
    assert_int_equal(opened.weights->n_param_active, 4 * (attention + router + 2 * expert) + table + d);
    close_model(&opened);
}

static void layouts_dtypes_and_shards_agree(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    struct opened plain = bind_options(&options);
    const enum gs_dtype dtypes[] = {GS_DTYPE_BF16, GS_DTYPE_F16, GS_DTYPE_F32};
    const size_t shards[] = {1, 2, 7};
    for (int layout = 0; layout < 2; layout++) {
        for (size_t d = 0; d < 3; d++) {
            for (size_t s = 0; s < 3; s++) {
                options.layout = layout ? GS_LAYOUT_ORIGINAL : GS_LAYOUT_HUGGING_FACE;
                options.dense = dtypes[d];
                options.n_shards = shards[s];
                struct opened other = bind_options(&options);
                assert_shapes(other.weights, &options);
                assert_same_weights(plain.weights, other.weights);
                close_model(&other);
            }
        }
    }
    close_model(&plain);
}

static void every_size_of_the_architecture(void **state)
{
    (void)state;
    static const struct {
        int64_t n_layer, d_model, d_head, n_head, n_kv_head, n_expert, n_active, d_ff, n_vocab;
    } sizes[] = {
        {1, 32, 2, 1, 1, 1, 1, 32, 1},       {2, 64, 16, 4, 1, 3, 1, 32, 17},
        {3, 96, 64, 3, 3, 5, 5, 160, 33},    {12, 32, 8, 6, 2, 7, 4, 64, 200},
        {2, 160, 512, 2, 1, 128, 4, 32, 40}, {1, 288, 64, 8, 1, 13, 3, 352, 7},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int layout = 0; layout < 2; layout++) {
            struct tiny_options options = tiny_options_default();
            options.n_layer = sizes[i].n_layer;
            options.d_model = sizes[i].d_model;
            options.d_head = sizes[i].d_head;
            options.n_head = sizes[i].n_head;
            options.n_kv_head = sizes[i].n_kv_head;
            options.n_expert = sizes[i].n_expert;
            options.n_active = sizes[i].n_active;
            options.d_ff = sizes[i].d_ff;
            options.n_vocab = sizes[i].n_vocab;
            options.layout = layout ? GS_LAYOUT_ORIGINAL : GS_LAYOUT_HUGGING_FACE;
            struct opened opened = bind_options(&options);
            assert_shapes(opened.weights, &options);
            close_model(&opened);
        }
    }
}

struct seen_progress {
    uint64_t calls, done, total;
};

static void count_progress(void *user, uint64_t done, uint64_t total)
{
    struct seen_progress *seen = user;
    assert_true(done > seen->done && done <= total);
    seen->calls++;
    seen->done = done;
    seen->total = total;
}

static void progress_reaches_its_total(void **state)
{
    (void)state;
    struct tiny_model *model = make_default();
    struct opened opened = open_model(model);
    struct gs_error error;
    struct seen_progress seen = {0};
    assert_ok(gs_weights_bind(opened.checkpoint, count_progress, &seen, &opened.weights, &error), &error);
    assert_int_equal(seen.total, 4 * (8 * 192 * 2 + 8 * 64 * 3));
    assert_int_equal(seen.done, seen.total);
    assert_int_equal(seen.calls, 8);
    close_model(&opened);
    tiny_model_free(model);
}

/* ---------------------------------------------------------------- what is wrong */

static void each_missing_tensor(void **state)
{
    (void)state;
    for (int layout = 0; layout < 2; layout++) {
        struct tiny_options options = tiny_options_default();
        options.n_layer = 2;
        options.layout = layout ? GS_LAYOUT_ORIGINAL : GS_LAYOUT_HUGGING_FACE;
        struct tiny_model *model = tiny_model_make(&options);
        size_t count = model->count;
        assert_int_equal(count, layout ? 15 * 2 + 3 : 19 * 2 + 3);
        for (size_t i = 0; i < count; i++) {
            /* The embedding's name is how a layout is told, so a checkpoint without it does not even open. */
            if (i == count - 3)
                continue;
            struct tiny_model *other = tiny_model_make(&options);
            char part[200];
            snprintf(part, sizeof part, "tensor \"%s\" is missing, must be ", model->tensors[i].name);
            tiny_model_drop(other, model->tensors[i].name);
            assert_refused(other, GS_MALFORMED, part, "/gossamer-test-");
        }
        tiny_model_free(model);
    }
    struct tiny_model *model = make_default();
    tiny_model_drop(model, "model.layers.2.self_attn.sinks");
    assert_refused(model, GS_MALFORMED,
                   "tensor \"model.layers.2.self_attn.sinks\" is missing, must be BF16, F16 or F32 [8]", "");
    model = make_default();
    tiny_model_drop(model, "model.layers.0.mlp.experts.down_proj_scales");
    assert_refused(model, GS_MALFORMED, "down_proj_scales\" is missing, must be U8 [8, 64, 3]", "");
}

static void each_tensor_of_a_wrong_shape(void **state)
{
    (void)state;
    for (int layout = 0; layout < 2; layout++) {
        struct tiny_options options = tiny_options_default();
        options.n_layer = 1;
        options.layout = layout ? GS_LAYOUT_ORIGINAL : GS_LAYOUT_HUGGING_FACE;
        struct tiny_model *model = tiny_model_make(&options);
        for (size_t i = 0; i < model->count; i++) {
            const struct tiny_tensor *right = &model->tensors[i];
            /* Each axis one longer, then one axis more; the new tensor stands in the old one's place. */
            for (size_t axis = 0; axis <= right->rank && axis < 4; axis++) {
                uint64_t shape[4];
                char part[200];
                struct tiny_model *other = tiny_model_make(&options);
                memcpy(shape, right->shape, sizeof shape);
                shape[axis] = axis < right->rank ? shape[axis] + 1 : 1;
                tiny_model_drop(other, right->name);
                tiny_model_add(other, right->name, right->dtype, axis < right->rank ? right->rank : axis + 1,
                               shape);
                snprintf(part, sizeof part, "model.safetensors: tensor \"%s\" is %s [", right->name,
                         gs_dtype_name(right->dtype));
                assert_refused(other, GS_MALFORMED, part, "], must be ");
            }
        }
        tiny_model_free(model);
    }
}

static void each_tensor_of_a_wrong_type(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_default();
    options.n_layer = 1;
    struct tiny_model *model = tiny_model_make(&options);
    for (size_t i = 0; i < model->count; i++) {
        const struct tiny_tensor *right = &model->tensors[i];
        for (int dtype = 0; dtype < GS_DTYPE_COUNT; dtype++) {
            bool is_dense = dtype == GS_DTYPE_BF16 || dtype == GS_DTYPE_F16 || dtype == GS_DTYPE_F32;
            if (right->dtype == GS_DTYPE_U8 ? dtype == GS_DTYPE_U8 : is_dense)
                continue;
            struct tiny_model *other = tiny_model_make(&options);
            tiny_model_drop(other, right->name);
            tiny_model_add(other, right->name, (enum gs_dtype)dtype, right->rank, right->shape);
            char part[200];
            snprintf(part, sizeof part, "tensor \"%s\" is %s [", right->name,
                     gs_dtype_name((enum gs_dtype)dtype));
            assert_refused(other, GS_MALFORMED, part,
                           right->dtype == GS_DTYPE_U8 ? "must be U8 [" : "must be BF16, F16 or F32 [");
        }
    }
    tiny_model_free(model);
}

static void unexpected_tensors(void **state)
{
    (void)state;
    const char *const names[] = {"model.layers.0.self_attn.rotary_emb.inv_freq",
                                 "model.layers.4.self_attn.sinks", "model.layers.00.self_attn.sinks", "x",
                                 ""};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct tiny_model *model = make_default();
        char part[200];
        tiny_model_add(model, names[i], GS_DTYPE_BF16, 1, (uint64_t[]){8});
        snprintf(part, sizeof part, "model.safetensors: tensor \"%s\" is not expected, must be one of",
                 names[i]);
        assert_refused(model, GS_MALFORMED, part, "a gpt_oss model of 4 layers");
    }
    struct tiny_model *model = make_default();
    tiny_model_edit_config(model, "\"num_hidden_layers\": 4", "\"num_hidden_layers\": 2");
    tiny_model_edit_config(model, ", \"sliding_attention\", \"full_attention\"]", "]");
    assert_refused(model, GS_MALFORMED, "tensor \"model.layers.", "is not expected");
}

static void dequantised_experts(void **state)
{
    (void)state;
    struct tiny_model *model = make_default();
    tiny_model_drop(model, "model.layers.0.mlp.experts.gate_up_proj_blocks");
    tiny_model_drop(model, "model.layers.0.mlp.experts.gate_up_proj_scales");
    tiny_model_add(model, "model.layers.0.mlp.experts.gate_up_proj", GS_DTYPE_BF16, 3,
                   (uint64_t[]){8, 64, 192});
    assert_refused(
        model, GS_UNSUPPORTED,
        "\"model.layers.0.mlp.experts.gate_up_proj\" is a dequantised BF16 matrix, must be in MXFP4",
        "\"model.layers.0.mlp.experts.gate_up_proj_blocks\" as U8 [8, 192, 2, 16]");

    struct tiny_options options = tiny_options_default();
    options.layout = GS_LAYOUT_ORIGINAL;
    model = tiny_model_make(&options);
    tiny_model_drop(model, "block.1.mlp.mlp2_weight.blocks");
    tiny_model_drop(model, "block.1.mlp.mlp2_weight.scales");
    tiny_model_add(model, "block.1.mlp.mlp2_weight", GS_DTYPE_F32, 3, (uint64_t[]){8, 96, 64});
    assert_refused(model, GS_UNSUPPORTED, "\"block.1.mlp.mlp2_weight\" is a dequantised F32 matrix", "MXFP4");
}

static void scale_255(void **state)
{
    (void)state;
    struct tiny_model *model = make_default();
    /* shape [8][192][2]: expert 5, row 101, group 1 */
    tiny_model_find(model, "model.layers.1.mlp.experts.gate_up_proj_scales")->data[(5 * 192 + 101) * 2 + 1] =
        255;
    assert_refused(model, GS_MALFORMED,
                   "model.safetensors: scale [5][101][1] of tensor \"model.layers.1.mlp.",
                   "gate_up_proj_scales\" is 255 (not a number), must be 0 ... 254");
    model = make_default();
    tiny_model_find(model, "model.layers.3.mlp.experts.down_proj_scales")->data[8 * 64 * 3 - 1] = 255;
    assert_refused(model, GS_MALFORMED,
                   "scale [7][63][2] of tensor \"model.layers.3.mlp.experts.down_proj_scales", "");
    model = make_default();
    tiny_model_find(model, "model.layers.0.mlp.experts.down_proj_scales")->data[0] = 255;
    assert_refused(model, GS_MALFORMED, "scale [0][0][0]", "");

    /* 254 and 0 are numbers, and 255 is an ordinary pair of codes. */
    model = make_default();
    tiny_model_find(model, "model.layers.0.mlp.experts.down_proj_scales")->data[0] = 254;
    tiny_model_find(model, "model.layers.0.mlp.experts.down_proj_scales")->data[1] = 0;
    tiny_model_find(model, "model.layers.0.mlp.experts.down_proj_blocks")->data[0] = 255;
    struct opened opened = open_model(model);
    struct gs_error error;
    assert_ok(gs_weights_bind(opened.checkpoint, NULL, NULL, &opened.weights, &error), &error);
    close_model(&opened);
    tiny_model_free(model);
}

static void wrong_configuration(void **state)
{
    (void)state;
    struct tiny_model *model = make_default();
    tiny_model_edit_config(model, "\"num_hidden_layers\": 4", "\"num_hidden_layers\": 0");
    assert_refused(model, GS_MALFORMED, "num_hidden_layers is 0, must be an integer 1 ... 1024",
                   "config.json");
    gs_weights_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_in_its_place),
        cmocka_unit_test(parameters_are_counted),
        cmocka_unit_test(layouts_dtypes_and_shards_agree),
        cmocka_unit_test(every_size_of_the_architecture),
        cmocka_unit_test(progress_reaches_its_total),
        cmocka_unit_test(each_missing_tensor),
        cmocka_unit_test(each_tensor_of_a_wrong_shape),
        cmocka_unit_test(each_tensor_of_a_wrong_type),
        cmocka_unit_test(unexpected_tensors),
        cmocka_unit_test(dequantised_experts),
        cmocka_unit_test(scale_255),
        cmocka_unit_test(wrong_configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
