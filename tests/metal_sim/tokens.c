#include "tests/metal_sim/tokens.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    struct tokens *tokens;
    const char *source, *at;
    int line, file;
    bool failed;
};

static bool grow(void **list, int n, size_t item)
{
    if (n > 0 && (n & (n - 1)))
        return true; /* room is made at powers of two */
    void *grown = realloc(*list, (n ? 2 * (size_t)n : 1) * item);
    if (!grown)
        return false;
    *list = grown;
    return true;
}

static int file_index(struct reader *reader, const char *name, size_t n)
{
    struct tokens *tokens = reader->tokens;
    for (int i = 0; i < tokens->n_file; i++)
        if (strlen(tokens->files[i]) == n && !memcmp(tokens->files[i], name, n))
            return i;
    char *copy = strndup(name, n);
    if (!copy || !grow((void **)&tokens->files, tokens->n_file, sizeof *tokens->files)) {
        free(copy);
        reader->failed = true;
        return 0;
    }
    tokens->files[tokens->n_file] = copy;
    return tokens->n_file++;
}

static void add(struct reader *reader, enum token_kind kind, size_t n)
{
    struct tokens *tokens = reader->tokens;
    if (!grow((void **)&tokens->list, tokens->n, sizeof *tokens->list)) {
        reader->failed = true;
        return;
    }
    tokens->list[tokens->n++] = (struct token){.kind = kind,
                                               .at = (size_t)(reader->at - reader->source),
                                               .n = n,
                                               .line = reader->line,
                                               .file = reader->file,
                                               .partner = -1};
    reader->at += n;
}

/* A line that begins with #: a marker sets line and file. */
static void read_directive(struct reader *reader)
{
    const char *at = reader->at, *end = strchr(at, '\n');
    end = end ? end : at + strlen(at);
    int line = 0, n = 0;
    if (sscanf(at, "# %d \"%n", &line, &n) == 1 && n > 0 && at + n < end) {
        const char *name = at + n, *quote = memchr(name, '"', (size_t)(end - name));
        if (quote) {
            reader->file = file_index(reader, name, (size_t)(quote - name));
            reader->line = line - 1; /* its own end of line follows */
        }
    }
    reader->at = end;
}

static void skip_comment(struct reader *reader)
{
    bool block = reader->at[1] == '*';
    const char *end = strstr(reader->at + 2, block ? "*/" : "\n");
    end = end ? end + (block ? 2 : 0) : reader->at + strlen(reader->at);
    for (; reader->at < end; reader->at++)
        reader->line += *reader->at == '\n';
}

static void read_text(struct reader *reader)
{
    const char *at = reader->at, *end = at + 1;
    for (; *end && *end != *at && *end != '\n'; end++)
        if (*end == '\\' && end[1])
            end++;
    add(reader, TOKEN_TEXT, (size_t)(end - at) + (*end == *at));
}

static void read_tokens(struct reader *reader)
{
    bool line_begins = true;
    while (*reader->at && !reader->failed) {
        const char *at = reader->at;
        unsigned char c = (unsigned char)*at;
        size_t n = 1;
        if (c == '\n') {
            reader->line++, reader->at++;
            line_begins = true;
            continue;
        }
        if (isspace(c))
            reader->at++;
        else if (c == '#' && line_begins)
            read_directive(reader);
        else if (c == '/' && (at[1] == '/' || at[1] == '*'))
            skip_comment(reader);
        else if (c == '"' || c == '\'')
            read_text(reader);
        else if (isdigit(c) || (c == '.' && isdigit((unsigned char)at[1]))) {
            while (isalnum((unsigned char)at[n]) || at[n] == '.' || at[n] == '\'' ||
                   ((at[n] == '+' || at[n] == '-') && strchr("eEpP", at[n - 1]) &&
                    !(at[0] == '0' && at[1] == 'x' && strchr("eE", at[n - 1]))))
                n++;
            add(reader, TOKEN_NUMBER, n);
        } else if (isalpha(c) || c == '_') {
            while (isalnum((unsigned char)at[n]) || at[n] == '_')
                n++;
            add(reader, TOKEN_WORD, n);
        } else
            add(reader, TOKEN_SIGN, 1);
        if (!isspace(c))
            line_begins = false;
    }
    add(reader, TOKEN_END, 0);
}

/* Gives each bracket its partner. */
static bool pair(struct tokens *tokens, char *message, size_t size)
{
    int *open = malloc(((size_t)tokens->n + 1) * sizeof *open), n = 0, wrong = -1;
    if (!open)
        return false;
    for (int i = 0; i < tokens->n && wrong < 0; i++) {
        struct token *token = &tokens->list[i];
        char c = token->kind == TOKEN_SIGN ? tokens->source[token->at] : ' ';
        if (strchr("([{", c))
            open[n++] = i;
        else if (strchr(")]}", c)) {
            char begin = c == ')' ? '(' : c == ']' ? '[' : '{';
            if (n == 0 || tokens->source[tokens->list[open[n - 1]].at] != begin) {
                wrong = i;
                break;
            }
            token->partner = open[--n];
            tokens->list[token->partner].partner = i;
        }
    }
    wrong = wrong < 0 && n > 0 ? open[n - 1] : wrong;
    free(open);
    if (wrong < 0)
        return true;
    const struct token *token = &tokens->list[wrong];
    snprintf(message, size, "%s:%d: error: '%c' has no partner", tokens->files[token->file], token->line,
             tokens->source[token->at]);
    return false;
}

bool metalsim_tokenize(const char *source, struct tokens *tokens, char *message, size_t size)
{
    *tokens = (struct tokens){.source = source};
    struct reader reader = {.tokens = tokens, .source = source, .at = source, .line = 1};
    file_index(&reader, "program_source", strlen("program_source"));
    if (!reader.failed)
        read_tokens(&reader);
    snprintf(message, size, "no memory for the tokens of a library");
    if (!reader.failed && pair(tokens, message, size))
        return true;
    metalsim_tokens_release(tokens);
    return false;
}

void metalsim_tokens_release(struct tokens *tokens)
{
    for (int i = 0; i < tokens->n_file; i++)
        free(tokens->files[i]);
    free(tokens->files);
    free(tokens->list);
    *tokens = (struct tokens){0};
}

bool metalsim_token_is(const struct tokens *tokens, int i, const char *text)
{
    if (i < 0 || i >= tokens->n)
        return false;
    const struct token *token = &tokens->list[i];
    return token->kind != TOKEN_TEXT && token->n == strlen(text) &&
           !memcmp(tokens->source + token->at, text, token->n);
}
