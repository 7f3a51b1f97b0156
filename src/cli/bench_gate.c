#include "cli/bench_gate.h"

#include "base/status.h"
#include "base/utf8.h"
#include "cli/input.h"
#include "cli/options.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    bool optional;
} keys[GS_GATE_KEY_COUNT] = {
    [GS_GATE_HYPOTHESIS] = {"hypothesis", false},
    [GS_GATE_MACHINE] = {"machine", false},
    [GS_GATE_MODEL] = {"model", false},
    [GS_GATE_COMMAND] = {"command", false},
    [GS_GATE_RUNS] = {"runs", false},
    [GS_GATE_ROW] = {"row", false},
    [GS_GATE_FIGURE] = {"figure", false},
    [GS_GATE_OVER] = {"over", true},
    [GS_GATE_PREDICTED] = {"predicted", false},
    [GS_GATE_BASIS] = {"basis", false},
    [GS_GATE_CONTINUE] = {"continue", false},
    [GS_GATE_STRONG] = {"strong", false},
    [GS_GATE_CLOSE_OUT] = {"close-out", false},
    [GS_GATE_NOTE] = {"note", true},
};

const char *gs_gate_key_name(enum gs_gate_key key)
{
    return keys[key].name;
}

const char *gs_gate_outcome_name(enum gs_gate_outcome outcome)
{
    static const char *const names[] = {"strong", "continue", "undecided", "close-out"};
    return names[outcome];
}

enum gs_gate_outcome gs_gate_judge(const struct gs_gate *gate, double figure)
{
    double sign = gate->less_is_better ? -1.0 : 1.0;
    if (sign * figure >= sign * gate->at_strong)
        return GS_GATE_IS_STRONG;
    if (sign * figure >= sign * gate->at_continue)
        return GS_GATE_IS_CONTINUE;
    return sign * figure < sign * gate->at_close_out ? GS_GATE_IS_CLOSE_OUT : GS_GATE_IS_UNDECIDED;
}

void gs_gate_free(struct gs_gate *gate)
{
    for (size_t i = 0; i < GS_GATE_KEY_COUNT; i++)
        gs_buffer_free(&gate->values[i]);
    free(gate->command);
    *gate = (struct gs_gate){0};
}

/* ---------------------------------------------------------------- lines */

struct reader {
    const char *path;
    struct gs_gate *gate;
    struct gs_buffer *value; /* that a continued line extends; NULL: none */
    size_t line;
};

static size_t trim(const char **text, size_t size)
{
    while (size > 0 && (**text == ' ' || **text == '\t')) {
        (*text)++;
        size--;
    }
    while (size > 0 && ((*text)[size - 1] == ' ' || (*text)[size - 1] == '\t' || (*text)[size - 1] == '\r'))
        size--;
    return size;
}

static gs_status find_key(const struct reader *reader, const char *name, size_t size, enum gs_gate_key *key,
                          struct gs_error *error)
{
    const char *names[GS_GATE_KEY_COUNT];
    char text[32] = "";
    for (size_t i = 0; i < GS_GATE_KEY_COUNT; i++) {
        names[i] = keys[i].name;
        if (strlen(names[i]) == size && memcmp(names[i], name, size) == 0) {
            *key = (enum gs_gate_key)i;
            return GS_OK;
        }
    }
    memcpy(text, name, size < sizeof text - 1 ? size : sizeof text - 1);
    const char *nearest = gs_nearest_name(text, names, GS_GATE_KEY_COUNT);
    return gs_fail(error, GS_MALFORMED, "%s: line %zu: unknown key \"%s\": %s%s", gs_quote(reader->path).text,
                   reader->line, gs_quote_bytes(name, size).text,
                   nearest ? "did you mean " : "bench/campaign/README.md lists them", nearest ? nearest : "");
}

static gs_status read_line(struct reader *reader, const char *line, size_t size, struct gs_error *error)
{
    const char *text = line, *colon = memchr(line, ':', size);
    bool continues = size > 0 && (line[0] == ' ' || line[0] == '\t');
    enum gs_gate_key key = GS_GATE_KEY_COUNT;
    size_t length = trim(&text, size);
    if (length == 0) {
        reader->value = NULL;
        return GS_OK;
    }
    if (line[0] == '#')
        return GS_OK;
    if (continues) {
        if (!reader->value)
            return gs_fail(error, GS_MALFORMED, "%s: line %zu begins with a blank, but continues no value",
                           gs_quote(reader->path).text, reader->line);
        gs_status status = gs_buffer_append(reader->value, " ", reader->value->size > 0, error);
        return status == GS_OK ? gs_buffer_append(reader->value, text, length, error) : status;
    }
    if (!colon)
        return gs_fail(error, GS_MALFORMED, "%s: line %zu: \"%s\" is not \"key: value\"",
                       gs_quote(reader->path).text, reader->line, gs_quote_bytes(text, length).text);
    gs_status status = find_key(reader, line, (size_t)(colon - line), &key, error);
    if (status != GS_OK)
        return status;
    reader->value = &reader->gate->values[key];
    if (reader->value->data)
        return gs_fail(error, GS_MALFORMED, "%s: line %zu: a second \"%s\": each key occurs once",
                       gs_quote(reader->path).text, reader->line, keys[key].name);
    text = colon + 1;
    length = trim(&text, size - (size_t)(colon + 1 - line));
    return gs_buffer_append(reader->value, text, length, error);
}

static gs_status read_lines(const char *path, const struct gs_buffer *text, struct gs_gate *gate,
                            struct gs_error *error)
{
    struct reader reader = {.path = path, .gate = gate};
    for (size_t i = 0; i < text->size; i++)
        if (iscntrl((unsigned char)text->data[i]) && !strchr("\n\r\t", text->data[i] ? text->data[i] : 'x'))
            return gs_fail(error, GS_MALFORMED,
                           "%s: byte %zu is a control character: a campaign file is text",
                           gs_quote(path).text, i);
    if (!gs_utf8_valid(text->data ? text->data : "", text->size))
        return gs_fail(error, GS_MALFORMED, "%s: not UTF-8: a campaign file is text", gs_quote(path).text);
    for (size_t at = 0; at < text->size;) {
        const char *line = text->data + at, *end = memchr(line, '\n', text->size - at);
        size_t size = end ? (size_t)(end - line) : text->size - at;
        reader.line++;
        gs_status status = read_line(&reader, line, size, error);
        if (status != GS_OK)
            return status;
        at += size + 1;
    }
    for (size_t i = 0; i < GS_GATE_KEY_COUNT; i++)
        if (gate->values[i].size == 0 && !keys[i].optional)
            return gs_fail(error, GS_MALFORMED, "%s: no \"%s\": every key but over and note is required",
                           gs_quote(path).text, keys[i].name);
    return GS_OK;
}

/* ---------------------------------------------------------------- values */

static bool read_number(const char *text, double *value)
{
    char *end;
    if (text[0] == '\0' || text[strspn(text, "0123456789+-.eE")] != '\0')
        return false;
    *value = strtod(text, &end);
    return *end == '\0' && isfinite(*value);
}

/* "<sign> number" */
static gs_status read_threshold(const char *path, const struct gs_gate *gate, enum gs_gate_key key,
                                const char *sign, double *value, struct gs_error *error)
{
    const char *text = gate->values[key].data, *number = text + strlen(sign);
    if (strncmp(text, sign, strlen(sign)) == 0) {
        number += strspn(number, " ");
        if (read_number(number, value))
            return GS_OK;
    }
    return gs_fail(error, GS_MALFORMED,
                   "%s: %s: \"%s\" is not \"%s number\"; the signs are >=, >=, < where more is better, else "
                   "<=, <=, >",
                   gs_quote(path).text, keys[key].name, gs_quote(text).text, sign);
}

static gs_status read_thresholds(const char *path, struct gs_gate *gate, struct gs_error *error)
{
    gate->less_is_better = gate->values[GS_GATE_CONTINUE].data[0] == '<';
    const char *reach = gate->less_is_better ? "<=" : ">=", *miss = gate->less_is_better ? ">" : "<";
    double sign = gate->less_is_better ? -1.0 : 1.0;
    gs_status status = read_threshold(path, gate, GS_GATE_CONTINUE, reach, &gate->at_continue, error);
    if (status == GS_OK)
        status = read_threshold(path, gate, GS_GATE_STRONG, reach, &gate->at_strong, error);
    if (status == GS_OK)
        status = read_threshold(path, gate, GS_GATE_CLOSE_OUT, miss, &gate->at_close_out, error);
    if (status != GS_OK)
        return status;
    if (sign * gate->at_close_out > sign * gate->at_continue ||
        sign * gate->at_continue > sign * gate->at_strong)
        return gs_fail(
            error, GS_MALFORMED,
            "%s: thresholds out of order: from worse to better they are close-out %g, continue %g, "
            "strong %g",
            gs_quote(path).text, gate->at_close_out, gate->at_continue, gate->at_strong);
    return GS_OK;
}

/* Words separated by blanks; nothing is quoted, nothing expanded: no shell ever sees them. */
static gs_status read_command(const char *path, struct gs_gate *gate, struct gs_error *error)
{
    static const char *const reserved[] = {"--gate", "--json", "--md", "--csv"};
    const struct gs_buffer *value = &gate->values[GS_GATE_COMMAND];
    bool has_model = false;
    gate->command = strdup(value->data);
    if (!gate->command)
        return gs_fail_memory(error, value->size);
    char *rest = gate->command, *word;
    while ((word = strtok_r(rest, " \t", &rest))) {
        if (gate->n_words == GS_GATE_MAX_WORDS)
            return gs_fail(error, GS_MALFORMED, "%s: command: more than %d words", gs_quote(path).text,
                           GS_GATE_MAX_WORDS);
        for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
            if (strncmp(word, reserved[i], strlen(reserved[i])) == 0)
                return gs_fail(error, GS_MALFORMED, "%s: command: leave %s out", gs_quote(path).text,
                               reserved[i]);
        has_model = has_model || strcmp(word, "MODEL") == 0;
        gate->words[gate->n_words++] = word;
    }
    if (gate->n_words < 2 || strcmp(gate->words[0], "gossamer") != 0 ||
        strcmp(gate->words[1], "bench") != 0 || !has_model)
        return gs_fail(error, GS_MALFORMED,
                       "%s: command: \"%s\" is not \"gossamer bench ...\" with the word MODEL in it",
                       gs_quote(path).text, gs_quote(value->data).text);
    return GS_OK;
}

gs_status gs_gate_read(const char *path, struct gs_gate *out, struct gs_error *error)
{
    struct gs_buffer text = {0};
    struct gs_error why;
    *out = (struct gs_gate){0};
    gs_status status = gs_input_read(path, &text, error);
    if (status == GS_OK && text.size > GS_GATE_MAX_BYTES)
        status = gs_fail(error, GS_MALFORMED, "%s: %zu bytes, but a campaign file has at most %d",
                         gs_quote(path).text, text.size, GS_GATE_MAX_BYTES);
    if (status == GS_OK)
        status = read_lines(path, &text, out, error);
    gs_buffer_free(&text);
    if (status == GS_OK)
        status = read_command(path, out, error);
    if (status == GS_OK && gs_parse_integer("runs", out->values[GS_GATE_RUNS].data, 1, GS_GATE_MAX_RUNS,
                                            &out->n_runs, &why) != GS_OK)
        status = gs_fail(error, GS_MALFORMED, "%s: %s", gs_quote(path).text, why.message);
    if (status == GS_OK && !read_number(out->values[GS_GATE_PREDICTED].data, &out->predicted))
        status = gs_fail(error, GS_MALFORMED, "%s: predicted: \"%s\" is not a number", gs_quote(path).text,
                         gs_quote(out->values[GS_GATE_PREDICTED].data).text);
    return status == GS_OK ? read_thresholds(path, out, error) : status;
}
