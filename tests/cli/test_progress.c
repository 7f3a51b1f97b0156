/* The progress bar: one line that is never wider than the window, and what gives way in a narrow one. */
#include "cli/progress.c"
#include "cli/report.c"
#include "tests/support/check.h"

#include <errno.h>
#include <fcntl.h>
#include <termios.h>

struct window {
    int master, terminal, saved;
};

static struct window window_open(unsigned short columns)
{
    struct window window;
    struct termios mode;
    struct winsize size = {.ws_row = 24, .ws_col = columns};
    window.master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(window.master >= 0);
    assert_int_equal(grantpt(window.master), 0);
    assert_int_equal(unlockpt(window.master), 0);
    window.terminal = open(ptsname(window.master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(window.terminal >= 0);
    assert_int_equal(tcgetattr(window.terminal, &mode), 0);
    cfmakeraw(&mode);
    assert_int_equal(tcsetattr(window.terminal, TCSANOW, &mode), 0);
    assert_int_equal(ioctl(window.terminal, TIOCSWINSZ, &size), 0);
    window.saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    assert_true(window.saved >= 0);
    return window;
}

struct shown {
    char text[2000];
    int columns;
};

/* What is drawn at a third of the work in a window of so many columns, without the erasing before it. */
static struct shown draw_in(unsigned short columns, const char *locale, const char *label, bool in_bytes,
                            double rate)
{
    static const char erase[] = "\r\033[K";
    struct window window = window_open(columns);
    struct shown shown = {.columns = 0};
    struct gs_progress progress;
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", locale, 1);
    assert_true(dup2(window.terminal, STDERR_FILENO) >= 0);
    gs_progress_begin(&progress, label, in_bytes, 0);
    progress.began -= 10.0;
    progress.rated = rate > 0.0;
    progress.rate = rate;
    gs_progress_update(&progress, 1u << 30, 3u << 30);
    assert_true(dup2(window.saved, STDERR_FILENO) >= 0);
    ssize_t n = read(window.master, shown.text, sizeof shown.text - 1);
    close(window.saved);
    close(window.terminal);
    close(window.master);
    assert_true(n >= (ssize_t)sizeof erase - 1);
    assert_memory_equal(shown.text, erase, sizeof erase - 1);
    memmove(shown.text, shown.text + sizeof erase - 1, (size_t)n - sizeof erase + 1);
    shown.text[(size_t)n - sizeof erase + 1] = '\0';
    for (const char *c = shown.text; *c; c++)
        shown.columns += ((unsigned char)*c & 0xC0) != 0x80;
    return shown;
}

#define LONG_NAME "model-00001-of-00002.safetensors"

static void never_wider_than_the_window(void **state)
{
    (void)state;
    static const char *const locales[] = {"C", "C.UTF-8"};
    for (unsigned short columns = 1; columns <= 140; columns++)
        for (int i = 0; i < 4; i++) {
            struct shown shown = draw_in(columns, locales[i % 2], LONG_NAME, i < 2, i < 2 ? 98e6 : 0.0);
            if (shown.columns > columns - 1)
                fail_msg("%d columns in a window of %d: %s", shown.columns, columns, shown.text);
            assert_null(strchr(shown.text, '\n'));
        }
}

static void what_gives_way(void **state)
{
    (void)state;
    static const struct {
        unsigned short columns;
        const char *utf8, *text;
    } cases[] = {
        {140, "C",
         LONG_NAME " #############...........................  33%  1.00 GiB of 3.00 GiB, 93.5 MiB/s, "
                   "22 s left"},
        {100, "C", LONG_NAME " ####.........  33%  1.00 GiB of 3.00 GiB, 93.5 MiB/s, 22 s left"},
        {84, "C", LONG_NAME "   33%  1.00 GiB of 3.00 GiB, 93.5 MiB/s, 22 s left"},
        {83, "C", LONG_NAME " ######.............  33%  1.00 GiB of 3.00 GiB"},
        {61, "C", LONG_NAME "   33%  1.00 GiB of 3.00 GiB"},
        {59, "C", "model-00001-of-00002.safete...   33%  1.00 GiB of 3.00 GiB"},
        {50, "C", "model-00001-of-000...   33%  1.00 GiB of 3.00 GiB"},
        {50, "C.UTF-8", "model-00001-of-00002…   33%  1.00 GiB of 3.00 GiB"},
        {34, "C", "   33%  1.00 GiB of 3.00 GiB"},
        {20, "C", "   33%  1.00 GiB of"},
        {2, "C", " "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct shown shown = draw_in(cases[i].columns, cases[i].utf8, LONG_NAME, true, 98e6);
        assert_string_equal(shown.text, cases[i].text);
    }
}

/* A label that no line holds is cut as well. */
static void long_labels(void **state)
{
    (void)state;
    char label[4000];
    memset(label, 'x', sizeof label);
    label[sizeof label - 1] = '\0';
    struct shown shown = draw_in(60, "C", label, true, 0.0);
    assert_int_equal(shown.columns, 59);
    assert_non_null(strstr(shown.text, "xxx...   33%  1.00 GiB"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_wider_than_the_window),
        cmocka_unit_test(what_gives_way),
        cmocka_unit_test(long_labels),
    };
    return cmocka_run_group_tests_name("cli/progress", tests, NULL, NULL);
}
