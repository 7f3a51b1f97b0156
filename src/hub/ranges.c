#include "hub/ranges.h"

#include "base/buffer.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_PIECES    4096
#define MAX_STATE     (64 * (MAX_PIECES + 1)) /* bytes of the file */
#define HEADER_FORMAT "ranges 1 of %" PRIu64 "\n"

gs_status gs_ranges_init(struct gs_ranges *ranges, uint64_t size, uint64_t piece_bytes,
                         struct gs_error *error)
{
    if (size / MAX_PIECES >= piece_bytes)
        piece_bytes = size / MAX_PIECES + 1;
    size_t count = (size_t)((size - 1) / piece_bytes + 1);
    gs_ranges_free(ranges);
    if (!(ranges->pieces = calloc(count, sizeof *ranges->pieces)))
        return gs_fail_memory(error, count * sizeof *ranges->pieces);
    ranges->count = count;
    ranges->size = size;
    for (size_t i = 0; i < count; i++) {
        struct gs_piece *piece = &ranges->pieces[i];
        piece->begin = i * piece_bytes;
        piece->end = size - piece->begin < piece_bytes ? size : piece->begin + piece_bytes;
    }
    return GS_OK;
}

void gs_ranges_free(struct gs_ranges *ranges)
{
    if (ranges)
        free(ranges->pieces);
    if (ranges)
        *ranges = (struct gs_ranges){0};
}

uint64_t gs_ranges_done(const struct gs_ranges *ranges)
{
    uint64_t done = 0;
    for (size_t i = 0; i < ranges->count; i++)
        done += ranges->pieces[i].done;
    return done;
}

struct gs_piece *gs_ranges_next(const struct gs_ranges *ranges)
{
    for (size_t i = 0; i < ranges->count; i++) {
        struct gs_piece *piece = &ranges->pieces[i];
        if (!piece->busy && piece->begin + piece->done < piece->end)
            return piece;
    }
    return NULL;
}

/* ---------------------------------------------------------------- on disk */

/* Bytes begin ... end-1 of the file are there. */
static void mark(struct gs_ranges *ranges, uint64_t begin, uint64_t end)
{
    for (size_t i = 0; i < ranges->count; i++) {
        struct gs_piece *piece = &ranges->pieces[i];
        if (begin <= piece->begin && end > piece->begin)
            piece->done = (end < piece->end ? end : piece->end) - piece->begin;
    }
}

/* A decimal number and the character after it; false if it is not that. */
static bool read_number(const char **at, char after, uint64_t *value)
{
    char *end;
    errno = 0;
    if (**at < '0' || **at > '9')
        return false;
    *value = strtoull(*at, &end, 10);
    if (errno != 0 || *end != after)
        return false;
    *at = end + 1;
    return true;
}

static gs_status read_small(const char *path, struct gs_buffer *text, struct gs_error *error)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (descriptor < 0)
        return GS_OK;
    gs_status status = gs_buffer_reserve(text, MAX_STATE, error);
    ssize_t n = 1;
    while (status == GS_OK && n > 0 && text->size < MAX_STATE) {
        n = read(descriptor, text->data + text->size, MAX_STATE - text->size);
        text->size += n > 0 ? (size_t)n : 0;
    }
    if (status == GS_OK)
        text->data[text->size] = '\0';
    close(descriptor);
    return status;
}

gs_status gs_ranges_load(struct gs_ranges *ranges, const char *path, uint64_t present, struct gs_error *error)
{
    struct gs_buffer text = {0};
    char header[64];
    int length = snprintf(header, sizeof header, HEADER_FORMAT, ranges->size);
    gs_status status = read_small(path, &text, error);
    const char *at = text.data;
    bool good = status == GS_OK && at && strncmp(at, header, (size_t)length) == 0;
    uint64_t begin, end, before = 0;
    for (at += good ? length : 0; good && *at != '\0'; before = end) {
        good = read_number(&at, ' ', &begin) && read_number(&at, '\n', &end) && begin >= before &&
               end > begin && end <= ranges->size && end <= present;
        if (good)
            mark(ranges, begin, end);
    }
    if (!good)
        for (size_t i = 0; i < ranges->count; i++)
            ranges->pieces[i].done = 0;
    gs_buffer_free(&text);
    return status;
}

static gs_status write_state(const char *path, const struct gs_buffer *text, struct gs_error *error)
{
    struct gs_buffer fresh = {0};
    gs_status status = gs_buffer_print(&fresh, error, "%s.new", path);
    if (status != GS_OK)
        return status;
    int descriptor = open(fresh.data, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    bool good = descriptor >= 0 && write(descriptor, text->data, text->size) == (ssize_t)text->size;
    int cause = errno;
    if (descriptor >= 0)
        close(descriptor);
    if (!good)
        status = gs_fail_io(error, cause, "write", fresh.data);
    else if (rename(fresh.data, path) != 0)
        status = gs_fail_io(error, errno, "replace", path);
    gs_buffer_free(&fresh);
    return status;
}

gs_status gs_ranges_save(const struct gs_ranges *ranges, const char *path, struct gs_error *error)
{
    struct gs_buffer text = {0};
    gs_status status = gs_buffer_print(&text, error, HEADER_FORMAT, ranges->size);
    for (size_t i = 0; status == GS_OK && i < ranges->count;) {
        uint64_t begin = ranges->pieces[i].begin, end = begin + ranges->pieces[i].done;
        for (i++; i < ranges->count && end == ranges->pieces[i].begin; i++) /* whole pieces run together */
            end += ranges->pieces[i].done;
        if (end > begin)
            status = gs_buffer_print(&text, error, "%" PRIu64 " %" PRIu64 "\n", begin, end);
    }
    if (status == GS_OK)
        status = write_state(path, &text, error);
    gs_buffer_free(&text);
    return status;
}
