#include "backend/metal/send.h"

#include "base/status.h"

/* What an NSError says, as one line: a compiler's has several. */
static void describe(const struct gs_metal *m, gs_objc_id error, char *text, size_t size)
{
    gs_objc_id description = error ? gs_send_object(m, error, m->objc.selectors.localized_description) : NULL;
    const char *from = description ? gs_send_text(m, description, m->objc.selectors.utf8_string) : NULL;
    gs_format(text, size, "%s", from && *from ? from : "no reason is given");
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 32 || *c == 127)
            *c = ' ';
}

gs_status gs_metal_fail(const struct gs_metal *metal, gs_objc_id cause, gs_status code, const char *what,
                        struct gs_error *error)
{
    char text[800];
    describe(metal, cause, text, sizeof text);
    return gs_fail(error, code, "metal: %s: %s", what, text);
}
