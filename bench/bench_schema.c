/*
 * Structured output: what a token's mask costs, compiled and cold, over realistic schemas and a full
 * vocabulary.
 *
 *   bench_schema TOKENIZER
 */
#include "base/clock.h"
#include "chat/json_load.h"
#include "chat/schema_mask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sample {
    const char *name, *schema, *text;
};

static const struct sample samples[] = {
    {"weather call",
     "{\"type\":\"object\",\"properties\":{\"location\":{\"type\":\"string\"},\"unit\":{\"type\":\"string\","
     "\"enum\":"
     "[\"celsius\",\"fahrenheit\"]}},\"required\":[\"location\",\"unit\"],\"additionalProperties\":false}",
     "{\"location\": \"San Francisco, California\", \"unit\": \"celsius\"}"},
    {"steps of an answer",
     "{\"type\":\"object\",\"properties\":{\"steps\":{\"type\":\"array\",\"items\":{\"type\":\"object\","
     "\"properties\":"
     "{\"explanation\":{\"type\":\"string\"},\"output\":{\"type\":\"string\"}},\"required\":[\"explanation\","
     "\"output\"],\"additionalProperties\":false}},\"final_answer\":{\"type\":\"string\"}},\"required\":["
     "\"steps\","
     "\"final_answer\"],\"additionalProperties\":false}",
     "{\"steps\": [{\"explanation\": \"Start with the equation and subtract seven from both of its sides.\", "
     "\"output\": \"8x = -30\"}, {\"explanation\": \"Then divide both of them by eight to isolate x.\", "
     "\"output\": "
     "\"x = -30/8\"}, {\"explanation\": \"Simplify the fraction.\", \"output\": \"x = -15/4\"}], "
     "\"final_answer\": "
     "\"x = -15/4, which is -3.75\"}"},
    {"invoice, lengths and patterns",
     "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\",\"pattern\":\"^INV-[0-9]{6}$\"},"
     "\"date\":{"
     "\"type\":\"string\",\"format\":\"date\"},\"customer\":{\"type\":\"string\",\"minLength\":1,"
     "\"maxLength\":80},"
     "\"email\":{\"type\":\"string\",\"format\":\"email\"},\"lines\":{\"type\":\"array\",\"minItems\":1,"
     "\"maxItems\":50,"
     "\"items\":{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\",\"maxLength\":200},"
     "\"quantity\":{"
     "\"type\":\"integer\",\"minimum\":1,\"maximum\":1000},\"price\":{\"type\":\"number\",\"minimum\":0}},"
     "\"required\":["
     "\"text\",\"quantity\",\"price\"],\"additionalProperties\":false}},\"note\":{\"type\":[\"string\","
     "\"null\"]}},"
     "\"required\":[\"id\",\"date\",\"customer\",\"email\",\"lines\",\"note\"],\"additionalProperties\":"
     "false}",
     "{\"id\": \"INV-004217\", \"date\": \"2025-12-03\", \"customer\": \"Jane Q. Miller & Sons\", \"email\": "
     "\"accounts@miller.example.com\", \"lines\": [{\"text\": \"Garden hose, 25 metres\", \"quantity\": 2, "
     "\"price\": 34.95}, {\"text\": \"Delivery within the city\", \"quantity\": 1, \"price\": 9.5}, "
     "{\"text\": "
     "\"Watering can of zinc\", \"quantity\": 4, \"price\": 21.0}], \"note\": \"Please ring twice at the "
     "back door.\"}"},
    {"any object (json_object)", "{\"type\":\"object\"}",
     "{\"name\": \"gossamer\", \"tags\": [\"small\", \"quick\", \"exact\"], \"size\": {\"files\": 214, "
     "\"lines\": 31011}, "
     "\"ready\": true, \"owner\": null, \"summary\": \"A program that runs two models and nothing else.\"}"},
    {"text of one pattern", "{\"type\":\"string\",\"pattern\":\"^[^<>]*$\"}",
     "\"Nothing but words, numbers such as 12 and marks; no angle brackets anywhere in this text.\""},
    {"one pattern, and a length",
     "{\"type\":\"string\",\"pattern\":\"^[^<>]*$\",\"minLength\":3,\"maxLength\":200}",
     "\"Nothing but words, numbers such as 12 and marks; no angle brackets anywhere in this text.\""},
    {"one line", "{\"type\":\"string\",\"pattern\":\"^.{1,120}$\"}",
     "\"Nothing but words, numbers such as 12 and marks; no angle brackets anywhere in this text.\""},
};

struct figures {
    double compile, cold, warm;
    size_t n_tokens;
};

/* One pass over the sample's tokens; returns the seconds spent on masks and moves. */
static double pass(struct gs_grammar *grammar, const struct gs_token_trie *trie,
                   const struct gs_tokens *tokens, int32_t end, struct gs_error *error)
{
    struct gs_mask *mask;
    const uint64_t *words;
    if (gs_mask_open(grammar, trie, &end, 1, &mask, error) != GS_OK)
        return -1;
    double begin = gs_clock_seconds();
    gs_status status = GS_OK;
    for (size_t i = 0; i <= tokens->count && status == GS_OK; i++) {
        status = gs_mask_allowed(mask, &words, error);
        if (status == GS_OK)
            status = gs_mask_accept(mask, i < tokens->count ? tokens->ids[i] : end, error);
    }
    double seconds = gs_clock_seconds() - begin;
    gs_mask_close(mask);
    return status == GS_OK ? seconds : -1;
}

static gs_status measure(const struct sample *sample, const struct gs_vocab *vocab,
                         const struct gs_token_trie *trie, struct figures *figures, struct gs_error *error)
{
    struct gs_tokens tokens = {0};
    json_t *schema = NULL;
    struct gs_grammar *grammar = NULL;
    int32_t end = gs_vocab_special(vocab, "<|return|>");
    gs_status status = gs_json_load("schema", sample->schema, strlen(sample->schema), &schema, error);
    if (status == GS_OK)
        status = gs_vocab_encode(vocab, sample->text, strlen(sample->text), &tokens, error);
    double begin = gs_clock_seconds();
    if (status == GS_OK)
        status = gs_schema_compile(schema, NULL, &grammar, NULL, error);
    figures->compile = gs_clock_seconds() - begin;
    figures->n_tokens = tokens.count + 1;
    if (status == GS_OK) {
        figures->cold = pass(grammar, trie, &tokens, end, error) / (double)figures->n_tokens;
        figures->warm = 1;
        for (int i = 0; i < 20 && figures->cold >= 0; i++) {
            double warm = pass(grammar, trie, &tokens, end, error) / (double)figures->n_tokens;
            figures->warm = warm < figures->warm ? warm : figures->warm;
        }
        status = figures->cold >= 0 ? GS_OK : error->code;
    }
    gs_grammar_close(grammar);
    json_decref(schema);
    gs_tokens_free(&tokens);
    return status;
}

int main(int argc, char **argv)
{
    struct gs_vocab *vocab = NULL;
    struct gs_token_trie *trie = NULL;
    struct gs_error error = {0};
    gs_status status = gs_vocab_open(argc > 1 ? argv[1] : "build/o200k/tokenizer.json", &vocab, &error);
    double begin = gs_clock_seconds();
    if (status == GS_OK)
        status = gs_token_trie_open(vocab, gs_vocab_size(vocab), &trie, &error);
    if (status == GS_OK)
        printf("vocabulary of %zu: tree made in %.0f ms\n%-32s %10s %8s %12s %12s\n", gs_vocab_size(vocab),
               (gs_clock_seconds() - begin) * 1e3, "schema", "compile", "tokens", "first time", "cached");
    for (size_t i = 0; i < sizeof samples / sizeof *samples && status == GS_OK; i++) {
        struct figures f = {0};
        status = measure(&samples[i], vocab, trie, &f, &error);
        if (status == GS_OK)
            printf("%-32s %7.2f ms %8zu %9.1f us %9.1f us\n", samples[i].name, f.compile * 1e3, f.n_tokens,
                   f.cold * 1e6, f.warm * 1e6);
    }
    if (status != GS_OK)
        fprintf(stderr, "%s\n", error.message);
    gs_token_trie_close(trie);
    gs_vocab_close(vocab);
    return status == GS_OK ? 0 : 2;
}
