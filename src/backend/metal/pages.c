#include "backend/metal/pages.h"

#include "base/status.h"

#include <stdlib.h>
#include <unistd.h>

static int compare(const void *a, const void *b)
{
    const struct gs_metal_span *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static const unsigned char *page_of(const unsigned char *address, uint64_t page)
{
    return address - (uintptr_t)address % page;
}

/*
 * Does a span go on where the window ends? Only on the same page, or at the very next byte: two mappings may
 * lie side by side, and a buffer must not reach from one into the other. A tensor never begins a file.
 */
static bool goes_on(const struct gs_metal_window *window, const unsigned char *last,
                    const struct gs_metal_span *span)
{
    return span->begin == last || span->begin < window->begin + window->bytes;
}

/* A span into the window, if it goes on there and the window does not become too long. */
static bool extend(struct gs_metal_window *window, const unsigned char *last,
                   const struct gs_metal_span *span, uint64_t page, uint64_t largest)
{
    uint64_t end = (uint64_t)(span->begin + span->bytes - window->begin);
    uint64_t bytes = (end + page - 1) / page * page;
    if (!goes_on(window, last, span) || bytes > largest)
        return false;
    window->bytes = bytes > window->bytes ? bytes : window->bytes;
    window->is_read = window->is_read || !span->between;
    return true;
}

/* Only those that somebody reads. */
static size_t keep_read(struct gs_metal_window *windows, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (windows[i].is_read)
            windows[kept++] = windows[i];
    return kept;
}

gs_status gs_metal_windows_plan(struct gs_metal_span *spans, size_t n, uint64_t largest,
                                struct gs_metal_window **out, size_t *n_out, struct gs_error *error)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const unsigned char *last = NULL; /* where the spans of the window under way end */
    size_t n_window = 0;
    *n_out = 0;
    struct gs_metal_window *windows = *out = calloc(n > 0 ? n : 1, sizeof **out);
    if (!windows)
        return gs_fail_memory(error, n * sizeof *windows);
    qsort(spans, n, sizeof *spans, compare);
    for (size_t i = 0; i < n; i++) {
        const struct gs_metal_span *span = &spans[i];
        const unsigned char *begin = page_of(span->begin, page);
        uint64_t bytes = ((uint64_t)(span->begin + span->bytes - begin) + page - 1) / page * page;
        if (n_window == 0 || !extend(&windows[n_window - 1], last, span, page, largest)) {
            if (bytes > largest)
                return gs_fail(error, GS_OUT_OF_MEMORY,
                               "metal: a tensor of %.1f MiB: this device's buffers hold at most %.1f MiB",
                               (double)bytes / (1 << 20), (double)largest / (1 << 20));
            windows[n_window++] =
                (struct gs_metal_window){.begin = begin, .bytes = bytes, .is_read = !span->between};
        }
        last = span->begin + span->bytes;
    }
    *n_out = keep_read(windows, n_window);
    return GS_OK;
}

struct gs_metal_place gs_metal_windows_find(const struct gs_metal_window *windows, size_t n,
                                            const unsigned char *address)
{
    struct gs_metal_place place = {0};
    /* The last that begins at or before it: a tensor split from the one before lies in the later window. */
    for (size_t i = n; i > 0 && !place.buffer; i--)
        if (address >= windows[i - 1].begin && address < windows[i - 1].begin + windows[i - 1].bytes)
            place = (struct gs_metal_place){windows[i - 1].memory.object,
                                            (uint64_t)(address - windows[i - 1].begin)};
    return place;
}
