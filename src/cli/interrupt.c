#include "cli/interrupt.h"

#include "cli/report.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <termios.h>
#include <unistd.h>

#define PATIENCE 2   /* interrupts that a command which goes on only notes */
#define TAKES_MS 200 /* for a terminal that is behind */

/* A signal handler has no other way to its data: the one place with variables of the whole process. */
static struct gs_session *_Atomic session_to_cancel;
static atomic_bool noted; /* an interrupt is waited for by the command */
static atomic_bool interrupted;
static atomic_bool on_terminal;
static atomic_bool patient; /* the command goes on after an interrupt */
static atomic_int n_interrupt;
static struct termios terminal_mode; /* as the shell had it */
static atomic_bool keeps_mode, keeps_screen;

/* tcsetattr, poll and write are allowed in a handler. A terminal that takes nothing, as after Ctrl-S, is not
 * waited for: the program could not be ended. */
static void write_to_terminal(const char *text, size_t size)
{
    struct pollfd terminal = {STDERR_FILENO, POLLOUT, 0};
    if (poll(&terminal, 1, TAKES_MS) > 0 && (terminal.revents & POLLOUT)) {
        ssize_t ignored = write(STDERR_FILENO, text, size);
        (void)ignored;
    }
}

static void restore_terminal(void)
{
    static const char plain[] = "\033[?2004l\033[0m"; /* pastes without marks, no colour */
    if (atomic_load(&keeps_mode))
        tcsetattr(STDIN_FILENO, TCSANOW, &terminal_mode);
    if (atomic_load(&keeps_screen))
        write_to_terminal(plain, sizeof plain - 1);
}

/* Lets the default action follow: the signal is held back until this returns. */
static void handle_end(int number)
{
    restore_terminal();
    raise(number);
}

/* Only atomic stores and write: both are allowed in a handler, and so is gs_session_cancel. */
static void handle_interrupt(int number)
{
    (void)number;
    bool enough = atomic_load(&patient) && atomic_fetch_add(&n_interrupt, 1) >= PATIENCE;
    if (!atomic_load(&noted) || enough) {
        restore_terminal();
        if (atomic_load(&on_terminal))
            write_to_terminal("\n", 1);
        _exit(GS_EXIT_INTERRUPTED);
    }
    atomic_store(&interrupted, true);
    struct gs_session *session = atomic_load(&session_to_cancel);
    if (session)
        gs_session_cancel(session);
}

static void install(int number, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, before;
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGTTOU); /* from the background, too, the terminal can be restored */
    sigaction(number, NULL, &before);
    if (before.sa_handler != SIG_IGN) /* a background job of a shell stays deaf */
        sigaction(number, &action, NULL);
}

void gs_interrupt_install(void)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL);
    atomic_store(&on_terminal, gs_is_terminal(STDERR_FILENO));
    install(SIGINT, handle_interrupt,
            (int)SA_RESETHAND | SA_RESTART); /* the second meets the default action */
}

void gs_interrupt_rearm(void)
{
    gs_interrupt_note(NULL);
    atomic_store(&n_interrupt, 0);
    atomic_store(&patient, true);
    install(SIGINT, handle_interrupt, 0);
    atomic_store(&interrupted, false);
}

void gs_interrupt_keep_terminal(void)
{
    atomic_store(&keeps_mode, tcgetattr(STDIN_FILENO, &terminal_mode) == 0);
    atomic_store(&keeps_screen, gs_is_cursor_terminal(STDERR_FILENO));
    install(SIGTERM, handle_end, (int)SA_RESETHAND);
    install(SIGHUP, handle_end, (int)SA_RESETHAND);
}

void gs_interrupt_note(struct gs_session *session)
{
    atomic_store(&session_to_cancel, session);
    atomic_store(&noted, true);
}

void gs_interrupt_forget(void)
{
    atomic_store(&noted, false);
    atomic_store(&session_to_cancel, NULL);
}

bool gs_interrupted(void)
{
    return atomic_load(&interrupted);
}
