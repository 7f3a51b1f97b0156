#include "cli/interrupt.h"

#include "cli/report.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

/* A signal handler has no other way to its data: the one place with variables of the whole process. */
static struct gs_session *_Atomic session_to_cancel;
static atomic_bool noted; /* an interrupt is waited for by the command */
static atomic_bool interrupted;
static atomic_bool on_terminal;

/* Only atomic stores and write: both are allowed in a handler, and so is gs_session_cancel. */
static void handle_interrupt(int number)
{
    (void)number;
    if (!atomic_load(&noted)) {
        if (atomic_load(&on_terminal)) {
            ssize_t ignored = write(STDERR_FILENO, "\n", 1);
            (void)ignored;
        }
        _exit(GS_EXIT_INTERRUPTED);
    }
    atomic_store(&interrupted, true);
    struct gs_session *session = atomic_load(&session_to_cancel);
    if (session)
        gs_session_cancel(session);
}

/* The second interrupt meets the default action. */
static void install(int flags)
{
    struct sigaction action = {.sa_handler = handle_interrupt}, before;
    action.sa_flags = (int)SA_RESETHAND | flags;
    sigaction(SIGINT, NULL, &before);
    if (before.sa_handler != SIG_IGN) /* a background job of a shell stays deaf */
        sigaction(SIGINT, &action, NULL);
}

void gs_interrupt_install(void)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL);
    atomic_store(&on_terminal, gs_is_terminal(STDERR_FILENO));
    install(SA_RESTART);
}

void gs_interrupt_rearm(void)
{
    gs_interrupt_note(NULL);
    install(0);
    atomic_store(&interrupted, false);
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
