/*
 * How long rendering and parsing take: 100,000 generated tokens through the parser, and a request with 200
 * tools and 1 MB of schemas into a prompt. Both must vanish beside a single token of the model.
 *
 *   bench_harmony [TOKENIZER.JSON]
 */
#include "base/clock.h"
#include "chat/assemble.h"
#include "chat/conversation_json.h"
#include "chat/harmony_render.h"
#include "text/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_TOKEN 100000
#define N_TOOL  200
#define N_ROUND 10

static void require(bool ok, const char *what, const struct gs_error *error)
{
    if (ok)
        return;
    fprintf(stderr, "bench_harmony: %s: %s\n", what, error ? error->message : "failed");
    exit(1);
}

/* Turns of reasoning, preamble and call, as the model writes them. */
static void make_tokens(const struct gs_vocab *vocab, struct gs_tokens *tokens)
{
    static const char turn[] =
        "<|channel|>analysis<|message|>The user asks for the weather in Tokyo, and in Zürich; I should look "
        "both "
        "of them up with the tool that was declared, and then compare.<|end|><|start|>assistant<|channel|>"
        "commentary<|message|>Let me look that up for you.<|end|><|start|>assistant<|channel|>commentary "
        "to=functions.get_weather <|constrain|>json<|message|>{\"location\": \"Tokyo\", \"days\": 3}<|call|>"
        "<|start|>assistant";
    struct gs_error error;
    while (tokens->count < N_TOKEN)
        require(gs_vocab_encode_special(vocab, turn, strlen(turn), tokens, &error) == GS_OK, "encode",
                &error);
    tokens->count = N_TOKEN;
}

static double parse_seconds(const struct gs_vocab *vocab, const struct gs_tokens *tokens)
{
    static const struct gs_text names[] = {{"get_weather", 11}};
    struct gs_answer answer = {0};
    struct gs_harmony_parser *parser;
    struct gs_error error;
    const struct gs_harmony_options options = {
        .tools = {.functions = names, .n_function = 1}, .fn = gs_answer_collect, .user = &answer};
    double began = gs_clock_seconds();
    require(gs_harmony_parser_open(vocab, &options, &parser, &error) == GS_OK, "open", &error);
    for (size_t i = 0; i < tokens->count; i++)
        require(gs_harmony_feed(parser, &tokens->ids[i], 1, &error) == GS_OK, "feed", &error);
    require(gs_harmony_finish(parser, &error) == GS_OK, "finish", &error);
    double seconds = gs_clock_seconds() - began;
    gs_harmony_parser_close(parser);
    gs_answer_free(&answer);
    return seconds;
}

/* About 5 KB a tool: nested objects, enums, defaults and long descriptions. */
static json_t *make_request(size_t *size)
{
    json_t *tools = json_array();
    for (int t = 0; t < N_TOOL; t++) {
        json_t *properties = json_object();
        for (int p = 0; p < 16; p++) {
            char name[32];
            snprintf(name, sizeof name, "property_%d", p);
            json_object_set_new(properties, name,
                                json_pack("{s:s,s:s,s:{s:{s:s,s:[s,s,s],s:s},s:{s:s,s:{s:s}}},s:[s]}", "type",
                                          "object", "description",
                                          "What this property is for, in a sentence that is long enough to "
                                          "be like a real one, with "
                                          "a remark on how it is used.",
                                          "properties", "unit", "type", "string", "enum", "celsius",
                                          "fahrenheit", "kelvin", "default", "celsius", "list", "type",
                                          "array", "items", "type", "integer", "required", "unit"));
        }
        json_array_append_new(tools,
                              json_pack("{s:s,s:{s:s+,s:s,s:{s:s,s:o,s:[s]}}}", "type", "function",
                                        "function", "name", "tool_", t % 2 ? "odd" : "even", "description",
                                        "Does something.\nIn two lines.", "parameters", "type", "object",
                                        "properties", properties, "required", "property_0"));
    }
    json_t *request =
        json_pack("{s:[{s:s,s:s}],s:o}", "messages", "role", "user", "content", "hi", "tools", tools);
    char *text = json_dumps(request, JSON_COMPACT);
    require(text != NULL, "request", NULL);
    *size = strlen(text);
    free(text);
    return request;
}

static double render_seconds(const struct gs_vocab *vocab, json_t *request, size_t *n_token)
{
    const struct gs_conversation_settings settings = {.date = "2025-06-28"};
    const struct gs_render_options options = {.drop = GS_DROP_COMPLETED};
    struct gs_conversation conversation;
    struct gs_tokens tokens = {0};
    struct gs_error error;
    double began = gs_clock_seconds();
    require(gs_conversation_from_json(&settings, request, &conversation, &error) == GS_OK, "read", &error);
    require(gs_harmony_render(vocab, &conversation, &options, &tokens, NULL, &error) == GS_OK, "render",
            &error);
    double seconds = gs_clock_seconds() - began;
    *n_token = tokens.count;
    gs_conversation_free(&conversation);
    gs_tokens_free(&tokens);
    return seconds;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "models/demo/tokenizer.json";
    struct gs_vocab *vocab;
    struct gs_error error;
    struct gs_tokens tokens = {0};
    size_t size, n_token = 0;
    double parse = 1e9, render = 1e9;
    require(gs_vocab_open(path, &vocab, &error) == GS_OK, path, &error);
    make_tokens(vocab, &tokens);
    json_t *request = make_request(&size);
    for (int round = 0; round < N_ROUND; round++) {
        double p = parse_seconds(vocab, &tokens), r = render_seconds(vocab, request, &n_token);
        parse = p < parse ? p : parse;
        render = r < render ? r : render;
    }
    printf("harmony parse   %d tokens            %7.2f ms  (%.0f ns a token)\n", N_TOKEN, 1e3 * parse,
           1e9 * parse / N_TOKEN);
    printf("harmony render  %d tools, %zu bytes  %7.2f ms  (%zu tokens)\n", N_TOOL, size, 1e3 * render,
           n_token);
    json_decref(request);
    gs_tokens_free(&tokens);
    gs_vocab_close(vocab);
    return 0;
}
