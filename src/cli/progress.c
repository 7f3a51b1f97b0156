#include "cli/progress.h"

#include "base/clock.h"
#include "cli/report.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define FIRST_SECONDS 0.15 /* shorter work shows no bar */
#define REDRAW        0.05
#define RATE_EVERY    0.5
#define RATE_MEMORY   4.0 /* seconds over which the rate is smoothed */

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

static void draw(struct gs_progress *progress, uint64_t done, uint64_t total, double seconds)
{
    char amount[160];
    if (progress->in_bytes)
        snprintf(amount, sizeof amount, "%s of %s", gs_size_text(done).text, gs_size_text(total).text);
    else
        snprintf(amount, sizeof amount, "%llu of %llu tokens", (unsigned long long)done,
                 (unsigned long long)total);
    if (!progress->in_bytes && done > 0 && seconds > 0.0)
        snprintf(amount + strlen(amount), sizeof amount - strlen(amount), ", %.0f tok/s",
                 (double)done / seconds);

    if (progress->rated)
        append_rate(progress, total - done, amount, sizeof amount);

    double share = total > 0 ? (double)done / (double)total : 1.0;
    int room = terminal_columns() - (int)strlen(progress->label) - (int)strlen(amount) - 12;
    int width = room > 40 ? 40 : room < 0 ? 0 : room, filled = (int)(share * width);
    fprintf(stderr, "\r\033[K%s ", progress->label);
    for (int i = 0; i < width; i++)
        fputs(i < filled ? (progress->utf8 ? "━" : "#") : (progress->utf8 ? "┄" : "."), stderr);
    fprintf(stderr, " %3.0f%%  %s", share * 100.0, amount);
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
