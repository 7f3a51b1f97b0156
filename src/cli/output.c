#include "cli/output.h"

#include "base/status.h"
#include "cli/report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_BUFFERED 65536 /* bytes before a write that nobody asked for */

void gs_output_open(struct gs_output *output, bool keep_control)
{
    *output = (struct gs_output){0};
    output->is_terminal = gs_is_terminal(STDOUT_FILENO);
    output->cleans = output->is_terminal && !keep_control;
    output->last = '\n';
}

bool gs_output_ok(const struct gs_output *output)
{
    return output->status == GS_OK && !output->reader_gone;
}

void gs_output_append(struct gs_output *output, const char *bytes, size_t size)
{
    if (!gs_output_ok(output))
        return;
    output->status = output->cleans
                         ? gs_cleaner_feed(&output->cleaner, bytes, size, &output->buffer, &output->error)
                         : gs_buffer_append(&output->buffer, bytes, size, &output->error);
    if (output->buffer.size >= MAX_BUFFERED)
        gs_output_flush(output);
}

void gs_output_print(struct gs_output *output, const char *format, ...)
{
    char text[1024], *longer = NULL;
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int size = vsnprintf(text, sizeof text, format, arguments);
    if (size >= (int)sizeof text && (longer = malloc((size_t)size + 1)))
        vsnprintf(longer, (size_t)size + 1, format, again);
    va_end(again);
    va_end(arguments);
    if (size < (int)sizeof text || longer)
        gs_output_append(output, longer ? longer : text, size > 0 ? (size_t)size : 0);
    else if (gs_output_ok(output))
        output->status = gs_fail_memory(&output->error, (uint64_t)size + 1);
    free(longer);
}

static void write_all(struct gs_output *output, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t n = write(STDOUT_FILENO, bytes, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EPIPE) {
            output->reader_gone = true;
            return;
        }
        if (n < 0) {
            output->status =
                gs_fail(&output->error, GS_IO, "cannot write to standard output: %s", strerror(errno));
            return;
        }
        output->last = bytes[n > 0 ? n - 1 : 0];
        bytes += n;
        size -= (size_t)n;
    }
}

void gs_output_flush(struct gs_output *output)
{
    if (gs_output_ok(output))
        write_all(output, output->buffer.data, output->buffer.size);
    gs_buffer_clear(&output->buffer);
}

void gs_output_end_text(struct gs_output *output)
{
    if (gs_output_ok(output) && output->cleans)
        output->status = gs_cleaner_finish(&output->cleaner, &output->buffer, &output->error);
    gs_output_flush(output);
    if (output->is_terminal && output->last != '\n' && gs_output_ok(output))
        write_all(output, "\n", 1);
}

gs_status gs_output_close(struct gs_output *output, struct gs_error *error)
{
    gs_output_end_text(output);
    gs_buffer_free(&output->buffer);
    if (output->status != GS_OK)
        *error = output->error;
    return output->status;
}

int gs_output_end(struct gs_output *output, gs_status status, struct gs_error *error)
{
    struct gs_error own;
    gs_status written = gs_output_close(output, &own);
    if (status == GS_CANCELLED) /* asked for: no line about it */
        return GS_EXIT_INTERRUPTED;
    if (status != GS_OK)
        return gs_report(status, error);
    if (written != GS_OK)
        gs_report(written, &own);
    return written == GS_OK ? GS_EXIT_OK : GS_EXIT_FAILURE;
}
