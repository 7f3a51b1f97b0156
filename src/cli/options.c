#include "cli/options.h"

#include "base/status.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAMES     64 /* options of a command */
#define MAX_NAME_SIZE 32

/* Levenshtein's distance, of names short enough to be ours. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t n = strlen(b), row[MAX_NAME_SIZE + 1];
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; a[i] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            size_t above = row[j + 1], best = diagonal + (a[i] != b[j]);
            best = above + 1 < best ? above + 1 : best;
            best = row[j] + 1 < best ? row[j] + 1 : best;
            diagonal = above;
            row[j + 1] = best;
        }
    }
    return row[n];
}

const char *gs_nearest_name(const char *name, const char *const *names, size_t count)
{
    size_t size = strlen(name), best = size < 3 ? size : size < 6 ? 3 : 4; /* fewer edits than this */
    const char *nearest = NULL;
    if (size == 0 || size > MAX_NAME_SIZE)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        if (strlen(names[i]) > MAX_NAME_SIZE)
            continue;
        bool begins = size >= 2 && strncmp(names[i], name, size) == 0;
        size_t distance = begins ? 0 : edit_distance(name, names[i]);
        if (distance < best) {
            best = distance;
            nearest = names[i];
        }
    }
    return nearest;
}

static gs_status fail_unknown(const struct gs_command *command, const char *argument, size_t size,
                              struct gs_error *error)
{
    const char *names[MAX_NAMES];
    size_t count = 0;
    for (const struct gs_option *o = command->options; o->kind != GS_OPTION_END; o++)
        if (o->name && !o->hidden && count < MAX_NAMES)
            names[count++] = o->name;
    char name[MAX_NAME_SIZE + 1] = "";
    if (size > 2 && size - 2 < sizeof name && argument[1] == '-')
        memcpy(name, argument + 2, size - 2);
    const char *nearest = gs_nearest_name(name, names, count);
    for (const struct gs_option *o = command->options; o->kind != GS_OPTION_END; o++)
        if (o->letter && o->letter == name[0] && name[1] == '\0')
            return gs_fail(error, GS_INVALID_ARGUMENT, "unknown option %s: did you mean -%s?",
                           gs_quote_bytes(argument, size).text, name);
    if (nearest)
        return gs_fail(error, GS_INVALID_ARGUMENT, "unknown option %s: did you mean --%s?",
                       gs_quote_bytes(argument, size).text, nearest);
    return gs_fail(error, GS_INVALID_ARGUMENT, "unknown option %s: gossamer %s --help lists them",
                   gs_quote_bytes(argument, size).text, command->name);
}

gs_status gs_parse_integer(const char *what, const char *text, int64_t least, int64_t most, int64_t *value,
                           struct gs_error *error)
{
    char *end;
    size_t sign = text[0] == '-';
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (text[sign] < '0' || text[sign] > '9' || *end != '\0' || errno != 0 || number < least || number > most)
        return gs_fail(error, GS_INVALID_ARGUMENT, "%s: \"%s\" is not a whole number from %lld to %lld", what,
                       gs_quote(text).text, (long long)least, (long long)most);
    *value = number;
    return GS_OK;
}

/* A plain decimal number: strtod alone would take hexadecimal, "inf" and leading blanks too. */
static bool read_real(const char *text, double *value)
{
    char *end;
    if (text[0] == '\0' || text[strspn(text, "0123456789+-.eE")] != '\0')
        return false;
    *value = strtod(text, &end);
    return *end == '\0' && isfinite(*value);
}

static gs_status parse_real(const struct gs_option *option, const char *text, double *value,
                            struct gs_error *error)
{
    double number;
    if (read_real(text, &number) && number <= option->most &&
        (option->above ? number > option->least : number >= option->least)) {
        *value = number;
        return GS_OK;
    }
    return gs_fail(error, GS_INVALID_ARGUMENT, "--%s: \"%s\" is not a number %s %g %s %g", option->name,
                   gs_quote(text).text, option->above ? "above" : "from", option->least,
                   option->above ? "and up to" : "to", option->most);
}

static gs_status parse_bias(const struct gs_option *option, const char *text, struct gs_bias_list *bias,
                            struct gs_error *error)
{
    char digits[12];
    size_t size = strcspn(text, "=");
    int64_t id = -1;
    double value = 0.0;
    bool good = text[size] == '=' && size > 0 && size < sizeof digits;
    if (good) {
        memcpy(digits, text, size);
        digits[size] = '\0';
        good = gs_parse_integer("", digits, 0, INT32_MAX, &id, NULL) == GS_OK &&
               read_real(text + size + 1, &value) && value >= option->least && value <= option->most;
    }
    if (!good)
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "--%s: \"%s\" is not ID=VALUE with a token id and a number from %g to %g",
                       option->name, gs_quote(text).text, option->least, option->most);
    struct gs_logit_bias *list = realloc(bias->list, (bias->count + 1) * sizeof *list);
    if (!list)
        return gs_fail_memory(error, (bias->count + 1) * sizeof *list);
    bias->list = list;
    bias->list[bias->count++] = (struct gs_logit_bias){(int32_t)id, (float)value};
    return GS_OK;
}

static gs_status set_value(const struct gs_option *option, const char *text, void *settings,
                           struct gs_error *error)
{
    void *at = (char *)settings + option->offset;
    char what[MAX_NAME_SIZE + 3];
    switch (option->kind) {
    case GS_OPTION_TEXT:
        *(const char **)at = text;
        return GS_OK;
    case GS_OPTION_INTEGER:
        snprintf(what, sizeof what, "--%s", option->name);
        return gs_parse_integer(what, text, (int64_t)option->least, (int64_t)option->most, at, error);
    case GS_OPTION_REAL:
        return parse_real(option, text, at, error);
    case GS_OPTION_BIAS:
        return parse_bias(option, text, at, error);
    default:
        *(bool *)at = true;
        return GS_OK;
    }
}

static const struct gs_option *find_option(const struct gs_command *command, const char *argument,
                                           size_t size)
{
    for (const struct gs_option *o = command->options; o->kind != GS_OPTION_END; o++) {
        if (!o->name)
            continue;
        bool is_long =
            argument[1] == '-' && strlen(o->name) == size - 2 && memcmp(o->name, argument + 2, size - 2) == 0;
        if (is_long || (argument[1] != '-' && o->letter == argument[1]))
            return o;
    }
    return NULL;
}

/* One option at argv[*at]; moves *at to the last argument that belongs to it. */
static gs_status parse_option(const struct gs_command *command, int argc, char **argv, int *at,
                              void *settings, struct gs_error *error)
{
    const char *argument = argv[*at], *value = NULL;
    bool is_long = argument[1] == '-';
    size_t size = is_long ? strcspn(argument, "=") : 2;
    const struct gs_option *option = find_option(command, argument, size);
    if (!option)
        return fail_unknown(command, argument, is_long ? size : strlen(argument), error);
    if (argument[size] != '\0')
        value = argument + size + (is_long ? 1 : 0);
    if (option->kind == GS_OPTION_FLAG && value)
        return gs_fail(error, GS_INVALID_ARGUMENT, "%s: this option takes no value", gs_quote(argument).text);
    if (option->kind != GS_OPTION_FLAG && !value) {
        if (*at + 1 >= argc)
            return gs_fail(error, GS_INVALID_ARGUMENT, "--%s needs a value: --%s %s", option->name,
                           option->name, option->value);
        value = argv[++*at];
    }
    return set_value(option, value, settings, error);
}

gs_status gs_options_parse(const struct gs_command *command, int argc, char **argv, void *settings,
                           struct gs_operands *operands, struct gs_error *error)
{
    bool only_operands = false;
    *operands = (struct gs_operands){0};
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (only_operands || argument[0] != '-' || argument[1] == '\0') {
            if (operands->count == command->max_operands)
                return gs_fail(error, GS_INVALID_ARGUMENT, "\"%s\" is one argument too many: gossamer %s %s",
                               gs_quote(argument).text, command->name, command->usage);
            operands->list[operands->count++] = argument;
        } else if (strcmp(argument, "--") == 0) {
            only_operands = true;
        } else if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            operands->help = true;
            return GS_OK;
        } else {
            gs_status status = parse_option(command, argc, argv, &i, settings, error);
            if (status != GS_OK)
                return status;
        }
    }
    return GS_OK;
}

/* The lines of a help text, the first where the cursor is, the others under it. */
static void print_lines(const char *text, int indent, FILE *file)
{
    for (;;) {
        size_t size = strcspn(text, "\n");
        fprintf(file, "%.*s\n", (int)size, text);
        if (text[size] == '\0')
            return;
        text += size + 1;
        fprintf(file, "%*s", indent, "");
    }
}

void gs_options_help(const struct gs_command *command, FILE *file)
{
    const int indent = 30;
    fprintf(file, "usage: gossamer %s %s\n\n%s\n", command->name, command->usage, command->summary);
    if (command->details)
        fprintf(file, "\n%s\n", command->details);
    for (const struct gs_option *o = command->options; o->kind != GS_OPTION_END; o++) {
        if (o->hidden)
            continue;
        if (o->kind == GS_OPTION_HEADING) {
            fprintf(file, "\n%s\n", o->help);
            continue;
        }
        char letter[] = {'-', o->letter, ',', '\0'}, left[64];
        snprintf(left, sizeof left, "  %3s --%s %s", o->letter ? letter : "", o->name,
                 o->value ? o->value : "");
        if ((int)strlen(left) >= indent)
            fprintf(file, "%s\n%*s", left, indent, "");
        else
            fprintf(file, "%-*s", indent, left);
        print_lines(o->help, indent, file);
    }
    fprintf(file, "  -h, --help %*sprint this help\n", indent - 13, "");
}
