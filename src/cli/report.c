#include "cli/report.h"

#include "backend/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int gs_exit_code(gs_status status)
{
    switch (status) {
    case GS_OK:
        return GS_EXIT_OK;
    case GS_OUT_OF_MEMORY:
    case GS_FILE_CHANGED:
        return GS_EXIT_FAILURE;
    case GS_CANCELLED:
        return GS_EXIT_INTERRUPTED;
    default:
        return GS_EXIT_BAD_INPUT;
    }
}

int gs_report(gs_status status, const struct gs_error *error)
{
    if (status != GS_OK)
        fprintf(stderr, "gossamer: %s\n", error->message);
    return gs_exit_code(status);
}

/* `value` with three figures or so, scaled by `step` until it is below it. */
static struct gs_size_text scale(uint64_t value, double step, const char *const *units, size_t n_units)
{
    struct gs_size_text out;
    double scaled = (double)value;
    size_t unit = 0;
    for (; unit + 1 < n_units && scaled >= step; unit++)
        scaled /= step;
    snprintf(out.text, sizeof out.text, "%.*f%s", unit == 0 ? 0 : scaled < 10 ? 2 : 1, scaled, units[unit]);
    return out;
}

struct gs_size_text gs_size_text(uint64_t bytes)
{
    static const char *const units[] = {" bytes", " KiB", " MiB", " GiB", " TiB", " PiB"};
    return scale(bytes, 1024.0, units, sizeof units / sizeof *units);
}

struct gs_size_text gs_count_text(uint64_t count)
{
    static const char *const units[] = {"", " thousand", " million", " billion"};
    return scale(count, 1000.0, units, sizeof units / sizeof *units);
}

bool gs_is_terminal(int descriptor)
{
    return isatty(descriptor) == 1;
}

bool gs_is_cursor_terminal(int descriptor)
{
    const char *term = getenv("TERM");
    return gs_is_terminal(descriptor) && term && strcmp(term, "dumb") != 0;
}

bool gs_wants_color(void)
{
    const char *no_color = getenv("NO_COLOR");
    return gs_is_cursor_terminal(STDERR_FILENO) && !(no_color && no_color[0] != '\0');
}

bool gs_is_utf8_locale(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && value[0] != '\0')
            return strstr(value, "UTF-8") || strstr(value, "utf8") || strstr(value, "UTF8") ||
                   strstr(value, "utf-8");
    }
    return false;
}

void gs_warn_untested(const char *backend)
{
    const struct gs_backend *found;
    char description[200];
    if (gs_backend_find(backend, &found, NULL) == GS_OK && found->untested &&
        found->probe(description, sizeof description))
        fprintf(stderr, "%s Please report what you see.\n", found->untested);
}
