/* src/chat/harmony_parse.c, harmony_header.c, assemble.c: what becomes of good and of damaged output. */
#include "tests/chat/harmony_case.h"

/* A marker in `input` is its one token. Each is run token by token and as a whole. */
struct parse_case {
    const char *tools;
    const char *input;
    const char *reasoning, *content, *calls;
    enum gs_finish finish;
};

#define STOP   GS_FINISH_STOP
#define LENGTH GS_FINISH_LENGTH
#define CALLS  GS_FINISH_TOOL_CALLS
#define FINAL  "<|start|>assistant<|channel|>final<|message|>"

static void run_case(const struct gs_vocab *vocab, const struct parse_case *c)
{
    struct gs_tokens tokens = {0};
    struct gs_error error = {0};
    struct tool_list list;
    declare(&list, c->tools);
    assert_ok(gs_vocab_encode_special(vocab, c->input, strlen(c->input), &tokens, &error), &error);
    for (size_t step = 1; step <= 1000; step *= 10) {
        struct gs_answer answer = {0};
        struct gs_buffer calls = {0};
        parse_ids(vocab, tokens.ids, tokens.count, step, &list.tools, false, &answer);
        print_calls(&answer, &calls);
        if (strcmp(buffer_text(&answer.reasoning), c->reasoning) != 0 ||
            strcmp(buffer_text(&answer.content), c->content) != 0 || strcmp(calls.data, c->calls) != 0 ||
            answer.finish != c->finish)
            fail_msg("%s: reasoning \"%s\", content \"%s\", calls \"%s\", %s", c->input,
                     buffer_text(&answer.reasoning), buffer_text(&answer.content), calls.data,
                     gs_finish_name(answer.finish));
        gs_buffer_free(&calls);
        gs_answer_free(&answer);
    }
    gs_tokens_free(&tokens);
}

static void run_cases(const struct parse_case *cases, size_t count)
{
    static const char *const paths[] = {DEMO_VOCAB, O200K_VOCAB};
    for (size_t v = 0; v < 2; v++) {
        if (access(paths[v], R_OK) != 0)
            continue;
        struct gs_vocab *vocab = open_vocab(paths[v]);
        for (size_t i = 0; i < count; i++)
            run_case(vocab, &cases[i]);
        gs_vocab_close(vocab);
    }
}

#define RUN(cases) run_cases(cases, sizeof(cases) / sizeof *(cases))

static void good_output(void **state)
{
    (void)state;
    static const struct parse_case cases[] = {
        {"", "<|channel|>analysis<|message|>think<|end|>" FINAL "4.<|return|>", "think", "4.", "", STOP},
        {"", FINAL "x<|return|>", "", "x", "", STOP},
        {"", "<|channel|>final<|message|>4.", "", "4.", "", LENGTH},
        {"", "<|channel|>final<|message|>a < b | c > d <b>\n\n<|return|>", "", "a < b | c > d <b>\n\n", "",
         STOP},
        {"", "<|channel|>final<|message|><|return|>", "", "", "", STOP},
        {"",
         "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|"
         ">" FINAL "c<|return|>",
         "ab", "c", "", STOP},
        {"", "<|channel|>final<|message|>x<|endoftext|>", "", "x", "", STOP},
        {"f",
         "<|channel|>analysis<|message|>call it<|end|><|start|>assistant to=functions.f<|channel|>commentary "
         "<|constrain|>json<|message|>{\"a\": 1}<|call|>",
         "call it", "", "f({\"a\": 1})", CALLS},
    };
    RUN(cases);
}

/* R1, R7: the end of the tokens, and closers without a message. */
static void endings(void **state)
{
    (void)state;
    static const struct parse_case cases[] = {
        {"", "", "", "", "", LENGTH},
        {"", "<|channel|>final", "", "", "", LENGTH},
        {"", "<|channel|>final<|return|>", "", "", "", STOP},
        {"", "<|channel|>ana", "", "", "", LENGTH},
        {"", "<|channel|>", "", "", "", LENGTH},
        {"", "<|channel|>final <|constrain|>json", "", "", "", LENGTH},
        {"", "<|channel|>final json", "", "", "", LENGTH},
        {"", " to", "", "", "", LENGTH},
        {"", " to=functions.f", "", "", "", LENGTH},
        {"", "<|channel|>commentary to=functions.f <|constrain|>json", "", "", "", LENGTH},
        {"", "<|channel|>analysis<|message|>half", "half", "", "", LENGTH},
        {"", "<|channel|>analysis<|message|>a<|end|><|start|>assis", "a", "", "", LENGTH},
        {"", "<|channel|>analysis<|message|>a<|end|><|start|>", "a", "", "", LENGTH},
        {"", "<|channel|>final<|message|>a<|return|><|return|>", "", "a", "", STOP},
        {"", "<|channel|>final<|message|>a<|end|><|return|>", "", "a", "", STOP},
        {"", "<|channel|>analysis<|message|>a<|end|><|end|>" FINAL "b<|return|><|end|><|call|>", "a", "b", "",
         STOP},
        {"",
         "<|channel|>commentary to=functions.f<|message|>{}<|call|><|start|>assistant<|channel|>commentary "
         "to=functions.g<|message|>{",
         "", "", "f({})g({)", LENGTH},
        {"", "<|return|>", "", "", "", STOP},
        {"", "<|end|>", "", "", "", LENGTH},
        {"", "<|end|><|end|><|call|><|return|>", "", "", "", STOP},
    };
    RUN(cases);
}

/* R2, R3: text without a header, answers without <|message|>. */
static void missing_headers(void **state)
{
    (void)state;
    static const struct parse_case cases[] = {
        {"", "I must refuse<|end|>" FINAL "no<|return|>", "I must refuse", "no", "", STOP},
        {"", "...\n\nThe  user asks.<|end|>" FINAL "Hi<|return|>", "...\n\nThe  user asks.", "Hi", "", STOP},
        {"", "I must refuse.<|return|>", "", "I must refuse.", "", STOP},
        {"", "  I must  refuse.\n<|return|>", "", "  I must  refuse.\n", "", STOP},
        {"", "I must refuse", "", "I must refuse", "", LENGTH},
        {"", "Yes", "", "Yes", "", LENGTH},
        {"", "I must refuse<|end|>", "", "I must refuse", "", LENGTH},
        {"", "I must refuse<|end|><|return|>", "", "I must refuse", "", STOP},
        {"", "{\"a\": 1}<|return|>", "", "{\"a\": 1}", "", STOP},
        {"", "<|channel|>final<|end|>Here it is.<|return|>", "", "Here it is.", "", STOP},
        {"", "<|channel|>final<|message|>a<|end|>and then more<|return|>", "and then more", "a", "", STOP},
        {"", "thinking about it<|end|>more of it<|end|>the rest<|return|>", "thinking about itmore of it",
         "the rest", "", STOP},
        {"", "We need to think.<|channel|>final<|message|>Hi<|return|>", "We need to think.", "Hi", "", STOP},
        {"", "We need to think.<|start|>assistant<|channel|>final<|message|>Hi<|return|>",
         "We need to think.", "Hi", "", STOP},
        {"f", "I will call functions.f to=5<|return|>", "", "I will call functions.f to=5", "", STOP},
        {"f", "f is what I need<|return|>", "", "f is what I need", "", STOP},
        {"", "user wants this<|return|>", "", "user wants this", "", STOP},
        {"", "assistant<|return|>", "", "", "", STOP},
        {"", "\n<|return|>", "", "", "", STOP},
        {"", "<|channel|>final Hello there<|return|>", "", "Hello there", "", STOP},
        {"", "<|channel|>commentary Hello there<|end|>" FINAL "x<|return|>", "", "Hello therex", "", STOP},
        {"", "<|channel|>final Hello there", "", "Hello there", "", LENGTH},
        {"", "<|channel|>final set to=5 now<|return|>", "", "set to=5 now", "", STOP},
        {"", "<|start|>assistant Hello there<|return|>", "", "Hello there", "", STOP},
        {"", "<|start|>assistant<|channel|>analysis foo<|end|><|start|>assistant<|message|>y<|end|>", "", "y",
         "", LENGTH},
        {"f", "<|channel|>commentary to=functions.f {\"a\": 1}<|call|>", "", "", "f({\"a\": 1})", CALLS},
        {"f", "<|channel|>commentary to=functions.f json {\"a\": 1}<|call|>", "", "", "f({\"a\": 1})", CALLS},
        {"f", "<|channel|>commentary to=functions.f <|constrain|>json {\"a\": 1}<|call|>", "", "",
         "f({\"a\": 1})", CALLS},
        {"f", "<|channel|>commentary to=functions.f<|call|>", "", "", "f()", CALLS},
        {"f", "<|channel|>commentary to=functions.f json{\"a\": 1}<|call|>", "", "", "f({\"a\": 1})", CALLS},
        {"f", "<|channel|>commentary to=functions.f <|constrain|>json{\"a\": 1}<|call|>", "", "",
         "f({\"a\": 1})", CALLS},
        {"f", "<|channel|>commentary to=functions.f <|constrain|>json<|call|>", "", "", "f()", CALLS},
        {"f", "<|channel|>commentary to=functions.f jsonish<|call|>", "", "", "f(jsonish)", CALLS},
        {"f", " to=functions.f<|channel|>commentary to=assistant<|message|>{}<|call|>", "", "", "f({})",
         CALLS},
    };
    RUN(cases);
}

/* R4 to R6, R8, R9, R14, R15, R25. */
static void damaged_headers(void **state)
{
    (void)state;
    static const struct parse_case cases[] = {
        {"", "<|channel|><|message|>Hi<|return|>", "", "Hi", "", STOP},
        {"", "<|message|>Hi<|return|>", "", "Hi", "", STOP},
        {"", "<|channel|> \n<|message|>Hi<|return|>", "", "Hi", "", STOP},
        {"web-browsing",
         "<|channel|>commentary to=functions.web-browsing <|constrain|>json<|message|>{}<|call|>", "", "",
         "web-browsing({})", CALLS},
        {"", "<|channel|>final a b c d<|message|>Hi<|return|>", "", "Hi", "", STOP},
        {"", "<|channel|>analysis<|message|>a<|end|>assistant<|channel|>final<|message|>b<|return|>", "a",
         "b", "", STOP},
        {"", "<|channel|>analysis<|message|>a<|end|><|channel|>final<|message|>b<|return|>", "a", "b", "",
         STOP},
        {"",
         "<|channel|>analysis<|message|>a<|end|>\n<|start|>assistant<|channel|>final<|message|>b<|return|>",
         "a", "b", "", STOP},
        {"", "<|channel|>analysis<|message|>a<|end|><|message|>b<|return|>", "a", "b", "", STOP},
        {"", "<|channel|>commentary?commentary?<|end|>" FINAL "Hi<|return|>", "", "Hi", "", STOP},
        {"", "<|channel|>comment<|message|>pre<|end|>" FINAL "Hi<|return|>", "", "preHi", "", STOP},
        {"", "<|channel|>commentary<|channel|>final<|message|>Hi<|return|>", "", "Hi", "", STOP},
        {"", "<|channel|>commentary to=assistant<|channel|>analysis<|message|>a<|end|>" FINAL "b<|return|>",
         "a", "b", "", STOP},
        {"f", "<|channel|>commentary to=functions.f<|channel|>analysis<|message|>a<|end|>", "a", "", "",
         LENGTH},
        {"", "<|channel|>commentary to=functions.<|start|>assistant<|channel|>final<|message|>a<|return|>",
         "", "a", "", STOP},
        {"", "<|channel|>commentary to=assistant<|message|>a<|return|>", "", "a", "", STOP},
        {"", "<|channel|>final to=all<|message|>a<|return|>", "", "a", "", STOP},
        {"", "<|channel|>commentary to=<|message|>a<|return|>", "", "a", "", STOP},
        {"", "<|start|>assistantassistant<|channel|>final<|message|>a<|return|>", "", "a", "", STOP},
        {"", "<|start|>assistant assistant<|channel|>final<|message|>a<|return|>", "", "a", "", STOP},
        {"", "assistant<|channel|>final<|message|>a<|return|>", "", "a", "", STOP},
        {"", "<|start|>assistant:bob<|channel|>final<|message|>a<|return|>", "", "a", "", STOP},
        {"", "<|start|>weird<|message|>a<|return|>", "", "a", "", STOP},
        {"", "<|start|>weird<|channel|>analysis<|message|>a<|end|>", "a", "", "", LENGTH},
        {"get_weather", "<|start|>get_weather<|channel|>commentary json<|message|>{}<|call|>", "", "",
         "get_weather({})", CALLS},
        {"get_weather",
         "<|start|>functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{}<|call|>", "", "",
         "get_weather({})", CALLS},
        {"user_lookup", "<|start|>user_lookup<|channel|>commentary<|message|>{}<|call|>", "", "",
         "user_lookup({})", CALLS},
        {"", "<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final<|message|>b<|return|>", "a",
         "b", "", STOP},
        {"", "<|channel|>analysis<|message|>a<|channel|>final<|message|>b<|return|>", "a", "b", "", STOP},
        {"", "<|channel|>final<|message|>a<|start|>b<|message|>c<|return|>", "", "ac", "", STOP},
        {"", "<|channel|>final<|message|>a<|message|>b<|constrain|>c<|reserved_200000|>d<|return|>", "",
         "abcd", "", STOP},
    };
    RUN(cases);
}

/* R10, R11, R13, R17, R24, R26. */
static void calls(void **state)
{
    (void)state;
#define TOKYO "{\"location\": \"Tokyo\"}"
#define CALL  "get_weather(" TOKYO ")"
#define CASE(header)                                                                                         \
    {                                                                                                        \
        "get_weather", header "<|message|>" TOKYO "<|call|>", "", "", CALL, CALLS                            \
    }
#define BOTH(header) CASE(header), CASE("<|start|>assistant" header)
    static const struct parse_case cases[] = {
        BOTH("<|channel|>commentary to=functions.get_weather <|constrain|>json"),
        BOTH("<|channel|>commentary to=functions.get_weather<|constrain|>json"),
        BOTH("<|channel|>commentary to=functions.get_weather code"),
        BOTH("<|channel|>commentary to=functions.get_weather json "),
        BOTH("<|channel|>commentary to=functions.get_weather <|constrain|>json "),
        BOTH("<|channel|>commentary to=functions.get_weather <|constrain|>"),
        BOTH("<|channel|>commentary to=functions.get_weather"),
        BOTH("<|channel|>commentary to=get_weather <|constrain|>json"),
        BOTH("<|channel|>analysis to=functions.get_weather code"),
        BOTH("<|channel|>final to=functions.get_weather code"),
        BOTH("<|channel|>commentary json to=functions.get_weather"),
        BOTH("<|channel|>commentary to=functions.get_weatherjson"),
        BOTH("<|channel|>commentary to=functions.get_weathercode"),
        BOTH("<|channel|>commentary to=get_weatherjson"),
        BOTH("<|channel|>commentary to= functions.get_weather json"),
        BOTH("<|channel|>commentaryto=functions.get_weather json"),
        BOTH("<|channel|>commentary functions.get_weather json"),
        BOTH("<|channel|> to=functions.get_weather json"),
        BOTH(" to=functions.get_weather<|channel|>commentary <|constrain|>json"),
        BOTH(" to=functions.get_weather<|channel|>commentary<|constrain|>json"),
        BOTH(" to=functions.get_weather<|channel|>commentary json"),
        BOTH(" to=functions.get_weather<|channel|>commentary"),
        BOTH(" to=functions.get_weather <|constrain|>json"),
        BOTH(" to=functions.get_weather <|constrain|>json<|channel|>commentary"),
        BOTH(" to=functions.get_weather"),
        {"",
         "<|channel|>commentary to=functions.a "
         "<|constrain|>json<|message|>{\"x\":1}<|call|><|start|>assistant"
         "<|channel|>commentary to=functions.b <|constrain|>json<|message|>{\"y\":2}<|call|>",
         "", "", "a({\"x\":1})b({\"y\":2})", CALLS},
        {"json", "<|channel|>commentary to=functions.json json<|message|>{}<|call|>", "", "", "json({})",
         CALLS},
        {"a ajson", "<|channel|>commentary to=functions.ajson<|message|>{}<|call|>", "", "", "ajson({})",
         CALLS},
        {"", "<|channel|>commentary to=functions.ajson<|message|>{}<|call|>", "", "", "ajson({})", CALLS},
        {"ask_followup_question",
         "<|channel|>commentary to=ask_followup_question <|constrain|>json<|message|>{\"question\":\"x\"}",
         "", "", "ask_followup_question({\"question\":\"x\"})", LENGTH},
        {"f", "<|channel|>commentary to=functions.f<|message|>{\"a\":1]}<|call|>", "", "", "f({\"a\":1]})",
         CALLS},
        {"f", "<|channel|>commentary to=functions.f<|message|>{\"a\":", "", "", "f({\"a\":)", LENGTH},
        {"f", "<|channel|>commentary to=functions.f<|message|>{}<|end|>" FINAL "x<|return|>", "", "x",
         "f({})", CALLS},
        {"f", "<|channel|>analysis to=functions.f<|message|>{}<|call|>", "", "", "f({})", CALLS},
        {"f", "<|channel|>commentary to=functions.f(x)<|message|>{}<|call|>", "", "", "f({})", CALLS},
        {"",
         "<|channel|>analysis<|message|>json<|end|><|start|>assistant<|channel|>final "
         "<|constrain|>json<|message|>{\"amount\": 123.45}<|return|>",
         "json", "{\"amount\": 123.45}", "", STOP},
        {"", "<|channel|>final json<|message|>{}<|return|>", "", "{}", "", STOP},
        {"f", "<|channel|>final f<|message|>{}<|return|>", "", "{}", "", STOP},
        {"f", "<|channel|>final functions.f<|message|>{}<|return|>", "", "{}", "", STOP},
        {"", "<|channel|>commentary foo<|message|>x<|return|>", "", "x", "", STOP},
    };
    RUN(cases);
#undef BOTH
#undef CASE
}

/* R18, R19, and messages that are not the assistant's. */
static void other_recipients(void **state)
{
    (void)state;
    static const struct parse_case cases[] = {
        {"", "<|channel|>analysis to=python code<|message|>print(1)<|call|>", "", "", "", STOP},
        {"", "<|channel|>analysis to=browser.search code<|message|>{}<|call|>", "", "", "", STOP},
        {"", "<|channel|>commentary to=container.exec json<|message|>{}<|call|>", "", "", "", STOP},
        {"", "<|channel|>commentary to=functions.python json<|message|>{}<|call|>", "", "", "", STOP},
        {"",
         "<|channel|>analysis<|message|>a<|end|><|start|>assistant to=python<|channel|>analysis "
         "code<|message|>1<|call|>",
         "a", "", "", STOP},
        {"python", "<|channel|>commentary to=functions.python json<|message|>{}<|call|>", "", "",
         "python({})", CALLS},
        {"python", "<|channel|>analysis to=python code<|message|>1<|call|>", "", "", "python(1)", CALLS},
        {"+python", "<|channel|>analysis to=python code<|message|>1<|call|>", "", "", "python(1)", CALLS},
        {"+browser", "<|channel|>analysis to=browser.search code<|message|>{}<|call|>", "", "",
         "browser.search({})", CALLS},
        {"+browser", "<|channel|>analysis to=python code<|message|>1<|call|>", "", "", "", STOP},
        {"", "<|channel|>commentary to=functions.pythonic<|message|>{}<|call|>", "", "", "pythonic({})",
         CALLS},
        {"",
         "<|channel|>commentary<|message|>pre<|end|><|start|>assistant<|channel|>commentary "
         "to=functions.f<|message|>{}<|call|>",
         "", "pre", "f({})", CALLS},
        {"", "<|channel|>final<|message|>a<|end|><|start|>user<|message|>b<|end|>" FINAL "c<|return|>", "",
         "ac", "", STOP},
        {"f",
         "<|channel|>commentary to=functions.f<|message|>{}<|call|><|start|>functions.f "
         "to=assistant<|channel|>"
         "commentary<|message|>made up<|end|>" FINAL "c<|return|>",
         "", "c", "f({})", CALLS},
        {"", "<|start|>system<|message|>s<|end|><|start|>developer<|message|>d<|end|>" FINAL "c<|return|>",
         "", "c", "", STOP},
    };
    RUN(cases);
}

static void check_ids(const char *tools, const int32_t *ids, size_t count, const char *reasoning,
                      const char *content, const char *calls_text)
{
    struct gs_vocab *vocab = open_o200k();
    if (!vocab)
        skip();
    struct tool_list list;
    declare(&list, tools);
    for (size_t step = 1; step <= 1000; step *= 10) {
        struct gs_answer answer = {0};
        struct gs_buffer text = {0};
        parse_ids(vocab, ids, count, step, &list.tools, false, &answer);
        print_calls(&answer, &text);
        assert_string_equal(buffer_text(&answer.reasoning), reasoning);
        assert_string_equal(buffer_text(&answer.content), content);
        assert_string_equal(text.data, calls_text);
        gs_buffer_free(&text);
        gs_answer_free(&answer);
    }
    gs_vocab_close(vocab);
}

#define CHECK_IDS(tools, ids, ...) check_ids(tools, ids, sizeof(ids) / sizeof *(ids), __VA_ARGS__)

static void known_ids(void **state)
{
    (void)state;
    static const int32_t basic[] = {200005, 35644, 200008, 1844,   31064,  25,     392,    4827,  382,
                                    220,    17,    659,    220,    17,     16842,  12295,  81645, 13,
                                    51441,  6052,  13,     200007, 200006, 173781, 200005, 17196, 200008,
                                    17,     659,   220,    17,     314,    220,    19,     13,    200002};
    static const int32_t bare[] = {2161,   976,    1825,   382,   57246,  15543, 13,    200007,
                                   200006, 173781, 200005, 17196, 200008, 12194, 200002};
    static const int32_t weather[] = {
        200005, 35644, 200008, 1844,  31064,  25,    392,    4827,  382,  290,    11122,  306,    40510,
        16842,  1416,  1309,   316,   1199,   37342, 170154, 4584,  13,   200007, 200006, 173781, 200005,
        35644,  316,   28,     29712, 170154, 3490,  200008, 10848, 7693, 1243,   392,    173844, 18583};
    static const int32_t heart[] = {200005, 17196, 200008, 31446, 244, 200002};
    CHECK_IDS("", basic, "User asks: \"What is 2 + 2?\" Simple arithmetic. Provide answer.", "2 + 2 = 4.",
              "");
    CHECK_IDS("", bare, "...\n\nThe user is requesting instructions.", "Hi", "");
    CHECK_IDS("lookup_weather", weather,
              "User asks: \"What is the weather in Tokyo?\" We need to use lookup_weather tool.", "",
              "lookup_weather({\"location\": \"Tokyo\"})");
    CHECK_IDS("", heart, "", "\xF0\x9F\x92\x96", "");
}

/* ---------------------------------------------------------------- the reference's vectors */

/* Where gossamer reads a stream otherwise than openai-harmony, on purpose. */
struct difference {
    const char *name;
    const char *reasoning, *content, *calls;
};

static const struct difference differences[] = {
    {"G content type only w/ constrain", "", "{}", ""}, /* no recipient "<|constrain|>json" */
    {"G2", "", "{}", ""},
    {"O start inside content", "", "ac", ""},
    {"P header with start again", "", "x", ""},
    {"Q nonstrict missing message", "I must refuse", "no", ""},
    {"U to= empty", "", "x", ""},
    /* errors there */
    {"I2 unknown role alone", "", "r", ""},
    {"I3 unknown role + nothing", "", "r", ""},
    {"J2 user:name", "", "", ""},
    {"K empty channel", "", "x", ""},
    {"L text before start", "", "x", ""},
    {"M truncated header", "", "", ""},
    {"N empty tokens", "", "", ""},
    {"Q2 strict", "I must refuse", "no", ""},
};

/* What the reference's messages are as one answer. */
static void append_message(const json_t *message, struct gs_buffer *reasoning, struct gs_buffer *content,
                           struct gs_buffer *calls_text)
{
    struct gs_text role = gs_text_of(json_string_value(json_object_get(message, "role")));
    struct gs_text channel = gs_text_of(json_string_value(json_object_get(message, "channel")));
    const char *recipient = json_string_value(json_object_get(message, "recipient"));
    const char *text = json_string_value(json_object_get(message, "content"));
    if (!gs_text_is(role, "assistant"))
        return;
    if (recipient)
        gs_buffer_print(calls_text, NULL, "%s(%s)",
                        strncmp(recipient, "functions.", 10) == 0 ? recipient + 10 : recipient, text);
    else
        gs_buffer_append_text(gs_text_is(channel, "analysis") ? reasoning : content, text, NULL);
}

static void vectors(void **state)
{
    (void)state;
    struct gs_vocab *vocab = open_vocab(DEMO_VOCAB);
    json_t *cases = load_json("tests/data/chat/harmony_parse.json"), *c, *message;
    size_t i, m, n_different = 0;
    assert_int_equal(json_array_size(cases), 28);
    json_array_foreach(cases, i, c)
    {
        static const struct gs_declared_tools none = {0};
        struct gs_buffer reasoning = {0}, content = {0}, calls_text = {0}, found = {0};
        const char *name = json_string_value(json_object_get(c, "name"));
        const char *text = json_string_value(json_object_get(c, "text"));
        const struct difference *other = NULL;
        struct gs_tokens tokens = {0};
        struct gs_answer answer = {0};
        for (size_t d = 0; d < sizeof differences / sizeof *differences; d++)
            if (strcmp(differences[d].name, name) == 0)
                other = &differences[d];
        json_array_foreach(json_object_get(c, "result"), m, message)
            append_message(message, &reasoning, &content, &calls_text);
        assert_int_equal(gs_vocab_encode_special(vocab, text, strlen(text), &tokens, NULL), GS_OK);
        parse_ids(vocab, tokens.ids, tokens.count, 1, &none, json_is_null(json_object_get(c, "role")),
                  &answer);
        print_calls(&answer, &found);
        if (strcmp(buffer_text(&answer.reasoning), other ? other->reasoning : buffer_text(&reasoning)) != 0 ||
            strcmp(buffer_text(&answer.content), other ? other->content : buffer_text(&content)) != 0 ||
            strcmp(found.data, other ? other->calls : buffer_text(&calls_text)) != 0)
            fail_msg("%s: reasoning \"%s\", content \"%s\", calls \"%s\"", name,
                     buffer_text(&answer.reasoning), buffer_text(&answer.content), found.data);
        n_different += other != NULL;
        gs_buffer_free(&reasoning);
        gs_buffer_free(&content);
        gs_buffer_free(&calls_text);
        gs_buffer_free(&found);
        gs_tokens_free(&tokens);
        gs_answer_free(&answer);
    }
    assert_int_equal(n_different, sizeof differences / sizeof *differences);
    json_decref(cases);
    gs_vocab_close(vocab);
}

/* ---------------------------------------------------------------- events */

struct trace {
    struct gs_buffer text;
};

static gs_status record(void *user, const struct gs_harmony_event *event, struct gs_error *error)
{
    static const char *const names[] = {"text", "call", "message", "turn"};
    static const char *const kinds[] = {"reasoning", "preamble", "final", "call", "hidden"};
    struct trace *trace = user;
    gs_status status = gs_buffer_print(&trace->text, error, "%s", names[event->event]);
    if (status == GS_OK && event->event != GS_HARMONY_TURN)
        status = gs_buffer_print(&trace->text, error, " %zu %s", event->message, kinds[event->kind]);
    if (status == GS_OK && event->text.bytes)
        status = gs_buffer_print(&trace->text, error, " [%.*s]", (int)event->text.size, event->text.bytes);
    if (status == GS_OK && event->event == GS_HARMONY_MESSAGE)
        status = gs_buffer_print(&trace->text, error, " %zu-%zu%s", event->begin, event->end,
                                 event->cut ? " cut" : "");
    return status == GS_OK ? gs_buffer_append_text(&trace->text, "\n", error) : status;
}

static void expect_trace(const int32_t *ids, size_t count, const struct gs_vocab *vocab, const char *expected)
{
    struct trace trace = {{0}};
    struct gs_error error = {0};
    struct gs_harmony_parser *parser;
    const struct gs_harmony_options options = {.fn = record, .user = &trace};
    assert_ok(gs_harmony_parser_open(vocab, &options, &parser, &error), &error);
    assert_ok(gs_harmony_feed(parser, ids, count, &error), &error);
    assert_ok(gs_harmony_finish(parser, &error), &error);
    assert_string_equal(trace.text.data, expected);
    gs_harmony_parser_close(parser);
    gs_buffer_free(&trace.text);
}

static void event_order(void **state)
{
    (void)state;
    static const char input[] =
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant to=functions.f<|channel|>"
        "commentary json<|message|>{<|call|>";
    struct gs_vocab *vocab = open_vocab(DEMO_VOCAB);
    struct gs_tokens tokens = {0};
    char expected[256];
    assert_int_equal(gs_vocab_encode_special(vocab, input, strlen(input), &tokens, NULL), GS_OK);
    size_t first = 0;
    while (tokens.ids[first] != gs_vocab_special(vocab, "<|end|>"))
        first++;
    snprintf(expected, sizeof expected,
             "text 0 reasoning [a]\nmessage 0 reasoning 0-%zu\ncall 1 call [f]\ntext 1 call [{]\n"
             "message 1 call %zu-%zu\nturn\n",
             first + 1, first + 1, tokens.count);
    expect_trace(tokens.ids, tokens.count, vocab, expected);
    gs_tokens_free(&tokens);
    gs_vocab_close(vocab);
}

/* R23: characters over tokens, ill-formed parts, ids without a token. */
static void characters(void **state)
{
    (void)state;
    struct gs_vocab *vocab = open_o200k();
    if (!vocab)
        skip();
    static const int32_t heart[] = {200005, 17196, 200008, 31446, 244, 200002};
    expect_trace(heart, 6, vocab, "text 0 final [\xF0\x9F\x92\x96]\nmessage 0 final 0-6\nturn\n");
    static const int32_t cut[] = {200005, 35644,  200008, 31446,  200007, 200006,
                                  173781, 200005, 17196,  200008, 0};
    expect_trace(cut, 11, vocab,
                 "text 0 reasoning [\xEF\xBF\xBD]\nmessage 0 reasoning 0-5\ntext 1 final [!]\n"
                 "message 1 final 5-11 cut\nturn\n");
    static const int32_t broken[] = {200005, 17196, 200008, 31446, 0, 200002};
    expect_trace(broken, 6, vocab,
                 "text 0 final [\xEF\xBF\xBD]\ntext 0 final [!]\nmessage 0 final 0-6\nturn\n");
    static const int32_t unknown[] = {200005, 17196, 200008, 0, 201088, -5, INT32_MAX, 0, 200002};
    expect_trace(unknown, 9, vocab,
                 "text 0 final [!]\ntext 0 final [\xEF\xBF\xBD]\ntext 0 final [\xEF\xBF\xBD]\n"
                 "text 0 final [\xEF\xBF\xBD]\ntext 0 final [!]\nmessage 0 final 0-9\nturn\n");
    gs_vocab_close(vocab);
}

/* R4: two parsers at once. */
static void interleaved(void **state)
{
    (void)state;
    static const char *const inputs[] = {
        "<|channel|>analysis<|message|>aa<|end|>" FINAL "bb<|return|>",
        "<|channel|>commentary to=functions.f json<|message|>{\"x\":1}<|call|>"};
    struct gs_vocab *vocab = open_vocab(DEMO_VOCAB);
    struct gs_answer answers[2] = {{.n_call = 0}};
    struct gs_harmony_parser *parsers[2];
    struct gs_tokens tokens[2] = {{.count = 0}};
    struct gs_error error;
    for (size_t i = 0; i < 2; i++) {
        const struct gs_harmony_options options = {.fn = gs_answer_collect, .user = &answers[i]};
        assert_ok(gs_harmony_parser_open(vocab, &options, &parsers[i], &error), &error);
        assert_int_equal(gs_vocab_encode_special(vocab, inputs[i], strlen(inputs[i]), &tokens[i], NULL),
                         GS_OK);
    }
    for (size_t t = 0; t < tokens[0].count || t < tokens[1].count; t++)
        for (size_t i = 0; i < 2; i++)
            if (t < tokens[i].count)
                assert_ok(gs_harmony_feed(parsers[i], &tokens[i].ids[t], 1, &error), &error);
    for (size_t i = 0; i < 2; i++) {
        assert_ok(gs_harmony_finish(parsers[i], &error), &error);
        gs_harmony_parser_close(parsers[i]);
        gs_tokens_free(&tokens[i]);
    }
    assert_string_equal(answers[0].reasoning.data, "aa");
    assert_string_equal(answers[0].content.data, "bb");
    assert_int_equal(answers[0].n_call, 0);
    assert_int_equal(answers[1].n_call, 1);
    assert_string_equal(answers[1].calls[0].arguments.data, "{\"x\":1}");
    gs_answer_free(&answers[0]);
    gs_answer_free(&answers[1]);
    gs_vocab_close(vocab);
}

static gs_status refuse(void *user, const struct gs_harmony_event *event, struct gs_error *error)
{
    (void)user;
    (void)event;
    if (error)
        *error = (struct gs_error){GS_CANCELLED, "no"};
    return GS_CANCELLED;
}

static void callback_ends_the_feed(void **state)
{
    (void)state;
    static const char input[] = "<|channel|>final<|message|>abc";
    struct gs_vocab *vocab = open_vocab(DEMO_VOCAB);
    struct gs_tokens tokens = {0};
    struct gs_harmony_parser *parser;
    struct gs_error error;
    const struct gs_harmony_options options = {.fn = refuse};
    assert_int_equal(gs_vocab_encode_special(vocab, input, strlen(input), &tokens, NULL), GS_OK);
    assert_ok(gs_harmony_parser_open(vocab, &options, &parser, &error), &error);
    assert_fails(gs_harmony_feed(parser, tokens.ids, tokens.count, &error), GS_CANCELLED, "no", &error);
    gs_harmony_parser_close(parser);
    gs_harmony_parser_close(NULL);
    gs_tokens_free(&tokens);
    gs_vocab_close(vocab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_output),     cmocka_unit_test(endings),
        cmocka_unit_test(missing_headers), cmocka_unit_test(damaged_headers),
        cmocka_unit_test(calls),           cmocka_unit_test(other_recipients),
        cmocka_unit_test(known_ids),       cmocka_unit_test(vectors),
        cmocka_unit_test(event_order),     cmocka_unit_test(characters),
        cmocka_unit_test(interleaved),     cmocka_unit_test(callback_ends_the_feed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
