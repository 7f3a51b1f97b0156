#include "tests/sim/guard.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PATTERN 0xa5

/* The live buffers, for the name in a fault's message. */
static struct sim_buffer *live;
static pthread_mutex_t live_lock = PTHREAD_MUTEX_INITIALIZER;

bool sim_buffer_init(struct sim_buffer *buffer, const char *name, size_t bytes, size_t alignment)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    memset(buffer, 0, sizeof *buffer);
    if (alignment < 1 || alignment > page || (alignment & (alignment - 1)) || bytes > SIZE_MAX / 2)
        return false;
    size_t inside = (bytes + page - 1) / page * page, mapped = inside + 2 * page;
    unsigned char *mapping =
        mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED)
        return false;
    if (inside > 0 && mprotect(mapping + page, inside, PROT_READ | PROT_WRITE)) {
        munmap(mapping, mapped);
        return false;
    }
    size_t first = (inside - bytes) / alignment * alignment;
    memset(mapping + page, PATTERN, inside);
    memset(mapping + page + first, SIM_POISON, bytes);
    buffer->data = mapping + page + first;
    buffer->bytes = bytes;
    buffer->mapping = mapping;
    buffer->mapped_bytes = mapped;
    snprintf(buffer->name, sizeof buffer->name, "%s", name);
    pthread_mutex_lock(&live_lock);
    buffer->next = live;
    live = buffer;
    pthread_mutex_unlock(&live_lock);
    return true;
}

void sim_buffer_release(struct sim_buffer *buffer)
{
    if (!buffer || !buffer->mapping)
        return;
    pthread_mutex_lock(&live_lock);
    for (struct sim_buffer **at = &live; *at; at = &(*at)->next)
        if (*at == buffer) {
            *at = buffer->next;
            break;
        }
    pthread_mutex_unlock(&live_lock);
    munmap(buffer->mapping, buffer->mapped_bytes);
    memset(buffer, 0, sizeof *buffer);
}

/* The first byte of [from, to) that is not the pattern, or NULL. */
static const unsigned char *changed(const unsigned char *from, const unsigned char *to)
{
    for (; from < to; from++)
        if (*from != PATTERN)
            return from;
    return NULL;
}

bool sim_buffer_intact(const struct sim_buffer *buffer, struct sim_fault *fault)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const unsigned char *data = buffer->data, *end = data + buffer->bytes;
    const unsigned char *before = changed(buffer->mapping + page, data);
    const unsigned char *after = changed(end, buffer->mapping + buffer->mapped_bytes - page);
    if (!before && !after)
        return true;
    fault->kind = SIM_MEMORY;
    if (before)
        snprintf(fault->message, sizeof fault->message,
                 "%s (%zu bytes): something wrote %zu bytes before its start", buffer->name, buffer->bytes,
                 (size_t)(data - before));
    else
        snprintf(fault->message, sizeof fault->message,
                 "%s (%zu bytes): something wrote at byte %zu, past its end", buffer->name, buffer->bytes,
                 (size_t)(after - data));
    return false;
}

void sim_describe_address(const void *address, char *text, size_t size)
{
    const unsigned char *at = address;
    for (const struct sim_buffer *buffer = live; buffer; buffer = buffer->next) {
        const unsigned char *data = buffer->data;
        if (at < buffer->mapping || at >= buffer->mapping + buffer->mapped_bytes)
            continue;
        if (at < data)
            snprintf(text, size, "%zu bytes before the start of %s (%zu bytes)", (size_t)(data - at),
                     buffer->name, buffer->bytes);
        else
            snprintf(text, size, "at byte %zu of %s, which has %zu bytes", (size_t)(at - data), buffer->name,
                     buffer->bytes);
        return;
    }
    snprintf(text, size, "at address %p, in no buffer of the simulator", address);
}
