/* The hub's list of files is untrusted; the model's files are chosen from it by fixed names and the index. */
#include "hub/listing.h"
#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>

#define COMMIT      "0123456789abcdef0123456789abcdef01234567"
#define SHA1        "\"blobId\": \"" COMMIT "\""
#define SHA256      "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define SMALL(name) "{\"rfilename\": \"" name "\", \"size\": 7, " SHA1 "}"
#define LARGE(name)                                                                                          \
    "{\"rfilename\": \"" name "\", \"size\": 7000000000, " SHA1                                              \
    ", \"lfs\": {\"size\": 7000000000, \"sha256\": \"" SHA256 "\", \"pointerSize\": 130}}"
#define LIST(files) "{\"id\": \"a/b\", \"sha\": \"" COMMIT "\", \"siblings\": [" files "]}"

static struct gs_error error;

static gs_status parse(const char *text, struct gs_arena *arena, struct gs_hub_listing *listing)
{
    return gs_hub_listing_parse(text, strlen(text), arena, listing, &error);
}

static void reads_files(void **state)
{
    struct gs_arena arena = {0};
    struct gs_hub_listing listing;
    (void)state;
    assert_ok(parse(LIST(SMALL("config.json") "," LARGE("model.safetensors") "," SMALL(
                        "README.md") ","
                                     "{\"rfilename\": \"original/model.safetensors\"}"),
                    &arena, &listing),
              &error);
    assert_string_equal(listing.commit, COMMIT);
    assert_int_equal(listing.count, 2);
    const struct gs_hub_file *file = gs_hub_listing_find(&listing, "model.safetensors");
    assert_true(file->size == 7000000000);
    assert_string_equal(file->digest, SHA256);
    assert_string_equal(gs_hub_listing_find(&listing, "config.json")->digest, COMMIT);
    assert_null(gs_hub_listing_find(&listing, "README.md"));
    gs_arena_free(&arena);
}

static void refuses_damaged_lists(void **state)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "no JSON"},
        {"<html>", "no JSON"},
        {"[]", "no commit"},
        {"{\"sha\": \"main\", \"siblings\": []}", "no commit"},
        {"{\"sha\": \"" COMMIT "\"}", "no files"},
        {LIST("{}"), "siblings[0] has no rfilename"},
        {LIST("7"), "siblings[0] has no rfilename"},
        {LIST("{\"rfilename\": \"config.json\"}"), "config.json has no size and hash"},
        {LIST("{\"rfilename\": \"config.json\", \"size\": 7}"), "no size and hash"},
        {LIST("{\"rfilename\": \"config.json\", \"size\": 7.0, " SHA1 "}"), "no size and hash"},
        {LIST("{\"rfilename\": \"config.json\", \"size\": 0, " SHA1 "}"), "size of 0 bytes"},
        {LIST("{\"rfilename\": \"config.json\", \"size\": -1, " SHA1 "}"), "size of -1 bytes"},
        {LIST("{\"rfilename\": \"config.json\", \"size\": 9223372036854775807, " SHA1 "}"), "size of"},
        {LIST("{\"rfilename\": \"config.json\", \"size\": 7, \"blobId\": \"../../x\"}"), "no size and hash"},
        {LIST("{\"rfilename\": \"config.json\", \"size\": 7, \"lfs\": {\"sha256\": \"" COMMIT "\"}}"),
         "no size and hash"},
        {LIST("{\"rfilename\": \"config.json\", \"size\": 7, \"lfs\": {\"sha256\": \"" SHA256
              "\", \"size\": 8}}"),
         "two sizes"},
        {LIST(SMALL("config.json") "," SMALL("config.json")), "config.json twice"},
        {"{\"sha\": \"" COMMIT "\", \"sha\": \"" COMMIT "\", \"siblings\": []}", "no JSON"},
    };
    struct gs_hub_listing listing;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gs_arena arena = {0};
        assert_fails(parse(cases[i].text, &arena, &listing), GS_MALFORMED, cases[i].part, &error);
        gs_arena_free(&arena);
    }
}

static gs_status choose(const char *list, const char *index, char *names, size_t size)
{
    struct gs_arena arena = {0};
    struct gs_hub_listing listing;
    const struct gs_hub_file **files;
    size_t count = 0, used = 0;
    gs_status status = parse(list, &arena, &listing);
    if (status == GS_OK)
        status = gs_hub_select(&listing, index, index ? strlen(index) : 0, &arena, &files, &count, &error);
    names[0] = '\0';
    for (size_t i = 0; status == GS_OK && i < count; i++)
        used += (size_t)snprintf(names + used, size - used, "%s ", files[i]->name);
    gs_arena_free(&arena);
    return status;
}

static void chooses_by_the_index(void **state)
{
    char names[400];
    (void)state;
    assert_ok(
        choose(LIST(LARGE("b.safetensors") "," LARGE("a.safetensors") "," LARGE("c.safetensors") "," SMALL(
                   "tokenizer.json") "," SMALL("config.json") "," SMALL("model.safetensors.index."
                                                                        "json") "," SMALL("chat_"
                                                                                          "template"
                                                                                          ".jinj"
                                                                                          "a")),
               "{\"metadata\": {}, \"weight_map\": {\"x\": \"b.safetensors\", \"y\": "
               "\"a.safetensors\", \"z\": \"b.safetensors\"}}",
               names, sizeof names),
        &error);
    assert_string_equal(names, "config.json tokenizer.json model.safetensors.index.json a.safetensors "
                               "b.safetensors ");
    assert_ok(choose(LIST(LARGE("model.safetensors") "," LARGE("c.safetensors") "," SMALL(
                         "tokenizer.json") "," SMALL("config.json") "," SMALL("generation_config.json")),
                     NULL, names, sizeof names),
              &error);
    assert_string_equal(names, "config.json generation_config.json tokenizer.json model.safetensors ");
}

static void names_what_is_missing(void **state)
{
    char names[400];
    (void)state;
    assert_fails(choose(LIST(SMALL("config.json") "," LARGE("model.safetensors")), NULL, names, sizeof names),
                 GS_UNSUPPORTED, "no tokenizer.json", &error);
    assert_fails(choose(LIST(SMALL("config.json") "," SMALL("tokenizer.json")), NULL, names, sizeof names),
                 GS_UNSUPPORTED, "no model.safetensors", &error);
    assert_fails(choose(LIST(SMALL("config.json") "," SMALL("tokenizer.json")),
                        "{\"weight_map\": {\"x\": \"b.safetensors\"}}", names, sizeof names),
                 GS_UNSUPPORTED, "no b.safetensors", &error);
    assert_fails(choose(LIST(SMALL("config.json") "," SMALL("tokenizer.json")),
                        "{\"weight_map\": {\"x\": \"../b.safetensors\"}}", names, sizeof names),
                 GS_MALFORMED, "../b.safetensors", &error);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_files),
        cmocka_unit_test(refuses_damaged_lists),
        cmocka_unit_test(chooses_by_the_index),
        cmocka_unit_test(names_what_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
