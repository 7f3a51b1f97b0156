/* src/chat/schema_free.c: masks of plain states are those of a walk through the whole vocabulary, to the bit.
 */
#include "chat/schema_free.h"

#include "chat/json_load.h"
#include "chat/schema_grammar.h"
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *path = "models/demo";
static struct gs_vocab *vocab;
static struct gs_token_trie *trie;

static int open_vocabulary(void **state)
{
    (void)state;
    struct gs_error error;
    assert_ok(gs_vocab_open(path, &vocab, &error), &error);
    assert_ok(gs_token_trie_open(vocab, gs_vocab_size(vocab) + 3, &trie, &error), &error);
    return 0;
}

static int close_vocabulary(void **state)
{
    (void)state;
    gs_token_trie_close(trie);
    gs_vocab_close(vocab);
    return 0;
}

/* Where the walks left the automaton: their order does not matter. */
struct left {
    size_t count;
    uint64_t sum;
};

static gs_status note(void *user, uint32_t node, uint8_t label)
{
    struct left *left = user;
    uint64_t x = ((uint64_t)node << 8 | label) * 0x9E3779B97F4A7C15u;
    left->count++;
    left->sum += x ^ x >> 29;
    return GS_OK;
}

/* How many states of the schema's automata are plain; each is compared. */
static size_t compare(const char *text)
{
    struct gs_grammar *grammar;
    struct gs_error error;
    json_t *schema;
    size_t n_plain = 0;
    uint64_t *quick = calloc(trie->n_words, sizeof *quick), *whole = calloc(trie->n_words, sizeof *whole);
    assert_ok(gs_json_load("schema", text, strlen(text), &schema, &error), &error);
    assert_ok(gs_schema_compile(schema, NULL, &grammar, NULL, &error), &error);
    for (size_t d = 0; d < grammar->n_dfas; d++) {
        const struct gs_dfa *dfa = &grammar->dfas[d];
        struct gs_free_memo memo = {0};
        struct gs_free_run run;
        for (uint32_t state = 0; state < dfa->n_states; state++) {
            if (!gs_free_find(trie, dfa, state, &memo, &run))
                continue;
            struct left left = {0}, expected = {0};
            struct gs_lex_walk lex = {.dfa = dfa, .state = state, .leave = note, .user = &expected};
            memset(quick, 0, trie->n_words * sizeof *quick);
            memset(whole, 0, trie->n_words * sizeof *whole);
            assert_int_equal(gs_free_walk(trie, &memo, &run, note, &left, quick), GS_OK);
            assert_int_equal(gs_trie_walk(trie, 0, &lex, whole), GS_OK);
            assert_memory_equal(quick, whole, trie->n_words * sizeof *whole);
            assert_int_equal(left.count, expected.count);
            assert_int_equal(left.sum, expected.sum);
            n_plain += d > 0; /* dfas[0] is that of any string */
        }
        gs_free_memo_close(&memo);
    }
    gs_grammar_close(grammar);
    json_decref(schema);
    free(quick);
    free(whole);
    return n_plain;
}

static void plain_states_give_the_same_masks(void **state)
{
    (void)state;
    static const struct {
        const char *schema;
        size_t n_plain; /* at least */
    } cases[] = {
        {"{\"type\":\"string\",\"pattern\":\"^[^<>]*$\"}", 1},
        {"{\"type\":\"string\",\"pattern\":\"^[^\\\"\\\\\\\\]*$\"}", 1},
        {"{\"type\":\"string\",\"pattern\":\"^[ -~]*$\"}", 1},
        {"{\"type\":\"string\",\"pattern\":\"^[^/]{3,40}$\"}", 40},
        {"{\"type\":\"string\",\"pattern\":\"^[^/]*$\",\"minLength\":2,\"maxLength\":70}", 70},
        {"{\"type\":\"string\",\"pattern\":\"^x.*$\"}", 1},
        {"{\"type\":\"string\",\"pattern\":\"^[^ ]+ [^<]*$\"}", 1},
        {"{\"type\":\"string\",\"pattern\":\"^[A-Za-z0-9 ,.]*$\"}", 1},
        {"{\"type\":\"string\",\"pattern\":\"^[^0-9]*$\"}", 1},
        {"{\"type\":\"object\",\"patternProperties\":{\"^[^.]*$\":{\"type\":\"integer\"}},"
         "\"additionalProperties\":false}",
         1},
        {"{\"type\":\"string\",\"pattern\":\"^[^\\u00e9]*$\"}", 0}, /* one character beyond ASCII: walked */
        {"{\"type\":\"string\",\"pattern\":\"^.{2,30}$\"}", 30},
        {"{\"type\":\"string\",\"pattern\":\"^[^\\u2018]*$\"}", 1}, /* such a one that begins with 0xE2 */
        {"{\"type\":\"string\",\"pattern\":\"^[a-z]*$\"}", 0},
        {"{\"type\":\"string\",\"pattern\":\"foo\"}", 0},
        {"{\"type\":\"string\",\"format\":\"email\"}", 20},
        {"{\"type\":\"string\",\"pattern\":\"^[a-zA-Z]'t$\"}",
         1}, /* what leads on from the end of a run alone */
        {"{\"type\":\"string\",\"pattern\":\"^[a-zA-Z]+( [0-9]{2,}|-[^@]*)?$\"}", 1},
        {"{\"type\":\"string\",\"pattern\":\"^([a-zA-Z0-9]{1,9}-){1,3}[^x]+$\"}", 20},
        {"{\"type\":\"number\",\"minimum\":3}", 0},
        {"{\"enum\":[\"a\",\"aaaaaaaaaaaaaaaaaaaa\",7]}", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n_plain = compare(cases[i].schema);
        if (n_plain < cases[i].n_plain)
            fail_msg("%s: %zu plain states", cases[i].schema, n_plain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plain_states_give_the_same_masks)};
    int failed = cmocka_run_group_tests(tests, open_vocabulary, close_vocabulary);
    path = "build/o200k/tokenizer.json"; /* the published one, where setup has made it */
    if (access(path, R_OK) == 0)
        failed += cmocka_run_group_tests(tests, open_vocabulary, close_vocabulary);
    return failed;
}
