/* gossamer inspect: what is in a model, and what a context of it costs. */
#include "base/status.h"
#include "cli/commands.h"
#include "cli/hub.h"
#include "cli/json_text.h"
#include "cli/output.h"
#include "cli/plan.h"
#include "cli/report.h"
#include "engine/engine.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct settings {
    const char *model;
    int64_t n_ctx;
    bool json;
};

static const struct gs_option options[] = {
    GS_HEADING_ROW("Options:"),
    GS_INTEGER_ROW("ctx", "N", offsetof(struct settings, n_ctx), 1, INT32_MAX,
                   "the memory plan for a context of N tokens\n(default: the largest that fits)"),
    GS_FLAG_ROW("json", offsetof(struct settings, json), "one JSON object instead of tables"),
    {.kind = GS_OPTION_END},
};

/* For people, and for machines. */
static const char *const layout_names[GS_LAYOUT_COUNT][2] = {
    [GS_LAYOUT_HUGGING_FACE] = {"Hugging Face", "hugging_face"},
    [GS_LAYOUT_ORIGINAL] = {"original", "original"},
    [GS_LAYOUT_GGUF] = {"GGUF", "gguf"},
};

static const char *layout_name(const struct gs_engine *engine, bool machine)
{
    return layout_names[gs_checkpoint_layout(engine->checkpoint)][machine];
}

/* The folder; of a GGUF, which is a file among others, the file. */
static const char *place(const struct gs_engine *engine)
{
    const struct gs_checkpoint *checkpoint = engine->checkpoint;
    return gs_checkpoint_gguf(checkpoint) ? gs_checkpoint_tensor(checkpoint, 0)->file->path
                                          : gs_checkpoint_folder(checkpoint);
}

/* ---------------------------------------------------------------- order */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Text order, but runs of digits by their value: layer 10 comes after layer 9. */
static int compare_names(const char *a, const char *b)
{
    for (; *a != '\0' && *b != '\0'; a++, b++) {
        size_t na = 0, nb = 0;
        while (is_digit(a[na]))
            na++;
        while (is_digit(b[nb]))
            nb++;
        if (na > 0 && nb > 0 && na != nb)
            return na < nb ? -1 : 1;
        if (*a != *b)
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
    }
    return *a != '\0' ? 1 : *b != '\0' ? -1 : 0;
}

static int compare_tensors(const void *a, const void *b)
{
    const struct gs_tensor *const *x = a, *const *y = b;
    return compare_names((*x)->name, (*y)->name);
}

/* The tensors [count], sorted; NULL if memory is out. The caller frees the list. */
static const struct gs_tensor **list_tensors(const struct gs_engine *engine, size_t *count)
{
    *count = gs_checkpoint_count(engine->checkpoint);
    const struct gs_tensor **list = malloc((*count > 0 ? *count : 1) * sizeof *list);
    for (size_t i = 0; list && i < *count; i++)
        list[i] = gs_checkpoint_tensor(engine->checkpoint, i);
    if (list)
        qsort(list, *count, sizeof *list, compare_tensors);
    return list;
}

/* The file's name without its folder. */
static const char *file_name(const struct gs_tensor *tensor)
{
    const char *slash = strrchr(tensor->file->path, '/');
    return slash ? slash + 1 : tensor->file->path;
}

/* ---------------------------------------------------------------- for people */

static void print_config(const struct gs_engine *engine, struct gs_output *out)
{
    const struct gs_config *c = &engine->weights->config;
    int64_t n_window = 0;
    for (int64_t i = 0; i < c->n_layer; i++)
        n_window += c->layer_is_window[i];
    gs_output_print(out, "layers       %lld, %lld of them with a window of %lld positions\n",
                    (long long)c->n_layer, (long long)n_window, (long long)c->window);
    gs_output_print(out, "hidden size  %lld\n", (long long)c->d_model);
    gs_output_print(out, "attention    %lld heads of %lld, %lld for keys and values\n", (long long)c->n_head,
                    (long long)c->d_head, (long long)c->n_kv_head);
    gs_output_print(out, "experts      %lld of %lld wide, %lld active for a token\n", (long long)c->n_expert,
                    (long long)c->d_ff, (long long)c->n_active);
    gs_output_print(out, "vocabulary   %lld\n", (long long)c->n_vocab);
    gs_output_print(out, "context      up to %lld tokens (rotary base %g, YaRN factor %g over %g)\n",
                    (long long)c->max_ctx, c->rope_theta, c->rope_factor, c->rope_original_ctx);
    if (gs_checkpoint_gguf(engine->checkpoint)) /* what a user of both would wonder about */
        gs_output_print(
            out, "YaRN         bounds not rounded, as the model's config.json has them (llama.cpp rounds "
                 "them: its logits differ)\n");
    gs_output_print(out, "stop ids    ");
    for (size_t i = 0; i < c->n_stop_ids; i++)
        gs_output_print(out, " %d", (int)c->stop_ids[i]);
    gs_output_print(out, "%s\n", c->n_stop_ids == 0 ? " none" : "");
    gs_output_print(out, "parameters   %s, %s of them active for a token\n",
                    gs_count_text(engine->weights->n_param).text,
                    gs_count_text(engine->weights->n_param_active).text);
}

struct widths {
    int name, shape, bytes;
};

static int text_width(int so_far, size_t size)
{
    return (int)size > so_far ? (int)size : so_far;
}

static struct widths measure(const struct gs_tensor **list, size_t count)
{
    struct widths w = {.name = 6, .shape = 5, .bytes = 5};
    for (size_t i = 0; i < count; i++) {
        char shape[160], bytes[24];
        gs_tensor_shape_text(list[i], shape, sizeof shape);
        snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)list[i]->bytes);
        w.name = text_width(w.name, strlen(gs_quote(list[i]->name).text));
        w.shape = text_width(w.shape, strlen(shape));
        w.bytes = text_width(w.bytes, strlen(bytes));
    }
    return w;
}

static void print_tensors(const struct gs_tensor **list, size_t count, struct gs_output *out)
{
    struct widths w = measure(list, count);
    uint64_t total = 0;
    gs_output_print(out, "\n%-*s  dtype  %-*s  %*s  file\n", w.name, "tensor", w.shape, "shape", w.bytes,
                    "bytes");
    for (size_t i = 0; i < count; i++) {
        char shape[160];
        gs_tensor_shape_text(list[i], shape, sizeof shape);
        gs_output_print(out, "%-*s  %-5s  %-*s  %*llu  %s\n", w.name, gs_quote(list[i]->name).text,
                        gs_dtype_name(list[i]->dtype), w.shape, shape, w.bytes,
                        (unsigned long long)list[i]->bytes, gs_quote(file_name(list[i])).text);
        total += list[i]->bytes;
    }
    gs_output_print(out, "%zu tensors, %llu bytes (%s)\n", count, (unsigned long long)total,
                    gs_size_text(total).text);
}

static void print_tables(const struct gs_engine *engine, const struct gs_tensor **list, size_t count,
                         const struct gs_memory_plan *plan, struct gs_output *out)
{
    gs_output_print(out, "%s: gpt-oss, %s layout\n\n", gs_quote(place(engine)).text,
                    layout_name(engine, false));
    print_config(engine, out);
    print_tensors(list, count, out);
    gs_output_print(out, "\nmemory, backend %s\n%s\n", gs_engine_backend(engine),
                    gs_plan_text(plan, "").text);
}

/* ---------------------------------------------------------------- for machines */

static json_t *config_object(const struct gs_config *c)
{
    json_t *stops = json_array(), *layers = json_array();
    for (size_t i = 0; i < c->n_stop_ids; i++)
        json_array_append_new(stops, json_integer(c->stop_ids[i]));
    for (int64_t i = 0; i < c->n_layer; i++)
        json_array_append_new(layers, json_string(c->layer_is_window[i] ? "window" : "full"));
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:f, s:f, s:f, s:f, s:f, "
        "s:f, s:f, s:f, s:b, s:o}",
        "n_layer", (json_int_t)c->n_layer, "d_model", (json_int_t)c->d_model, "d_head", (json_int_t)c->d_head,
        "n_head", (json_int_t)c->n_head, "n_kv_head", (json_int_t)c->n_kv_head, "n_expert",
        (json_int_t)c->n_expert, "n_active", (json_int_t)c->n_active, "d_ff", (json_int_t)c->d_ff, "n_vocab",
        (json_int_t)c->n_vocab, "window", (json_int_t)c->window, "max_ctx", (json_int_t)c->max_ctx, "layers",
        layers, "rms_norm_eps", (double)c->rms_norm_eps, "swiglu_limit", (double)c->swiglu_limit,
        "swiglu_alpha", (double)c->swiglu_alpha, "rope_theta", c->rope_theta, "rope_factor", c->rope_factor,
        "rope_beta_fast", c->rope_beta_fast, "rope_beta_slow", c->rope_beta_slow, "rope_original_ctx",
        c->rope_original_ctx, "rope_truncate", c->rope_truncate, "stop_ids", stops);
}

static json_t *tensor_object(const struct gs_tensor *tensor)
{
    json_t *shape = json_array();
    for (size_t i = 0; i < tensor->rank; i++)
        json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i]));
    return json_pack("{s:o, s:s, s:o, s:I, s:o}", "name", gs_json_string(tensor->name), "dtype",
                     gs_dtype_name(tensor->dtype), "shape", shape, "bytes", (json_int_t)tensor->bytes, "file",
                     gs_json_string(file_name(tensor)));
}

static gs_status print_json(const struct gs_engine *engine, const struct gs_tensor **list, size_t count,
                            const struct gs_memory_plan *plan, struct gs_output *out, struct gs_error *error)
{
    json_t *tensors = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(tensors, tensor_object(list[i]));
    json_t *parameters = json_pack("{s:I, s:I}", "total", (json_int_t)engine->weights->n_param, "active",
                                   (json_int_t)engine->weights->n_param_active);
    json_t *root = json_pack("{s:o, s:s, s:s, s:o, s:o, s:o, s:o}", "folder", gs_json_string(place(engine)),
                             "layout", layout_name(engine, true), "backend", gs_engine_backend(engine),
                             "config", config_object(&engine->weights->config), "parameters", parameters,
                             "tensors", tensors, "plan", gs_plan_json(plan));
    return gs_json_print(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9), out, error);
}

/* ---------------------------------------------------------------- the command */

static gs_status inspect(const struct settings *s, struct gs_output *out, struct gs_error *error)
{
    struct gs_engine *engine = NULL;
    struct gs_memory_plan plan;
    const struct gs_tensor **list = NULL;
    size_t count = 0;
    gs_warn_untested(NULL);
    struct gs_engine_options engine_options = {0};
    gs_status status = gs_plan_open(s->model, &engine_options, &engine, error);
    if (status == GS_OK)
        status = gs_plan_make(engine, s->n_ctx, &plan, error);
    if (status == GS_OK && !(list = list_tensors(engine, &count)))
        status = gs_fail_memory(error, count * sizeof *list);
    if (status == GS_OK && s->json)
        status = print_json(engine, list, count, &plan, out, error);
    else if (status == GS_OK)
        print_tables(engine, list, count, &plan, out);
    free(list);
    gs_engine_close(engine);
    return status;
}

static int inspect_main(const struct gs_command *command, int argc, char **argv)
{
    struct settings settings = {0};
    struct gs_operands operands;
    struct gs_output output;
    struct gs_error error = {0};
    struct gs_buffer path = {0};
    gs_status status = gs_options_parse(command, argc, argv, &settings, &operands, &error);
    if (status == GS_OK && operands.help) {
        gs_options_help(command, stdout);
        return GS_EXIT_OK;
    }
    if (status == GS_OK && operands.count == 0)
        status = gs_fail(&error, GS_INVALID_ARGUMENT, "no model: gossamer inspect %s", command->usage);
    if (status != GS_OK)
        return gs_report(status, &error);
    settings.model = operands.list[0];
    gs_output_open(&output, false);
    status = gs_find_model(&settings.model, &path, &error);
    if (status == GS_OK)
        status = inspect(&settings, &output, &error);
    gs_buffer_free(&path);
    return gs_output_end(&output, status, &error);
}

const struct gs_command gs_command_inspect = {
    .name = "inspect",
    .usage = "MODEL [--ctx N] [--json]",
    .summary = "Shows a model: configuration, parameters, every tensor, and the memory it needs.",
    .options = options,
    .max_operands = 1,
    .run = inspect_main,
};
