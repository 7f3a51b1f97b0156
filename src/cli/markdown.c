#include "cli/markdown.h"

#include "base/utf8.h"
#include "cli/terminal.h"

#include <ctype.h>
#include <string.h>

#define MAX_HELD 200 /* bytes of a line's start: longer is text, or a long name of a language */

#define DIM       "\033[2m"
#define BOLD      "\033[1m"
#define NOT_BOLD  "\033[22m" /* nor dim */
#define ITALIC    "\033[3m"
#define NO_ITALIC "\033[23m"
#define CODE      "\033[36m"
#define NO_COLOR  "\033[39m"

struct writer {
    struct gs_markdown *m;
    struct gs_buffer *out;
    gs_status status;
    struct gs_error *error;
};

/* ---------------------------------------------------------------- words and lines */

static void put(struct writer *w, const char *text)
{
    if (w->status == GS_OK)
        w->status = gs_buffer_append_text(w->out, text, w->error);
}

static void put_blanks(struct writer *w, int count)
{
    for (int i = 0; i < count; i++)
        put(w, " ");
    w->m->column += count > 0 ? count : 0;
}

static void put_quote_bar(struct writer *w)
{
    put(w, DIM);
    put(w, w->m->utf8 ? "┃ " : "> ");
    put(w, NOT_BOLD);
    w->m->column += 2;
}

static void continue_line(struct writer *w)
{
    put(w, "\n");
    w->m->column = 0;
    if (w->m->quote)
        put_quote_bar(w);
    put_blanks(w, w->m->indent - w->m->column);
}

static void flush_word(struct writer *w)
{
    struct gs_markdown *m = w->m;
    if (m->word.size == 0)
        return;
    bool fits = m->width <= 0 || m->column + m->blanks + m->word_width <= m->width;
    if (!fits && m->column > m->indent)
        continue_line(w);
    else
        put_blanks(w, m->blanks);
    if (w->status == GS_OK)
        w->status = gs_buffer_append(w->out, m->word.data, m->word.size, w->error);
    m->column += m->word_width;
    m->word_width = m->blanks = 0;
    gs_buffer_clear(&m->word);
}

static void add_style(struct writer *w, const char *escape)
{
    if (w->status == GS_OK)
        w->status = gs_buffer_append_text(&w->m->word, escape, w->error);
}

static void add_bytes(struct writer *w, const char *bytes, size_t size, int width)
{
    if (w->status == GS_OK)
        w->status = gs_buffer_append(&w->m->word, bytes, size, w->error);
    w->m->word_width += width;
}

static void end_styles(struct writer *w)
{
    struct gs_markdown *m = w->m;
    if (m->bold || m->heading)
        add_style(w, NOT_BOLD);
    if (m->italic)
        add_style(w, NO_ITALIC);
    if (m->code)
        add_style(w, NO_COLOR);
    m->bold = m->heading = m->italic = m->code = false;
}

/* ---------------------------------------------------------------- inside a line */

static bool is_blank_or_end(int c)
{
    return c == 0 || c == ' ' || c == '\n' || c == '\t';
}

/* A run of stars in front of `next`: bold, italics, or what it is. */
static void end_stars(struct writer *w, int next)
{
    struct gs_markdown *m = w->m;
    int stars = m->stars;
    bool closes = !is_blank_or_end(m->before), opens = !is_blank_or_end(next);
    bool in_word = isalnum((unsigned char)m->before) && isalnum(next);
    m->stars = 0;
    if (stars >= 2 && stars <= 3 && (m->bold ? closes : opens)) {
        m->bold = !m->bold;
        add_style(w, m->bold ? BOLD : NOT_BOLD);
        if (!m->bold && m->heading)
            add_style(w, BOLD);
        stars -= 2;
    }
    if (stars == 1 && (m->italic ? closes : opens && !in_word)) {
        m->italic = !m->italic;
        add_style(w, m->italic ? ITALIC : NO_ITALIC);
        stars = 0;
    }
    for (; stars > 0; stars--)
        add_bytes(w, "*", 1, 1);
}

static void add_character(struct writer *w, const char *bytes, size_t size)
{
    struct gs_markdown *m = w->m;
    size_t length;
    int width = size == 1 ? 1 : gs_character_width(gs_utf8_decode(bytes, size, &length));
    if (width == 2) /* scripts without blanks break between any two characters */
        flush_word(w);
    add_bytes(w, bytes, size, width);
    m->before = bytes[size - 1];
}

static void end_line(struct writer *w)
{
    struct gs_markdown *m = w->m;
    end_styles(w);
    flush_word(w);
    put(w, "\n");
    m->column = m->indent = m->blanks = 0;
    m->quote = false;
    m->before = 0;
    m->block = GS_MARKDOWN_START;
}

static void feed_text(struct writer *w, const char *bytes, size_t size)
{
    struct gs_markdown *m = w->m;
    char c = *bytes;
    if (m->stars > 0 && c != '*')
        end_stars(w, (unsigned char)c);
    if (m->escaped) {
        m->escaped = false;
        if (!ispunct((unsigned char)c))
            add_bytes(w, "\\", 1, 1);
        else {
            add_character(w, bytes, size);
            return;
        }
    }
    if (c == '\n') {
        end_line(w);
    } else if (c == ' ' || c == '\t') {
        flush_word(w);
        m->blanks += c == ' ' ? 1 : 4;
        m->before = ' ';
    } else if (c == '`') {
        m->code = !m->code;
        add_style(w, m->code ? CODE : NO_COLOR);
        m->before = c;
    } else if (c == '*' && !m->code) {
        m->stars++;
    } else if (c == '\\' && !m->code) {
        m->escaped = true;
    } else {
        add_character(w, bytes, size);
    }
}

/* ---------------------------------------------------------------- the start of a line */

enum line_kind {
    LINE_OPEN, /* more is needed to tell */
    LINE_TEXT,
    LINE_HEADING,
    LINE_BULLET,
    LINE_NUMBER,
    LINE_QUOTE,
    LINE_FENCE,
    LINE_RULE,
};

static bool is_bullet(char c)
{
    return c == '-' || c == '*' || c == '+';
}

/* What a line is that starts with `text` [size], `blanks` of them blanks; `marker` is the marker's length. */
static enum line_kind read_start(const char *text, size_t size, size_t blanks, size_t *marker)
{
    const char *at = text + blanks;
    size_t left = size - blanks, run = 0;
    *marker = 0;
    if (left == 0)
        return LINE_OPEN;
    char c = *at;
    if (!strchr("#-*+>`~0123456789_", c))
        return LINE_TEXT;
    bool digits = isdigit((unsigned char)c);
    while (run < left && (digits ? isdigit((unsigned char)at[run]) != 0 : at[run] == c))
        run++;
    *marker = run;
    if (run == left)
        return run > 9 ? LINE_TEXT : LINE_OPEN;
    char next = at[run];
    if (c == '>' && run == 1) {
        *marker = next == ' ' ? 2 : 1;
        return LINE_QUOTE;
    }
    if ((c == '`' || c == '~') && run >= 3)
        return LINE_FENCE;
    if (c == '#')
        return run <= 6 && next == ' ' ? LINE_HEADING : LINE_TEXT;
    if (is_bullet(c) && run == 1 && next == ' ')
        return LINE_BULLET;
    if ((c == '-' || c == '*' || c == '_') && run >= 3 && next == '\n')
        return LINE_RULE;
    if (digits && (next == '.' || next == ')')) {
        *marker = run + 1;
        return run + 1 == left ? LINE_OPEN : at[run + 1] == ' ' ? LINE_NUMBER : LINE_TEXT;
    }
    return LINE_TEXT;
}

static void feed_held(struct writer *w, size_t from)
{
    struct gs_markdown *m = w->m;
    struct gs_buffer held = m->held;
    size_t length;
    m->held = (struct gs_buffer){0};
    for (size_t at = from; at < held.size; at += length) {
        gs_utf8_decode(held.data + at, held.size - at, &length);
        length = length ? length : 1;
        feed_text(w, held.data + at, length);
    }
    gs_buffer_clear(&held);
    if (m->held.size == 0) {
        gs_buffer_free(&m->held);
        m->held = held; /* keeps its memory */
    } else {
        gs_buffer_free(&held);
    }
}

static void put_rule(struct writer *w)
{
    int columns = w->m->width > 0 && w->m->width < 40 ? w->m->width : 40;
    put(w, DIM);
    for (int i = 0; i < columns; i++)
        put(w, w->m->utf8 ? "─" : "-");
    put(w, NOT_BOLD "\n");
}

static void begin_line(struct writer *w, enum line_kind kind, size_t blanks, size_t marker)
{
    struct gs_markdown *m = w->m;
    char number[MAX_HELD + 1] = "";
    size_t skip = blanks + marker;
    m->block = GS_MARKDOWN_TEXT;
    m->indent = 0;
    switch (kind) {
    case LINE_FENCE:
        m->block = GS_MARKDOWN_FENCE;
        m->fence = m->held.data[blanks];
        return;
    case LINE_RULE:
        put_rule(w);
        gs_buffer_clear(&m->held);
        m->block = GS_MARKDOWN_START;
        return;
    case LINE_HEADING:
        m->heading = true;
        add_style(w, BOLD);
        skip++; /* the blank after the marker */
        break;
    case LINE_BULLET:
        put_blanks(w, (int)blanks);
        put(w, m->utf8 ? "• " : "- ");
        m->column += 2;
        m->indent = m->column;
        skip++;
        break;
    case LINE_NUMBER:
        memcpy(number, m->held.data + blanks, marker);
        put_blanks(w, (int)blanks);
        put(w, number);
        put(w, " ");
        m->column += (int)marker + 1;
        m->indent = m->column;
        skip++;
        break;
    case LINE_QUOTE:
        m->quote = true;
        put_quote_bar(w);
        m->indent = m->column;
        break;
    default:
        m->blanks = (int)blanks;
        skip = blanks;
        break;
    }
    feed_held(w, skip);
}

/* ---------------------------------------------------------------- code blocks */

static void open_frame(struct writer *w)
{
    struct gs_markdown *m = w->m;
    const char *name = m->held.data + strspn(m->held.data, " `~");
    put(w, DIM);
    put(w, m->utf8 ? "╭─" : "+-");
    if (*name) {
        put(w, " ");
        put(w, name);
    }
    put(w, NOT_BOLD "\n");
    gs_buffer_clear(&m->held);
    m->in_code = true;
    m->block = GS_MARKDOWN_START;
}

static void close_frame(struct writer *w)
{
    put(w, DIM);
    put(w, w->m->utf8 ? "╰─" : "+-");
    put(w, NOT_BOLD);
    w->m->in_code = false;
}

/* Only a closing fence is not code; `held` is a line's start. */
static void feed_code(struct writer *w, const char *bytes, size_t size)
{
    struct gs_markdown *m = w->m;
    if (m->block == GS_MARKDOWN_START) {
        const char fences[] = {' ', m->fence, '\0'};
        if (*bytes != '\n' || m->held.size > 0) {
            if (w->status == GS_OK && *bytes != '\n')
                w->status = gs_buffer_append(&m->held, bytes, size, w->error);
            size_t run = w->status == GS_OK ? strspn(m->held.data, fences) : 0;
            bool fence = run == m->held.size && m->held.size < MAX_HELD;
            if (fence && *bytes != '\n')
                return;
            const char *first = m->held.size > 0 ? strchr(m->held.data, m->fence) : NULL;
            if (fence && first && m->held.data + m->held.size - first >= 3) {
                close_frame(w);
                put(w, "\n");
                gs_buffer_clear(&m->held);
                return;
            }
        }
        put(w, m->utf8 ? DIM "│" NOT_BOLD " " CODE : DIM "|" NOT_BOLD " " CODE);
        if (w->status == GS_OK)
            w->status = gs_buffer_append(w->out, m->held.data ? m->held.data : "", m->held.size, w->error);
        gs_buffer_clear(&m->held);
        m->block = GS_MARKDOWN_CODE;
        if (*bytes != '\n')
            return;
    }
    if (*bytes == '\n') {
        put(w, NO_COLOR "\n");
        m->block = GS_MARKDOWN_START;
    } else if (w->status == GS_OK) {
        w->status = gs_buffer_append(w->out, bytes, size, w->error);
    }
}

/* ---------------------------------------------------------------- the whole */

static void feed_start(struct writer *w, const char *bytes, size_t size)
{
    struct gs_markdown *m = w->m;
    size_t marker;
    if (w->status == GS_OK)
        w->status = gs_buffer_append(&m->held, bytes, size, w->error);
    if (w->status != GS_OK)
        return;
    size_t blanks = strspn(m->held.data, " ");
    enum line_kind kind = read_start(m->held.data, m->held.size, blanks, &marker);
    if (kind == LINE_OPEN && m->held.size < MAX_HELD)
        return;
    begin_line(w, kind == LINE_OPEN ? LINE_TEXT : kind, blanks, marker);
    /* The character that told may be the one that ends the line. */
    if (m->block == GS_MARKDOWN_FENCE && *bytes == '\n') {
        m->held.data[--m->held.size] = '\0';
        open_frame(w);
    }
}

static void feed_character(struct writer *w, const char *bytes, size_t size)
{
    struct gs_markdown *m = w->m;
    if (m->in_code) {
        feed_code(w, bytes, size);
    } else if (m->block == GS_MARKDOWN_START) {
        feed_start(w, bytes, size);
    } else if (m->block == GS_MARKDOWN_FENCE) {
        if (*bytes == '\n')
            open_frame(w);
        else if (w->status == GS_OK && m->held.size < MAX_HELD)
            w->status = gs_buffer_append(&m->held, bytes, size, w->error);
    } else {
        feed_text(w, bytes, size);
    }
}

gs_status gs_markdown_feed(struct gs_markdown *markdown, const char *text, size_t size, struct gs_buffer *out,
                           struct gs_error *error)
{
    struct writer w = {markdown, out, GS_OK, error};
    size_t length;
    if (!markdown->styled)
        return gs_buffer_append(out, text, size, error);
    for (size_t at = 0; at < size && w.status == GS_OK; at += length) {
        gs_utf8_decode(text + at, size - at, &length);
        length = length ? length : 1;
        feed_character(&w, text + at, length);
    }
    return w.status;
}

gs_status gs_markdown_finish(struct gs_markdown *markdown, struct gs_buffer *out, struct gs_error *error)
{
    struct gs_markdown *m = markdown;
    struct writer w = {m, out, GS_OK, error};
    if (m->in_code) {
        bool fence_only = m->block == GS_MARKDOWN_START && m->held.size > 0;
        if (m->block == GS_MARKDOWN_CODE || (fence_only && strspn(m->held.data, " `~") != m->held.size))
            feed_code(&w, "\n", 1);
        close_frame(&w);
    } else if (m->block == GS_MARKDOWN_FENCE) {
        open_frame(&w);
        close_frame(&w);
    } else {
        if (m->block == GS_MARKDOWN_START && m->held.size > 0)
            begin_line(&w, LINE_TEXT, strspn(m->held.data, " "), 0);
        if (m->escaped)
            add_bytes(&w, "\\", 1, 1);
        if (m->stars > 0)
            end_stars(&w, 0);
        end_styles(&w);
        flush_word(&w);
    }
    gs_buffer_clear(&m->held);
    gs_buffer_clear(&m->word);
    *m = (struct gs_markdown){
        .styled = m->styled, .utf8 = m->utf8, .width = m->width, .held = m->held, .word = m->word};
    return w.status;
}

void gs_markdown_free(struct gs_markdown *markdown)
{
    gs_buffer_free(&markdown->held);
    gs_buffer_free(&markdown->word);
}
