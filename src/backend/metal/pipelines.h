/*
 * The compiled kernels of a device. With a folder to keep them in, the next start finds them there: one file
 * for a device and a specialisation, named after a hash of these and of what makes it stale (the system, the
 * source). A file that is damaged or of another day is not believed: the kernels are compiled and it is
 * replaced.
 */
#ifndef GS_BACKEND_METAL_PIPELINES_H
#define GS_BACKEND_METAL_PIPELINES_H

#include "backend/metal/device.h"

/*
 * Fills device->pipelines, and the note for users in device->kernels_note. `folder`: made if need be, NULL:
 * nothing is kept. What goes wrong with keeping is no failure, it is in the note.
 */
gs_status gs_metal_pipelines_make(struct gs_device *device, const char *folder, struct gs_error *error);

#endif
