/* Methods of archive.c, for the table in methods.c. */
#ifndef GS_TESTS_METAL_SIM_ARCHIVE_H
#define GS_TESTS_METAL_SIM_ARCHIVE_H

#include "tests/metal_sim/objects.h"

struct url;
struct array;
struct archive;
struct archive_descriptor;
struct pipeline_descriptor;

void *url_file(void *self, selector cmd, struct string *path);
void *array_with(void *self, selector cmd, void *object);
void *process_info(void *self, selector cmd);
void *process_system(void *self, selector cmd);
void archive_descriptor_set_url(void *self, selector cmd, struct url *url);
void pipeline_descriptor_set_function(void *self, selector cmd, struct function_object *function);
void pipeline_descriptor_set_archives(void *self, selector cmd, struct array *archives);
void *device_new_archive(void *self, selector cmd, struct archive_descriptor *descriptor,
                         struct error **error);
bool archive_add(void *self, selector cmd, struct pipeline_descriptor *descriptor, struct error **error);
bool archive_serialize(void *self, selector cmd, struct url *url, struct error **error);
void *device_new_described_pipeline(void *self, selector cmd, struct pipeline_descriptor *descriptor,
                                    unsigned long options, void **reflection, struct error **error);

#endif
