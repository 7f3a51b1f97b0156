/* gossamer chat: through pipes for what is said and kept, at a terminal for what a person sees and does. */
#include "tests/cli/chat_case.h"

#include <jansson.h>

#define TOOLS                                                                                                \
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"Gets the current "     \
    "weather in a location.\",\"parameters\":{\"type\":\"object\",\"properties\":{\"location\":{\"type\":"   \
    "\"string\",\"description\":\"The name of the city\"}},\"required\":[\"location\"]}}}]"
#define CALL                                                                                                 \
    "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"location\": "             \
    "\"Rome\"}<|call|>"
#define THOUGHT "<|channel|>analysis<|message|>I think so.<|end|><|start|>assistant"

static int set_up(void **state)
{
    return chat_case_setup_tools(state, TOOLS);
}

/* ---------------------------------------------------------------- through pipes */

/* The messages of a saved conversation. */
static json_t *saved_messages(const char *path)
{
    json_t *document = json_load_file(path, 0, NULL);
    assert_non_null(document);
    json_t *messages = json_incref(json_object_get(document, "messages"));
    json_decref(document);
    return messages;
}

static const char *text_of(const json_t *messages, size_t index, const char *key)
{
    const char *text = json_string_value(json_object_get(json_array_get(messages, index), key));
    return text ? text : "(nothing)";
}

static void test_answers(void **state)
{
    (void)state;
    struct process_result result = chat("What is the capital of France?\n\nWhat is the capital of Japan?\n"
                                        "What is the code of Anna?\n",
                                        DEMO, "--temp", "0", "--ctx", "1000");
    assert_int_equal(
        strncmp(result.out, "The capital of France is Paris.\nThe capital of Japan is Tokyo.\n", 63), 0);
    assert_string_equal(result.err, ""); /* nobody is there */
    process_free(&result);

    /* What was said before counts. */
    result = chat("The code of Anna is 4711.\nWhat is the code of Anna?\n", DEMO, "--temp", "0", "--ctx",
                  "1000", "--no-date");
    assert_non_null(strstr(result.out, "The code of Anna is 4711.\n"));
    process_free(&result);
}

/* The number before `label` in "... 12 label". */
static size_t number_before(const char *text, const char *label)
{
    const char *at = strstr(text, label);
    assert_non_null(at);
    while (at > text && at[-1] >= '0' && at[-1] <= '9')
        at--;
    return strtoul(at, NULL, 10);
}

/* A new turn reads its new tokens alone, even though the reasoning of the last one goes. */
static void test_only_new_tokens_are_read(void **state)
{
    (void)state;
    struct process_result one =
        chat("What is the capital of France?\n/stats\n", DEMO, "--temp", "0", "--ctx", "1000");
    struct process_result two =
        chat("What is the capital of France?\nWhat is the capital of Japan?\n/stats\n", DEMO, "--temp", "0",
             "--ctx", "1000");
    size_t first = number_before(one.err, " tokens at ");
    const char *read_one = strstr(one.err, "read "), *read_two = strstr(two.err, "read ");
    assert_non_null(read_one);
    assert_non_null(read_two);
    size_t n_one = number_before(read_one, " tokens at"), n_two = number_before(read_two, " tokens at");
    assert_true(first > 0 && n_one > 90);
    /* <|channel|>final<|message|> and the answer, then the new message: no reasoning, nothing twice. */
    assert_in_range(n_two - n_one, 15, 32);
    process_free(&one);
    process_free(&two);
}

/* Tokens of prompts that were run, as /stats says. */
static size_t count_read(const struct cli_model *model, const char *input)
{
    struct test_path tools = test_path_join(model->root, "tools.json");
    struct process_result result = chat(input, DEMO, "--temp", "0", "--ctx", "1000", "--tools", tools.text);
    const char *read = strstr(result.err, "read ");
    assert_non_null(read);
    size_t count = number_before(read, " tokens at");
    process_free(&result);
    return count;
}

/* The same after a turn of calls, whose reasoning lies farther back than the rings of the windows reach. */
static void test_nothing_is_read_twice_after_calls(void **state)
{
    char result[2400] = "{\"temperature\": 21, \"words\": \"", one[2600], two[2700];
    for (int i = 0; i < 500; i++)
        strcat(result, " the");
    snprintf(one, sizeof one, "What is the weather in Tokyo?\n%s\"}\n/stats\n", result);
    snprintf(two, sizeof two, "What is the weather in Tokyo?\n%s\"}\nWhere am I?\nx\n/stats\n", result);
    size_t n_one = count_read(*state, one), n_two = count_read(*state, two);
    assert_true(n_one > 700);
    assert_in_range(n_two - n_one, 500, 700); /* the result again, but not the 200 tokens before the call */
}

static void test_lines_of_a_message(void **state)
{
    const struct cli_model *model = *state;
    struct test_path script = cli_script_of(model, FINAL("a"), FINAL("b"), FINAL("c"), FINAL("d")),
                     path = test_path_join(model->root, "lines.json");
    char input[2000];
    snprintf(input, sizeof input,
             "one\\\ntwo\n\"\"\"three\n\nfour\n\"\"\"\n\"\"\"five\"\"\"\n//six\xFF\n/save %s\n", path.text);
    struct process_result result = chat(input, model->words, "--script-tokens", script.text);
    assert_string_equal(result.out, "a\nb\nc\nd\n");
    json_t *messages = saved_messages(path.text);
    assert_int_equal(json_array_size(messages), 8);
    assert_string_equal(text_of(messages, 0, "content"), "one\ntwo");
    assert_string_equal(text_of(messages, 2, "content"), "three\n\nfour");
    assert_string_equal(text_of(messages, 4, "content"), "five");
    assert_string_equal(text_of(messages, 6, "content"), "/six\xEF\xBF\xBD");
    json_decref(messages);
    process_free(&result);
}

static void test_edits(void **state)
{
    const struct cli_model *model = *state;
    struct test_path script =
        cli_script_of(model, THOUGHT FINAL("a"), FINAL("b"), FINAL("c"), FINAL("d"), FINAL("e"));
    struct test_path path = test_path_join(model->root, "edits.json");
    char input[2000];
    snprintf(input, sizeof input,
             "/retry\n/undo\none\n/think\n/retry\ntwo\n/undo\n/effort high\n/effort extreme\n/system Be "
             "brief.\n/system\nthree\n/think\n/save %s\n/clear\n/sav\n/bin/ls is\n/quit\nnever\n",
             path.text);
    struct process_result result = chat(input, model->words, "--script-tokens", script.text);
    assert_string_equal(result.out, "a\nb\nc\nd\ne\n");
    assert_non_null(strstr(result.err, "there is nothing to answer yet\nthere is nothing to forget\n"));
    assert_non_null(strstr(result.err, "I think so.\n"));
    assert_non_null(strstr(result.err, "no reasoning in the last answer\n"));
    assert_non_null(strstr(result.err, "reasoning effort: high\n/effort: low, medium or high is expected"));
    assert_non_null(strstr(result.err, "  Be brief.\n"));
    assert_non_null(strstr(result.err, "unknown command /sav: did you mean /save?\n"));
    json_t *messages = saved_messages(path.text);
    assert_int_equal(json_array_size(messages), 5);
    assert_string_equal(text_of(messages, 0, "role"), "system");
    assert_string_equal(text_of(messages, 1, "content"), "one");
    assert_string_equal(text_of(messages, 2, "content"), "b");
    assert_string_equal(text_of(messages, 3, "content"), "three");
    json_decref(messages);
    process_free(&result);
}

static void test_calls(void **state)
{
    const struct cli_model *model = *state;
    struct test_path script =
        cli_script_of(model, CALL, FINAL("one"), CALL, FINAL("two"), CALL, CALL, FINAL("three"), CALL);
    struct test_path tools = test_path_join(model->root, "tools.json"),
                     path = test_path_join(model->root, "calls.json");
    char input[2000];
    snprintf(input, sizeof input, "a\nn\nb\ny\nc\nalways\n/save %s\n", path.text);
    struct process_result result =
        chat(input, model->words, "--script-tokens", script.text, "--tools", tools.text, "--tool-command",
             "cat; printf \" of $GOSSAMER_FUNCTION\"; exit 3");
    assert_string_equal(result.out, "one\ntwo\nthree\n");
    json_t *messages = saved_messages(path.text);
    static const char ran[] = "{\"location\": \"Rome\"} of get_weather\n[exit code 3]";
    assert_int_equal(json_array_size(messages), 14);
    assert_string_equal(text_of(messages, 2, "content"), "The user did not allow this call.");
    assert_string_equal(text_of(messages, 2, "tool_call_id"), "call_0");
    assert_string_equal(text_of(messages, 6, "content"), ran);
    assert_string_equal(text_of(messages, 10, "content"), ran);
    assert_string_equal(text_of(messages, 12, "content"), ran); /* without asking again */
    assert_string_equal(text_of(messages, 12, "tool_call_id"), "call_3");
    json_decref(messages);
    process_free(&result);
}

static void test_typed_and_unknown_calls(void **state)
{
    const struct cli_model *model = *state;
    struct test_path script = cli_script_of(
        model, CALL, FINAL("one"), "<|channel|>commentary to=functions.format_disk<|message|>{}<|call|>",
        FINAL("two"), "<|channel|>commentary to=functions.get_weather<|message|>{\"lo");
    struct test_path tools = test_path_join(model->root, "tools.json"),
                     path = test_path_join(model->root, "typed.json");
    char input[2000];
    snprintf(input, sizeof input, "a\n21 degrees\nb\nc\n/save %s\n", path.text);
    struct process_result result =
        chat(input, model->words, "--script-tokens", script.text, "--tools", tools.text);
    assert_string_equal(result.out, "one\ntwo\n");
    assert_non_null(strstr(result.err, "format_disk {}\n"));
    assert_non_null(strstr(result.err, "a call was cut off: it is not made\n"));
    json_t *messages = saved_messages(path.text);
    assert_string_equal(text_of(messages, 2, "content"), "21 degrees");
    assert_string_equal(text_of(messages, 6, "content"), "There is no function format_disk.");
    assert_null(json_object_get(json_array_get(messages, json_array_size(messages) - 1), "tool_calls"));
    json_decref(messages);
    process_free(&result);
}

/* A command that neither reads its input nor ends its line, with much of both. */
static void test_large_calls(void **state)
{
    const struct cli_model *model = *state;
    char *text = malloc(400100);
    assert_non_null(text);
    strcpy(text, "<|channel|>commentary to=functions.get_weather<|message|>");
    size_t size = strlen(text);
    memset(text + size, 'x', 300000);
    strcpy(text + size + 300000, "<|call|>");
    struct test_path script = cli_script_of(model, text, FINAL("done"), text, FINAL("done"));
    struct test_path tools = test_path_join(model->root, "tools.json");
    struct process_result result = chat("a\ny\n", model->words, "--script-tokens", script.text, "--tools",
                                        tools.text, "--tool-command", "head -c 300000 /dev/zero");
    assert_string_equal(result.out, "done\n");
    process_free(&result);
    result = chat("a\ny\n", model->words, "--script-tokens", script.text, "--tools", tools.text,
                  "--tool-command", "cat");
    assert_string_equal(result.out, "done\n");
    process_free(&result);
    free(text);
}

static void test_context_is_full(void **state)
{
    (void)state;
    struct process_result result =
        chat("What is the capital of France?\nWhat is the capital of Japan?\n/stats\n", DEMO, "--temp", "0",
             "--ctx", "120");
    assert_non_null(strstr(result.err, "the context of 120 tokens is full"));
    assert_non_null(strstr(result.err, " tokens and needs room for an answer, but the context holds 120"));
    assert_non_null(strstr(result.err, "your message was not taken"));
    assert_non_null(strstr(result.err, "messages  2, answers 1"));
    process_free(&result);
}

/* ---------------------------------------------------------------- on the disk */

static void test_saved_and_loaded(void **state)
{
    const struct cli_model *model = *state;
    struct test_path tools = test_path_join(model->root, "tools.json"),
                     path = test_path_join(model->root, "gossamer/conversations/trip.json"),
                     kv = test_path_join(model->root, "gossamer/conversations/trip.json.kv");
    struct process_result result =
        chat("What is the capital of France?\nWhat is the weather in Tokyo?\ny\n/save trip\n", DEMO, "--temp",
             "0", "--ctx", "1000", "--tools", tools.text, "--tool-command",
             "printf '{\"temperature\": 21, \"sky\": \"sunny\"}'", "--date", "2027-05-14");
    assert_int_equal(access(path.text, F_OK), 0);
    assert_int_equal(access(kv.text, F_OK), 0);
    process_free(&result);

    /* The whole of the past comes from the snapshot, the call's tokens included. */
    static const char question[] = "What is the capital of Japan?\n/stats\n";
    result = chat(question, DEMO, "--temp", "0", "--ctx", "1000", "--load", "trip");
    assert_string_equal(result.out, "The capital of Japan is Tokyo.\n");
    assert_non_null(strstr(result.err, "loaded 6 messages"));
    assert_in_range(number_before(strstr(result.err, "read "), " tokens at"), 5, 15);
    process_free(&result);

    /* A damaged one, and one of another model, are ignored with one line. */
    size_t size;
    char *bytes = test_file_read(kv.text, &size);
    bytes[size / 2] ^= 1;
    test_file_write(kv.text, bytes, size);
    free(bytes);
    result = chat(question, DEMO, "--temp", "0", "--ctx", "1000", "--load", "trip");
    assert_string_equal(result.out, "The capital of Japan is Tokyo.\n");
    assert_non_null(strstr(result.err, "the cache's snapshot is ignored: "));
    assert_non_null(strstr(result.err, "damaged"));
    assert_true(number_before(strstr(result.err, "read "), " tokens at") > 100);
    process_free(&result);

    /* Another vocabulary's tokens are not believed: the texts are. */
    result = chat("/save other\n", model->folder, "--ctx", "1000", "--load", "trip", "--no-snapshot");
    assert_non_null(strstr(result.err, "the cache's snapshot is ignored: "));
    process_free(&result);
}

static void test_bad_conversations(void **state)
{
    const struct cli_model *model = *state;
    struct test_path script = cli_script_of(model, FINAL("a")), path = test_path_join(model->root, "x.json");
    static const char *const bad[][2] = {
        {"{", "x.json"},
        {"3", "an array"},
        {"{\"messages\":[{\"role\":\"pope\"}]}", "messages[0].role"},
        {"{\"messages\":[],\"reasoning_effort\":\"vast\"}", "reasoning_effort"},
        {"{\"messages\":[],\"tools\":7}", "tools"},
    };
    char input[2000];
    snprintf(input, sizeof input, "/load %s\n/load\n/load none\n", path.text);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        test_file_write(path.text, bad[i][0], strlen(bad[i][0]));
        struct process_result result = chat(input, model->words, "--script-tokens", script.text);
        const char *said = strstr(result.err, "not loaded: ");
        assert_non_null(said);
        if (!strstr(said, bad[i][1]))
            fail_msg("\"%s\" lacks \"%s\"", said, bad[i][1]);
        assert_non_null(strstr(result.err, "/load needs the name"));
        process_free(&result);
    }
    struct process_options none = {0};
    struct process_result result =
        process_run_as(none, "chat", model->words, "--script-tokens", script.text, "--load", "/no/file");
    assert_int_equal(result.code, 2);
    process_free(&result);
    /* Tokens that are not what the message says, or no tokens at all. */
    static const char odd[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":null,"
        "\"tool_calls\":[{\"id\":\"call_18446744073709551615\",\"type\":\"function\",\"function\":{\"name\":"
        "\"f\",\"arguments\":\"{}\"}}],\"tokens\":[1,2,-7,\"x\"]},{\"role\":\"tool\",\"tool_call_id\":"
        "\"call_18446744073709551615\",\"content\":\"y\"}]}";
    test_file_write(path.text, odd, strlen(odd));
    snprintf(input, sizeof input, "/load %s\nhello\n", path.text);
    result = chat(input, model->words, "--script-tokens", script.text);
    assert_string_equal(result.out, "a\n");
    process_free(&result);
}

/* ---------------------------------------------------------------- at a terminal */

static void test_a_persons_view(void **state)
{
    (void)state;
    need_line_editor();
    struct terminal_session s = terminal_run("chat", DEMO, "--temp", "0", "--ctx", "1000");
    terminal_expect(&s, "/help lists the commands");
    terminal_expect(&s, "> ");
    terminal_send(&s, "What is the capital of France?\r");
    terminal_expect(&s, "thought for ");
    terminal_expect(&s, " tokens; /think shows it");
    terminal_expect(&s, "The capital of France is Paris.\r\n");
    terminal_expect(&s, " tok/s · first after ");
    terminal_expect(&s, " new, 0 reused · context ");
    terminal_expect(&s, " of 1000");
    terminal_send(&s, "/think\r");
    terminal_expect(&s, "│ The user asks for the capital of France.");
    terminal_send(&s, "/he\t\r");
    terminal_expect(&s, "/effort LEVEL");
    terminal_expect(&s, READY);
    terminal_send(&s, "half a line\003");
    terminal_expect(&s, "Ctrl-C again, Ctrl-D or /quit leave");
    terminal_send(&s, "/stats\r");
    terminal_expect(&s, "messages  2, answers 1");
    terminal_expect(&s, READY);
    terminal_send(&s, "\003");
    terminal_expect(&s, "Ctrl-C again");
    terminal_expect(&s, READY);
    terminal_send(&s, "\003");
    assert_int_equal(terminal_finish(&s), 0);
    terminal_free(&s);
}

static void test_interrupted_answer(void **state)
{
    const struct cli_model *model = *state;
    struct test_path path = test_path_join(model->root, "stopped.json");
    static const char *const stops[] = {"<|return|>", "<|end|>", "<|call|>", "<|endoftext|>"};
    char bias[4][40], input[1100];
    for (int i = 0; i < 4; i++) /* it can never end by itself */
        snprintf(bias[i], sizeof bias[i], "%d=-1e6", (int)gs_vocab_special(model->vocab, stops[i]));
    struct terminal_session s =
        terminal_run("chat", DEMO, "--temp", "0", "--ctx", "60000", "--effort", "low", "--logit-bias",
                     bias[0], "--logit-bias", bias[1], "--logit-bias", bias[2], "--logit-bias", bias[3]);
    terminal_send(&s, "What is the capital of France?\r");
    terminal_expect(&s, "\342\224\202 "); /* the reasoning runs */
    terminal_send(&s, "\003");
    terminal_expect(&s, "stopped; what was said stays");
    snprintf(input, sizeof input, "/save %s\r", path.text);
    terminal_send(&s, input);
    terminal_expect(&s, "saved 2 messages");
    terminal_send(&s, "/quit\r");
    assert_int_equal(terminal_finish(&s), 0);
    terminal_free(&s);
    json_t *messages = saved_messages(path.text);
    assert_true(json_string_length(json_object_get(json_array_get(messages, 1), "reasoning")) > 0);
    assert_string_equal(text_of(messages, 1, "content"), "");
    json_decref(messages);
}

static void test_paste(void **state)
{
    const struct cli_model *model = *state;
    struct test_path script = cli_script_of(model, FINAL("first"), FINAL("second")),
                     path = test_path_join(model->root, "paste.json");
    char input[1100];
    struct terminal_session s = terminal_run("chat", model->words, "--script-tokens", script.text);
    terminal_expect(&s, "> ");
    terminal_send(&s, "\033[200~one\r/quit\rthree\r\033[201~");
    terminal_expect(&s, "three");
    terminal_send(&s, "\r");
    terminal_expect(&s, "first");
    terminal_send(&s, "see \033[200~1\r2\r3\r4\r5\r6\r7\r8\r9\033[201~ there\r");
    terminal_expect(&s, "second");
    snprintf(input, sizeof input, "/save %s\r", path.text);
    terminal_send(&s, input);
    terminal_expect(&s, "saved 4 messages");
    terminal_send(&s, "/quit\r");
    assert_int_equal(terminal_finish(&s), 0);
    terminal_free(&s);
    json_t *messages = saved_messages(path.text);
    assert_string_equal(text_of(messages, 0, "content"), "one\n/quit\nthree");
    assert_string_equal(text_of(messages, 2, "content"), "see 1\n2\n3\n4\n5\n6\n7\n8\n9 there");
    json_decref(messages);
}

static void test_text_is_cleaned_and_drawn(void **state)
{
    const struct cli_model *model = *state;
    struct test_path script = cli_script_of(
        model, "<|channel|>analysis<|message|>see\033]0;title\007n<|end|><|start|>assistant"
               "<|channel|>final<|message|># He\033[31mad\n**bold** \033]52;c;QUJD\007end<|return|>");
    struct terminal_session s = terminal_run("chat", model->words, "--script-tokens", script.text);
    terminal_send(&s, "x\r");
    terminal_expect(&s, "\033[1mHead\033[22m\r\n\033[1mbold\033[22m end\r\n");
    terminal_send(&s, "/think\r");
    terminal_expect(&s, "seen");
    terminal_send(&s, "/quit\r");
    assert_int_equal(terminal_finish(&s), 0);
    assert_null(strstr(s.channel.data, "title"));
    assert_null(strstr(s.channel.data, "QUJD"));
    terminal_free(&s);
}

static struct termios mode_of_a_new_terminal(void)
{
    struct termios mode;
    int ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(ours >= 0);
    assert_int_equal(grantpt(ours), 0);
    assert_int_equal(unlockpt(ours), 0);
    int theirs = open(ptsname(ours), O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_int_equal(tcgetattr(theirs, &mode), 0);
    close(theirs);
    close(ours);
    return mode;
}

/* The shell gets its terminal back as it was. */
static void test_terminal_is_restored(void **state)
{
    const struct cli_model *model = *state;
    need_line_editor();
    struct test_path script = cli_script_of(model, FINAL("a"));
    struct termios before = mode_of_a_new_terminal(), after;
    struct terminal_session s = terminal_run("chat", model->words, "--script-tokens", script.text);
    int terminal = open(ptsname(s.channel.ours), O_RDWR | O_NOCTTY);
    terminal_expect(&s, READY);
    terminal_send(&s, "x\r");
    terminal_expect(&s, READY);
    terminal_send(&s, "/quit\r");
    process_wait_end(s.child);
    assert_int_equal(tcgetattr(terminal, &after), 0);
    assert_int_equal(after.c_lflag, before.c_lflag);
    assert_int_equal(after.c_iflag, before.c_iflag);
    assert_int_equal(after.c_cc[VINTR], 3);
    close(terminal);
    close(s.channel.ours);
    terminal_free(&s);
}

/* A terminal that can only print: no escape sequence at all. */
static void test_dumb_terminal(void **state)
{
    const struct cli_model *model = *state;
    struct test_path script = cli_script_of(model, THOUGHT FINAL("**bold**"));
    struct terminal_session s = terminal_start(
        (const char *const[]){"chat", model->words, "--script-tokens", script.text, NULL}, "dumb");
    terminal_expect(&s, "> ");
    terminal_send(&s, "x\r");
    terminal_expect(&s, "**bold**\r\n");
    terminal_send(&s, "\004");
    assert_int_equal(terminal_finish(&s), 0);
    assert_null(strchr(s.channel.data, '\033'));
    terminal_free(&s);
}

static void test_refusals(void **state)
{
    const struct cli_model *model = *state;
    process_refuses(process_run("chat"), "no model: gossamer chat MODEL");
    process_refuses(process_run("chat", "/no/model"), "/no/model");
    process_refuses(process_run("chat", model->words), "words");
    process_refuses(process_run("chat", DEMO, "--effort", "extreme"), "not \"extreme\"");
    process_refuses(process_run("chat", DEMO, "--tools", "/no/tools"), "/no/tools");
    process_refuses(process_run("chat", DEMO, "--date", "2025-13-01"), "such as 2025-06-28");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_only_new_tokens_are_read),
        cmocka_unit_test(test_nothing_is_read_twice_after_calls),
        cmocka_unit_test(test_lines_of_a_message),
        cmocka_unit_test(test_edits),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_typed_and_unknown_calls),
        cmocka_unit_test(test_large_calls),
        cmocka_unit_test(test_context_is_full),
        cmocka_unit_test(test_saved_and_loaded),
        cmocka_unit_test(test_bad_conversations),
        cmocka_unit_test(test_a_persons_view),
        cmocka_unit_test(test_interrupted_answer),
        cmocka_unit_test(test_paste),
        cmocka_unit_test(test_text_is_cleaned_and_drawn),
        cmocka_unit_test(test_terminal_is_restored),
        cmocka_unit_test(test_dumb_terminal),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, set_up, cli_model_teardown);
}
