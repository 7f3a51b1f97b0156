/*
 * One entry of a tensor's outermost axis (an expert's blocks among those of all experts) as a range of its
 * file's bytes. Borrowed from the tensor's mapping; nothing is read, so only what the caller then touches
 * comes off the disk.
 */
#ifndef GS_FORMAT_SLICE_H
#define GS_FORMAT_SLICE_H

#include "format/tensor.h"

struct gs_slice {
    const unsigned char *data;
    uint64_t bytes;
    uint64_t offset; /* of data in its file */
    const struct gs_file_map *file;
};

/* GS_INVALID_ARGUMENT names the tensor and how many entries it has, if not so many or none at all. */
gs_status gs_slice_entry(const struct gs_tensor *tensor, int64_t index, struct gs_slice *out,
                         struct gs_error *error);

/*
 * Asks the system to bring in just these bytes. Without it the first touch would also fetch what lies around
 * them, by megabytes. Only a request: nothing fails.
 */
void gs_slice_fetch(const struct gs_slice *slice);

#endif
