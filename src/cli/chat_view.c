#include "cli/chat_view.h"

#include "base/clock.h"
#include "base/status.h"
#include "base/utf8.h"
#include "cli/report.h"
#include "cli/terminal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLD_LINES   3
#define REDRAW       0.04 /* seconds */
#define MOST_COLUMNS 100  /* longer lines are hard to read */
#define WIDEST       2    /* columns of a character: a line holds at least one */

void gs_view_open(struct gs_view *view, struct gs_output *out, bool keep_control, bool show_all)
{
    *view = (struct gs_view){.out = out,
                             .person = gs_is_terminal(STDERR_FILENO),
                             .moves = gs_is_cursor_terminal(STDERR_FILENO),
                             .color = gs_wants_color(),
                             .utf8 = gs_is_utf8_locale(),
                             .keep_control = keep_control,
                             .show_all = show_all,
                             .at_line_start = true};
    view->markdown.styled = out->is_terminal && view->color;
    view->markdown.utf8 = view->utf8;
}

void gs_view_close(struct gs_view *view)
{
    gs_markdown_free(&view->markdown);
    gs_buffer_free(&view->thought);
    gs_buffer_free(&view->scratch);
}

/* ---------------------------------------------------------------- lines on standard error */

static void print_dim(const struct gs_view *view, const char *format, va_list arguments)
{
    fputs(view->color ? "\033[2m" : "", stderr);
    vfprintf(stderr, format, arguments);
    fputs(view->color ? "\033[22m\n" : "\n", stderr);
}

void gs_view_note(const struct gs_view *view, const char *format, ...)
{
    va_list arguments;
    if (!view->person)
        return;
    va_start(arguments, format);
    print_dim(view, format, arguments);
    va_end(arguments);
}

void gs_view_say(const struct gs_view *view, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_dim(view, format, arguments);
    va_end(arguments);
}

void gs_view_text(const struct gs_view *view, const char *indent, const char *text, size_t size)
{
    struct gs_cleaner cleaner = {0};
    struct gs_buffer clean = {0};
    gs_status status = view->keep_control || !view->person
                           ? gs_buffer_append(&clean, text, size, NULL)
                           : gs_cleaner_feed(&cleaner, text, size, &clean, NULL);
    if (status == GS_OK)
        status = gs_cleaner_finish(&cleaner, &clean, NULL);
    for (size_t at = 0; status == GS_OK && at < clean.size;) {
        const char *end = memchr(clean.data + at, '\n', clean.size - at);
        size_t line = end ? (size_t)(end - (clean.data + at)) : clean.size - at;
        fprintf(stderr, "%s%s%.*s%s\n", view->color ? "\033[2m" : "", indent, (int)line, clean.data + at,
                view->color ? "\033[22m" : "");
        at += line + 1;
    }
    gs_buffer_free(&clean);
}

void gs_view_show_thought(const struct gs_view *view)
{
    if (view->thought.size == 0)
        gs_view_say(view, "no reasoning in the last answer");
    else
        gs_view_text(view, view->utf8 ? "│ " : "| ", view->thought.data, view->thought.size);
}

/* ---------------------------------------------------------------- reasoning */

static int text_columns(int descriptor)
{
    int columns = gs_terminal_columns(descriptor);
    return columns < MOST_COLUMNS ? columns : MOST_COLUMNS;
}

struct span {
    size_t begin, end;
};

/* The last lines of a text, wrapped to `columns` (WIDEST or more) between words; how many there are. */
static int last_lines(const char *text, size_t size, int columns, struct span lines[FOLD_LINES])
{
    /* A tail that is surely enough: what comes before it can shift the breaks, which nobody sees. */
    size_t most = (size_t)columns * 4 * (FOLD_LINES + 1);
    size_t begin = size > most ? size - most : 0, at = begin, blank = 0, length;
    int n = 0, width = 0;
    while (begin > 0 && at < size && text[at] != ' ' && text[at] != '\n')
        at++;
    for (size_t start = at; at <= size;) {
        bool end = at == size, newline = !end && text[at] == '\n';
        uint32_t c = end ? 0 : gs_utf8_decode(text + at, size - at, &length);
        int add = end || newline ? 0 : gs_character_width(c);
        bool wraps = width + add > columns;
        if (end || newline || wraps) {
            size_t stop = wraps && blank > start ? blank : at;
            if (stop > start || newline) {
                memmove(lines, lines + (n == FOLD_LINES), (FOLD_LINES - 1) * sizeof *lines);
                n += n < FOLD_LINES;
                lines[n - 1] = (struct span){start, stop};
            }
            if (end)
                break;
            at = stop + (newline || (wraps && stop == blank) ? 1 : 0);
            start = at;
            width = 0;
            blank = 0;
            continue;
        }
        if (c == ' ')
            blank = at;
        width += c == '\t' ? 1 : add;
        at += length;
    }
    return n;
}

static void erase_fold(struct gs_view *view)
{
    if (view->n_drawn > 1)
        fprintf(stderr, "\033[%dA", view->n_drawn - 1);
    if (view->n_drawn > 0)
        fputs("\r\033[J", stderr);
    view->n_drawn = 0;
}

static void draw_fold(struct gs_view *view)
{
    int columns = text_columns(STDERR_FILENO) - 3;
    struct span lines[FOLD_LINES];
    const char *text = view->thought.data;
    int n = last_lines(text + view->thought_from, view->thought.size - view->thought_from,
                       columns < WIDEST ? WIDEST : columns, lines);
    erase_fold(view);
    for (int i = 0; i < n; i++) {
        fprintf(stderr, "%s%s%s", i > 0 ? "\n" : "", view->color ? "\033[2m" : "", view->utf8 ? "│ " : "| ");
        for (size_t at = lines[i].begin; at < lines[i].end; at++)
            fputc(text[view->thought_from + at] == '\t' ? ' ' : text[view->thought_from + at], stderr);
        fputs(view->color ? "\033[22m" : "", stderr);
    }
    view->n_drawn = n;
    fflush(stderr);
}

static gs_status think(struct gs_view *view, struct gs_text text, struct gs_error *error)
{
    double now = gs_clock_seconds();
    size_t before = view->thought.size;
    gs_status status = view->keep_control ? gs_buffer_append(&view->thought, text.bytes, text.size, error)
                                          : gs_cleaner_feed(&view->thought_cleaner, text.bytes, text.size,
                                                            &view->thought, error);
    if (status != GS_OK)
        return status;
    if (view->thought_began == 0.0)
        view->thought_began = now;
    if (view->show_all)
        fprintf(stderr, "%s%.*s%s", view->color ? "\033[2m" : "", (int)(view->thought.size - before),
                view->thought.data + before, view->color ? "\033[22m" : "");
    else if (view->moves && now - view->drawn >= REDRAW) {
        draw_fold(view);
        view->drawn = now;
    }
    return GS_OK;
}

static gs_status end_thought(struct gs_view *view, size_t n_token, struct gs_error *error)
{
    gs_status status = gs_cleaner_finish(&view->thought_cleaner, &view->thought, error);
    double seconds = view->thought_began > 0.0 ? gs_clock_seconds() - view->thought_began : 0.0;
    if (view->show_all && view->thought.size > view->thought_from)
        fputs("\n", stderr);
    erase_fold(view);
    gs_view_note(view, "%s thought for %.1f s, %zu tokens%s", view->utf8 ? "▸" : "*", seconds, n_token,
                 view->show_all ? "" : "; /think shows it");
    if (status == GS_OK && view->thought.size > 0)
        status = gs_buffer_append(&view->thought, "\n", 1, error);
    view->thought_from = view->thought.size;
    view->thought_began = 0.0;
    return status;
}

/* ---------------------------------------------------------------- answers */

static void write_scratch(struct gs_view *view)
{
    if (view->scratch.size > 0)
        view->at_line_start = view->scratch.data[view->scratch.size - 1] == '\n';
    gs_output_append(view->out, view->scratch.data, view->scratch.size);
    gs_output_flush(view->out);
    gs_buffer_clear(&view->scratch);
}

static gs_status speak(struct gs_view *view, struct gs_text text, struct gs_error *error)
{
    struct gs_buffer clean = {0};
    if (!view->answering) {
        int columns = text_columns(STDOUT_FILENO);
        view->markdown.width = columns > 1 ? columns - 1 : 1;
        view->answering = true;
    }
    gs_status status = view->keep_control || !view->out->is_terminal
                           ? gs_buffer_append(&clean, text.bytes, text.size, error)
                           : gs_cleaner_feed(&view->answer_cleaner, text.bytes, text.size, &clean, error);
    if (status == GS_OK)
        status = gs_markdown_feed(&view->markdown, clean.data ? clean.data : "", clean.size, &view->scratch,
                                  error);
    if (status == GS_OK)
        write_scratch(view);
    gs_buffer_free(&clean);
    return status;
}

static gs_status end_speech(struct gs_view *view, struct gs_error *error)
{
    struct gs_buffer clean = {0};
    if (!view->answering)
        return GS_OK;
    gs_status status = gs_cleaner_finish(&view->answer_cleaner, &clean, error);
    if (status == GS_OK && clean.size > 0)
        status = gs_markdown_feed(&view->markdown, clean.data, clean.size, &view->scratch, error);
    if (status == GS_OK)
        status = gs_markdown_finish(&view->markdown, &view->scratch, error);
    if (status == GS_OK)
        write_scratch(view);
    if (status == GS_OK && !view->at_line_start) {
        status = gs_buffer_append(&view->scratch, "\n", 1, error);
        write_scratch(view);
    }
    view->answering = false;
    gs_buffer_free(&clean);
    return status;
}

/* ---------------------------------------------------------------- turns */

void gs_view_begin(struct gs_view *view, bool after_result)
{
    if (view->answering) /* a turn that failed */
        end_speech(view, NULL);
    view->n_drawn = 0;
    if (!after_result)
        gs_buffer_clear(&view->thought);
    view->thought_from = view->thought.size;
    view->thought_began = view->drawn = 0.0;
    view->thought_cleaner = view->answer_cleaner = (struct gs_cleaner){0};
}

gs_status gs_view_event(void *user, const struct gs_harmony_event *event, struct gs_error *error)
{
    struct gs_view *view = user;
    bool reasoning = event->kind == GS_MESSAGE_REASONING;
    bool visible = event->kind == GS_MESSAGE_PREAMBLE || event->kind == GS_MESSAGE_FINAL;
    if (event->event == GS_HARMONY_TEXT && reasoning)
        return think(view, event->text, error);
    if (event->event == GS_HARMONY_TEXT && visible)
        return speak(view, event->text, error);
    if (event->event == GS_HARMONY_MESSAGE && reasoning)
        return end_thought(view, event->end - event->begin, error);
    if (event->event == GS_HARMONY_MESSAGE && visible)
        return end_speech(view, error);
    return GS_OK;
}

static double rate(size_t count, double seconds)
{
    return seconds > 0.0 ? (double)count / seconds : 0.0;
}

void gs_sums_add(struct gs_sums *sums, const struct gs_turn *turn)
{
    if (sums->n_answer++ == 0)
        sums->first_seconds = turn->first_seconds;
    sums->n_generated += turn->generated.count;
    sums->n_reasoning += turn->n_reasoning;
    sums->n_computed += turn->n_computed;
    sums->n_reused += turn->prompt.count - turn->n_computed;
    sums->n_steps += turn->n_steps;
    sums->prefill_seconds += turn->prefill_seconds;
    sums->decode_seconds += turn->decode_seconds;
    sums->n_context = turn->prompt.count + turn->generated.count;
}

void gs_view_status(const struct gs_view *view, const struct gs_sums *sums, int64_t n_ctx)
{
    const char *dot = view->utf8 ? " · " : ", ";
    char speed[40] = "", context[160] = "";
    size_t n = sums->n_generated;
    if (n_ctx > 0 && sums->n_steps > 0 && sums->decode_seconds > 0.0)
        snprintf(speed, sizeof speed, " at %.1f tok/s", rate(sums->n_steps, sums->decode_seconds));
    if (n_ctx > 0)
        snprintf(context, sizeof context, "%sread %zu new, %zu reused%scontext %zu of %lld", dot,
                 sums->n_computed, sums->n_reused, dot, sums->n_context, (long long)n_ctx);
    gs_view_note(view, "%zu token%s%s%sfirst after %.2f s%s", n, n == 1 ? "" : "s", speed, dot,
                 sums->first_seconds, context);
}
