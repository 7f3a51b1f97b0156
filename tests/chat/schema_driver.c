/*
 * Structured output for tests/chat/compare_schema.py. Reads lines of JSON:
 *
 *   {"schema": S, "instances": [...], "samples": n, "seed": s}
 *
 * and writes for each {"status", "message", "unsupported", "accepts": one for each instance (as the text that
 * json.dumps made), "samples": texts generated through the masks by a source that wants junk}.
 */
#include "chat/json_load.h"
#include "chat/schema_mask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG_ENOUGH 60   /* tokens; from then on the source closes what it can */
#define TOO_LONG    4000 /* tokens */

struct source {
    const struct gs_vocab *vocab;
    size_t n_vocab;
    int32_t end;
    int32_t bytes[256]; /* the token of each byte alone, or -1 */
    uint64_t state;
    bool fault; /* of the masks, told on stderr */
};

static uint64_t next_random(struct source *s)
{
    s->state += 0x9E3779B97F4A7C15u;
    uint64_t z = s->state;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static bool is_set(const uint64_t *words, int32_t id)
{
    return id >= 0 && (words[id / 64] >> (id % 64) & 1);
}

/* A token that is allowed, any one of them with the same probability. */
static int32_t any_token(struct source *s, const uint64_t *words)
{
    size_t n_words = (s->n_vocab + 63) / 64, count = 0;
    for (size_t i = 0; i < n_words; i++)
        count += (size_t)__builtin_popcountll(words[i]);
    if (count == 0)
        return -1;
    size_t pick = (size_t)(next_random(s) % count);
    for (size_t i = 0; i < n_words; i++) {
        size_t here = (size_t)__builtin_popcountll(words[i]);
        if (pick >= here) {
            pick -= here;
            continue;
        }
        uint64_t word = words[i];
        while (pick-- > 0)
            word &= word - 1;
        return (int32_t)(i * 64 + (size_t)__builtin_ctzll(word));
    }
    return -1;
}

/* What a source that wants junk takes: rare bytes and structure first, or anything. */
static int32_t choose(struct source *s, const uint64_t *words, size_t n_tokens)
{
    static const char junk[] = "{}[]\",:\\ \n0-.eEtfnu", closing[] = "\"}]";
    if (n_tokens >= LONG_ENOUGH) {
        if (is_set(words, s->end))
            return s->end;
        for (size_t i = 0; closing[i]; i++)
            if (next_random(s) % 2 != 0 && is_set(words, s->bytes[(unsigned char)closing[i]]))
                return s->bytes[(unsigned char)closing[i]];
        for (int tries = 0; tries < 200; tries++) { /* any character of ASCII */
            int32_t id = s->bytes[' ' + next_random(s) % 95];
            if (is_set(words, id))
                return id;
        }
    }
    for (int tries = 0; tries < 4 && next_random(s) % 2; tries++) {
        int32_t id = s->bytes[(unsigned char)junk[next_random(s) % (sizeof junk - 1)]];
        if (is_set(words, id))
            return id;
    }
    return any_token(s, words);
}

/* One text; NULL if the source found no end, or for a fault of the masks. */
static json_t *generate(struct source *s, struct gs_grammar *grammar, const struct gs_token_trie *trie)
{
    struct gs_mask *mask;
    struct gs_error error;
    struct gs_buffer text = {0};
    const uint64_t *words;
    json_t *out = NULL;
    if (gs_mask_open(grammar, trie, &s->end, 1, &mask, &error) != GS_OK) {
        fprintf(stderr, "%s\n", error.message);
        return NULL;
    }
    for (size_t n = 0; n < TOO_LONG; n++) {
        if (gs_mask_allowed(mask, &words, &error) != GS_OK)
            break;
        int32_t id = choose(s, words, n), other = (int32_t)(next_random(s) % s->n_vocab);
        bool legal = is_set(words, other), can_end = gs_mask_can_end(mask);
        if (id < 0 || can_end != is_set(words, s->end)) {
            fprintf(stderr, "nothing is allowed, or the end where it is not, after %s\n", text.data);
            s->fault = true;
            break;
        }
        if (!legal && gs_mask_accept(mask, other, &error) == GS_OK) {
            fprintf(stderr, "token %d was accepted and not allowed after %s\n", (int)other, text.data);
            s->fault = true;
            break;
        }
        if (gs_mask_accept(mask, id, &error) != GS_OK) {
            fprintf(stderr, "%s after %s\n", error.message, text.data);
            s->fault = true;
            break;
        }
        if (gs_mask_ended(mask)) {
            out = json_stringn(text.data ? text.data : "", text.size);
            break;
        }
        size_t size;
        const char *bytes = gs_vocab_bytes(s->vocab, id, &size);
        gs_buffer_append(&text, bytes, size, NULL);
    }
    gs_buffer_free(&text);
    gs_mask_close(mask);
    return out;
}

static json_t *answer(struct source *s, const struct gs_token_trie *trie, const json_t *request)
{
    static const char *const names[] = {
        [GS_OK] = "ok", [GS_MALFORMED] = "malformed", [GS_UNSUPPORTED] = "unsupported"};
    struct gs_grammar *grammar;
    struct gs_schema_report report = {0};
    struct gs_error error = {0};
    json_t *reply = json_object(), *list = json_array(), *accepts = json_array(), *samples = json_array();
    gs_status status = gs_schema_compile(json_object_get(request, "schema"), NULL, &grammar, &report, &error);
    json_object_set_new(reply, "status",
                        json_string(status <= GS_UNSUPPORTED && names[status] ? names[status] : "failed"));
    json_object_set_new(reply, "message", json_string(error.message));
    for (size_t i = 0; i < report.count; i++)
        json_array_append_new(list, json_pack("[s,s]", report.list[i].keyword, report.list[i].path));
    const json_t *instances = json_object_get(request, "instances");
    for (size_t i = 0; i < json_array_size(instances) && status == GS_OK; i++) {
        const json_t *instance = json_array_get(instances, i);
        bool accepted = false;
        gs_grammar_accepts(grammar, json_string_value(instance), json_string_length(instance), &accepted,
                           &error);
        json_array_append_new(accepts, json_boolean(accepted));
    }
    s->fault = false;
    s->state = (uint64_t)json_integer_value(json_object_get(request, "seed"));
    json_int_t n = json_integer_value(json_object_get(request, "samples"));
    for (json_int_t i = 0; i < n && status == GS_OK; i++) {
        json_t *text = generate(s, grammar, trie);
        json_array_append_new(samples, text ? text : json_null());
    }
    if (status == GS_OK) {
        struct gs_grammar_size size = gs_grammar_size(grammar);
        json_object_set_new(reply, "work", json_integer((json_int_t)size.n_work));
        json_object_set_new(reply, "states", json_integer((json_int_t)size.n_states));
    }
    json_object_set_new(reply, "fault", json_boolean(s->fault));
    json_object_set_new(reply, "unsupported", list);
    json_object_set_new(reply, "accepts", accepts);
    json_object_set_new(reply, "samples", samples);
    gs_grammar_close(grammar);
    return reply;
}

int main(int argc, char **argv)
{
    struct gs_vocab *vocab = NULL;
    struct gs_token_trie *trie = NULL;
    struct gs_error error;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t size;
    if (argc != 2 || gs_vocab_open(argv[1], &vocab, &error) != GS_OK ||
        gs_token_trie_open(vocab, gs_vocab_size(vocab), &trie, &error) != GS_OK) {
        fprintf(stderr, "%s\n", argc == 2 ? error.message : "usage: schema_driver TOKENIZER < requests");
        return 2;
    }
    struct source source = {.vocab = vocab, .n_vocab = gs_vocab_size(vocab)};
    source.end = gs_vocab_special(vocab, "<|return|>");
    memset(source.bytes, 0xFF, sizeof source.bytes);
    for (int32_t id = 0; (size_t)id < source.n_vocab; id++) {
        size_t length;
        const char *bytes = gs_vocab_bytes(vocab, id, &length);
        if (bytes && length == 1)
            source.bytes[(unsigned char)bytes[0]] = id;
    }
    while ((size = getline(&line, &capacity, stdin)) > 0) {
        json_t *request;
        if (gs_json_load("request", line, (size_t)size, &request, &error) != GS_OK) {
            printf("{\"status\": \"broken\"}\n");
            continue;
        }
        json_t *reply = answer(&source, trie, request);
        char *text = json_dumps(reply, JSON_COMPACT);
        printf("%s\n", text);
        fflush(stdout);
        free(text);
        json_decref(reply);
        json_decref(request);
    }
    free(line);
    gs_token_trie_close(trie);
    gs_vocab_close(vocab);
    return 0;
}
