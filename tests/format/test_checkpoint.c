/* src/format/checkpoint.c, locate.c, shard_index.c: folders, indexes, shards, and what is wrong with them. */
#include "files.h"

#include "format/checkpoint.h"
#include "format/locate.h"
#include "format/shard_index.h"

#include <fcntl.h>

#define HF    "model.embed_tokens.weight"
#define ORIG  "embedding.weight"
#define INDEX "model.safetensors.index.json"
#define S0    "model-00000-of-00001.safetensors"
#define S1    "model-00001-of-00001.safetensors"

/* A file of one-byte tensors with these names, "a b c". */
static void write_tensors(const char *name, const char *tensors)
{
    char header[2000] = "{", list[500];
    size_t count = 0;
    strcpy(list, tensors);
    for (char *rest = list, *tensor; (tensor = strsep(&rest, " ")) != NULL;) {
        if (*tensor == '\0')
            continue;
        size_t used = strlen(header);
        snprintf(header + used, sizeof header - used,
                 "%s\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}", count ? "," : "",
                 tensor, count, count + 1);
        count++;
    }
    strcat(header, "}");
    write_safetensors(folder, name, header, count);
}

static void write_index(const char *map)
{
    char text[2000];
    snprintf(text, sizeof text, "{\"metadata\":{\"total_size\":4},\"weight_map\":{%s}}", map);
    write_text(folder, INDEX, text);
}

static gs_status open_at(const char *name, struct gs_checkpoint **checkpoint, struct gs_error *error)
{
    char *path = path_in(folder, name);
    gs_status status = gs_checkpoint_open(path, checkpoint, error);
    if (status != GS_OK) {
        assert_null(*checkpoint);
        assert_clean_failure(status, error);
    }
    free(path);
    return status;
}

static void expect_open(const char *name, enum gs_layout layout, size_t count)
{
    struct gs_checkpoint *checkpoint;
    struct gs_error error;
    if (open_at(name, &checkpoint, &error) != GS_OK)
        fail_msg("%s: %s", name, error.message);
    assert_int_equal(gs_checkpoint_layout(checkpoint), layout);
    assert_int_equal(gs_checkpoint_count(checkpoint), count);
    gs_checkpoint_close(checkpoint);
}

static void expect_error(const char *name, gs_status status, const char *part)
{
    struct gs_checkpoint *checkpoint;
    struct gs_error error;
    if (open_at(name, &checkpoint, &error) == GS_OK)
        fail_msg("%s: opens, expected \"%s\"", name, part);
    assert_message(&error, part);
    assert_int_equal(error.code, status);
}

static void expect_index_error(const char *map, const char *part)
{
    write_index(map);
    expect_error("", GS_MALFORMED, part);
}

/* ---------------------------------------------------------------- layouts */

static void one_file(void **state)
{
    (void)state;
    struct gs_checkpoint *checkpoint;
    struct gs_error error;
    write_tensors("model.safetensors", HF " a b");
    write_text(folder, "config.json", "{}");
    assert_int_equal(open_at("", &checkpoint, &error), GS_OK);
    assert_int_equal(gs_checkpoint_count(checkpoint), 3);
    const struct gs_tensor *b = gs_checkpoint_find(checkpoint, "b");
    assert_non_null(b);
    assert_int_equal(b->data[0], 2);
    assert_ptr_equal(b, gs_checkpoint_tensor(checkpoint, 2));
    assert_null(gs_checkpoint_find(checkpoint, "c"));
    assert_null(gs_checkpoint_find(checkpoint, ""));
    assert_non_null(strstr(gs_checkpoint_config(checkpoint), "config.json"));
    assert_null(gs_checkpoint_generation_config(checkpoint));
    assert_int_equal(gs_checkpoint_check(checkpoint, &error), GS_OK);
    assert_false(gs_checkpoint_damaged(checkpoint));
    gs_checkpoint_close(checkpoint);
    gs_checkpoint_close(NULL);
    expect_open("model.safetensors", GS_LAYOUT_HUGGING_FACE, 3);
}

static void named_file_anywhere(void **state)
{
    (void)state;
    free(make_subfolder(folder, "in"));
    write_tensors("in/x.safetensors", ORIG);
    make_link("in/x.safetensors", folder, "link.safetensors");
    free(make_subfolder(folder, "other"));
    char *other = path_in(folder, "other");
    make_link("../in/x.safetensors", other, "model.safetensors");
    free(other);
    expect_open("in/x.safetensors", GS_LAYOUT_ORIGINAL, 1);
    expect_open("link.safetensors", GS_LAYOUT_ORIGINAL, 1);
    expect_open("other/model.safetensors", GS_LAYOUT_ORIGINAL, 1);  /* named outright */
    expect_error("other", GS_MALFORMED, "leads out of its folder"); /* found in a folder */
}

static void sharded(void **state)
{
    (void)state;
    struct gs_checkpoint *checkpoint;
    struct gs_error error;
    write_tensors(S0, HF " a");
    write_tensors(S1, "c b");
    write_tensors("stray.safetensors", "a x");
    write_index("\"b\":\"" S1 "\",\"" HF "\":\"" S0 "\",\"a\":\"" S0 "\",\"c\":\"" S1 "\"");
    assert_int_equal(open_at("", &checkpoint, &error), GS_OK);
    assert_int_equal(gs_checkpoint_count(checkpoint), 4);
    assert_int_equal(gs_checkpoint_find(checkpoint, "a")->data[0], 1);
    assert_non_null(strstr(gs_checkpoint_find(checkpoint, "b")->file->path, S1));
    gs_checkpoint_close(checkpoint);
    expect_error(S0, GS_INVALID_ARGUMENT, "one shard of several; give the folder");
    write_tensors("model-00001-of-00001.safetensors", HF);
    expect_open("model-00001-of-00001.safetensors", GS_LAYOUT_HUGGING_FACE, 1);
}

/* A download with root, original/ and metal/, whichever of them is given and whichever are there. */
static void any_folder_of_a_download(void **state)
{
    (void)state;
    struct gs_checkpoint *checkpoint;
    struct gs_error error;
    free(make_subfolder(folder, "original"));
    free(make_subfolder(folder, "metal"));
    write_text(folder, "metal/model.bin", "GPT-OSS v1.0");
    write_text(folder, "config.json", "{}");
    write_text(folder, "generation_config.json", "{}");
    expect_error("", GS_IO, "no weights; looked for");
    expect_error("original", GS_IO, "the folder is empty");
    expect_error("metal", GS_UNSUPPORTED, "the Metal container");
    expect_error("metal/model.bin", GS_UNSUPPORTED, "Metal container");

    write_tensors("original/model--00001-of-00002.safetensors", ORIG " a");
    write_tensors("original/model--00002-of-00002.safetensors", "b");
    write_text(folder, "original/config.json", "{\"num_experts\": 32}");
    static const char *const names[] = {"", "original", "original/", "metal", "metal/../metal/."};
    for (size_t i = 0; i < 5; i++)
        expect_open(names[i], GS_LAYOUT_ORIGINAL, 3);
    assert_int_equal(open_at("metal", &checkpoint, &error), GS_OK);
    assert_non_null(strstr(gs_checkpoint_folder(checkpoint), "/original"));
    assert_non_null(strstr(gs_checkpoint_config(checkpoint), "/original/config.json"));
    assert_non_null(strstr(gs_checkpoint_generation_config(checkpoint), "/generation_config.json"));
    assert_null(strstr(gs_checkpoint_generation_config(checkpoint), "original"));
    gs_checkpoint_close(checkpoint);

    write_tensors("model.safetensors", HF);
    expect_open("", GS_LAYOUT_HUGGING_FACE, 1);
    expect_open("metal", GS_LAYOUT_HUGGING_FACE, 1);
    expect_open("original", GS_LAYOUT_ORIGINAL, 3);
    char *shards[] = {path_in(folder, "original/model--00001-of-00002.safetensors"),
                      path_in(folder, "original/model--00002-of-00002.safetensors")};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(unlink(shards[i]), 0);
        free(shards[i]);
    }
    expect_open("original", GS_LAYOUT_HUGGING_FACE, 1);
}

static void original_with_an_index(void **state)
{
    (void)state;
    write_tensors("model--00001-of-00002.safetensors", ORIG " a");
    write_tensors("model--00002-of-00002.safetensors", "b");
    write_index("\"" ORIG
                "\":\"model--00001-of-00002.safetensors\",\"a\":\"model--00001-of-00002.safetensors\","
                "\"b\":\"model--00002-of-00002.safetensors\"");
    expect_open("", GS_LAYOUT_ORIGINAL, 3);
}

static void no_known_layout(void **state)
{
    (void)state;
    write_tensors("model.safetensors", "bert.embeddings");
    expect_error("", GS_UNSUPPORTED, "neither " HF " (Hugging Face layout) nor " ORIG);
    expect_error("", GS_UNSUPPORTED, "bert.embeddings");
    write_tensors("model.safetensors", "");
    expect_error("", GS_UNSUPPORTED, "holds no tensors");
    write_tensors("model.safetensors", HF " " ORIG);
    expect_error("", GS_MALFORMED, "a model has one layout");
}

static void what_was_found_instead(void **state)
{
    (void)state;
    expect_error("absent", GS_IO, "absent: No such file");
    expect_error("", GS_IO, "the folder is empty; looked for " INDEX ", model.safetensors");
    write_text(folder, "tokenizer.json", "{}");
    write_text(folder, "config\n.json", "{}");
    expect_error("", GS_IO, "a tokenizer without weights");
    expect_error("", GS_IO, "config\\x0A.json");
    expect_error("tokenizer.json", GS_INVALID_ARGUMENT, "is no .safetensors or .gguf file");
    write_text(folder, "model.safetensors.part", "");
    expect_error("", GS_IO, "a download seems not to have ended");
    write_text(folder, "pytorch_model.bin", "");
    expect_error("", GS_UNSUPPORTED, "pytorch_model.bin, a PyTorch file");
    expect_error("pytorch_model.bin", GS_UNSUPPORTED, "PyTorch file");
    write_text(folder, "gpt-oss.gguf", "GGUF");
    expect_error("", GS_MALFORMED, "gpt-oss.gguf: byte 4: the file of 4 bytes ends within the header");
    expect_error("gpt-oss.gguf", GS_MALFORMED, "ends within the header");
    write_text(folder, "model.safetensors", "");
    expect_error("", GS_MALFORMED, "no header");
    free(make_subfolder(folder, "many"));
    for (unsigned i = 0; i < 50; i++) {
        char name[20];
        snprintf(name, sizeof name, "many/file%u", i);
        write_text(folder, name, "");
    }
    expect_error("many", GS_IO, "found only file");
    expect_error("many", GS_IO, ", ...");
}

static void hugging_face_needs_its_index(void **state)
{
    (void)state;
    write_tensors(S0, HF " a");
    expect_error("", GS_IO, "no " INDEX);
    write_tensors(S1, "b");
    expect_error("", GS_IO, "2 .safetensors files, but no " INDEX);
    write_tensors(S1, "b a");
    expect_error("", GS_MALFORMED, "a: is in two files");
}

/* ---------------------------------------------------------------- the index */

static void shard_names(void **state)
{
    (void)state;
    static const char *const good[] = {"a.safetensors",
                                       "0.safetensors",
                                       "model-00000-of-00002.safetensors",
                                       "model--00001-of-00007.safetensors",
                                       "a..safetensors",
                                       "A_b.c-.safetensors",
                                       "a.safetensors.safetensors"};
    static const char *const bad[] = {"",
                                      ".safetensors",
                                      "..safetensors",
                                      "-a.safetensors",
                                      "_a.safetensors",
                                      "a.safetensor",
                                      "a",
                                      "../a.safetensors",
                                      "a/b.safetensors",
                                      "/a.safetensors",
                                      "a\\b.safetensors",
                                      "C:a.safetensors",
                                      "a",
                                      "a b.safetensors",
                                      "a.safetensors ",
                                      "a.safetensors\n",
                                      "\na.safetensors",
                                      "a.SAFETENSORS",
                                      "a",
                                      "\xC3\xA9.safetensors",
                                      "a\xC3\xA9.safetensors",
                                      "a%2e.safetensors",
                                      "a:b.safetensors",
                                      "~a.safetensors"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_true(gs_shard_name_valid(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (gs_shard_name_valid(bad[i]))
            fail_msg("%s is taken for a shard's name", bad[i]);
    }
    write_tensors("a.safetensors", HF);
    expect_index_error("\"" HF "\":\"../a.safetensors\"", "name outside the folder");
    expect_index_error("\"" HF "\":\"a.safetensors\\u0000\"", "NUL");
    expect_index_error("\"" HF "\":\"a\\u0000.safetensors\"", "NUL");
    expect_index_error("\"" HF "\\u0000\":\"a.safetensors\"", "NUL");
    write_index("\"" HF "\":\"a.safetensors\"");
    expect_open("", GS_LAYOUT_HUGGING_FACE, 1);
}

static void index_form(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", "the file is empty"},
        {"[]", "needs an object weight_map"},
        {"{}", "needs an object weight_map"},
        {"{\"weight_map\":[]}", "needs an object weight_map"},
        {"{\"weight_map\":{}}", "weight_map is empty"},
        {"{\"weight_map\":{\"a\":1}}", "a: its weight_map value must be a file name"},
        {"{\"weight_map\":{\"a\":null}}", "a: its weight_map value must be a file name"},
        {"{\"weight_map\":{\"a\":[\"a.safetensors\"]}}", "a: its weight_map value must be a file name"},
        {"{\"weight_map\":{\"a\":\"a.safetensors\",\"a\":\"a.safetensors\"}}", "duplicate"},
        {"{\"weight_map\":{\"a\":\"a.safetensors\",\"\\u0061\":\"b.safetensors\"}}", "duplicate"},
        {"{\"weight_map\":{\"a\":\"a.safetensors\"},\"weight_map\":{}}", "duplicate"},
        {"{\"metadata\":{\"x\":1,\"x\":2},\"weight_map\":{\"a\":\"a.safetensors\"}}", "duplicate"},
        {"{\"metadata\":1,\"weight_map\":{\"a\":\"a.safetensors\"}}", "metadata must be an object"},
        {"{\"metadata\":{\"total_size\":\"1\"},\"weight_map\":{\"a\":\"a.safetensors\"}}",
         "total_size must be"},
        {"{\"weight_map\":{\"a\":\"a.safetensors\"}}x", "after the end"},
        {"{\"weight_map\":{\"a\":\"a.safetensors\"}", "ends too early"},
        {"{\"weight_map\":{\"a\":\"\xff.safetensors\"}}", "UTF-8"},
        {"{\"x\":[[[[[[[[1]]]]]]]],\"weight_map\":{\"a\":\"a.safetensors\"}}", "nested deeper than 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_text(folder, INDEX, cases[i][0]);
        expect_error("", GS_MALFORMED, cases[i][1]);
    }
    write_tensors("a.safetensors", HF);
    static const char *const fine[] = {
        "{\"weight_map\":{\"" HF "\":\"a.safetensors\"}}",
        "{\"x\":[[[[[[[1]]]]]]],\"weight_map\":{\"" HF "\":\"a.safetensors\"}}",
        "{\"metadata\":{\"total_size\":1e3},\"weight_map\":{\"" HF "\":\"a.safetensors\"}}\n",
        "{\"metadata\":{\"total_parameters\":7},\"weight_map\":{\"" HF "\":\"a.safetensors\"}}",
    };
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++) {
        write_text(folder, INDEX, fine[i]);
        expect_open("", GS_LAYOUT_HUGGING_FACE, 1);
    }
    char *deep = malloc(100001);
    assert_non_null(deep);
    memset(deep, '[', 100000);
    deep[100000] = '\0';
    write_text(folder, INDEX, deep);
    expect_error("", GS_MALFORMED, "nested deeper than 8");
    free(deep);
}

static void index_and_shards_agree(void **state)
{
    (void)state;
    write_tensors(S0, HF " a");
    write_tensors(S1, "b");
#define ALL "\"" HF "\":\"" S0 "\",\"a\":\"" S0 "\""
    expect_index_error(ALL ",\"b\":\"" S1 "\",\"c\":\"" S1 "\"",
                       "c: the index has it in " S1 ", but it is not there");
    expect_index_error(ALL ",\"b\":\"" S1 "\",\"a0\":\"" S0 "\"", "a0: the index has it in " S0);
    expect_index_error("\"" HF "\":\"" S0 "\",\"b\":\"" S1 "\"",
                       "a: is in " S0 ", but the index does not list it");
    expect_index_error(ALL ",\"b\":\"" S0 "\",\"c\":\"" S1 "\"",
                       "b: the index has it in " S0 ", but it is in " S1);
    write_index(ALL ",\"b\":\"" S1 "\"");
    expect_open("", GS_LAYOUT_HUGGING_FACE, 3);
    write_tensors(S1, "b a");
    expect_error("", GS_MALFORMED, "a: is in two files");
    expect_error("", GS_MALFORMED, "/" S0 " and ");
    expect_error("", GS_MALFORMED, "/" S1 "; it must be in one");
    write_tensors(S1, "");
    expect_error("", GS_MALFORMED, "b: the index has it in " S1 ", but it is not there");
    write_text(folder, S1, "");
    expect_error("", GS_MALFORMED, S1 ": no header");
    char *path = path_in(folder, S1);
    assert_int_equal(unlink(path), 0);
    free(path);
    expect_error("", GS_IO, S1 ": missing; the index names 2 shards, of which 1 cannot be found");
    make_link("../gossamer-test-nothing-there", folder, S1);
    expect_error("", GS_IO, "missing");
    /* Not even for the index itself. */
    free(make_subfolder(folder, "other"));
    char *other = path_in(folder, "other");
    make_link("../" INDEX, other, INDEX);
    free(other);
    expect_error("other", GS_MALFORMED, INDEX ": is a link that leads out of its folder");
}

static void shards_in_the_hub_cache(void **state)
{
    (void)state;
    static const char *const folders[] = {"r", "r/blobs", "r/snapshots", "r/snapshots/v"};
    for (size_t i = 0; i < 4; i++)
        free(make_subfolder(folder, folders[i]));
    write_tensors("r/blobs/0", HF);
    write_tensors("r/blobs/1", "a");
    write_text(folder, "r/blobs/2", "{\"weight_map\":{\"" HF "\":\"" S0 "\",\"a\":\"" S1 "\"}}");
    write_text(folder, "r/blobs/3", "{}");
    char *snapshot = path_in(folder, "r/snapshots/v");
    make_link("../../blobs/0", snapshot, S0);
    make_link("../../blobs/1", snapshot, S1);
    make_link("../../blobs/2", snapshot, INDEX);
    make_link("../../blobs/3", snapshot, "config.json");
    free(snapshot);
    expect_open("r/snapshots/v", GS_LAYOUT_HUGGING_FACE, 2);
}

static void number_of_shards_bound(void **state)
{
    (void)state;
    for (unsigned extra = 0; extra < 2; extra++) {
        size_t size = 100000;
        char *text = malloc(size), *at = text + sprintf(text, "{\"weight_map\":{");
        for (unsigned i = 0; i < GS_SHARD_INDEX_MAX_SHARDS + extra; i++)
            at += sprintf(at, "%s\"t%u\":\"s%u.safetensors\"", i ? "," : "", i, i);
        strcpy(at, "}}");
        struct gs_arena arena = {0};
        struct gs_shard_index index;
        struct gs_error error;
        gs_status status = gs_shard_index_parse("i", text, strlen(text), &arena, &index, &error);
        assert_int_equal(status, extra ? GS_MALFORMED : GS_OK);
        assert_int_equal(index.n_shard, extra ? 0 : GS_SHARD_INDEX_MAX_SHARDS);
        for (size_t i = 0; i < index.count; i++) { /* "t77" is in "s77.safetensors" */
            const struct gs_shard_entry *entry = &index.entries[i];
            const char *shard = index.shards[entry->shard];
            size_t digits = strlen(entry->tensor) - 1;
            assert_memory_equal(shard + 1, entry->tensor + 1, digits);
            assert_string_equal(shard + 1 + digits, ".safetensors");
        }
        gs_arena_free(&arena);
        free(text);
    }
}

/* ---------------------------------------------------------------- paths, size, change */

static void any_path_opens(void **state)
{
    (void)state;
    free(make_subfolder(folder, "模型 é dir"));
    write_tensors("模型 é dir/model.safetensors", HF);
    expect_open("模型 é dir", GS_LAYOUT_HUGGING_FACE, 1);
    expect_open("模型 é dir/", GS_LAYOUT_HUGGING_FACE, 1);
    expect_open("模型 é dir/model.safetensors", GS_LAYOUT_HUGGING_FACE, 1);
    char name[251 * 8] = "";
    for (size_t i = 0; i < 7; i++) {
        memset(name + strlen(name), 'd', 250);
        free(make_subfolder(folder, name));
        strcat(name, "/");
    }
    size_t length = strlen(name);
    strcpy(name + length, "model.safetensors");
    write_tensors(name, ORIG);
    name[length] = '\0';
    expect_open(name, GS_LAYOUT_ORIGINAL, 1);
    char *here = getcwd(NULL, 0);
    assert_int_equal(chdir(folder), 0);
    write_tensors("model.safetensors", HF);
    struct gs_checkpoint *checkpoint;
    static const char *const relative[] = {".", "./", "model.safetensors", "./model.safetensors"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(gs_checkpoint_open(relative[i], &checkpoint, NULL), GS_OK);
        assert_null(gs_checkpoint_config(checkpoint));
        gs_checkpoint_close(checkpoint);
    }
    assert_int_equal(gs_checkpoint_open("", &checkpoint, NULL), GS_IO);
    assert_int_equal(chdir(here), 0);
    free(here);
}

/* 20 GB of nothing: opening must not read the data, which takes a processor seconds. */
static void large_file_opens_at_once(void **state)
{
    (void)state;
    const uint64_t bytes = 20000000000u;
    char header[200];
    snprintf(header, sizeof header,
             "{\"" HF "\":{\"dtype\":\"BF16\",\"shape\":[%llu,5],\"data_offsets\":[0,%llu]}}",
             (unsigned long long)bytes / 10, (unsigned long long)bytes);
    write_safetensors(folder, "model.safetensors", header, 0);
    char *path = path_in(folder, "model.safetensors");
    if (truncate(path, (off_t)(8 + strlen(header) + bytes)) != 0) {
        free(path);
        skip(); /* a file system without such files */
    }
    struct gs_checkpoint *checkpoint;
    struct gs_error error;
    gs_status status = gs_checkpoint_open(path, &checkpoint, &error);
    if (status != GS_OK)
        fail_msg("%s", error.message);
    const struct gs_tensor *tensor = gs_checkpoint_find(checkpoint, HF);
    assert_true(tensor->bytes == bytes);
    /* The header and what was read ahead: no clock says as surely that the rest was not read. */
    assert_true(test_resident_bytes(tensor->data, bytes) < bytes / 50);
    assert_int_equal(tensor->data[bytes - 1], 0);
    gs_checkpoint_close(checkpoint);
    free(path);
}

static void changes_are_noticed(void **state)
{
    (void)state;
    struct gs_checkpoint *checkpoint;
    struct gs_error error;
    write_tensors(S0, HF);
    write_tensors(S1, "a");
    write_index("\"" HF "\":\"" S0 "\",\"a\":\"" S1 "\"");
    assert_int_equal(open_at("", &checkpoint, &error), GS_OK);
    char *path = path_in(folder, S1);
    assert_int_equal(truncate(path, 0), 0);
    free(path);
    assert_false(gs_checkpoint_damaged(checkpoint));
    assert_int_equal(gs_checkpoint_check(checkpoint, &error), GS_FILE_CHANGED);
    assert_message(&error, S1);
    assert_int_equal(gs_checkpoint_find(checkpoint, "a")->data[0], 0);
    assert_true(gs_checkpoint_damaged(checkpoint));
    assert_int_equal(gs_checkpoint_check(checkpoint, &error), GS_FILE_CHANGED);
    gs_checkpoint_close(checkpoint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_file, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(named_file_anywhere, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(sharded, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(any_folder_of_a_download, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(original_with_an_index, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(no_known_layout, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_was_found_instead, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(hugging_face_needs_its_index, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(shard_names, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(index_form, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(index_and_shards_agree, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(shards_in_the_hub_cache, make_folder, remove_folder),
        cmocka_unit_test(number_of_shards_bound),
        cmocka_unit_test_setup_teardown(any_path_opens, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(large_file_opens_at_once, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(changes_are_noticed, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
