/* Where a $ref leads: pointers and anchors within the schema. */
#include "base/status.h"
#include "chat/json_text.h"
#include "chat/schema_compile.h"

#include <stdlib.h>
#include <string.h>

static json_t *get(const json_t *schema, const char *key)
{
    return json_object_get(schema, key);
}

/* One step of a JSON pointer, ~0 ~1 and %XX decoded, into name. */
static void decode_step(const char *step, size_t size, struct gs_buffer *name)
{
    gs_buffer_clear(name);
    for (size_t i = 0; i < size; i++) {
        char c = step[i];
        if (c == '~' && i + 1 < size && (step[i + 1] == '0' || step[i + 1] == '1')) {
            c = step[++i] == '0' ? '~' : '/';
        } else if (c == '%' && i + 2 < size) {
            char digits[3] = {step[i + 1], step[i + 2], '\0'}, *end;
            long value = strtol(digits, &end, 16);
            if (*end == '\0' && value > 0) {
                c = (char)value;
                i += 2;
                /* A percent-encoded ~ still begins an escape. */
                if (c == '~' && i + 1 < size && (step[i + 1] == '0' || step[i + 1] == '1'))
                    c = step[++i] == '0' ? '~' : '/';
            }
        }
        gs_buffer_append(name, &c, 1, NULL);
    }
}

static const json_t *follow_pointer(const json_t *at, const char *pointer, size_t size)
{
    struct gs_buffer name = {0};
    while (at && size > 0) {
        const char *end = memchr(pointer + 1, '/', size - 1);
        size_t step = end ? (size_t)(end - pointer) : size;
        decode_step(pointer + 1, step - 1, &name);
        const char *key = name.data ? name.data : "";
        if (json_is_array(at)) {
            char *rest;
            unsigned long index = strtoul(key, &rest, 10);
            at = *key && *rest == '\0' ? json_array_get(at, index) : NULL;
        } else {
            at = get(at, key);
        }
        pointer += step;
        size -= step;
    }
    gs_buffer_free(&name);
    return at;
}

/* The schema with this $anchor, by a search as deep as a document may be. */
static const json_t *find_anchor(struct gs_compiler *c, const json_t *at, const char *name, unsigned depth)
{
    const json_t *found = NULL;
    if (depth > GS_SCHEMA_MAX_NESTING || gs_budget_work(&c->budget, 8, NULL) != GS_OK)
        return NULL;
    if (gs_text_is(gs_json_text(get(at, "$anchor")), name))
        return at;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)at, key, value)
    {
        if (!found)
            found = find_anchor(c, value, name, depth + 1);
    }
    for (size_t i = 0; i < json_array_size(at) && !found; i++)
        found = find_anchor(c, json_array_get(at, i), name, depth + 1);
    return found;
}

gs_status gs_schema_resolve(struct gs_compiler *c, const json_t *holder, const json_t **target)
{
    struct gs_text reference = gs_json_text(get(holder, "$ref"));
    struct gs_text id = gs_json_text(get(c->root, "$id"));
    const char *at = reference.bytes;
    size_t size = reference.size;
    *target = NULL;
    gs_status status = gs_budget_work(&c->budget, size, c->error);
    if (status != GS_OK)
        return status;
    if (id.bytes && size >= id.size && id.size > 0 && memcmp(at, id.bytes, id.size) == 0 &&
        (size == id.size || at[id.size] == '#')) {
        at += id.size;
        size -= id.size;
    }
    if (size == 0 || (size == 1 && *at == '#'))
        *target = c->root;
    else if (size > 1 && at[0] == '#' && at[1] == '/')
        *target = follow_pointer(c->root, at + 1, size - 1);
    else if (*at == '#')
        *target = find_anchor(c, c->root, at + 1, 0);
    else
        return gs_compile_fail(c, GS_UNSUPPORTED, holder,
                               "$ref \"%s\": only references within the schema (#/...) are followed",
                               gs_quote_bytes(reference.bytes, reference.size).text);
    if (!*target && c->budget.work == 0) /* the search was cut short */
        return gs_budget_work(&c->budget, 1, c->error);
    if (!*target || (!json_is_object(*target) && !json_is_boolean(*target)))
        return gs_compile_fail(c, GS_MALFORMED, holder, "$ref \"%s\": there is no such schema",
                               gs_quote_bytes(reference.bytes, reference.size).text);
    return GS_OK;
}
