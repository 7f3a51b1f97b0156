#include "backend/metal/archive.h"

#include "backend/metal/send.h"
#include "base/status.h"

/* Autoreleased; NULL: no memory, or no text. */
static gs_objc_id make_url(struct gs_metal *m, const char *path)
{
    typedef gs_objc_id url_fn(gs_objc_id, gs_objc_selector, gs_objc_id);
    gs_objc_id text = gs_make_string(m, path, __builtin_strlen(path));
    gs_objc_id url = NULL;
    if (text)
        url = ((url_fn *)m->objc.send)(m->objc.get_class("NSURL"), m->objc.selectors.file_url, text);
    gs_let_go(m, text);
    return url;
}

gs_status gs_metal_archive_open(struct gs_metal *metal, const char *path, struct gs_metal_archive *out,
                                struct gs_error *error)
{
    typedef gs_objc_id open_fn(gs_objc_id, gs_objc_selector, gs_objc_id, gs_objc_id *);
    const struct gs_objc *o = &metal->objc;
    *out = (struct gs_metal_archive){.is_read = path != NULL};
    void *pool = o->pool_push();
    gs_objc_id cause = NULL, descriptor = gs_make_object(metal, "MTLBinaryArchiveDescriptor");
    gs_objc_id url = descriptor && path ? make_url(metal, path) : NULL;
    gs_status status = GS_OK;
    if (!descriptor || (path && !url))
        status = gs_fail(error, GS_UNSUPPORTED, "metal: no archive of kernels can be described");
    if (status == GS_OK && url)
        gs_send_set(metal, descriptor, o->selectors.set_url, url);
    if (status == GS_OK)
        out->object = ((open_fn *)o->send)(metal->device, o->selectors.new_archive, descriptor, &cause);
    if (status == GS_OK && !out->object)
        status = gs_metal_fail(metal, cause, GS_UNSUPPORTED,
                               path ? "the kept kernels cannot be read" : "no archive of kernels", error);
    gs_let_go(metal, descriptor);
    o->pool_pop(pool);
    return status;
}

gs_status gs_metal_archive_write(struct gs_metal *metal, const struct gs_metal_archive *archive,
                                 const char *path, struct gs_error *error)
{
    typedef gs_objc_bool write_fn(gs_objc_id, gs_objc_selector, gs_objc_id, gs_objc_id *);
    const struct gs_objc *o = &metal->objc;
    void *pool = o->pool_push();
    gs_objc_id cause = NULL, url = make_url(metal, path);
    gs_status status = GS_OK;
    if (!url || !((write_fn *)o->send)(archive->object, o->selectors.serialize, url, &cause))
        status = gs_metal_fail(metal, cause, GS_UNSUPPORTED, "the kernels cannot be kept", error);
    o->pool_pop(pool);
    return status;
}

void gs_metal_archive_close(struct gs_metal *metal, struct gs_metal_archive *archive)
{
    gs_let_go(metal, archive->object);
    *archive = (struct gs_metal_archive){0};
}

gs_objc_id gs_metal_archive_state(struct gs_metal *metal, struct gs_metal_archive *archive,
                                  gs_objc_id function, gs_objc_id *cause)
{
    typedef gs_objc_id array_fn(gs_objc_id, gs_objc_selector, gs_objc_id);
    typedef gs_objc_bool add_fn(gs_objc_id, gs_objc_selector, gs_objc_id, gs_objc_id *);
    typedef gs_objc_id state_fn(gs_objc_id, gs_objc_selector, gs_objc_id, unsigned long, gs_objc_id *,
                                gs_objc_id *);
    const struct gs_objc *o = &metal->objc;
    gs_objc_id state = NULL, descriptor = gs_make_object(metal, "MTLComputePipelineDescriptor");
    gs_objc_id list = NULL;
    if (descriptor)
        list = ((array_fn *)o->send)(o->get_class("NSArray"), o->selectors.array_with, archive->object);
    if (list) {
        gs_send_set(metal, descriptor, o->selectors.set_function, function);
        gs_send_set(metal, descriptor, o->selectors.set_archives, list);
        /* What cannot be put into it is compiled all the same. */
        if (!archive->is_read &&
            !((add_fn *)o->send)(archive->object, o->selectors.add_functions, descriptor, cause))
            archive->is_short = true;
        state = ((state_fn *)o->send)(metal->device, o->selectors.new_described_pipeline, descriptor,
                                      archive->is_read ? GS_METAL_FAIL_ON_ARCHIVE_MISS : 0, NULL, cause);
    }
    gs_let_go(metal, descriptor);
    return state;
}

void gs_metal_system(struct gs_metal *metal, char *text, size_t size)
{
    const struct gs_objc *o = &metal->objc;
    void *pool = o->pool_push();
    gs_objc_id process = gs_send_object(metal, o->get_class("NSProcessInfo"), o->selectors.process_info);
    gs_objc_id version = process ? gs_send_object(metal, process, o->selectors.system_version) : NULL;
    const char *from = version ? gs_send_text(metal, version, o->selectors.utf8_string) : NULL;
    gs_format(text, size, "%s", from ? from : "");
    o->pool_pop(pool);
}
