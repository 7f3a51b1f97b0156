/*
 * One table of options a command: it drives the parser and the help text alike. Values land in the
 * command's settings structure at the option's offset; texts are borrowed from argv.
 *
 * Forms: --name value, --name=value, -x value, -xvalue, flags without a value; "--" ends the options; a
 * lone "-" is an operand. An option that takes a value takes the next argument whatever it looks like.
 */
#ifndef GS_CLI_OPTIONS_H
#define GS_CLI_OPTIONS_H

#include "gossamer.h"

#include <stdio.h>

enum gs_option_kind {
    GS_OPTION_END,     /* ends the table */
    GS_OPTION_HEADING, /* `help` is a heading in the help text */
    GS_OPTION_FLAG,    /* bool */
    GS_OPTION_TEXT,    /* const char * */
    GS_OPTION_INTEGER, /* int64_t */
    GS_OPTION_REAL,    /* double */
    GS_OPTION_BIAS,    /* struct gs_bias_list: ID=VALUE, repeatable */
};

struct gs_option {
    enum gs_option_kind kind;
    const char *name;  /* without the dashes */
    char letter;       /* 0: none */
    const char *value; /* what stands for the value in the help text; NULL for a flag */
    const char *help;  /* lines separated by '\n' */
    size_t offset;     /* in the settings */
    double least;      /* of INTEGER and REAL, at most 2^53 in size */
    double most;
    bool above; /* `least` itself is out of range */
    bool hidden;
};

struct gs_bias_list {
    struct gs_logit_bias *list; /* [count]; the owner frees it */
    size_t count;
};

struct gs_command {
    const char *name;
    const char *usage;   /* after "gossamer NAME " */
    const char *summary; /* one line */
    const char *details; /* further lines of the help text; may be NULL */
    const struct gs_option *options;
    size_t max_operands;
    int (*run)(const struct gs_command *command, int argc, char **argv); /* argv[0]: the command's name */
};

#define GS_MAX_OPERANDS 4

struct gs_operands {
    const char *list[GS_MAX_OPERANDS];
    size_t count;
    bool help; /* --help or -h was given: the rest was not looked at */
};

/*
 * argv[1 ...] into `settings`, which holds the defaults. GS_INVALID_ARGUMENT names the option, what it got
 * and its range, or for an unknown one the nearest known.
 */
gs_status gs_options_parse(const struct gs_command *command, int argc, char **argv, void *settings,
                           struct gs_operands *operands, struct gs_error *error);

void gs_options_help(const struct gs_command *command, FILE *file);

/*
 * A decimal number and nothing else, within its range; `what` begins the message: "--temp". Not for text
 * that may hold a NUL.
 */
gs_status gs_parse_integer(const char *what, const char *text, int64_t least, int64_t most, int64_t *value,
                           struct gs_error *error);

/* The one of `names` [count] that is most like `name`; NULL if none is near. */
const char *gs_nearest_name(const char *name, const char *const *names, size_t count);

#endif
