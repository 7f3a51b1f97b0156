/* gossamer bench: the report's figures agree with each other, a campaign's outcome is right, what is refused.
 */
#include "tests/cli/process.h"
#include "tests/support/files.h"
#include "tests/support/tiny_model.h"

#include "base/memory.h"

#include <jansson.h>

#define MODEL  "tests/golden/models/one-layer"
#define KERNEL "moe_gate_up_mxfp4_f32"

/* `told`: how a line may begin that is told on standard error; NULL: none may be. */
static json_t *run_telling(struct process_result result, const char *told)
{
    if (result.code != 0)
        fail_msg("exit code %d: %s", result.code, result.err);
    if (!told || strncmp(result.err, told, strlen(told)) != 0)
        assert_string_equal(result.err, "");
    json_t *root = json_loads(result.out, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    process_free(&result);
    return root;
}

static json_t *run_json(struct process_result result)
{
    return run_telling(result, NULL);
}

static double number_at(const json_t *object, const char *key, const char *inner)
{
    const json_t *value = json_object_get(object, key);
    value = inner ? json_object_get(value, inner) : value;
    if (!json_is_number(value))
        fail_msg("no number %s %s", key, inner ? inner : "");
    return json_number_value(value);
}

static void assert_near(double found, double expected, double tolerance)
{
    if (!(found >= expected - tolerance && found <= expected + tolerance))
        fail_msg("%.9g instead of %.9g", found, expected);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The spread is in order; rate, bytes and share are those of the times. */
static void check_row(const json_t *row, size_t n_runs)
{
    const json_t *seconds = json_object_get(row, "seconds");
    assert_int_equal(json_array_size(seconds), n_runs);
    double least = number_at(row, "gb_per_second", "min"), median = number_at(row, "gb_per_second", "median");
    double most = number_at(row, "gb_per_second", "max");
    double bytes = number_at(row, "bytes", NULL) + number_at(row, "kv_bytes", NULL);
    assert_true(0.0 < least && least <= median && median <= most);
    double sorted[8];
    assert_true(n_runs <= 8);
    for (size_t i = 0; i < n_runs; i++)
        sorted[i] = json_number_value(json_array_get(seconds, i));
    qsort(sorted, n_runs, sizeof *sorted, compare_doubles);
    double middle = (sorted[(n_runs - 1) / 2] + sorted[n_runs / 2]) / 2;
    assert_near(most * sorted[0], bytes / 1e9, bytes / 1e9 * 1e-6);
    assert_near(median * middle, bytes / 1e9, bytes / 1e9 * 1e-6);
    assert_near(least * sorted[n_runs - 1], bytes / 1e9, bytes / 1e9 * 1e-6);
    const json_t *share = json_object_get(row, "cpu_share"); /* null: too short to tell */
    if (!json_is_null(share))
        assert_true(json_number_value(share) > 0.0 && json_number_value(share) < 1.1);
    double bandwidth = number_at(row, "bandwidth_gb_per_second", NULL);
    assert_near(number_at(row, "bandwidth_share", NULL), median / bandwidth, 1e-6);
    double products = number_at(row, "gmac_per_second", "median");
    double peak = number_at(row, "peak_gmac_per_second", NULL);
    assert_near(number_at(row, "peak_share", NULL), products / peak, 1e-6);
}

static void check_machine(const json_t *root)
{
    const json_t *machine = json_object_get(root, "machine");
    const json_t *read = json_array_get(json_object_get(machine, "limits"), 0);
    assert_true(number_at(machine, "processors", NULL) >= 1);
    assert_true(number_at(read, "gb_per_second", "median") > 0.01);
    assert_true(number_at(read, "gb_per_second_after", "median") > 0.01);
#if !defined(__SANITIZE_ADDRESS__) /* there the buffer is small on purpose: nobody reads those figures */
    assert_true(number_at(read, "buffer_bytes", NULL) >= 4 * number_at(machine, "cache_bytes", NULL));
#endif
    double f32 = number_at(read, "f32_gmac_per_second", "median");
    assert_true(f32 > 0.01 && number_at(read, "int8_gmac_per_second", "max") > f32 / 4);
    assert_true(json_string_length(json_object_get(root, "build")) > 0);
    assert_true(json_string_length(json_object_get(machine, "processor")) > 0);
}

static void rows_of_a_model(void **state)
{
    (void)state;
    static const char *const names[] = {"pp3",       "pp8",       "tg2",       "2 prompts x 32",
                                        "pp3 @ d20", "pp8 @ d20", "tg2 @ d20", "2 prompts x 32 @ d20"};
    static const double tokens[] = {3, 8, 2, 62};
    json_t *root = run_json(process_run("bench", MODEL, "-p", "3,8", "-n2", "--prompts=2", "-d", "0,20",
                                        "-r3", "-t", "1,2", "--json"));
    const json_t *rows = json_object_get(root, "rows");
    check_machine(root);
    assert_int_equal(json_array_size(rows), 16);
    for (size_t i = 0; i < 16; i++) {
        const json_t *row = json_array_get(rows, i);
        assert_string_equal(json_string_value(json_object_get(row, "name")), names[i % 8]);
        assert_int_equal(number_at(row, "threads", NULL), i < 8 ? 1 : 2);
        assert_int_equal(number_at(row, "tokens", NULL), tokens[i % 4]);
        assert_int_equal(number_at(row, "depth", NULL), i % 8 < 4 ? 0 : 20);
        check_row(row, 3);
        double rate = number_at(row, "tokens_per_second", "median");
        double bytes = number_at(row, "bytes_per_token", NULL) + number_at(row, "kv_bytes_per_token", NULL);
        assert_true(number_at(row, "command_buffers_per_token", NULL) == 0.0); /* no queue drives the CPU */
        assert_true(number_at(row, "encoders_per_token", NULL) == 0.0);
        assert_true(number_at(row, "dispatches_per_token", NULL) == 0.0);
        assert_near(rate * bytes / 1e9, number_at(row, "gb_per_second", "median"), 1e-3 * rate * bytes / 1e9);
    }
    /* Reading eight tokens at once costs less weight than reading them one by one. */
    assert_true(number_at(json_array_get(rows, 1), "bytes_per_token", NULL) <
                number_at(json_array_get(rows, 2), "bytes_per_token", NULL));
    json_decref(root);
}

/* Streams that advance at once share each step's weights, and their tokens are counted together. */
static void rows_of_streams(void **state)
{
    (void)state;
    json_t *root = run_json(process_run("bench", MODEL, "-p", "4", "-n", "3", "--streams", "1,6", "-d",
                                        "0,20", "-r2", "-t1", "--json"));
    const json_t *rows = json_object_get(root, "rows");
    static const char *const names[] = {"pp4", "tg3", "6 x tg3", "pp4 @ d20", "tg3 @ d20", "6 x tg3 @ d20"};
    assert_int_equal(json_array_size(rows), 6);
    for (size_t i = 0; i < 6; i++) {
        const json_t *row = json_array_get(rows, i), *one = json_array_get(rows, i / 3 * 3 + 1);
        assert_string_equal(json_string_value(json_object_get(row, "name")), names[i]);
        assert_int_equal(number_at(row, "streams", NULL), i % 3 == 2 ? 6 : 1);
        assert_int_equal(number_at(row, "tokens", NULL), i % 3 == 0 ? 4 : i % 3 == 1 ? 3 : 18);
        check_row(row, 2);
        if (i % 3 < 2)
            continue;
        assert_true(number_at(row, "bytes_per_token", NULL) < number_at(one, "bytes_per_token", NULL));
        assert_near(number_at(row, "kv_bytes_per_token", NULL), number_at(one, "kv_bytes_per_token", NULL),
                    1.0);
    }
    json_decref(root);
}

static json_t *row_named(const json_t *root, const char *name)
{
    json_t *rows = json_object_get(root, "rows"), *found = NULL;
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (strcmp(json_string_value(json_object_get(json_array_get(rows, i), "name")), name) == 0)
            found = json_array_get(rows, i);
    if (!found)
        fail_msg("no row \"%s\"", name);
    return found;
}

/* Streams have tokens of their own, whatever the context's size: they want more experts than one does. */
static void streams_differ(void **state)
{
    (void)state;
    json_t *root =
        run_json(process_run("bench", MODEL, "-p0", "-n61", "--streams", "1,6", "-r1", "-t1", "--json"));
    double one = number_at(row_named(root, "tg61"), "bytes_per_token", NULL);
    assert_true(6.0 * number_at(row_named(root, "6 x tg61"), "bytes_per_token", NULL) > 1.05 * one);
    json_decref(root);
}

/* A token's bytes are those of the matrices that it touches: shapes of the golden model one-layer. */
static void bytes_of_a_token(void **state)
{
    (void)state;
    static const struct {
        const char *precision, *weights;
        double attention, router; /* bytes of a weight, the head's those of attention's */
    } cases[] = {{"exact", "native", 2, 2}, {"fast", "native", 2, 4}, {"fast", "q8", 34.0 / 32, 4}};
    json_t *config = json_load_file(MODEL "/config.json", 0, NULL);
    assert_non_null(config);
    double d = number_at(config, "hidden_size", NULL), ff = number_at(config, "intermediate_size", NULL);
    double q = number_at(config, "num_attention_heads", NULL) * number_at(config, "head_dim", NULL);
    double kv = number_at(config, "num_key_value_heads", NULL) * number_at(config, "head_dim", NULL);
    double layers = number_at(config, "num_hidden_layers", NULL);
    double attention = d * (q + 2 * kv) + q * d, router = d * number_at(config, "num_local_experts", NULL);
    double experts = number_at(config, "num_experts_per_tok", NULL) * 3 * d * ff;
    double head = d * number_at(config, "vocab_size", NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root = run_json(process_run("bench", MODEL, "-n3", "-p5", "-r1", "-t1", "--precision",
                                            cases[i].precision, "--weights", cases[i].weights, "--json"));
        const json_t *row = row_named(root, "tg3"), *prompt = row_named(root, "pp5");
        double dense =
            layers * (attention * cases[i].attention + router * cases[i].router) + head * cases[i].attention;
        assert_string_equal(json_string_value(json_object_get(root, "weights")), cases[i].weights);
        assert_near(number_at(row, "bytes_per_token", NULL), dense + layers * experts * 17 / 32, 0.5);
        assert_near(number_at(row, "products", NULL) / 3, layers * (attention + router + experts) + head,
                    layers * 20 * (q + d + ff) + d); /* the parameters that are not matrices' count too */
        /* A prompt reads each matrix once, and from one expert of a layer to all of them. */
        double read = number_at(prompt, "bytes", NULL), n = number_at(config, "num_local_experts", NULL);
        assert_true(read >= dense + layers * experts * 17 / 32 - 0.5);
        assert_true(read <= dense + layers * experts * 17 / 32 * n + 0.5);
        assert_true(number_at(prompt, "products", NULL) <
                    5 * number_at(row, "products", NULL) / 3 - 4 * head + 0.5);
        json_decref(root);
    }
    json_decref(config);
}

/* The cache of a token at depth d: d+1 positions in a full layer, at most the window in the other one. */
static void bytes_of_the_cache(void **state)
{
    (void)state;
    json_t *root = run_json(process_run("bench", "tests/golden/models/two-layers", "-n1", "-d0,9,99", "-r1",
                                        "-t1", "--precision", "exact", "--json"));
    json_t *config = json_load_file("tests/golden/models/two-layers/config.json", 0, NULL);
    assert_non_null(config);
    double window = number_at(config, "sliding_window", NULL);
    double position = 2 * sizeof(float) * number_at(config, "num_key_value_heads", NULL) *
                      number_at(config, "head_dim", NULL);
    static const double depths[] = {0, 9, 99};
    static const char *const names[] = {"tg1", "tg1 @ d9", "tg1 @ d99"};
    for (size_t i = 0; i < 3; i++) {
        double n = depths[i] + 1, seen = n < window ? n : window;
        assert_near(number_at(row_named(root, names[i]), "kv_bytes", NULL), position * (n + seen), 0.5);
    }
    json_decref(config);
    json_decref(root);
}

/* Seconds of a stage; less than nothing only by rounding. */
static double stage_seconds(const json_t *profile, const char *stage)
{
    double seconds = number_at(json_object_get(profile, stage), "seconds", NULL);
    assert_true(seconds >= -1e-6);
    return seconds;
}

/*
 * "outside" is what is left, so the sum says nothing by itself. But no stage may be negative, none of the
 * forward's may be missing, and what is left must be little: returned as a share of the row.
 */
static double check_profile(const json_t *row, const char *n_threads, bool samples)
{
    static const char *const forward[] = {"norm",   "qkv",     "attention", "output",
                                          "router", "experts", "head",      "other"};
    const json_t *seconds = json_object_get(row, "seconds"), *profile = json_object_get(row, "profile"),
                 *value;
    const char *key;
    double mean = 0.0, sum = 0.0, shares = 0.0;
    size_t n_runs = json_array_size(seconds);
    for (size_t k = 0; k < n_runs; k++)
        mean += json_number_value(json_array_get(seconds, k)) / (double)n_runs;
    json_object_foreach((json_t *)(uintptr_t)profile, key, value)
    {
        sum += stage_seconds(profile, key);
        shares += number_at(value, "share", NULL);
        assert_near(number_at(value, "share", NULL) * mean, stage_seconds(profile, key), 1e-6 * mean + 1e-12);
    }
    assert_int_equal(json_object_size(profile), 11);
    assert_near(sum, mean, mean * 1e-6);
    assert_near(shares, 1.0, 1e-6);
    for (size_t i = 0; i < sizeof forward / sizeof *forward; i++)
        assert_true(stage_seconds(profile, forward[i]) > 0.0);
    assert_true((stage_seconds(profile, "sampling") > 0.0) == samples);
    if (strcmp(n_threads, "1") == 0) /* nobody to wait for */
        assert_true(stage_seconds(profile, "idle") == 0.0);
    return stage_seconds(profile, "outside") / mean;
}

#define N_PROFILE 60 /* attempts: a process may be stopped anywhere, but not always between two stages */
#if defined(__SANITIZE_ADDRESS__) /* code beside the stages is slowed as they are, and CI runs other things  \
                                     beside */
#define LEFT_AT_MOST 1.0
#else
#define LEFT_AT_MOST 0.05
#endif

/* The stages add up to the time of the runs; a generation under a profile samples. */
static void a_profile_adds_up(void **state)
{
    (void)state;
    static const char *const precisions[] = {"exact", "fast"}, *const threads[] = {"1", "2"};
    for (size_t i = 0; i < 4; i++) {
        double left = 1.0;
        for (int attempt = 0; attempt < N_PROFILE && (attempt == 0 || left > LEFT_AT_MOST); attempt++) {
            json_t *root =
                run_json(process_run("bench", "models/demo", "-p64", "-n16", "-r3", "-t", threads[i / 2],
                                     "--profile", "--precision", precisions[i % 2], "--json"));
            double prompt = check_profile(row_named(root, "pp64"), threads[i / 2], false);
            double token = check_profile(row_named(root, "tg16"), threads[i / 2], true);
            left = prompt > token ? prompt : token;
            json_decref(root);
        }
        if (left > LEFT_AT_MOST)
            fail_msg("%s, %s threads: %.0f %% of the time are in no stage", precisions[i % 2], threads[i / 2],
                     100.0 * left);
    }
}

/* On a machine so slow, or stopped for so long, that a person would have to wait, it says so. */
#define SLOW_FRONTIER "bench: a context of "

/* Each step's reading is a row of its own, then comes the speed at that depth. */
static void a_frontier(void **state)
{
    (void)state;
    static const char *const names[] = {"pp16",      "tg2 @ d16",  "pp16 @ d16",
                                        "tg2 @ d32", "pp32 @ d32", "tg2 @ d64"};
    json_t *root = run_telling(
        process_run("bench", MODEL, "--frontier", "16:100", "-n2", "-r2", "-t1", "--json"), SLOW_FRONTIER);
    const json_t *rows = json_object_get(root, "rows");
    assert_int_equal(json_array_size(rows), 6);
    for (size_t i = 0; i < 6; i++) {
        const json_t *row = json_array_get(rows, i);
        assert_string_equal(json_string_value(json_object_get(row, "name")), names[i]);
        check_row(row, i % 2 ? 2 : 1);
    }
    json_decref(root);
}

/* The last depth may be the model's whole context, which a generation there then ends with. */
static void a_frontier_to_the_end(void **state)
{
    (void)state;
    static const char *const names[] = {"pp16",      "tg3 @ d16",  "pp16 @ d16",
                                        "tg3 @ d32", "pp29 @ d32", "tg3 @ d61"};
    char *folder = test_folder_make();
    struct tiny_options options = tiny_options_default();
    options.max_ctx = 64;
    tiny_checkpoint_write(&options, folder);
    json_t *root = run_telling(
        process_run("bench", folder, "--frontier", "16:64", "-n3", "-r1", "-t1,2", "--json"), SLOW_FRONTIER);
    const json_t *rows = json_object_get(root, "rows");
    assert_int_equal(json_array_size(rows), 12);
    for (size_t i = 0; i < 12; i++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(rows, i), "name")),
                            names[i % 6]);
    json_decref(root);
    process_refuses(process_run("bench", folder, "--frontier", "16:128", "-n3"), "a context of 131 tokens");
    process_refuses(process_run("bench", folder, "-d64", "-n3"), "a context of 67 tokens");
    test_folder_remove(folder);
}

/* The rows are those of one depth after the other, and each round's part of the first depth's speed is told.
 */
static void rows_in_turn(void **state)
{
    (void)state;
    static const char *const names[] = {"pp3", "tg2", "pp3 @ d20", "tg2 @ d20", "pp3 @ d9", "tg2 @ d9"};
    json_t *root = run_json(
        process_run("bench", MODEL, "-p3", "-n2", "-d0,20,9", "-r3", "-t1,2", "--in-turn", "--json"));
    json_t *plain = run_json(process_run("bench", MODEL, "-p3", "-n2", "-d0,20,9", "-r1", "-t1", "--json"));
    const json_t *rows = json_object_get(root, "rows"), *alone = json_object_get(plain, "rows");
    assert_int_equal(json_array_size(rows), 12);
    for (size_t i = 0; i < 12; i++) {
        const json_t *row = json_array_get(rows, i), *first = json_array_get(rows, i / 6 * 6 + i % 2);
        const json_t *other = json_array_get(alone, i % 6);
        double parts[3];
        assert_string_equal(json_string_value(json_object_get(row, "name")), names[i % 6]);
        assert_int_equal(number_at(row, "threads", NULL), i < 6 ? 1 : 2);
        check_row(row, 3);
        for (size_t k = 0; k < 3; k++)
            parts[k] = json_number_value(json_array_get(json_object_get(first, "seconds"), k)) /
                       json_number_value(json_array_get(json_object_get(row, "seconds"), k));
        qsort(parts, 3, sizeof *parts, compare_doubles);
        assert_near(number_at(row, "of_first_depth", "min"), parts[0], 1e-6 * parts[0]);
        assert_near(number_at(row, "of_first_depth", "median"), parts[1], 1e-6 * parts[1]);
        assert_near(number_at(row, "of_first_depth", "max"), parts[2], 1e-6 * parts[2]);
        /* The same work as by itself: which experts a token reads hangs on its context. */
        assert_null(json_object_get(other, "of_first_depth"));
        assert_true(number_at(row, "bytes", NULL) == number_at(other, "bytes", NULL));
        assert_true(number_at(row, "kv_bytes", NULL) == number_at(other, "kv_bytes", NULL));
    }
    json_decref(plain);
    json_decref(root);
}

/* Opening, loading and the first token take no less than loading, and the memory is believable. */
static void first_token_and_memory(void **state)
{
    (void)state;
    json_t *root = run_json(process_run("bench", "models/demo", "-n4", "-r1", "-t1", "--json"));
    const json_t *limits = json_array_get(json_object_get(json_object_get(root, "machine"), "limits"), 0);
    const json_t *memory = json_object_get(root, "memory");
    assert_true(number_at(limits, "first_token_seconds", NULL) > 0.0);
    assert_true(number_at(limits, "load_seconds", NULL) > 0.0);
    assert_true(number_at(memory, "anonymous_bytes", NULL) < number_at(memory, "peak_bytes", NULL) ||
                number_at(memory, "peak_bytes", NULL) == 0);
    json_decref(root);
}

static void comma_separated(void **state)
{
    (void)state;
    struct process_result result =
        process_run("bench", MODEL, "-p4", "-n2", "-r1", "-t1", "--precision=exact", "--csv");
    size_t n_lines = 0, n_commas = 0;
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "model,backend,isa,precision,weights,test,threads,"));
    assert_non_null(strstr(result.out, ",exact,native,\"tg2\",1,0,2,1,"));
    for (const char *c = result.out; *c; c++) {
        n_lines += *c == '\n';
        n_commas += *c == ',';
    }
    assert_int_equal(n_lines, 3);
    assert_int_equal(n_commas, 3 * 26);
    process_free(&result);
}

/* A folder's name and an argument may be any bytes: no output breaks, none reaches a terminal as it is. */
static void names_of_any_bytes(void **state)
{
    (void)state;
    static const char *const formats[] = {"--json", "--csv", "--md"};
    char *folder = test_folder_make(), *here = realpath(MODEL, NULL);
    struct test_path link = test_path_join(folder, "a\xff\x1b[2J,\"b");
    assert_non_null(here);
    assert_int_equal(symlink(here, link.text), 0);
    for (size_t i = 0; i < 3; i++) {
        struct process_result result =
            process_run("bench", link.text, "-p4", "-r1", "-t1", formats[i], "--weights", "native");
        assert_int_equal(result.code, 0);
        assert_null(strchr(result.out, 0x1b));
        assert_null(strchr(result.out, 0xff));
        assert_non_null(strstr(result.out, "xFF"));
        process_free(&result);
    }
    free(here);
    test_folder_remove(folder);
}

static void rows_of_a_kernel(void **state)
{
    (void)state;
    static const char *const names[] = {
        KERNEL " x1 warm", KERNEL " x1 warm scalar-load", KERNEL " x1 cold", KERNEL " x1 cold scalar-load",
        KERNEL " x3 warm", KERNEL " x3 warm scalar-load", KERNEL " x3 cold", KERNEL " x3 cold scalar-load"};
    json_t *root = run_json(process_run("bench", MODEL, "--kernel", KERNEL, "--expert", "2", "--experts",
                                        "1,3", "--scalar-load", "-r5", "-t2", "--json"));
    const json_t *rows = json_object_get(root, "rows"), *model = json_object_get(root, "model");
    const json_t *expert = json_array_get(json_object_get(model, "experts"), 1);
    check_machine(root);
    assert_int_equal(json_array_size(rows), 8);
    double bytes = number_at(expert, "rows", NULL) * number_at(expert, "columns", NULL) / 32 * 17;
    for (size_t i = 0; i < 8; i++) {
        const json_t *row = json_array_get(rows, i);
        assert_string_equal(json_string_value(json_object_get(row, "name")), names[i]);
        assert_int_equal(number_at(row, "bytes", NULL), bytes * (i < 4 ? 1 : 3));
        check_row(row, 5);
    }
    assert_int_equal(number_at(expert, "expert", NULL), 0);
    assert_int_equal(json_array_size(json_object_get(expert, "slices")), 2);
    json_decref(root);
}

static void tables(void **state)
{
    (void)state;
    struct process_result result = process_run("bench", MODEL, "-p4", "-r1", "-t1");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "\nbandwidth  "));
    assert_non_null(strstr(result.out, "\nload       "));
    assert_non_null(strstr(result.out, "of bandwidth  of peak\npp4 "));
    process_free(&result);
    result = process_run("bench", MODEL, "--kernel", "moe_down_mxfp4_f32", "-r1", "-t1", "--md");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "\n|---|---:|"));
    assert_non_null(strstr(result.out, "\n| moe_down_mxfp4_f32 x1 cold | 1 | "));
    process_free(&result);
    result = process_run("bench", MODEL, "-n2", "-d0,9", "-r1", "-t1", "--in-turn", "--md");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "\n| tg2 @ d9 | tg2 | "));
    process_free(&result);
}

/* A model whose longest context takes 256 GiB in float32, and three caches of 60k tokens 45. */
static void contexts_that_do_not_fit(void **state)
{
    (void)state;
    struct tiny_options options = tiny_options_long_context();
    char *folder = test_folder_make();
    tiny_checkpoint_write(&options, folder);
    uint64_t available = gs_memory_available();
    if (available == 0 || available >= UINT64_C(40) << 30) {
        print_message("  all of them fit here, or what is free is unknown: not tried\n");
    } else {
        process_refuses(process_run("bench", folder, "-d", "1000k", "-n1", "-t1", "--precision", "exact"),
                        "the largest that fits is ");
        process_refuses(
            process_run("bench", folder, "-d", "0,60k", "-n1", "-t1", "--in-turn", "--precision", "exact"),
            "are free");
    }
    test_folder_remove(folder);
}

static void refusals(void **state)
{
    (void)state;
    process_refuses(process_run("bench"), "no model");
    process_refuses(process_run("bench", MODEL, "-p", "12,"), "--prompt: \"\" is not a whole number");
    process_refuses(process_run("bench", MODEL, "-p", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"),
                    "more than 16 numbers");
    process_refuses(process_run("bench", MODEL, "-n", "99999999999999999999999999"), "--generate");
    process_refuses(process_run("bench", MODEL, "-t", "0"), "--threads: \"0\" is not a whole number from 1");
    process_refuses(process_run("bench", MODEL, "-t", "10000"), "from 1 to 1024");
    process_refuses(process_run("bench", MODEL, "-r0"), "--runs");
    process_refuses(process_run("bench", MODEL, "-d", "1000000"), "a context of");
    process_refuses(process_run("bench", MODEL, "--json", "--md"), "choose one");
    process_refuses(process_run("bench", MODEL, "--csv", "--md"), "choose one");
    process_refuses(process_run("bench", MODEL, "--precision", "quick"),
                    "\"quick\" is neither exact nor fast");
    process_refuses(process_run("bench", MODEL, "--weights", "q4"), "\"q4\" is neither native nor q8");
    process_refuses(process_run("bench", MODEL, "--cpu-features", "sse9"), "sse9");
    process_refuses(process_run("bench", MODEL, "--device", "1", "--backend", "cpu"), "device 1");
    process_refuses(process_run("bench", MODEL, "-p0", "-n0,0"), "ask for no row");
    process_refuses(process_run("bench", MODEL, "-p", "0000000000000000000000000128"), "more digits");
    process_refuses(process_run("bench", MODEL, "--gate", "any", "-p4"), "of the other options only --json");
    process_refuses(process_run("bench", MODEL, "--gate", "any", "--md"), "of the other options only --json");
    process_refuses(process_run("bench", MODEL, "--gate", "any", "-t2"), "of the other options only --json");
    process_refuses(process_run("bench", MODEL, "--streams", "0"),
                    "--streams: \"0\" is not a whole number from 1");
    process_refuses(process_run("bench", MODEL, "--streams", "257"), "from 1 to 256");
    process_refuses(process_run("bench", MODEL, "--streams", "2", "-p4"), "rows of -n");
    process_refuses(process_run("bench", MODEL, "--streams", "2", "-n4", "--chain"), "choose one");
    process_refuses(process_run("bench", MODEL, "--frontier", "1k"), "\"1k\" is not FROM:TO");
    process_refuses(process_run("bench", MODEL, "--frontier", "2k:1k"), "the first is larger");
    process_refuses(process_run("bench", MODEL, "--frontier", "0:1k"), "--frontier: \"0\"");
    process_refuses(process_run("bench", MODEL, "--frontier", "1:1k", "-d1"), "choose one");
    process_refuses(process_run("bench", MODEL, "--frontier", "1k:1m"), "--frontier: \"1m\"");
    process_refuses(process_run("bench", MODEL, "--frontier", "1:4", "--in-turn"), "choose one");
    process_refuses(process_run("bench", MODEL, "--in-turn", "-d4"), "-d 0,4k");
    process_refuses(process_run("bench", MODEL, "--kernel", KERNEL, "--in-turn"), "--in-turn");
    process_refuses(process_run("bench", MODEL, "-d", "1024k"), "a context of");
    process_refuses(process_run("bench", MODEL, "-d", "1025k"), "--depth");
    process_refuses(process_run("bench", MODEL, "--kernel", KERNEL, "--profile"), "leave -p");
    process_refuses(process_run("bench", MODEL, "--kernel", KERNEL, "--precision", "fast"),
                    "leave --precision");
    process_refuses(process_run("bench", MODEL, "--layer", "0"), "go with --kernel");
    process_refuses(process_run("bench", MODEL, "--expert", "0"), "go with --kernel");
    process_refuses(process_run("bench", MODEL, "--kernel", "dot"), "no kernel \"dot\": there are " KERNEL);
    process_refuses(process_run("bench", MODEL, "--kernel", KERNEL, "-p1"), "leave -p");
    process_refuses(process_run("bench", MODEL, "--kernel", KERNEL, "--layer", "9"), "of layer 9");
    process_refuses(process_run("bench", MODEL, "--kernel", KERNEL, "--expert", "900"), "no entry 900");
    process_refuses(process_run("bench", MODEL, "--kernel", KERNEL, "--experts", "1000"), "--experts: 1000");
    process_refuses(process_run("bench", MODEL, "--backend", "abacus"), "abacus");
    process_refuses(process_run("bench", "tests/data"), "tests/data");
}

/* ---------------------------------------------------------------- campaigns */

struct campaign {
    const char *command, *runs, *row, *figure, *strong, *go_on, *close_out, *rest;
};

static const struct campaign good = {.command = "gossamer bench MODEL -p 4 -r 2 -t 1",
                                     .runs = "2",
                                     .row = "pp4",
                                     .figure = "tokens_per_second",
                                     .strong = ">= 2",
                                     .go_on = ">= 1",
                                     .close_out = "< 0.5",
                                     .rest = ""};

static struct test_path write_campaign(const char *folder, const struct campaign *c)
{
    char text[4096];
    struct test_path path = test_path_join(folder, "campaign.txt");
    int size = snprintf(text, sizeof text,
                        "# a test\nhypothesis: it runs,\n  and says so\nmachine: any\nmodel: a golden one\n"
                        "command: %s\nruns: %s\nrow: %s\nfigure: %s\npredicted: 100\nbasis: none\n"
                        "strong: %s\ncontinue: %s\nclose-out: %s\n%s",
                        c->command, c->runs, c->row, c->figure, c->strong, c->go_on, c->close_out, c->rest);
    test_file_write(path.text, text, (size_t)size);
    return path;
}

static void outcomes(void **state)
{
    (void)state;
    need_own_processor();
    static const struct {
        const char *strong, *go_on, *close_out, *outcome;
    } cases[] = {
        {">= 2", ">= 1", "< 0.5", "strong"},           {">= 1e12", ">= 1e-3", "< 1e-4", "continue"},
        {">= 1e12", ">= 1e11", "< 1e-3", "undecided"}, {">= 1e12", ">= 1e11", "< 1e10", "close-out"},
        {"<= 1e-3", "<= 1e11", "> 1e12", "continue"},  {"<= 1e-4", "<= 1e-3", "> 1e-2", "close-out"},
    };
    char *folder = test_folder_make();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct campaign c = good;
        c.strong = cases[i].strong;
        c.go_on = cases[i].go_on;
        c.close_out = cases[i].close_out;
        c.runs = i == 0 ? "3" : "1";
        struct test_path path = write_campaign(folder, &c);
        json_t *root = run_json(process_run("bench", MODEL, "--gate", path.text, "--json"));
        assert_string_equal(json_string_value(json_object_get(root, "outcome")), cases[i].outcome);
        assert_int_equal(json_array_size(json_object_get(root, "figures")), i == 0 ? 3 : 1);
        assert_int_equal(json_array_size(json_object_get(root, "runs")), i == 0 ? 3 : 1);
        assert_true(number_at(root, "min", NULL) <= number_at(root, "median", NULL));
        json_decref(root);
    }
    struct campaign quotient = good;
    quotient.rest = "over: pp4\nnote: a row over itself is one\n";
    struct test_path path = write_campaign(folder, &quotient);
    struct process_result result = process_run("bench", MODEL, "--gate", path.text);
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "hypothesis  it runs, and says so\n"));
    assert_non_null(strstr(result.out, "measured    1 (1 to 1), -99.0 % from the prediction\n"));
    assert_non_null(strstr(result.out, "outcome     continue\n"));
    process_free(&result);
    test_folder_remove(folder);
}

static void bad_campaigns(void **state)
{
    (void)state;
    need_own_processor();
    static const struct {
        struct campaign change; /* NULL: as in the good one */
        const char *part;
    } cases[] = {
        {{.command = "rm -rf MODEL"}, "is not \"gossamer bench ...\""},
        {{.command = "gossamer bench -p 4"}, "with the word MODEL"},
        {{.command = "gossamer bench MODEL --gate x"}, "leave --gate out"},
        {{.command = "gossamer bench MODEL --csv"}, "leave --csv out"},
        {{.command = "gossamer bench MODEL --json"}, "leave --json out"},
        {{.runs = "0"}, "runs: \"0\" is not a whole number from 1 to 100"},
        {{.runs = "many"}, "runs: \"many\""},
        {{.strong = "2"}, "strong: \"2\" is not \">= number\""},
        {{.strong = ">= nan"}, "strong: \">= nan\""},
        {{.go_on = "<= 1"}, "strong: \">= 2\" is not \"<= number\""},
        {{.close_out = "< 3"}, "thresholds out of order"},
        {{.strong = ">= 0.7"}, "thresholds out of order"},
        {{.rest = "mode: x\n"}, "line 15: unknown key \"mode\": did you mean model"},
        {{.rest = "runs: 3\n"}, "line 15: a second \"runs\""},
        {{.rest = "and so on\n"}, "is not \"key: value\""},
        {{.rest = "\n  more\n"}, "continues no value"},
        {{.rest = "note: \x1b[2J\n"}, "control character"},
        {{.rest = "note: \xff\n"}, "not UTF-8"},
        {{.row = ""}, "no \"row\""},
    };
    char *folder = test_folder_make();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct campaign c = cases[i].change;
        const char **fields = (const char **)(void *)&c, *const *defaults =
                                                             (const char *const *)(const void *)&good;
        for (size_t k = 0; k < sizeof c / sizeof *fields; k++)
            fields[k] = fields[k] ? fields[k] : defaults[k];
        process_refuses(process_run("bench", MODEL, "--gate", write_campaign(folder, &c).text),
                        cases[i].part);
    }
    struct campaign c = good;
    c.row = "pp5";
    process_refuses(process_run("bench", MODEL, "--gate", write_campaign(folder, &c).text),
                    "no rows are called \"pp5\"");
    c.row = "pp4";
    c.figure = "depth";
    c.rest = "over: pp4\n";
    process_refuses(process_run("bench", MODEL, "--gate", write_campaign(folder, &c).text),
                    "over: the figure of row \"pp4\" is 0");
    c.rest = "";
    c.figure = "furlongs";
    process_refuses(process_run("bench", MODEL, "--gate", write_campaign(folder, &c).text),
                    "no figure \"furlongs\"");
    process_refuses(process_run("bench", MODEL, "--gate", "tests/data/none.txt"), "tests/data/none.txt");
    char *large = calloc(1, 70000);
    assert_non_null(large);
    memset(large, '#', 70000);
    struct test_path path = test_path_join(folder, "large.txt");
    test_file_write(path.text, large, 70000);
    process_refuses(process_run("bench", MODEL, "--gate", path.text), "at most 65536");
    free(large);
    test_folder_remove(folder);
}

/* The command fails: its own line, then the campaign's. */
static void a_command_that_fails(void **state)
{
    (void)state;
    need_own_processor();
    char *folder = test_folder_make();
    struct campaign c = good;
    c.command = "gossamer bench MODEL --kernel none";
    struct process_result result = process_run("bench", MODEL, "--gate", write_campaign(folder, &c).text);
    assert_int_equal(result.code, 2);
    assert_string_equal(result.out, "");
    assert_non_null(strstr(result.err, "gossamer: no kernel \"none\""));
    assert_non_null(strstr(result.err, "the command failed"));
    process_free(&result);
    test_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_a_model),
        cmocka_unit_test(rows_of_streams),
        cmocka_unit_test(streams_differ),
        cmocka_unit_test(bytes_of_a_token),
        cmocka_unit_test(bytes_of_the_cache),
        cmocka_unit_test(a_profile_adds_up),
        cmocka_unit_test(a_frontier),
        cmocka_unit_test(a_frontier_to_the_end),
        cmocka_unit_test(first_token_and_memory),
        cmocka_unit_test(rows_in_turn),
        cmocka_unit_test(comma_separated),
        cmocka_unit_test(names_of_any_bytes),
        cmocka_unit_test(rows_of_a_kernel),
        cmocka_unit_test(tables),
        cmocka_unit_test(contexts_that_do_not_fit),
        cmocka_unit_test(refusals),
        cmocka_unit_test(outcomes),
        cmocka_unit_test(bad_campaigns),
        cmocka_unit_test(a_command_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
