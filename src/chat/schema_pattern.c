/* Patterns as automata over strings as a JSON text has them; how it has them. */
#include "base/status.h"
#include "chat/schema_compile.h"
#include "chat/schema_regex.h"

#include <string.h>

gs_status gs_spell_string(struct gs_text text, struct gs_buffer *out, struct gs_error *error)
{
    static const char letters[] = "\b\f\n\r\t\"\\", names[] = "bfnrt\"\\";
    gs_status status = gs_buffer_append(out, "\"", 1, error);
    for (size_t i = 0; i < text.size && status == GS_OK; i++) {
        char c = text.bytes[i];
        const char *at = c ? strchr(letters, c) : NULL;
        if (at)
            status = gs_buffer_print(out, error, "\\%c", names[at - letters]);
        else if ((unsigned char)c < 0x20)
            status = gs_buffer_print(out, error, "\\u%04x", (unsigned)(unsigned char)c);
        else
            status = gs_buffer_append(out, &c, 1, error);
    }
    return status == GS_OK ? gs_buffer_append(out, "\"", 1, error) : status;
}

gs_status gs_compile_pattern(struct gs_compiler *c, const json_t *schema, const char *keyword,
                             struct gs_text pattern, const struct gs_dfa **dfa)
{
    const json_t *known = NULL;
    uint32_t index = 0;
    gs_status status = GS_OK;
    *dfa = NULL;
    if (memchr(pattern.bytes, '\0', pattern.size))
        return gs_compile_fail(c, GS_MALFORMED, schema, "%s: a NUL in a pattern", keyword);
    known = json_object_get(c->patterns, pattern.bytes);
    if (!known) {
        struct gs_dfa made;
        struct gs_error fault = {0};
        bool supported;
        status = gs_regex_dfa(pattern, &c->budget, &made, &supported, &fault);
        if (status != GS_OK)
            return gs_compile_fail(c, status, schema, "%s: %s", keyword, fault.message);
        if (supported)
            status = gs_grammar_add_dfa(c->grammar, &made, &index, c->error);
        if (status == GS_OK && json_object_set_new(c->patterns, pattern.bytes,
                                                   json_integer(supported ? (json_int_t)index : -1)) != 0)
            status = gs_fail_memory(c->error, sizeof(json_t));
        if (status != GS_OK)
            return status;
        known = json_object_get(c->patterns, pattern.bytes);
    }
    if (json_integer_value(known) >= 0)
        *dfa = &c->grammar->dfas[json_integer_value(known)];
    else
        gs_compile_report(c, schema, keyword);
    return GS_OK;
}
