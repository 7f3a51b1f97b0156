/* src/server/response_store.c: by id and key, bounded, the longest unused goes first. */
#include "server/response_store.h"

#include "tests/support/check.h"

#include <stdio.h>

static void put(struct gs_response_store *store, const char *id, size_t key, const char *text)
{
    json_t *response = json_pack("{s:s, s:s, s:[{s:s}, {s:s+}]}", "id", id, "text", text, "output", "id",
                                 "rs_same", "id", "msg_", id);
    json_t *items = json_pack("[s]", text);
    gs_response_store_put(store, id, key, response, items, text);
    json_decref(response);
    json_decref(items);
}

static bool has(struct gs_response_store *store, const char *id, size_t key)
{
    return gs_response_store_get(store, id, key, NULL, NULL, NULL);
}

static void test_what_was_put_comes_back(void **state)
{
    struct gs_response_store *store;
    struct gs_error error;
    json_t *response = NULL, *items = NULL, *course = NULL;
    (void)state;
    assert_ok(gs_response_store_open(1 << 20, &store, &error), &error);
    put(store, "resp_a", 1, "one");
    assert_true(gs_response_store_get(store, "resp_a", 1, &response, &items, &course));
    assert_string_equal(json_string_value(json_object_get(response, "text")), "one");
    assert_string_equal(json_string_value(json_array_get(items, 0)), "one");
    assert_string_equal(json_string_value(course), "one");
    json_decref(response);
    json_decref(items);
    json_decref(course);
    response = items = course = NULL;
    assert_false(gs_response_store_get(store, "resp_b", 1, &response, &items, &course));
    assert_null(response);
    gs_response_store_close(store);
}

static void test_another_key_sees_nothing(void **state)
{
    struct gs_response_store *store;
    struct gs_error error;
    (void)state;
    assert_ok(gs_response_store_open(1 << 20, &store, &error), &error);
    put(store, "resp_a", 1, "one");
    assert_false(has(store, "resp_a", 0));
    assert_false(has(store, "resp_a", 2));
    json_t *response = gs_response_store_find_item(store, "msg_resp_a", 1);
    assert_string_equal(json_string_value(json_object_get(response, "text")), "one");
    json_decref(response);
    assert_null(gs_response_store_find_item(store, "msg_resp_a", 2));
    assert_null(gs_response_store_find_item(store, "msg_", 1));
    assert_false(gs_response_store_remove(store, "resp_a", 2));
    assert_true(gs_response_store_remove(store, "resp_a", 1));
    assert_false(has(store, "resp_a", 1));
    assert_false(gs_response_store_remove(store, "resp_a", 1));
    gs_response_store_close(store);
}

static void test_the_longest_unused_gives_way(void **state)
{
    struct gs_response_store *store;
    struct gs_error error;
    char id[32];
    (void)state;
    assert_ok(gs_response_store_open(4096, &store, &error), &error);
    put(store, "resp_kept", 0, "x");
    for (int i = 0; i < 1000; i++) {
        snprintf(id, sizeof id, "resp_%d", i);
        put(store, id, 0, "y");
        assert_true(has(store, "resp_kept", 0));
    }
    assert_false(has(store, "resp_0", 0));
    assert_true(has(store, "resp_999", 0));
    gs_response_store_close(store);
}

static void test_what_is_too_large_is_not_kept(void **state)
{
    struct gs_response_store *store;
    struct gs_error error;
    static char large[5000];
    (void)state;
    for (size_t i = 0; i + 1 < sizeof large; i++)
        large[i] = 'a';
    assert_ok(gs_response_store_open(4096, &store, &error), &error);
    put(store, "resp_small", 0, "x");
    put(store, "resp_large", 0, large);
    assert_false(has(store, "resp_large", 0));
    assert_true(has(store, "resp_small", 0));
    gs_response_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_put_comes_back),
        cmocka_unit_test(test_another_key_sees_nothing),
        cmocka_unit_test(test_the_longest_unused_gives_way),
        cmocka_unit_test(test_what_is_too_large_is_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
