/*
 * Masks against their definition: a token is allowed exactly if its bytes lead on from the text so far, over
 * the demo model's vocabulary; and against sources that want something else.
 */
#include "chat/json_load.h"
#include "chat/schema_mask.h"
#include "tests/support/check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static struct gs_vocab *vocab;
static struct gs_token_trie *trie;
static size_t n_vocab;
static int32_t end_id;

static int open_vocabulary(void **state)
{
    (void)state;
    struct gs_error error;
    assert_ok(gs_vocab_open("models/demo", &vocab, &error), &error);
    n_vocab = gs_vocab_size(vocab) + 70; /* models may have more logits than tokens */
    assert_ok(gs_token_trie_open(vocab, n_vocab, &trie, &error), &error);
    end_id = gs_vocab_special(vocab, "<|return|>");
    return 0;
}

static int close_vocabulary(void **state)
{
    (void)state;
    gs_token_trie_close(trie);
    gs_vocab_close(vocab);
    return 0;
}

static struct gs_grammar *compile(const char *text)
{
    struct gs_grammar *grammar;
    struct gs_error error;
    json_t *schema;
    assert_ok(gs_json_load("schema", text, strlen(text), &schema, &error), &error);
    assert_ok(gs_schema_compile(schema, NULL, &grammar, NULL, &error), &error);
    json_decref(schema);
    return grammar;
}

static struct gs_mask *open_mask(struct gs_grammar *grammar)
{
    struct gs_mask *mask;
    struct gs_error error;
    assert_ok(gs_mask_open(grammar, trie, &end_id, 1, &mask, &error), &error);
    return mask;
}

static bool is_set(const uint64_t *words, int32_t id)
{
    return words[id / 64] >> (id % 64) & 1;
}

static uint64_t random_number(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Can the text so far be continued to a valid one? By the grammar's own machine, fed byte by byte. */
static bool leads_on(struct gs_grammar *grammar, const struct gs_buffer *text, const char *more, size_t size)
{
    struct gs_mask *mask = open_mask(grammar);
    struct gs_error error;
    bool all = true;
    for (size_t i = 0; i < text->size + size && all; i++) {
        char byte = i < text->size ? text->data[i] : more[i - text->size];
        int32_t found = -1;
        for (int32_t id = 0; found < 0 && (size_t)id < gs_vocab_size(vocab); id++) {
            size_t length;
            const char *bytes = gs_vocab_bytes(vocab, id, &length);
            if (bytes && length == 1 && *bytes == byte)
                found = id;
        }
        all = found >= 0 && gs_mask_accept(mask, found, &error) == GS_OK;
    }
    gs_mask_close(mask);
    return all;
}

static const char *const schemas[] = {
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":9,\"minLength\":2},"
    "\"n\":{\"type\":"
    "\"integer\",\"minimum\":-5,\"maximum\":120},\"t\":{\"enum\":[\"red\",\"green\",null,[1,{\"a\":2}]]}},"
    "\"required\":[\"n\"],"
    "\"additionalProperties\":false}",
    "{\"type\":\"array\",\"items\":{\"type\":[\"string\",\"number\",\"null\",\"boolean\"]},\"minItems\":2,"
    "\"maxItems\":5}",
    "{\"type\":\"object\",\"properties\":{\"abc\":{\"type\":\"integer\"}},\"additionalProperties\":{\"type\":"
    "\"string\","
    "\"pattern\":\"^[A-Za-z ]+$\"},\"maxProperties\":3}",
    "{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"},\"x\":{\"type\":\"integer\"}},"
    "\"required\":[\"k\","
    "\"x\"]},{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[\"a\",\"ab\"]},\"y\":{\"$ref\":\"#\"}},"
    "\"required\":[\"k\","
    "\"y\"]},{\"type\":\"string\",\"format\":\"date-time\"}]}",
    "true",
};

/* Every token, at every place of several texts: the mask says what the bytes one by one say. */
static void masks_are_what_the_bytes_say(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (size_t s = 0; s < sizeof schemas / sizeof *schemas; s++) {
        struct gs_grammar *grammar = compile(schemas[s]);
        for (int round = 0; round < 3; round++) {
            struct gs_mask *mask = open_mask(grammar);
            struct gs_buffer text = {0};
            struct gs_error error;
            const uint64_t *words;
            for (int step = 0; step < 12; step++) {
                assert_ok(gs_mask_allowed(mask, &words, &error), &error);
                int32_t chosen = -1;
                size_t seen = 0;
                for (int32_t id = 0; (size_t)id < n_vocab; id++) {
                    size_t size = 0;
                    const char *bytes =
                        (size_t)id < gs_vocab_size(vocab) ? gs_vocab_bytes(vocab, id, &size) : NULL;
                    bool special = gs_vocab_is_special(vocab, id);
                    if (id == end_id) {
                        assert_int_equal(is_set(words, id), gs_mask_can_end(mask));
                        continue;
                    }
                    if (!bytes || special) {
                        assert_false(is_set(words, id));
                        continue;
                    }
                    if (is_set(words, id) && random_number(&random) % ++seen == 0)
                        chosen = id;
                    /* All of them would take minutes; those that are allowed, and a part of the others. */
                    if (random_number(&random) % (is_set(words, id) ? 40 : 400) == 0)
                        assert_int_equal(is_set(words, id), leads_on(grammar, &text, bytes, size));
                }
                if (chosen < 0)
                    break;
                size_t size;
                const char *bytes = gs_vocab_bytes(vocab, chosen, &size);
                assert_ok(gs_mask_accept(mask, chosen, &error), &error);
                assert_ok(gs_buffer_append(&text, bytes, size, &error), &error);
            }
            gs_buffer_free(&text);
            gs_mask_close(mask);
        }
        gs_grammar_close(grammar);
    }
}

/* The text that a sampler gives whose logits want `wish` above all; the mask decides. */
static char *sample(struct gs_grammar *grammar, const char *wish, uint64_t seed)
{
    struct gs_sampling sampling = gs_sampling_default();
    struct gs_sampler *sampler;
    struct gs_error error;
    struct gs_buffer text = {0};
    struct gs_mask *mask = open_mask(grammar);
    float *logits = malloc(n_vocab * sizeof *logits);
    const uint64_t *words;
    sampling.seed = seed;
    assert_non_null(logits);
    assert_ok(gs_sampler_open(&sampling, n_vocab, &sampler, &error), &error);
    for (int32_t id = 0; (size_t)id < n_vocab; id++) {
        size_t size = 0;
        const char *bytes = (size_t)id < gs_vocab_size(vocab) ? gs_vocab_bytes(vocab, id, &size) : NULL;
        bool wanted = bytes && memchr(wish, bytes[0], strlen(wish));
        logits[id] = wanted ? 12.0f : (float)(random_number(&seed) % 100) * 0.01f;
    }
    logits[end_id] = 9.0f;
    for (int step = 0; !gs_mask_ended(mask) && step < 3000; step++) {
        int32_t token;
        if (step > 60) /* the wish is granted long enough */
            for (int32_t id = 0; (size_t)id < n_vocab; id++) {
                size_t size = 0;
                const char *bytes =
                    (size_t)id < gs_vocab_size(vocab) ? gs_vocab_bytes(vocab, id, &size) : NULL;
                logits[id] = bytes && size == 1 && memchr("\"}]", bytes[0], 3) ? 20.0f : 0.0f;
            }
        logits[end_id] = step > 60 ? 25.0f : 9.0f;
        assert_ok(gs_mask_allowed(mask, &words, &error), &error);
        assert_ok(gs_sampler_draw_masked(sampler, logits, words, NULL, 0, &token, &error), &error);
        assert_ok(gs_mask_accept(mask, token, &error), &error);
        if (token != end_id) {
            size_t size;
            const char *bytes = gs_vocab_bytes(vocab, token, &size);
            assert_ok(gs_buffer_append(&text, bytes, size, &error), &error);
        }
    }
    assert_true(gs_mask_ended(mask));
    gs_sampler_close(sampler);
    gs_mask_close(mask);
    free(logits);
    return text.data;
}

static void junk_becomes_valid_json(void **state)
{
    (void)state;
    static const char *const wishes[] = {"{[", "\"\\",        " \n", "<|",
                                         "}]", "0123456789.", "xyz", "\xe4\xf0\x80"};
    for (size_t s = 0; s < sizeof schemas / sizeof *schemas; s++) {
        struct gs_grammar *grammar = compile(schemas[s]);
        for (size_t w = 0; w < sizeof wishes / sizeof *wishes; w++) {
            char *text = sample(grammar, wishes[w], 100 * s + w);
            struct gs_error error;
            json_t *value;
            bool accepted;
            assert_ok(gs_json_load("text", text, strlen(text), &value, &error), &error);
            assert_ok(gs_grammar_accepts(grammar, text, strlen(text), &accepted, &error), &error);
            assert_true(accepted);
            json_decref(value);
            free(text);
        }
        gs_grammar_close(grammar);
    }
}

static void the_end_is_where_the_text_ends(void **state)
{
    (void)state;
    struct gs_grammar *grammar = compile("{\"const\":{\"a\":1}}");
    struct gs_mask *mask = open_mask(grammar);
    struct gs_tokens tokens = {0};
    struct gs_error error;
    const uint64_t *words;
    assert_ok(gs_vocab_encode(vocab, "{\"a\":1}", 7, &tokens, &error), &error);
    for (size_t i = 0; i < tokens.count; i++) {
        assert_false(gs_mask_can_end(mask));
        assert_fails(gs_mask_accept(mask, end_id, &error), GS_INVALID_ARGUMENT, "not allowed", &error);
        assert_ok(gs_mask_accept(mask, tokens.ids[i], &error), &error);
    }
    assert_true(gs_mask_can_end(mask));
    assert_false(gs_mask_ended(mask));
    assert_ok(gs_mask_allowed(mask, &words, &error), &error);
    for (int32_t id = 0; (size_t)id < n_vocab; id++)
        assert_int_equal(is_set(words, id), id == end_id);
    assert_ok(gs_mask_accept(mask, end_id, &error), &error);
    assert_true(gs_mask_ended(mask));
    assert_fails(gs_mask_accept(mask, end_id, &error), GS_INVALID_ARGUMENT, "not allowed", &error);
    assert_fails(gs_mask_accept(mask, -1, &error), GS_INVALID_ARGUMENT, "not allowed", &error);
    assert_fails(gs_mask_accept(mask, (int32_t)n_vocab, &error), GS_INVALID_ARGUMENT, "not allowed", &error);
    gs_tokens_free(&tokens);
    gs_mask_close(mask);
    gs_grammar_close(grammar);
}

static void wrong_uses_are_errors(void **state)
{
    (void)state;
    struct gs_grammar *grammar;
    struct gs_mask *mask;
    struct gs_token_trie *other;
    struct gs_error error;
    int32_t ordinary = 100;
    assert_ok(gs_grammar_json_object(&grammar, &error), &error);
    assert_fails(gs_mask_open(grammar, trie, NULL, 0, &mask, &error), GS_INVALID_ARGUMENT, "end token",
                 &error);
    assert_fails(gs_mask_open(grammar, trie, &ordinary, 1, &mask, &error), GS_INVALID_ARGUMENT,
                 "not a special", &error);
    mask = open_mask(grammar);
    assert_ok(gs_token_trie_open(vocab, n_vocab, &other, &error), &error);
    struct gs_mask *second;
    assert_fails(gs_mask_open(grammar, other, &end_id, 1, &second, &error), GS_INVALID_ARGUMENT,
                 "one vocabulary", &error);
    assert_null(second);
    gs_token_trie_close(other);
    assert_fails(gs_token_trie_open(vocab, 10, &other, &error), GS_INVALID_ARGUMENT, "10 logits", &error);
    gs_mask_close(mask);
    gs_grammar_close(grammar);
}

static void texts_are_taken_as_they_are(void **state)
{
    (void)state;
    static const char *const names[] = {"get_weather ", "get_weather_now ", "f "};
    struct gs_grammar *grammar;
    struct gs_error error;
    bool accepted;
    assert_ok(gs_grammar_texts(names, 3, &grammar, &error), &error);
    for (size_t i = 0; i < 3; i++) {
        assert_ok(gs_grammar_accepts(grammar, names[i], strlen(names[i]), &accepted, &error), &error);
        assert_true(accepted);
        assert_ok(gs_grammar_accepts(grammar, names[i], strlen(names[i]) - 1, &accepted, &error), &error);
        assert_false(accepted);
    }
    gs_grammar_close(grammar);
    assert_fails(gs_grammar_texts(names, 0, &grammar, &error), GS_INVALID_ARGUMENT, "at least one", &error);
}

struct worker {
    struct gs_grammar *grammar;
    uint64_t seed;
    uint64_t sum; /* of all masks on the way */
};

static void *run_worker(void *user)
{
    struct worker *worker = user;
    struct gs_error error;
    uint64_t random = worker->seed;
    for (int round = 0; round < 20; round++) {
        struct gs_mask *mask;
        const uint64_t *words;
        if (gs_mask_open(worker->grammar, trie, &end_id, 1, &mask, &error) != GS_OK)
            return NULL;
        for (int step = 0; step < 15 && !gs_mask_ended(mask); step++) {
            if (gs_mask_allowed(mask, &words, &error) != GS_OK)
                break;
            int32_t id = (int32_t)(random_number(&random) % n_vocab);
            while (!is_set(words, id))
                id = (id + 1) % (int32_t)n_vocab;
            for (size_t i = 0; i < (n_vocab + 63) / 64; i++)
                worker->sum = worker->sum * 31 + words[i];
            if (gs_mask_accept(mask, id, &error) != GS_OK)
                break;
        }
        gs_mask_close(mask);
    }
    return NULL;
}

/* A grammar with a cache of a few masks only, used by several threads: all see what one alone sees. */
static void one_grammar_serves_threads(void **state)
{
    (void)state;
    const struct gs_schema_limits limits = {.cache_bytes = 8 * ((n_vocab + 63) / 64) * 8};
    uint64_t alone[4];
    for (int shared = 0; shared < 2; shared++) {
        json_t *schema = json_pack("{s:s}", "type", "object");
        struct gs_grammar *grammar;
        struct gs_error error;
        pthread_t threads[4];
        struct worker workers[4];
        assert_ok(gs_schema_compile(schema, &limits, &grammar, NULL, &error), &error);
        for (size_t i = 0; i < 4; i++) {
            workers[i] = (struct worker){.grammar = grammar, .seed = i + 1};
            if (shared)
                assert_int_equal(pthread_create(&threads[i], NULL, run_worker, &workers[i]), 0);
            else
                run_worker(&workers[i]);
        }
        for (size_t i = 0; i < 4; i++) {
            if (shared)
                pthread_join(threads[i], NULL);
            else
                alone[i] = workers[i].sum;
            assert_true(workers[i].sum == alone[i] && alone[i] != 0);
        }
        gs_grammar_close(grammar);
        json_decref(schema);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_what_the_bytes_say),   cmocka_unit_test(junk_becomes_valid_json),
        cmocka_unit_test(the_end_is_where_the_text_ends), cmocka_unit_test(wrong_uses_are_errors),
        cmocka_unit_test(texts_are_taken_as_they_are),    cmocka_unit_test(one_grammar_serves_threads),
    };
    return cmocka_run_group_tests_name("chat/schema_mask", tests, open_vocabulary, close_vocabulary);
}
