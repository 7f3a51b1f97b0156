/* gossamer tokenize: a text as tokens, or tokens as a text. Needs only the vocabulary. */
#include "base/status.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/hub.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/report.h"

#include <string.h>

struct settings {
    const char *model, *text, *file, *decode;
    bool from_stdin, special, ids, count, bytes, keep_control;
};

#define AT(field) offsetof(struct settings, field)

static const struct gs_option options[] = {
    GS_HEADING_ROW("Text to tokens:"),
    GS_TEXT_LETTER_ROW("file", 'f', "FILE", AT(file),
                       "the text is in FILE (- in place of TEXT: standard input)"),
    GS_FLAG_ROW("special", AT(special), "texts such as <|end|> become special tokens"),
    GS_FLAG_ROW("ids", AT(ids), "only the ids, on one line, with commas"),
    GS_FLAG_ROW("count", AT(count), "only how many tokens there are"),

    GS_HEADING_ROW("Tokens to text:"),
    GS_TEXT_ROW("decode", "IDS", AT(decode),
                "the text of these ids, separated by commas or blanks\n(-: ids from standard input)"),
    GS_FLAG_ROW("bytes", AT(bytes), "exactly the tokens' bytes, even where they are not UTF-8"),
    GS_FLAG_ROW("raw-control", AT(keep_control), "on a terminal, do not remove control characters"),
    {.kind = GS_OPTION_END},
};

/* ---------------------------------------------------------------- text to tokens */

static bool is_shown(uint32_t c)
{
    return c >= 0x20 && c != 0x7F && !(c >= 0x80 && c <= 0x9F) && c != 0x2028 && c != 0x2029 && c != 0x200E &&
           c != 0x200F && c != 0x061C && !(c >= 0x202A && c <= 0x202E) && !(c >= 0x2066 && c <= 0x2069) &&
           c != 0xFEFF && c <= 0x10FFFF;
}

/* `bytes` [size] between quotation marks; what is no printable character is \xNN, byte by byte. */
static void print_quoted(const char *bytes, size_t size, struct gs_output *out)
{
    gs_output_append(out, "\"", 1);
    for (size_t at = 0, length; at < size; at += length) {
        uint32_t c = gs_utf8_decode(bytes + at, size - at, &length);
        const char *short_form = c == '\n'   ? "\\n"
                                 : c == '\t' ? "\\t"
                                 : c == '\r' ? "\\r"
                                 : c == '"'  ? "\\\""
                                 : c == '\\' ? "\\\\"
                                             : NULL;
        if (short_form)
            gs_output_append(out, short_form, 2);
        else if (is_shown(c))
            gs_output_append(out, bytes + at, length);
        else
            for (size_t i = 0; i < length; i++)
                gs_output_print(out, "\\x%02X", (unsigned)(unsigned char)bytes[at + i]);
    }
    gs_output_append(out, "\"", 1);
}

static void print_tokens(const struct settings *s, const struct gs_vocab *vocab,
                         const struct gs_tokens *tokens, struct gs_output *out)
{
    if (s->count) {
        gs_output_print(out, "%zu\n", tokens->count);
        return;
    }
    for (size_t i = 0; i < tokens->count && gs_output_ok(out); i++) {
        gs_output_print(out, "%s%d", s->ids && i > 0 ? "," : "", (int)tokens->ids[i]);
        if (!s->ids) {
            size_t size = 0;
            const char *bytes = gs_vocab_bytes(vocab, tokens->ids[i], &size);
            gs_output_append(out, "\t", 1);
            print_quoted(bytes, size, out);
            gs_output_append(out, "\n", 1);
        }
    }
    if (s->ids)
        gs_output_append(out, "\n", 1);
}

static gs_status encode(const struct settings *s, const struct gs_vocab *vocab, struct gs_output *out,
                        struct gs_error *error)
{
    struct gs_buffer text = {0};
    struct gs_tokens tokens = {0};
    gs_status status = gs_input_choose("text", "TEXT", s->text, s->file, s->from_stdin, &text, error);
    if (status == GS_OK)
        status = s->special ? gs_vocab_encode_special(vocab, text.data, text.size, &tokens, error)
                            : gs_vocab_encode(vocab, text.data, text.size, &tokens, error);
    if (status == GS_OK)
        print_tokens(s, vocab, &tokens, out);
    gs_tokens_free(&tokens);
    gs_buffer_free(&text);
    return status;
}

/* ---------------------------------------------------------------- tokens to text */

/* The next id of a list into *id, and past it; *id is -1 at the end. */
static gs_status read_id(const char **at, const struct gs_vocab *vocab, int32_t *id, struct gs_error *error)
{
    char number[16];
    int64_t value;
    size_t size;
    *at += strspn(*at, ", \t\r\n");
    *id = -1;
    if (**at == '\0')
        return GS_OK;
    size_t length = strcspn(*at, ", \t\r\n");
    if (length >= sizeof number)
        return gs_fail(error, GS_INVALID_ARGUMENT, "--decode: \"%s\" is not a token id",
                       gs_quote_bytes(*at, length).text);
    memcpy(number, *at, length);
    number[length] = '\0';
    gs_status status = gs_parse_integer("--decode", number, 0, INT32_MAX, &value, error);
    if (status != GS_OK)
        return status;
    if (!gs_vocab_bytes(vocab, (int32_t)value, &size))
        return gs_fail(error, GS_INVALID_ARGUMENT, "--decode: no token has the id %lld: the highest is %zu",
                       (long long)value, gs_vocab_size(vocab) - 1);
    *at += length;
    *id = (int32_t)value;
    return GS_OK;
}

static gs_status decode_list(const struct settings *s, const char *list, const struct gs_vocab *vocab,
                             struct gs_output *out, struct gs_error *error)
{
    struct gs_detokenizer *detokenizer = NULL;
    struct gs_buffer text = {0}; /* written as a whole: an invalid id leaves nothing half-written */
    int32_t id;
    gs_status status = gs_detokenizer_open(vocab, &detokenizer, error);
    while (status == GS_OK && (status = read_id(&list, vocab, &id, error)) == GS_OK && id >= 0) {
        const char *bytes = NULL;
        size_t size = 0;
        if (s->bytes)
            bytes = gs_vocab_bytes(vocab, id, &size);
        else
            status = gs_detokenizer_feed(detokenizer, id, &bytes, &size, error);
        if (status == GS_OK)
            status = gs_buffer_append(&text, bytes, size, error);
    }
    const char *tail;
    size_t size;
    if (status == GS_OK)
        status = gs_detokenizer_finish(detokenizer, &tail, &size, error);
    if (status == GS_OK)
        status = gs_buffer_append(&text, tail, size, error);
    if (status == GS_OK)
        gs_output_append(out, text.data, text.size);
    gs_buffer_free(&text);
    gs_detokenizer_close(detokenizer);
    return status;
}

static gs_status decode(const struct settings *s, const struct gs_vocab *vocab, struct gs_output *out,
                        struct gs_error *error)
{
    struct gs_buffer list = {0};
    bool from_stdin = strcmp(s->decode, "-") == 0;
    gs_status status = GS_OK;
    if (s->text || s->file || s->from_stdin || s->special || s->ids || s->count)
        return gs_fail(error, GS_INVALID_ARGUMENT, "--decode takes ids, not a text or its options");
    if (from_stdin)
        status = gs_input_read(NULL, &list, error);
    if (status == GS_OK && list.size > 0 && memchr(list.data, '\0', list.size))
        status = gs_fail(error, GS_INVALID_ARGUMENT, "--decode: a NUL byte among the ids");
    if (status == GS_OK)
        status = decode_list(s, from_stdin ? (list.data ? list.data : "") : s->decode, vocab, out, error);
    gs_buffer_free(&list);
    return status;
}

/* ---------------------------------------------------------------- the command */

static gs_status read_settings(const struct gs_command *command, const struct gs_operands *operands,
                               struct settings *s, struct gs_error *error)
{
    if (operands->count == 0)
        return gs_fail(error, GS_INVALID_ARGUMENT, "no model: gossamer tokenize %s", command->usage);
    s->model = operands->list[0];
    if (operands->count > 1 && strcmp(operands->list[1], "-") == 0)
        s->from_stdin = true;
    else if (operands->count > 1)
        s->text = operands->list[1];
    if (s->bytes && !s->decode)
        return gs_fail(error, GS_INVALID_ARGUMENT, "--bytes needs --decode IDS");
    if (s->ids && s->count)
        return gs_fail(error, GS_INVALID_ARGUMENT, "--ids and --count: give one of them");
    return GS_OK;
}

static int tokenize_main(const struct gs_command *command, int argc, char **argv)
{
    struct settings settings = {0};
    struct gs_operands operands;
    struct gs_output output;
    struct gs_error error = {0};
    struct gs_vocab *vocab = NULL;
    gs_status status = gs_options_parse(command, argc, argv, &settings, &operands, &error);
    if (status == GS_OK && operands.help) {
        gs_options_help(command, stdout);
        return GS_EXIT_OK;
    }
    if (status == GS_OK)
        status = read_settings(command, &operands, &settings, &error);
    if (status != GS_OK)
        return gs_report(status, &error);
    gs_output_open(&output, settings.keep_control);
    status = gs_find_vocab(settings.model, &vocab, &error);
    if (status == GS_OK && settings.decode)
        status = decode(&settings, vocab, &output, &error);
    else if (status == GS_OK)
        status = encode(&settings, vocab, &output, &error);
    gs_vocab_close(vocab);
    return gs_output_end(&output, status, &error);
}

const struct gs_command gs_command_tokenize = {
    .name = "tokenize",
    .usage = "MODEL [--special] (TEXT | -f FILE | -), or MODEL --decode IDS",
    .summary = "Shows a text's tokens, or the text of tokens.",
    .details =
        "MODEL may be a tokenizer.json, a .gguf file, or a folder that holds nothing else.\n"
        "Each token is a line: its id, a tab, and its bytes in quotation marks, where \\n, \\t, \\r, \\\"\n"
        "and \\\\ are escaped and bytes that are no printable UTF-8 are \\xNN.",
    .options = options,
    .max_operands = 2,
    .run = tokenize_main,
};
