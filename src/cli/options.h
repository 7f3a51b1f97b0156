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

/* Rows, in the order of the help text: --name VALUE, where the value lands, what it is. */
#define GS_HEADING_ROW(text)                                                                                 \
    {                                                                                                        \
        .kind = GS_OPTION_HEADING, .help = (text)                                                            \
    }
#define GS_FLAG_ROW(name_, offset_, help_)                                                                   \
    {                                                                                                        \
        .kind = GS_OPTION_FLAG, .name = (name_), .offset = (offset_), .help = (help_)                        \
    }
#define GS_TEXT_ROW(name_, value_, offset_, help_)                                                           \
    {                                                                                                        \
        .kind = GS_OPTION_TEXT, .name = (name_), .value = (value_), .offset = (offset_), .help = (help_)     \
    }
#define GS_TEXT_LETTER_ROW(name_, letter_, value_, offset_, help_)                                           \
    {                                                                                                        \
        .kind = GS_OPTION_TEXT, .name = (name_), .letter = (letter_), .value = (value_),                     \
        .offset = (offset_), .help = (help_)                                                                 \
    }
#define GS_INTEGER_ROW(name_, value_, offset_, least_, most_, help_)                                         \
    {                                                                                                        \
        .kind = GS_OPTION_INTEGER, .name = (name_), .value = (value_), .offset = (offset_),                  \
        .least = (least_), .most = (most_), .help = (help_)                                                  \
    }
#define GS_REAL_ROW(name_, value_, offset_, least_, most_, help_)                                            \
    {                                                                                                        \
        .kind = GS_OPTION_REAL, .name = (name_), .value = (value_), .offset = (offset_), .least = (least_),  \
        .most = (most_), .help = (help_)                                                                     \
    }

#define GS_REAL_ABOVE_ROW(name_, value_, offset_, least_, most_, help_) /* without `least` itself */         \
    {                                                                                                        \
        .kind = GS_OPTION_REAL, .name = (name_), .value = (value_), .offset = (offset_), .least = (least_),  \
        .most = (most_), .above = true, .help = (help_)                                                      \
    }

/* Rows that several commands have alike. */
#define GS_DATE_ROW(offset_)                                                                                 \
    GS_TEXT_ROW("date", "DATE", offset_, "what the model takes for today (default: today)")
#define GS_EFFORT_ROW(offset_)                                                                               \
    GS_TEXT_ROW("effort", "LEVEL", offset_, "of the reasoning: low, medium (default) or high")
#define GS_TOOLS_ROW(offset_)                                                                                \
    GS_TEXT_ROW("tools", "FILE", offset_,                                                                    \
                "declares the functions in FILE: a JSON array as in \"tools\" of a\nrequest")
#define GS_DECODE_ROW(offset_)                                                                               \
    GS_TEXT_ROW("decode", "NAME", offset_,                                                                   \
                "Metal: fused (default), legacy, serial or staged: other ways to decode")

/* What bench and verify run on: fields of `type` of the same names. */
#define GS_DEVICE_ROWS(type, precision_help)                                                                 \
    GS_TEXT_ROW("backend", "NAME", offsetof(type, backend), "default: the best that this machine has"),      \
        GS_INTEGER_ROW("device", "N", offsetof(type, device), 0, 1023,                                       \
                       "which of the backend's devices (0)"),                                                \
        GS_TEXT_ROW("precision", "P", offsetof(type, precision), precision_help),                            \
        GS_TEXT_ROW("weights", "W", offsetof(type, weights),                                                 \
                    "native (default) or q8: attention and head in 8 bits"),                                 \
        GS_TEXT_ROW("cpu-features", "NAME", offsetof(type, cpu_features),                                    \
                    "the kernels' instruction set (the best that there is)"),                                \
        GS_DECODE_ROW(offsetof(type, decode))

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
