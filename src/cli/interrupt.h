/*
 * Ctrl-C. The first ends what is running and lets the command say its last line; before there is anything
 * to end well (loading, reading a prompt) it ends the process with exit code 130 at once. The second kills,
 * except in a command that goes on after an interrupt: there the third ends it.
 */
#ifndef GS_CLI_INTERRUPT_H
#define GS_CLI_INTERRUPT_H

#include "gossamer.h"

/* Installs the handler, and ignores SIGPIPE: a reader that goes away is seen as EPIPE. */
void gs_interrupt_install(void);

/* From now on an interrupt is only noted, and cancels this session, if there is one (NULL: none). */
void gs_interrupt_note(struct gs_session *session);

/* Back to the start: no session, an interrupt ends the process. Before the session is closed. */
void gs_interrupt_forget(void);

bool gs_interrupted(void);

/*
 * For a command that goes on after an interrupt: forgets one that was noted and waits for the next, which is
 * then the first again. The second, too, is only noted; the third ends the process with exit code 130. An
 * interrupt also ends a read that waits for a person.
 */
void gs_interrupt_rearm(void);

/*
 * For a command that changes the terminal's mode, before it does: an end by an interrupt, SIGTERM or SIGHUP
 * gives the terminal back as it is now.
 */
void gs_interrupt_keep_terminal(void);

#endif
