#include "cli/progress.h"

#include "base/clock.h"
#include "cli/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define FIRST_SECONDS 0.15 /* shorter work shows no bar */
#define REDRAW        0.05
#define RATE_EVERY    0.5
#define RATE_MEMORY   4.0 /* seconds over which the rate is smoothed */
#define MAX_BAR       40  /* columns */
#define MARGIN        3   /* columns to the right of the text, so that it may grow without moving the bar */

/* One line of the terminal, made as a whole so that it cannot be wider than the window. */
struct line {
    char text[1024];
    size_t size;
    int room; /* columns that are left */
};

static int terminal_columns(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

static void measure_rate(struct gs_progress *progress, uint64_t done, double now)
{
    double seconds = now - progress->rate_at;
    if (progress->rate_at == 0.0 || done < progress->rate_done) {
        progress->rate_at = now;
        progress->rate_done = done;
    } else if (seconds >= RATE_EVERY) {
        double rate = (double)(done - progress->rate_done) / seconds,
               weight = seconds / (seconds + RATE_MEMORY);
        progress->rate += progress->rate == 0.0 ? rate : weight * (rate - progress->rate);
        progress->rate_at = now;
        progress->rate_done = done;
    }
}

/* ", 93.1 MiB/s, 2 min 10 s left" */
static void append_rate(const struct gs_progress *progress, uint64_t left, char *text, size_t size)
{
    if (progress->rate < 1.0)
        return;
    double seconds = (double)left / progress->rate;
    size_t used = strlen(text);
    used += (size_t)snprintf(text + used, size - used, ", %s/s", gs_size_text((uint64_t)progress->rate).text);
    if (seconds < 60.0)
        snprintf(text + used, size - used, ", %.0f s left", seconds);
    else if (seconds < 3600.0)
        snprintf(text + used, size - used, ", %d min %d s left", (int)seconds / 60, (int)seconds % 60);
    else if (seconds < 360000.0)
        snprintf(text + used, size - used, ", %d h %d min left", (int)seconds / 3600, (int)seconds / 60 % 60);
}

static bool is_continuation(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

static int count_columns(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += !is_continuation(*text);
    return n;
}

/* The first `most` characters of the text, as far as they fit. */
static void append(struct line *line, const char *text, int most)
{
    while (*text && most > 0 && line->room > 0) {
        size_t length = 1;
        while (is_continuation(text[length]))
            length++;
        if (length > sizeof line->text - line->size)
            return;
        memcpy(line->text + line->size, text, length);
        line->size += length;
        line->room--;
        most--;
        text += length;
    }
}

static void append_label(struct line *line, const struct gs_progress *progress, int room)
{
    const char *mark = progress->utf8 ? "…" : "...";
    if (count_columns(progress->label) <= room) {
        append(line, progress->label, room);
    } else if (room > 6) {
        append(line, progress->label, room - count_columns(mark));
        append(line, mark, room);
    }
}

/* Where the window is narrow, the bar goes first, then the rate, then the label. */
static void make_line(const struct gs_progress *progress, const char *amount, const char *rate, double share,
                      struct line *line)
{
    char end[400];
    int percent = (int)lround(share * 100.0);
    snprintf(end, sizeof end, " %3d%%  %s%s", percent, amount, rate);
    int label = count_columns(progress->label) + 1;
    if (label + count_columns(end) > line->room)
        snprintf(end, sizeof end, " %3d%%  %s", percent, amount);
    int left = line->room - count_columns(end);
    append_label(line, progress, left - 1);
    append(line, " ", 1);

    int width = left - label - MARGIN;
    width = width > MAX_BAR ? MAX_BAR : width;
    int filled = (int)(share * width);
    for (int i = 0; i < width; i++)
        append(line, i < filled ? (progress->utf8 ? "━" : "#") : (progress->utf8 ? "┄" : "."), 1);
    append(line, end, line->room);
}

static void draw(struct gs_progress *progress, uint64_t done, uint64_t total, double seconds)
{
    char amount[160], rate[160] = "";
    double share = total > 0 ? (double)done / (double)total : 1.0;
    struct line line = {.room = terminal_columns() - 1}; /* in the last column some terminals wrap */
    if (progress->in_bytes)
        snprintf(amount, sizeof amount, "%s of %s", gs_size_text(done).text, gs_size_text(total).text);
    else
        snprintf(amount, sizeof amount, "%llu of %llu tokens", (unsigned long long)done,
                 (unsigned long long)total);
    if (!progress->in_bytes && done > 0 && seconds > 0.0)
        snprintf(rate, sizeof rate, ", %.0f tok/s", (double)done / seconds);
    if (progress->rated)
        append_rate(progress, total - done, rate, sizeof rate);
    make_line(progress, amount, rate, share, &line);
    fprintf(stderr, "\r\033[K%.*s", (int)line.size, line.text);
    fflush(stderr);
}

void gs_progress_begin(struct gs_progress *progress, const char *label, bool in_bytes, uint64_t total)
{
    *progress = (struct gs_progress){.enabled = gs_is_cursor_terminal(STDERR_FILENO),
                                     .utf8 = gs_is_utf8_locale(),
                                     .in_bytes = in_bytes,
                                     .label = label,
                                     .began = gs_clock_seconds()};
    if (progress->enabled && total > 0) {
        progress->visible = true;
        draw(progress, 0, total, 0.0);
    }
}

void gs_progress_update(void *user, uint64_t done, uint64_t total)
{
    struct gs_progress *progress = user;
    double now = gs_clock_seconds();
    if (progress->rated)
        measure_rate(progress, done, now);
    if (!progress->enabled || now - progress->began < FIRST_SECONDS || now - progress->drawn < REDRAW)
        return;
    progress->drawn = now;
    progress->visible = true;
    draw(progress, done, total, now - progress->began);
}

void gs_progress_end(struct gs_progress *progress)
{
    if (progress->visible)
        fputs("\r\033[K", stderr);
    progress->visible = false;
}
