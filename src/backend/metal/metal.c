/* Messages to Metal, each through a pointer of its method's type. Nothing here needs a header of the system.
 */
#include "backend/metal/metal.h"

#include "backend/metal/archive.h"
#include "backend/metal/send.h"
#include "base/status.h"

/* ---------------------------------------------------------------- the device */

static void register_selectors(struct gs_metal *m)
{
#define REGISTER(field, text) m->objc.selectors.field = m->objc.register_name(text);
    GS_METAL_SELECTORS(REGISTER)
#undef REGISTER
}

static gs_status find_device(struct gs_metal *m, struct gs_error *error)
{
    m->device = m->objc.default_device();
    if (!m->device)
        return gs_fail(error, GS_UNSUPPORTED, "metal: no device here");
    gs_objc_id name = gs_send_object(m, m->device, m->objc.selectors.name);
    const char *text = name ? gs_send_text(m, name, m->objc.selectors.utf8_string) : NULL;
    gs_format(m->name, sizeof m->name, "%s", gs_quote(text ? text : "a device without a name").text);
    typedef gs_objc_bool family_fn(gs_objc_id, gs_objc_selector, long);
    if (!((family_fn *)m->objc.send)(m->device, m->objc.selectors.supports_family, GS_METAL_FAMILY_APPLE_7))
        return gs_fail(error, GS_UNSUPPORTED, "metal: %s: must be Apple silicon, M1 or later", m->name);
    m->max_buffer_bytes = gs_send_number(m, m->device, m->objc.selectors.max_buffer_length);
    m->working_set_bytes = gs_send_number(m, m->device, m->objc.selectors.working_set_size);
    m->threadgroup_bytes = gs_send_number(m, m->device, m->objc.selectors.max_threadgroup_memory);
    m->queue = gs_send_object(m, m->device, m->objc.selectors.new_command_queue);
    return m->queue ? GS_OK : gs_fail(error, GS_IO, "metal: %s gives no command queue", m->name);
}

gs_status gs_metal_open(struct gs_metal *metal, struct gs_error *error)
{
    *metal = (struct gs_metal){0};
    gs_status status = gs_metal_libraries_open(metal, error);
    if (status != GS_OK)
        return status;
    register_selectors(metal);
    void *pool = metal->objc.pool_push();
    status = find_device(metal, error);
    metal->objc.pool_pop(pool);
    if (status != GS_OK)
        gs_metal_close(metal);
    return status;
}

void gs_metal_close(struct gs_metal *metal)
{
    if (!metal->libraries[0])
        return;
    gs_let_go(metal, metal->kernels);
    gs_let_go(metal, metal->queue);
    gs_let_go(metal, metal->device);
    gs_metal_libraries_close(metal);
    metal->kernels = metal->queue = metal->device = NULL;
}

/* ---------------------------------------------------------------- kernels */

/* MTLCompileOptions: without fast math, whose infinities and NaN mean nothing. */
static gs_objc_id make_compile_options(struct gs_metal *m)
{
    typedef void set_version_fn(gs_objc_id, gs_objc_selector, unsigned long);
    typedef void set_fast_fn(gs_objc_id, gs_objc_selector, gs_objc_bool);
    gs_objc_id options = gs_make_object(m, "MTLCompileOptions");
    if (options) {
        ((set_version_fn *)m->objc.send)(options, m->objc.selectors.set_language_version,
                                         GS_METAL_LANGUAGE_3_0);
        ((set_fast_fn *)m->objc.send)(options, m->objc.selectors.set_fast_math, 0);
    }
    return options;
}

gs_status gs_metal_compile(struct gs_metal *metal, const void *source, size_t size, struct gs_error *error)
{
    typedef gs_objc_id compile_fn(gs_objc_id, gs_objc_selector, gs_objc_id, gs_objc_id, gs_objc_id *);
    void *pool = metal->objc.pool_push();
    gs_objc_id cause = NULL, text = gs_make_string(metal, source, size),
               options = make_compile_options(metal);
    gs_status status = GS_OK;
    if (!text || !options)
        status = gs_fail(error, GS_OUT_OF_MEMORY, "metal: no memory for the kernels' source");
    if (status == GS_OK)
        metal->kernels = ((compile_fn *)metal->objc.send)(metal->device, metal->objc.selectors.new_library,
                                                          text, options, &cause);
    if (status == GS_OK && !metal->kernels)
        status = gs_metal_fail(metal, cause, GS_UNSUPPORTED, "the kernels do not compile here", error);
    gs_let_go(metal, options);
    gs_let_go(metal, text);
    metal->objc.pool_pop(pool);
    return status;
}

static gs_objc_id make_constants(struct gs_metal *m, const struct gs_metal_value *constants, size_t n)
{
    typedef void set_fn(gs_objc_id, gs_objc_selector, const void *, unsigned long, unsigned long);
    gs_objc_id values = gs_make_object(m, "MTLFunctionConstantValues");
    for (size_t i = 0; values && i < n; i++) {
        const struct gs_metal_value *c = &constants[i];
        bool flag = c->value != 0;
        const void *value = c->type == GS_METAL_TYPE_BOOL ? (const void *)&flag : &c->value;
        ((set_fn *)m->objc.send)(values, m->objc.selectors.set_constant, value, (unsigned long)c->type,
                                 c->index);
    }
    return values;
}

gs_status gs_metal_pipeline_make(struct gs_metal *metal, const char *kernel,
                                 const struct gs_metal_value *constants, size_t n,
                                 struct gs_metal_archive *archive, struct gs_metal_pipeline *out,
                                 struct gs_error *error)
{
    typedef gs_objc_id function_fn(gs_objc_id, gs_objc_selector, gs_objc_id, gs_objc_id, gs_objc_id *);
    typedef gs_objc_id pipeline_fn(gs_objc_id, gs_objc_selector, gs_objc_id, gs_objc_id *);
    const struct gs_objc *o = &metal->objc;
    *out = (struct gs_metal_pipeline){0};
    void *pool = o->pool_push();
    char what[128];
    gs_format(what, sizeof what, "kernel %s", kernel);
    gs_objc_id cause = NULL, function = NULL, name = gs_make_string(metal, kernel, __builtin_strlen(kernel));
    gs_objc_id values = make_constants(metal, constants, n);
    gs_status status = GS_OK;
    if (!name || !values)
        status = gs_fail(error, GS_OUT_OF_MEMORY, "metal: no memory for kernel %s", kernel);
    if (status == GS_OK)
        function = ((function_fn *)o->send)(metal->kernels, o->selectors.new_function, name, values, &cause);
    if (function && archive)
        out->object = gs_metal_archive_state(metal, archive, function, &cause);
    else if (function)
        out->object = ((pipeline_fn *)o->send)(metal->device, o->selectors.new_pipeline, function, &cause);
    if (status == GS_OK && !out->object)
        status = gs_metal_fail(metal, cause, GS_UNSUPPORTED, what, error);
    if (status == GS_OK) {
        out->max_threads = (uint32_t)gs_send_number(metal, out->object, o->selectors.max_threads);
        out->width = (uint32_t)gs_send_number(metal, out->object, o->selectors.execution_width);
    }
    gs_let_go(metal, function);
    gs_let_go(metal, values);
    gs_let_go(metal, name);
    o->pool_pop(pool);
    return status;
}

void gs_metal_pipeline_release(struct gs_metal *metal, struct gs_metal_pipeline *pipeline)
{
    gs_let_go(metal, pipeline->object);
    *pipeline = (struct gs_metal_pipeline){0};
}

/* ---------------------------------------------------------------- buffers */

static gs_status take_buffer(struct gs_metal *m, gs_objc_id object, uint64_t bytes, const char *what,
                             struct gs_metal_memory *out, struct gs_error *error)
{
    void *contents =
        object ? ((void *(*)(gs_objc_id, gs_objc_selector))m->objc.send)(object, m->objc.selectors.contents)
               : NULL;
    if (!contents) {
        gs_let_go(m, object);
        return gs_fail(error, GS_OUT_OF_MEMORY, "metal: no buffer of %.1f MiB for %s",
                       (double)bytes / (1 << 20), what);
    }
    *out = (struct gs_metal_memory){object, contents, bytes};
    m->allocated_bytes += bytes;
    return GS_OK;
}

static gs_status check_length(const struct gs_metal *m, uint64_t bytes, const char *what,
                              struct gs_error *error)
{
    if (bytes <= m->max_buffer_bytes)
        return GS_OK;
    return gs_fail(error, GS_OUT_OF_MEMORY,
                   "metal: a buffer of %.1f MiB for %s: this device has at most %.1f MiB",
                   (double)bytes / (1 << 20), what, (double)m->max_buffer_bytes / (1 << 20));
}

gs_status gs_metal_memory_make(struct gs_metal *metal, uint64_t bytes, const char *what,
                               struct gs_metal_memory *out, struct gs_error *error)
{
    typedef gs_objc_id make_fn(gs_objc_id, gs_objc_selector, unsigned long, unsigned long);
    *out = (struct gs_metal_memory){0};
    bytes = bytes > 0 ? bytes : 16;
    gs_status status = check_length(metal, bytes, what, error);
    if (status != GS_OK)
        return status;
    void *pool = metal->objc.pool_push();
    gs_objc_id object = ((make_fn *)metal->objc.send)(metal->device, metal->objc.selectors.new_buffer, bytes,
                                                      GS_METAL_STORAGE_SHARED);
    status = take_buffer(metal, object, bytes, what, out, error);
    metal->objc.pool_pop(pool);
    return status;
}

gs_status gs_metal_memory_over(struct gs_metal *metal, const void *pages, uint64_t bytes,
                               struct gs_metal_memory *out, struct gs_error *error)
{
    typedef gs_objc_id make_fn(gs_objc_id, gs_objc_selector, const void *, unsigned long, unsigned long,
                               gs_objc_id);
    *out = (struct gs_metal_memory){0};
    void *pool = metal->objc.pool_push();
    /* No deallocator: the pages belong to the file's mapping, which outlives the device. */
    gs_objc_id object = ((make_fn *)metal->objc.send)(metal->device, metal->objc.selectors.new_buffer_no_copy,
                                                      pages, bytes, GS_METAL_STORAGE_SHARED, NULL);
    gs_status status = take_buffer(metal, object, bytes, "mapped weights", out, error);
    metal->objc.pool_pop(pool);
    return status;
}

void gs_metal_memory_release(struct gs_metal *metal, struct gs_metal_memory *buffer)
{
    metal->allocated_bytes -= buffer->bytes;
    gs_let_go(metal, buffer->object);
    *buffer = (struct gs_metal_memory){0};
}

uint64_t gs_metal_allocated(const struct gs_metal *metal)
{
    uint64_t theirs = gs_send_number(metal, metal->device, metal->objc.selectors.allocated_size);
    return theirs > metal->allocated_bytes ? theirs : metal->allocated_bytes;
}

/* ---------------------------------------------------------------- passes */

gs_status gs_metal_pass_begin(struct gs_metal *metal, struct gs_metal_pass *pass, struct gs_error *error)
{
    const struct gs_objc *o = &metal->objc;
    *pass = (struct gs_metal_pass){0};
    void *pool = o->pool_push();
    /* Both are autoreleased: retained, so that they outlive the pool. */
    pass->commands = gs_send_object(metal, metal->queue, o->selectors.command_buffer);
    if (pass->commands)
        gs_send_object(metal, pass->commands, o->selectors.retain);
    pass->encoder =
        pass->commands ? gs_send_object(metal, pass->commands, o->selectors.compute_encoder) : NULL;
    if (pass->encoder)
        gs_send_object(metal, pass->encoder, o->selectors.retain);
    o->pool_pop(pool);
    metal->n_command_buffers += pass->commands != NULL;
    metal->n_encoders += pass->encoder != NULL;
    if (pass->encoder)
        return GS_OK;
    gs_metal_pass_end(metal, pass);
    return gs_fail(error, GS_IO, "metal: %s gives no command buffer", metal->name);
}

static gs_status check_dispatch(const struct gs_metal *m, const struct gs_metal_dispatch *d,
                                struct gs_error *error)
{
    if (d->threads == 0 || d->threads > d->pipeline->max_threads)
        return gs_fail(error, GS_UNSUPPORTED,
                       "metal: kernel %s needs %u threads a threadgroup, this device gives it %u", d->kernel,
                       d->threads, d->pipeline->max_threads);
    if (d->threadgroup_bytes > m->threadgroup_bytes)
        return gs_fail(error, GS_UNSUPPORTED,
                       "metal: kernel %s needs %u bytes of threadgroup memory, this device has %llu",
                       d->kernel, d->threadgroup_bytes, (unsigned long long)m->threadgroup_bytes);
    return GS_OK;
}

void gs_metal_pass_bind(struct gs_metal *metal, struct gs_metal_pass *pass, uint32_t index,
                        struct gs_metal_place place)
{
    typedef void bind_fn(gs_objc_id, gs_objc_selector, gs_objc_id, unsigned long, unsigned long);
    struct gs_metal_place *bound = &pass->bound[index];
    if (bound->buffer == place.buffer && bound->offset == place.offset)
        return;
    ((bind_fn *)metal->objc.send)(pass->encoder, metal->objc.selectors.set_buffer, place.buffer, place.offset,
                                  index);
    *bound = place;
}

gs_status gs_metal_pass_dispatch(struct gs_metal *metal, struct gs_metal_pass *pass,
                                 const struct gs_metal_dispatch *dispatch, struct gs_error *error)
{
    typedef void pipeline_fn(gs_objc_id, gs_objc_selector, gs_objc_id);
    typedef void bytes_fn(gs_objc_id, gs_objc_selector, const void *, unsigned long, unsigned long);
    typedef void memory_fn(gs_objc_id, gs_objc_selector, unsigned long, unsigned long);
    typedef void dispatch_fn(gs_objc_id, gs_objc_selector, struct gs_metal_size, struct gs_metal_size);
    const struct gs_objc *o = &metal->objc;
    gs_status status = check_dispatch(metal, dispatch, error);
    if (status != GS_OK)
        return status;
    ((pipeline_fn *)o->send)(pass->encoder, o->selectors.set_pipeline, dispatch->pipeline->object);
    if (dispatch->n_bytes > 0)
        ((bytes_fn *)o->send)(pass->encoder, o->selectors.set_bytes, dispatch->bytes, dispatch->n_bytes, 0);
    if (dispatch->threadgroup_bytes > 0)
        ((memory_fn *)o->send)(pass->encoder, o->selectors.set_threadgroup_memory,
                               dispatch->threadgroup_bytes, 0);
    struct gs_metal_size grid = {dispatch->grid[0], dispatch->grid[1], dispatch->grid[2]};
    struct gs_metal_size threads = {dispatch->threads, 1, 1};
    ((dispatch_fn *)o->send)(pass->encoder, o->selectors.dispatch, grid, threads);
    metal->n_dispatches++;
    return GS_OK;
}

/* An encoder must have ended before it is let go of, whether its work is wanted or not. */
static void end_encoding(struct gs_metal *m, struct gs_metal_pass *pass)
{
    if (pass->encoder)
        gs_send_nothing(m, pass->encoder, m->objc.selectors.end_encoding);
    gs_let_go(m, pass->encoder);
    pass->encoder = NULL;
}

void gs_metal_pass_commit(struct gs_metal *metal, struct gs_metal_pass *pass)
{
    end_encoding(metal, pass);
    gs_send_nothing(metal, pass->commands, metal->objc.selectors.commit);
}

gs_status gs_metal_pass_wait(struct gs_metal *metal, struct gs_metal_pass *pass, struct gs_error *error)
{
    const struct gs_objc *o = &metal->objc;
    void *pool = o->pool_push();
    gs_send_nothing(metal, pass->commands, o->selectors.wait_until_completed);
    gs_status status = GS_OK;
    if (gs_send_number(metal, pass->commands, o->selectors.status) == GS_METAL_STATUS_ERROR)
        status = gs_metal_fail(metal, gs_send_object(metal, pass->commands, o->selectors.error), GS_IO,
                               "the device gave up a command buffer", error);
    o->pool_pop(pool);
    return status;
}

double gs_metal_pass_seconds(struct gs_metal *metal, const struct gs_metal_pass *pass)
{
    typedef double time_fn(gs_objc_id, gs_objc_selector);
    time_fn *send = (time_fn *)metal->objc.send;
    return send(pass->commands, metal->objc.selectors.gpu_end_time) -
           send(pass->commands, metal->objc.selectors.gpu_start_time);
}

void gs_metal_pass_end(struct gs_metal *metal, struct gs_metal_pass *pass)
{
    end_encoding(metal, pass);
    gs_let_go(metal, pass->commands);
    pass->commands = NULL;
}
