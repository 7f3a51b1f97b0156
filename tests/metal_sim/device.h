/* Methods of device.c and commands.c, for the table in methods.c. */
#ifndef GS_TESTS_METAL_SIM_DEVICE_H
#define GS_TESTS_METAL_SIM_DEVICE_H

#include "tests/metal_sim/objects.h"

/* MTLSize */
struct size3 {
    unsigned long width, height, depth;
};

void *device_name(void *self, selector cmd);
unsigned long device_max_buffer(void *self, selector cmd);
unsigned long device_working_set(void *self, selector cmd);
unsigned long device_allocated(void *self, selector cmd);
unsigned long device_max_shared(void *self, selector cmd);
struct size3 device_max_threads(void *self, selector cmd);
bool device_supports(void *self, selector cmd, long family);
bool device_unified(void *self, selector cmd);
void *device_new_queue(void *self, selector cmd);
void *device_new_buffer(void *self, selector cmd, unsigned long bytes, unsigned long options);
void *device_new_buffer_with(void *self, selector cmd, const void *from, unsigned long bytes,
                             unsigned long options);
void *device_new_buffer_no_copy(void *self, selector cmd, void *memory, unsigned long bytes,
                                unsigned long options, void *deallocator);
void *device_new_library(void *self, selector cmd, struct string *source, struct options *options,
                         struct error **error);
void *device_new_pipeline(void *self, selector cmd, struct function_object *function, struct error **error);
void *library_new_function(void *self, selector cmd, struct string *name);
void *library_new_function_with(void *self, selector cmd, struct string *name, struct constants *constants,
                                struct error **error);
unsigned long pipeline_max_threads(void *self, selector cmd);
unsigned long pipeline_width(void *self, selector cmd);
void *buffer_contents(void *self, selector cmd);
unsigned long buffer_length(void *self, selector cmd);

void *queue_commands(void *self, selector cmd);
void *commands_encoder(void *self, selector cmd);
void *commands_encoder_typed(void *self, selector cmd, unsigned long type);
void commands_commit(void *self, selector cmd);
void commands_wait(void *self, selector cmd);
unsigned long commands_status(void *self, selector cmd);
void *commands_error(void *self, selector cmd);
double commands_start(void *self, selector cmd);
double commands_end(void *self, selector cmd);
void encoder_set_pipeline(void *self, selector cmd, struct pipeline *pipeline);
void encoder_set_buffer(void *self, selector cmd, struct buffer *buffer, unsigned long offset,
                        unsigned long index);
void encoder_set_offset(void *self, selector cmd, unsigned long offset, unsigned long index);
void encoder_set_bytes(void *self, selector cmd, const void *bytes, unsigned long n, unsigned long index);
void encoder_set_shared(void *self, selector cmd, unsigned long bytes, unsigned long index);
void encoder_dispatch(void *self, selector cmd, struct size3 groups, struct size3 threads);
void encoder_barrier(void *self, selector cmd, unsigned long scope);
void encoder_end(void *self, selector cmd);

#endif
