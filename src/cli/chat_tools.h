/* Calls of functions: asking the person, running a command, or letting the person type the result. */
#ifndef GS_CLI_CHAT_TOOLS_H
#define GS_CLI_CHAT_TOOLS_H

#include "cli/chat_view.h"
#include "cli/line.h"

#include <jansson.h>

#define GS_TOOL_MAX_RESULT (1u << 20) /* bytes of a command's output that go to the model */

struct gs_tool_runner {
    const char *command; /* NULL: the person types results */
    struct gs_line_reader *reader;
    struct gs_view *view;
    json_t *always; /* an object: names that run without asking */
};

/*
 * The result of a call into *result. *stopped: the person pressed Ctrl-C or ended the input, and the turn
 * must not go on; there is a result all the same, so that the conversation stays whole. So there is where the
 * command could not be run, which is said.
 */
gs_status gs_tool_call(struct gs_tool_runner *runner, const struct gs_conversation *conversation,
                       const struct gs_answer_call *call, struct gs_buffer *result, bool *stopped,
                       struct gs_error *error);

/*
 * Runs a command: `input` on its standard input, the function's name in GOSSAMER_FUNCTION, its standard
 * output appended to *output. A command of letters, digits and "_./+-" alone is the program itself; any other
 * goes through sh -c. It is in a process group of its own; an interrupt ends that with SIGTERM, a little
 * later with SIGKILL. *code: its exit code, 128 + the signal's number, or -1 if it could not be started.
 */
gs_status gs_tool_run(const char *command, const char *name, const char *input, size_t size,
                      struct gs_buffer *output, int *code, struct gs_error *error);

#endif
