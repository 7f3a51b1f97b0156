/* The commands that main.c dispatches to, one file each. */
#ifndef GS_CLI_COMMANDS_H
#define GS_CLI_COMMANDS_H

#include "cli/options.h"

extern const struct gs_command gs_command_run;      /* run.c */
extern const struct gs_command gs_command_chat;     /* chat.c */
extern const struct gs_command gs_command_inspect;  /* inspect.c */
extern const struct gs_command gs_command_tokenize; /* tokenize.c */
extern const struct gs_command gs_command_harmony;  /* harmony.c */
extern const struct gs_command gs_command_pull;     /* pull.c */
extern const struct gs_command gs_command_verify;   /* verify.c */
extern const struct gs_command gs_command_bench;    /* bench.c */
extern const struct gs_command gs_command_serve;    /* serve.c */

#endif
