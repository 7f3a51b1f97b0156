/*
 * Messages without arguments, and the objects that the host makes by itself: for the files that talk to the
 * Objective-C runtime (metal.c, archive.c), none of which needs a header of the system.
 */
#ifndef GS_BACKEND_METAL_SEND_H
#define GS_BACKEND_METAL_SEND_H

#include "backend/metal/metal.h"

static inline gs_objc_id gs_send_object(const struct gs_metal *m, gs_objc_id receiver,
                                        gs_objc_selector selector)
{
    return ((gs_objc_id(*)(gs_objc_id, gs_objc_selector))m->objc.send)(receiver, selector);
}

static inline void gs_send_nothing(const struct gs_metal *m, gs_objc_id receiver, gs_objc_selector selector)
{
    ((void (*)(gs_objc_id, gs_objc_selector))m->objc.send)(receiver, selector);
}

static inline unsigned long gs_send_number(const struct gs_metal *m, gs_objc_id receiver,
                                           gs_objc_selector selector)
{
    return ((unsigned long (*)(gs_objc_id, gs_objc_selector))m->objc.send)(receiver, selector);
}

static inline const char *gs_send_text(const struct gs_metal *m, gs_objc_id receiver,
                                       gs_objc_selector selector)
{
    return ((const char *(*)(gs_objc_id, gs_objc_selector))m->objc.send)(receiver, selector);
}

/* One object as argument, nothing back. */
static inline void gs_send_set(const struct gs_metal *m, gs_objc_id receiver, gs_objc_selector selector,
                               gs_objc_id value)
{
    ((void (*)(gs_objc_id, gs_objc_selector, gs_objc_id))m->objc.send)(receiver, selector, value);
}

/* Accepts NULL. */
static inline void gs_let_go(const struct gs_metal *m, gs_objc_id object)
{
    if (object)
        gs_send_nothing(m, object, m->objc.selectors.release);
}

static inline gs_objc_id gs_make_object(const struct gs_metal *m, const char *class_name)
{
    return gs_send_object(m, m->objc.get_class(class_name), m->objc.selectors.new_object);
}

/* An NSString of its own; NULL: no memory. */
static inline gs_objc_id gs_make_string(const struct gs_metal *m, const void *bytes, size_t size)
{
    typedef gs_objc_id init_fn(gs_objc_id, gs_objc_selector, const void *, unsigned long, unsigned long);
    gs_objc_id raw = gs_send_object(m, m->objc.get_class("NSString"), m->objc.selectors.alloc);
    return raw ? ((init_fn *)m->objc.send)(raw, m->objc.selectors.init_with_bytes, bytes, size, GS_METAL_UTF8)
               : NULL;
}

/* Fails with `what` and, as one line, what the NSError `cause` says (NULL: nothing). Within a pool. */
gs_status gs_metal_fail(const struct gs_metal *metal, gs_objc_id cause, gs_status code, const char *what,
                        struct gs_error *error);

#endif
