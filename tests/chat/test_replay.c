/* src/chat/replay.c and its use in harmony_render.c: past calls as they were generated. */
#include "chat/replay.h"

#include "tests/chat/harmony_case.h"

#define CALL_HEADER "<|channel|>commentary to=functions.f json<|message|>"
#define GENERATED                                                                                            \
    "<|channel|>analysis<|message|>think<|end|><|start|>assistant<|channel|>commentary<|message|>pre<|end|>" \
    "<|start|>assistant" CALL_HEADER "{\"a\":1}<|call|>"

struct fixture {
    struct gs_vocab *vocab;
    struct gs_replay *replay;
};

static void remember(struct fixture *f, const char *generated, const char *const *ids)
{
    static const struct gs_declared_tools none = {0};
    struct gs_tokens tokens = {0};
    struct gs_answer answer = {0};
    struct gs_error error;
    assert_ok(gs_vocab_encode_special(f->vocab, generated, strlen(generated), &tokens, &error), &error);
    parse_ids(f->vocab, tokens.ids, tokens.count, 1, &none, false, &answer);
    assert_ok(gs_replay_add(f->replay, tokens.ids, tokens.count, &answer, ids, &error), &error);
    gs_answer_free(&answer);
    gs_tokens_free(&tokens);
}

static void open_fixture(struct fixture *f, size_t max_tokens)
{
    struct gs_error error;
    f->vocab = open_vocab(DEMO_VOCAB);
    assert_ok(gs_replay_open(max_tokens, &f->replay, &error), &error);
}

static void close_fixture(struct fixture *f)
{
    gs_replay_close(f->replay);
    gs_vocab_close(f->vocab);
}

/* The text of the prompt after the system message. */
static void expect(const struct fixture *f, const char *messages, const char *expected)
{
    const struct gs_conversation_settings settings = {.cutoff = ""};
    const struct gs_render_options options = {.replay = f->replay};
    struct gs_conversation conversation;
    struct gs_tokens tokens = {0};
    struct gs_buffer text = {0};
    struct gs_error error;
    json_t *json = parse_json(messages);
    assert_ok(gs_conversation_from_json(&settings, json, &conversation, &error), &error);
    assert_ok(gs_harmony_render(f->vocab, &conversation, &options, &tokens, &text, &error), &error);
    assert_string_equal(strstr(text.data, "<|end|>") + strlen("<|end|>"), expected);
    gs_conversation_free(&conversation);
    gs_tokens_free(&tokens);
    gs_buffer_free(&text);
    json_decref(json);
}

#define Q     "{\"role\":\"user\",\"content\":\"q\"}"
#define ASKED "<|start|>user<|message|>q<|end|>"
#define TURN(before, arguments)                                                                              \
    "{\"role\":\"assistant\"," before                                                                        \
    "\"tool_calls\":[{\"id\":\"c1\",\"function\":{\"name\":\"f\",\"arguments\":\"" arguments "\"}}]}"
#define RESULT    "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"ok\"}"
#define GOT       "<|start|>functions.f to=assistant<|channel|>commentary<|message|>ok<|end|>"
#define ASSISTANT "<|start|>assistant"
#define REFERENCE "<|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>"
#define THINK     "<|start|>assistant<|channel|>analysis<|message|>think<|end|>"
#define PRE       "<|start|>assistant<|channel|>commentary<|message|>pre<|end|>"
#define SAME      "\"reasoning\":\"think\",\"content\":\"pre\","

static void as_generated(void **state)
{
    (void)state;
    static const char *const ids[] = {"c1"};
    struct fixture f;
    open_fixture(&f, 1000);
    remember(&f, GENERATED, ids);
    expect(&f, "[" Q "," TURN(SAME, "{\\\"a\\\":1}") "," RESULT "]", ASKED ASSISTANT GENERATED GOT ASSISTANT);
    /* The client left the reasoning out, and wrote the arguments in its own way. */
    expect(&f, "[" Q "," TURN("\"content\":\"pre\",", "{ \\\"a\\\" : 1 }") "," RESULT "]",
           ASKED ASSISTANT GENERATED GOT ASSISTANT);
    /* Later the turn is complete: its reasoning goes, its other tokens stay. */
    expect(&f,
           "[" Q "," TURN(SAME, "{\\\"a\\\":1}") "," RESULT ",{\"role\":\"assistant\",\"content\":\"a\"}," Q
                                                 "]",
           ASKED PRE ASSISTANT CALL_HEADER
           "{\"a\":1}<|call|>" GOT "<|start|>assistant<|channel|>final<|message|>a<|end|>" ASKED ASSISTANT);
    close_fixture(&f);
}

static void changed_by_the_client(void **state)
{
    (void)state;
    static const char *const ids[] = {"c1"};
    struct fixture f;
    open_fixture(&f, 1000);
    remember(&f, GENERATED, ids);
    expect(&f, "[" Q "," TURN("\"content\":\"pre\",", "{\\\"a\\\":2}") "]",
           ASKED THINK PRE REFERENCE "{\"a\":2}<|call|>" ASSISTANT);
    expect(&f, "[" Q "," TURN("\"reasoning\":\"other\",\"content\":\"pre\",", "{\\\"a\\\":1}") "]",
           ASKED "<|start|>assistant<|channel|>analysis<|message|>other<|end|>" PRE REFERENCE
                 "{\"a\":1}<|call|>" ASSISTANT);
    /* Without the preamble it is not what was generated; the reasoning is there all the same. */
    expect(&f, "[" Q "," TURN("", "{\\\"a\\\":1}") "]", ASKED THINK REFERENCE "{\"a\":1}<|call|>" ASSISTANT);
    close_fixture(&f);
}

static void unfinished_and_unknown(void **state)
{
    (void)state;
    static const char *const ids[] = {"c1"}, *const others[] = {"c2"};
    struct fixture f;
    open_fixture(&f, 1000);
    remember(&f, CALL_HEADER "{\"a\":1}", ids);
    expect(&f, "[" Q "," TURN("", "{\\\"a\\\":1}") "]",
           ASKED ASSISTANT CALL_HEADER "{\"a\":1}<|call|>" ASSISTANT);
    remember(&f, "<|channel|>final<|message|>x<|return|>", others);
    assert_null(gs_replay_find(f.replay, gs_text_of("c2")));
    close_fixture(&f);
    open_fixture(&f, 1000);
    expect(&f, "[" Q "," TURN("", "{\\\"a\\\":1}") "]", ASKED REFERENCE "{\"a\":1}<|call|>" ASSISTANT);
    close_fixture(&f);
    gs_replay_close(NULL);
}

static void bounded(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 100);
    for (size_t i = 0; i < 50; i++) {
        char id[16];
        const char *ids[] = {id};
        snprintf(id, sizeof id, "%zu", i);
        remember(&f, CALL_HEADER "{\"a\":1}<|call|>", ids);
        assert_non_null(gs_replay_find(f.replay, gs_text_of(id)));
    }
    assert_null(gs_replay_find(f.replay, gs_text_of("0")));
    assert_non_null(gs_replay_find(f.replay, gs_text_of("48")));
    close_fixture(&f);
    open_fixture(&f, 0);
    static const char *const ids[] = {"c1"};
    remember(&f, GENERATED, ids);
    assert_non_null(gs_replay_find(f.replay, gs_text_of("c1"))); /* the newest stays */
    close_fixture(&f);
}

/* Short turns are bounded by their number: a million tokens of them would be as many as tokens. */
static void bounded_in_turns(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, SIZE_MAX);
    for (size_t i = 0; i <= GS_REPLAY_MAX_TURNS; i++) {
        char id[16];
        const char *ids[] = {id};
        snprintf(id, sizeof id, "%zu", i);
        remember(&f, CALL_HEADER "{\"a\":1}<|call|>", ids);
    }
    assert_null(gs_replay_find(f.replay, gs_text_of("0")));
    assert_non_null(gs_replay_find(f.replay, gs_text_of("1")));
    assert_non_null(gs_replay_find(f.replay, gs_text_of("4096")));
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_generated),           cmocka_unit_test(changed_by_the_client),
        cmocka_unit_test(unfinished_and_unknown), cmocka_unit_test(bounded),
        cmocka_unit_test(bounded_in_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
