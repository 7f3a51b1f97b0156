/* The chunks that are written without a tree of JSON: the bytes of those that are written with one. */
#include "server/chunk.h"

#include "chat/json_text.h"
#include "server/exchange.h"
#include "tests/support/check.h"

#include <string.h>

static json_t *make_object(void)
{
    return json_pack("{s:s, s:I, s:s}", "id", "chatcmpl-1", "created", (json_int_t)1764460800, "model",
                     "a \"model\"\n\xC3\xA9");
}

/* What gs_stream_json makes of the same chunk. */
static void send_tree(struct gs_exchange *exchange, size_t choice, json_t *delta, bool has_usage)
{
    json_t *chunk = make_object();
    json_object_set_new(chunk, "choices",
                        json_pack("[{s:I, s:o, s:n, s:n}]", "index", (json_int_t)choice, "delta", delta,
                                  "logprobs", "finish_reason"));
    if (has_usage)
        json_object_set_new(chunk, "usage", json_null());
    gs_stream_json(exchange, NULL, chunk);
}

static void assert_same(const struct gs_exchange *a, const struct gs_exchange *b)
{
    assert_int_equal(a->out.size, b->out.size);
    assert_memory_equal(a->out.data, b->out.data, a->out.size);
}

static void chunks_are_those_of_a_tree(void **state)
{
    static const char *const texts[] = {" plain", "", "a \"quote\" \\ /", "line\nend\r\t\b\f\x01\x1F\x7F",
                                        "\xC3\xA9 \xE2\x80\xA8 \xF0\x9F\x98\x80"};
    static const struct gs_chunk_form content = {",\"delta\":{\"content\":", NULL, "}"};
    static const struct gs_chunk_form both = {",\"delta\":{\"reasoning\":", ",\"reasoning_content\":", "}"};
    (void)state;
    for (int has_usage = 0; has_usage < 2; has_usage++) {
        struct gs_exchange *written = gs_exchange_make(NULL), *dumped = gs_exchange_make(NULL);
        struct gs_chunk chunk = {0};
        assert_non_null(written);
        assert_non_null(dumped);
        assert_false(gs_chunk_begun(&chunk));
        assert_int_equal(gs_chunk_begin(&chunk, make_object(), has_usage), GS_OK);
        assert_true(gs_chunk_begun(&chunk));
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            size_t choice = i * i * 9; /* one digit, and several */
            struct gs_text text = gs_text_of(texts[i]);
            gs_chunk_send(&chunk, written, choice, &content, text);
            send_tree(dumped, choice, json_pack("{s:s}", "content", texts[i]), has_usage);
            gs_chunk_send(&chunk, written, choice, &both, text);
            send_tree(dumped, choice,
                      json_pack("{s:s, s:s}", "reasoning", texts[i], "reasoning_content", texts[i]),
                      has_usage);
        }
        assert_same(written, dumped);
        gs_chunk_free(&chunk);
        gs_exchange_release(written);
        gs_exchange_release(dumped);
    }
}

/* Readers that split text at any of Unicode's ends of line find the whole chunk on its line. */
static void ends_of_line_are_escaped(void **state)
{
    static const char text[] = "a\xE2\x80\xA8z\xE2\x80\xA9\xC2\x85\xC2\x86\xE2\x80\xAA\xE2\x80\xA7";
    static const char escaped[] = "\"a\\u2028z\\u2029\\u0085\xC2\x86\xE2\x80\xAA\xE2\x80\xA7\"";
    static const char *const ends[] = {"\xE2\x80\xA8", "\xE2\x80\xA9", "\xC2\x85"};
    (void)state;
    struct gs_exchange *exchange = gs_exchange_make(NULL);
    struct gs_chunk chunk = {0};
    assert_non_null(exchange);
    assert_int_equal(gs_chunk_begin(&chunk, json_pack("{s:s}", "model", text), false), GS_OK);
    gs_chunk_send(&chunk, exchange, 0, &(struct gs_chunk_form){",\"text\":", NULL, ""}, gs_text_of(text));
    gs_stream_json(exchange, NULL, json_pack("{s:s}", text, text));
    const char *at = exchange->out.data;
    for (int i = 0; i < 4; i++, at++)
        assert_non_null(at = strstr(at, escaped));
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        assert_null(strstr(exchange->out.data, ends[i]));
    gs_chunk_free(&chunk);
    gs_exchange_release(exchange);

    struct gs_buffer prompt = {0}; /* and to a model everything goes as it is */
    struct gs_writer writer = {.buffer = &prompt};
    gs_write_json_string(&writer, gs_text_of(text));
    assert_int_equal(prompt.size, strlen(text) + 2);
    assert_memory_equal(prompt.data + 1, text, strlen(text));
    gs_buffer_free(&prompt);
}

/* Without what goes before, nothing half is sent: the stream is cut. */
static void a_chunk_that_cannot_be_is_cut(void **state)
{
    (void)state;
    struct gs_exchange *exchange = gs_exchange_make(NULL);
    struct gs_chunk chunk = {0};
    assert_non_null(exchange);
    assert_int_equal(gs_chunk_begin(&chunk, NULL, false), GS_OUT_OF_MEMORY);
    gs_chunk_send(&chunk, exchange, 0, &(struct gs_chunk_form){",\"text\":", NULL, ""}, gs_text_of("a"));
    assert_int_equal(exchange->out.size, 0);
    assert_true(gs_exchange_gone(exchange));
    gs_chunk_free(&chunk);
    gs_exchange_release(exchange);

    exchange = gs_exchange_make(NULL); /* nor by a tree that there was no memory for */
    assert_non_null(exchange);
    gs_stream_json(exchange, NULL, NULL);
    assert_int_equal(exchange->out.size, 0);
    assert_true(gs_exchange_gone(exchange));
    gs_exchange_release(exchange);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_are_those_of_a_tree),
        cmocka_unit_test(ends_of_line_are_escaped),
        cmocka_unit_test(a_chunk_that_cannot_be_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
