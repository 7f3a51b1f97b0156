/* The parser on random ids, mutated outputs and truncations: what must hold for any of them. */
#include "tests/chat/harmony_check.h"

#include "tests/chat/harmony_case.h"
#include "text/tokens.h"

struct random {
    uint64_t state;
};

static uint64_t draw(struct random *random, uint64_t below)
{
    uint64_t x = random->state += 0x9E3779B97F4A7C15u; /* splitmix64 */
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return (x ^ x >> 31) % below;
}

static const char *const pieces[] = {
    "<|start|>",
    "<|end|>",
    "<|message|>",
    "<|channel|>",
    "<|constrain|>",
    "<|call|>",
    "<|return|>",
    "<|start|>assistant",
    "<|channel|>analysis<|message|>",
    "<|channel|>final<|message|>",
    "<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
    "<|start|>assistant<|channel|>final",
    "assistant",
    "user",
    "functions.f",
    " to=",
    "to=functions.",
    "get_weather",
    "json",
    "code",
    "python",
    "browser.search",
    "analysis",
    "commentary",
    "final",
    " ",
    "\n",
    "Hello there",
    "{\"a\": 1}",
    "<|endoftext|>",
    "<|reserved_200000|>",
    "\xF0\x9F\x92\x96",
    "\xE6\x97\xA5\xE6\x9C\xAC",
    "<",
    "|>",
    "<|end",
    "\xC2\x85",
};

static void append_piece(struct random *random, const struct gs_vocab *vocab, struct gs_tokens *tokens)
{
    if (draw(random, 3) == 0) {
        int32_t id = (int32_t)draw(random, gs_vocab_size(vocab) + 8) - 4;
        assert_int_equal(gs_tokens_append(tokens, id, NULL), GS_OK);
        return;
    }
    const char *piece = pieces[draw(random, sizeof pieces / sizeof *pieces)];
    assert_int_equal(gs_vocab_encode_special(vocab, piece, strlen(piece), tokens, NULL), GS_OK);
}

static void check_tokens(struct random *random, const struct gs_vocab *vocab, const struct gs_tokens *tokens,
                         uint64_t round)
{
    static const char *const declarations[] = {"", "f get_weather json", "+python", "f +python +browser"};
    struct tool_list list;
    declare(&list, declarations[draw(random, 4)]);
    const char *fault = harmony_check(vocab, &list.tools, tokens->ids, tokens->count, 2 + draw(random, 9),
                                      draw(random, 2) == 1);
    if (fault)
        fail_msg("round %llu: %s", (unsigned long long)round, fault);
}

static void random_pieces(void **state)
{
    (void)state;
    struct gs_vocab *vocab = open_vocab(DEMO_VOCAB);
    for (uint64_t round = 0; round < 20000; round++) {
        struct random random = {round};
        struct gs_tokens tokens = {0};
        for (uint64_t n = draw(&random, 24); n > 0; n--)
            append_piece(&random, vocab, &tokens);
        check_tokens(&random, vocab, &tokens, round);
        gs_tokens_free(&tokens);
    }
    gs_vocab_close(vocab);
}

/* A good output cut off at every token, and with tokens left out, doubled and replaced. */
static void mutated_output(void **state)
{
    (void)state;
    static const char output[] =
        "<|channel|>analysis<|message|>The user wants 💖. Let me "
        "see.<|end|><|start|>assistant<|channel|>commentary"
        "<|message|>I will look.<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary "
        "<|constrain|>json<|message|>{\"location\": "
        "\"T\xC5\x8Dky\xC5\x8D\"}<|call|><|start|>assistant<|channel|>final"
        "<|message|>It is 20 °C in 東京.<|return|>";
    struct gs_vocab *vocab = open_vocab(DEMO_VOCAB);
    struct gs_tokens whole = {0};
    assert_int_equal(gs_vocab_encode_special(vocab, output, strlen(output), &whole, NULL), GS_OK);
    for (size_t count = 0; count <= whole.count; count++) {
        struct random random = {count};
        const struct gs_tokens cut = {whole.ids, count, count};
        check_tokens(&random, vocab, &cut, count);
    }
    for (uint64_t round = 0; round < 10000; round++) {
        struct random random = {round};
        struct gs_tokens tokens = {0};
        for (size_t i = 0; i < whole.count; i++) {
            uint64_t what = draw(&random, 40);
            for (uint64_t copies = what == 0 ? 0 : what == 1 ? 2 : 1; copies > 0; copies--)
                assert_int_equal(gs_tokens_append(&tokens, whole.ids[i], NULL), GS_OK);
            if (what == 2)
                append_piece(&random, vocab, &tokens);
            else if (what == 3)
                tokens.ids[tokens.count - 1] = whole.ids[draw(&random, whole.count)];
        }
        check_tokens(&random, vocab, &tokens, round);
        gs_tokens_free(&tokens);
    }
    gs_tokens_free(&whole);
    gs_vocab_close(vocab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_pieces),
        cmocka_unit_test(mutated_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
