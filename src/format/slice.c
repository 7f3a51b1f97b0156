#include "format/slice.h"

#include "base/status.h"

#include <sys/mman.h>
#include <unistd.h>

gs_status gs_slice_entry(const struct gs_tensor *tensor, int64_t index, struct gs_slice *out,
                         struct gs_error *error)
{
    *out = (struct gs_slice){0};
    if (tensor->rank == 0 || tensor->shape[0] == 0)
        return gs_fail(error, GS_INVALID_ARGUMENT, "%s: tensor \"%s\" has no entries to take one from",
                       gs_quote(tensor->file->path).text, gs_quote(tensor->name).text);
    uint64_t count = tensor->shape[0];
    if (index < 0 || (uint64_t)index >= count)
        return gs_fail(error, GS_INVALID_ARGUMENT, "%s: tensor \"%s\" has no entry %lld: there are 0 to %llu",
                       gs_quote(tensor->file->path).text, gs_quote(tensor->name).text, (long long)index,
                       (unsigned long long)count - 1);
    uint64_t bytes = tensor->bytes / count;
    out->data = tensor->data + (uint64_t)index * bytes;
    out->bytes = bytes;
    out->offset = (uint64_t)(out->data - tensor->file->data);
    out->file = tensor->file;
    return GS_OK;
}

void gs_slice_fetch(const struct gs_slice *slice)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = slice->offset / page * page;
    void *start = (void *)(uintptr_t)(slice->file->data + from);
    size_t bytes = (size_t)(slice->offset + slice->bytes - from);
    if (slice->bytes == 0)
        return;
    (void)posix_madvise(start, bytes, POSIX_MADV_RANDOM);
    (void)posix_madvise(start, bytes, POSIX_MADV_WILLNEED);
}
