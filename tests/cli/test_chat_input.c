/* gossamer chat: what a person's hands do to it: Ctrl-C, the end of the input, windows that close, two at
 * once. */
#include "tests/cli/chat_case.h"

/* After them, since the names of its variables are common. */
#include "cli/interrupt.c"
#include "cli/report.c"

/* An answer that cannot end by itself, which has begun. */
static struct terminal_session start_endless(const struct cli_model *model)
{
    static const char *const stops[] = {"<|return|>", "<|end|>", "<|call|>", "<|endoftext|>"};
    char bias[4][40];
    for (int i = 0; i < 4; i++)
        snprintf(bias[i], sizeof bias[i], "%d=-1e6", (int)gs_vocab_special(model->vocab, stops[i]));
    struct terminal_session s =
        terminal_run("chat", DEMO, "--temp", "0", "--ctx", "60000", "--effort", "low", "--logit-bias",
                     bias[0], "--logit-bias", bias[1], "--logit-bias", bias[2], "--logit-bias", bias[3]);
    terminal_expect(&s, READY);
    terminal_send(&s, "What is the capital of France?\r");
    terminal_expect(&s, "\342\224\202 ");
    return s;
}

/* ---------------------------------------------------------------- Ctrl-C */

/* How a process ends that meets so many interrupts; 0: it does not. */
static int wait_status_after(int count, bool goes_on)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGINT, SIG_DFL);
        gs_interrupt_install();
        if (goes_on)
            gs_interrupt_rearm();
        else
            gs_interrupt_note(NULL);
        for (int i = 0; i < count; i++)
            raise(SIGINT);
        _exit(gs_interrupted() ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_how_many_interrupts_kill(void **state)
{
    (void)state;
    assert_int_equal(wait_status_after(1, false), 0);
    int status = wait_status_after(2, false);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    assert_int_equal(wait_status_after(2, true), 0);
    status = wait_status_after(3, true);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 130);
}

static void test_conversation_survives_two(void **state)
{
    need_line_editor();
    struct terminal_session s = start_endless(*state);
    kill(s.child, SIGINT);
    usleep(500);
    kill(s.child, SIGINT);
    terminal_expect(&s, "stopped; what was said stays");
    terminal_expect(&s, READY);
    terminal_send(&s, "/stats\r");
    terminal_expect(&s, "messages  2, answers 1");
    terminal_expect(&s, READY);
    terminal_send(&s, "/quit\r");
    assert_int_equal(terminal_finish(&s), 0);
    terminal_free(&s);
}

/* Sent by somebody, not typed: the line is given up as by the key. */
static void test_signal_gives_the_line_up(void **state)
{
    need_line_editor();
    struct terminal_session s = start_endless(*state);
    terminal_send(&s, "\003");
    terminal_expect(&s, READY);
    terminal_send(&s, "na\303\257ve");
    terminal_expect(&s, "na\303\257ve");
    kill(s.child, SIGINT);
    terminal_expect(&s, "\n");
    terminal_expect(&s, "Ctrl-C again, Ctrl-D or /quit leave");
    terminal_expect(&s, READY);
    terminal_send(&s, "/stats\r");
    terminal_expect(&s, "messages  2, answers 1");
    terminal_expect(&s, READY);
    terminal_send(&s, "\003");
    terminal_expect(&s, READY);
    kill(s.child, SIGINT); /* the second in a row */
    assert_int_equal(terminal_finish(&s), 0);
    terminal_free(&s);
}

/* Half a character takes no key with it, here the one that ends the line. */
static void test_half_a_character(void **state)
{
    (void)state;
    need_line_editor();
    struct terminal_session s = terminal_run("chat", DEMO, "--temp", "0", "--ctx", "1000");
    terminal_expect(&s, READY);
    terminal_send(&s, "/stats\303\r");
    terminal_expect(&s, "messages  0, answers 0");
    terminal_expect(&s, READY);
    terminal_send(&s, "/quit\r");
    assert_int_equal(terminal_finish(&s), 0);
    terminal_free(&s);
}

/* The terminal is the shell's again, and the line that was typed is kept: even where the terminal takes no
 * output, as after Ctrl-S. */
static void test_ended_from_outside(void **state)
{
    static const struct {
        int number;
        bool stopped;
    } cases[] = {{SIGTERM, false}, {SIGHUP, false}, {SIGTERM, true}};
    need_line_editor();
    const struct cli_model *model = *state;
    struct test_path path = test_path_join(model->root, "gossamer/history");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct termios during, after;
        size_t size;
        unlink(path.text);
        struct terminal_session s = start_endless(model);
        int terminal = open(ptsname(s.channel.ours), O_RDWR | O_NOCTTY);
        assert_int_equal(tcgetattr(terminal, &during), 0);
        assert_false(during.c_lflag & ECHO);
        if (cases[i].stopped)
            assert_int_equal(tcflow(terminal, TCOOFF), 0);
        kill(s.child, cases[i].number);
        int status = process_wait_end(s.child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == cases[i].number);
        assert_int_equal(tcgetattr(terminal, &after), 0);
        assert_true(after.c_lflag & ECHO);
        assert_true(after.c_lflag & ICANON);
        close(terminal);
        close(s.channel.ours);
        terminal_free(&s);
        char *history = test_file_read(path.text, &size);
        assert_true(size > 0 && history[size - 1] == '\n');
        history[size - 1] = '\0';
        assert_non_null(strstr(history, "What\\040is\\040the\\040capital\\040of\\040France?"));
        free(history);
    }
}

/* ---------------------------------------------------------------- lines */

/* Nothing is added at the end. */
static void end_from_outside(struct terminal_session *session)
{
    kill(session->child, SIGTERM);
    assert_int_equal(terminal_finish(session), -1);
    terminal_free(session);
}

static void test_history_is_shared(void **state)
{
    const struct cli_model *model = *state;
    need_line_editor();
    struct test_path script = cli_script_of(model, FINAL("a"), FINAL("b")),
                     path = test_path_join(model->root, "gossamer/history");
    struct stat info;
    unlink(path.text);
    struct terminal_session one = terminal_run("chat", model->words, "--script-tokens", script.text),
                            two = terminal_run("chat", model->words, "--script-tokens", script.text);
    terminal_expect(&one, READY);
    terminal_expect(&two, READY);
    terminal_send(&one, "of \303\251 \\ one\r");
    terminal_expect(&one, READY);
    terminal_send(&two, "of two\r");
    terminal_expect(&two, READY);
    end_from_outside(&one);
    end_from_outside(&two);
    assert_int_equal(stat(path.text, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);

    one = terminal_run("chat", model->words, "--script-tokens", script.text);
    terminal_expect(&one, READY);
    terminal_send(&one, "\033[A");
    terminal_expect(&one, "of two");
    terminal_send(&one, "\033[A\r");
    terminal_expect(&one, "\303\251 \\ one");
    terminal_expect(&one, READY);
    end_from_outside(&one);
}

/* Only at the start, and to the newest lines. */
static void test_history_is_trimmed(void **state)
{
    const struct cli_model *model = *state;
    need_line_editor();
    struct test_path script = cli_script_of(model, FINAL("a")),
                     path = test_path_join(model->root, "gossamer/history");
    size_t size, n_line = 0;
    FILE *file = fopen(path.text, "w");
    assert_non_null(file);
    fputs("_HiStOrY_V2_\n", file);
    for (int i = 0; i < 2500; i++)
        fprintf(file, "line\\040%d\n", i);
    assert_int_equal(fclose(file), 0);
    struct terminal_session s = terminal_run("chat", model->words, "--script-tokens", script.text);
    terminal_expect(&s, READY);
    end_from_outside(&s);
    char *text = test_file_read(path.text, &size);
    for (size_t i = 0; i < size; i++)
        n_line += text[i] == '\n';
    assert_int_equal(n_line, 1001);
    static const char begin[] = "_HiStOrY_V2_\nline\\0401500\n", end[] = "line\\0402499\n";
    assert_memory_equal(text, begin, sizeof begin - 1);
    assert_memory_equal(text + size - (sizeof end - 1), end, sizeof end - 1);
    free(text);
}

static void test_unfinished_input(void **state)
{
    (void)state;
    static const char *const inputs[] = {
        "\"\"\"What is the capital of France?",      "\"\"\"\nWhat is the capital of France?\n",
        "What is the capital of France?\\",          "What is the capital of France?\\\n",
        "\033[200~What is the capital of France?\n",
    };
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        process_expect(chat(inputs[i], DEMO, "--temp", "0", "--ctx", "1000"),
                       "The capital of France is Paris.\n");
    process_expect(chat("\"\"\"", DEMO, "--temp", "0", "--ctx", "1000"), "");
}

/* ---------------------------------------------------------------- failures */

static void test_failure_is_said(void **state)
{
    const struct cli_model *model = *state;
    struct test_path script = cli_script_text(model, "words\n");
    struct process_result result =
        chat("one\n/stats\n", model->words, "--script-tokens", script.text, "--date", "2025-06-28");
    assert_int_equal(result.code, 0);
    const char *said = strstr(result.err, "script line 1, column 1: ");
    assert_non_null(said);
    assert_non_null(strstr(said, "messages  1, answers 0"));
    process_free(&result);
}

static void test_narrow_terminal(void **state)
{
    struct winsize narrow = {.ws_row = 40, .ws_col = 3}, wide = {.ws_row = 40, .ws_col = 90};
    need_line_editor();
    struct terminal_session s = start_endless(*state);
    assert_int_equal(ioctl(s.channel.ours, TIOCSWINSZ, &narrow), 0);
    for (int i = 0; i < 20; i++) /* redrawn */
        terminal_expect(&s, "\r\033[J");
    assert_int_equal(ioctl(s.channel.ours, TIOCSWINSZ, &wide), 0);
    terminal_send(&s, "\003");
    terminal_expect(&s, "stopped; what was said stays");
    terminal_expect(&s, READY);
    terminal_send(&s, "/quit\r");
    assert_int_equal(terminal_finish(&s), 0);
    terminal_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_how_many_interrupts_kill), cmocka_unit_test(test_conversation_survives_two),
        cmocka_unit_test(test_signal_gives_the_line_up), cmocka_unit_test(test_ended_from_outside),
        cmocka_unit_test(test_history_is_shared),        cmocka_unit_test(test_history_is_trimmed),
        cmocka_unit_test(test_unfinished_input),         cmocka_unit_test(test_failure_is_said),
        cmocka_unit_test(test_narrow_terminal),          cmocka_unit_test(test_half_a_character),
    };
    return cmocka_run_group_tests(tests, chat_case_setup, cli_model_teardown);
}
