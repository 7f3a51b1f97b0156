#include "chat/tool_schema.h"

#include "base/status.h"
#include "chat/json_text.h"

#include <string.h>

struct printer {
    struct gs_writer *out;
    bool reference_arrays;
};

static void print_type(const struct printer *p, const json_t *schema, size_t indent, unsigned depth);

static json_t *get(const json_t *schema, const char *key)
{
    return json_object_get(schema, key);
}

static struct gs_text get_text(const json_t *schema, const char *key)
{
    return gs_json_text(get(schema, key));
}

static bool is_enum(const json_t *schema)
{
    return json_array_size(get(schema, "enum")) > 0;
}

static void print_line(const struct printer *p, size_t indent, const char *start, struct gs_text text)
{
    gs_write_blanks(p->out, indent);
    gs_write(p->out, start);
    gs_write_text(p->out, text);
    gs_write(p->out, "\n");
}

/* How the default of an enum stands there depends on the place: bare or as JSON. */
static void print_default(const struct printer *p, const json_t *schema, bool bare_enum)
{
    const json_t *value = get(schema, "default");
    struct gs_text text = gs_json_text(value);
    gs_write(p->out, "default: ");
    if (!text.bytes || (is_enum(schema) && !bare_enum)) {
        gs_write_json(p->out, value);
        return;
    }
    gs_write(p->out, is_enum(schema) ? "" : "\"");
    gs_write_text(p->out, text);
    gs_write(p->out, is_enum(schema) ? "" : "\"");
}

/* The type, and " | null" where `nullable` asks for it and the type does not say it. */
static void print_nullable(const struct printer *p, const json_t *schema, size_t indent, unsigned depth)
{
    size_t before = p->out->buffer->size;
    print_type(p, schema, indent, depth);
    if (!json_is_true(get(schema, "nullable")) || p->out->status != GS_OK)
        return;
    if (!memmem(p->out->buffer->data + before, p->out->buffer->size - before, "null", 4))
        gs_write(p->out, " | null");
}

/* What stands behind a variant of oneOf: its description and its default. */
static void print_remarks(const struct printer *p, const json_t *variant, struct gs_text description,
                          bool bare_enum)
{
    bool has_default = get(variant, "default") != NULL;
    if (!description.bytes && !has_default)
        return;
    gs_write(p->out, " // ");
    if (description.bytes)
        gs_write_text(p->out, description);
    if (description.bytes && has_default)
        gs_write(p->out, " ");
    if (has_default)
        print_default(p, variant, bare_enum);
}

static void print_one_of(const struct printer *p, const json_t *variants, size_t indent, unsigned depth)
{
    for (size_t i = 0; i < json_array_size(variants); i++) {
        const json_t *variant = json_array_get(variants, i);
        gs_write(p->out, "\n");
        gs_write_blanks(p->out, indent);
        gs_write(p->out, " | ");
        print_nullable(p, variant, indent + 3, depth + 1);
        print_remarks(p, variant, get_text(variant, "description"), false);
    }
}

static void print_property_one_of(const struct printer *p, const char *key, const json_t *schema,
                                  bool required, size_t indent, unsigned depth)
{
    const json_t *variants = get(schema, "oneOf");
    struct gs_text description = get_text(schema, "description");
    struct gs_text first = get_text(json_array_get(variants, 0), "description");
    bool shown_above = description.bytes && !(first.bytes && gs_text_equal(first, description));
    if (shown_above)
        print_line(p, indent, "// ", description);
    if (get(schema, "default")) {
        gs_write_blanks(p->out, indent);
        gs_write(p->out, "// ");
        print_default(p, schema, true);
        gs_write(p->out, "\n");
    }
    gs_write_blanks(p->out, indent);
    gs_write(p->out, key);
    gs_write(p->out, required ? ":\n" : "?:\n");
    for (size_t i = 0; i < json_array_size(variants); i++) {
        const json_t *variant = json_array_get(variants, i);
        struct gs_text own = get_text(variant, "description");
        if ((i == 0 && shown_above) || (description.bytes && gs_text_equal(own, description)))
            own.bytes = NULL; /* it is said already */
        gs_write_blanks(p->out, indent);
        gs_write(p->out, " | ");
        print_nullable(p, variant, indent + 3, depth + 1);
        print_remarks(p, variant, own, true);
        gs_write(p->out, "\n");
    }
    print_line(p, indent, ",", (struct gs_text){0});
}

static void print_examples(const struct printer *p, const json_t *examples, size_t indent)
{
    if (json_array_size(examples) == 0)
        return;
    print_line(p, indent, "// Examples:", (struct gs_text){0});
    for (size_t i = 0; i < json_array_size(examples); i++) {
        struct gs_text text = gs_json_text(json_array_get(examples, i));
        if (!text.bytes)
            continue;
        gs_write_blanks(p->out, indent);
        gs_write(p->out, "// - \"");
        gs_write_text(p->out, text);
        gs_write(p->out, "\"\n");
    }
}

static void print_property(const struct printer *p, const char *key, const json_t *schema, bool required,
                           size_t indent, unsigned depth)
{
    struct gs_text title = get_text(schema, "title"), description = get_text(schema, "description");
    if (title.bytes) {
        print_line(p, indent, "// ", title);
        print_line(p, indent, "//", (struct gs_text){0});
    }
    if (description.bytes && !get(schema, "oneOf"))
        print_line(p, indent, "// ", description);
    print_examples(p, get(schema, "examples"), indent);
    if (json_array_size(get(schema, "oneOf")) > 0) {
        print_property_one_of(p, key, schema, required, indent, depth);
        return;
    }
    gs_write_blanks(p->out, indent);
    gs_write(p->out, key);
    gs_write(p->out, required ? ": " : "?: ");
    print_nullable(p, schema, indent + 4, depth + 1);
    gs_write(p->out, ",");
    if (get(schema, "default")) {
        gs_write(p->out, " // ");
        print_default(p, schema, true);
    }
    gs_write(p->out, "\n");
}

/* The strings of "required" as the keys of an object; NULL if memory is out. */
static json_t *required_set(const json_t *required)
{
    json_t *set = json_object();
    for (size_t i = 0; set && i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (name && json_object_set_new(set, name, json_true()) != 0) {
            json_decref(set);
            return NULL;
        }
    }
    return set;
}

static void print_object(const struct printer *p, const json_t *schema, size_t indent, unsigned depth)
{
    struct gs_text description = get_text(schema, "description");
    json_t *required = required_set(get(schema, "required"));
    if (!required && p->out->status == GS_OK)
        p->out->status = gs_fail_memory(p->out->error, sizeof(json_t));
    if (description.bytes)
        print_line(p, indent, "// ", description);
    gs_write(p->out, "{\n");
    const char *key;
    json_t *property;
    json_object_foreach(get(schema, "properties"), key, property)
    {
        if (p->out->status != GS_OK)
            break;
        print_property(p, key, property, json_object_get(required, key) != NULL, indent, depth);
    }
    gs_write_blanks(p->out, indent);
    gs_write(p->out, "}");
    json_decref(required);
}

static void print_string(const struct printer *p, const json_t *schema)
{
    const json_t *values = get(schema, "enum");
    size_t n_printed = 0;
    for (size_t i = 0; i < json_array_size(values); i++) {
        struct gs_text text = gs_json_text(json_array_get(values, i));
        if (!text.bytes)
            continue;
        gs_write(p->out, n_printed++ > 0 ? " | \"" : "\"");
        gs_write_text(p->out, text);
        gs_write(p->out, "\"");
    }
    if (n_printed == 0)
        gs_write(p->out, "string");
}

/* "type": [...]; false if it names nothing. */
static bool print_type_list(const struct printer *p, const json_t *types)
{
    size_t n_printed = 0;
    for (size_t i = 0; i < json_array_size(types); i++) {
        struct gs_text name = gs_json_text(json_array_get(types, i));
        if (!name.bytes)
            continue;
        gs_write(p->out, n_printed++ > 0 ? " | " : "");
        gs_write_text(p->out, gs_text_is(name, "integer") ? gs_text_of("number") : name);
    }
    return n_printed > 0;
}

static void print_type(const struct printer *p, const json_t *schema, size_t indent, unsigned depth)
{
    const json_t *type = get(schema, "type");
    struct gs_text name = gs_json_text(type);
    if (depth > GS_SCHEMA_MAX_DEPTH) {
        gs_write(p->out, "any");
    } else if (json_array_size(get(schema, "oneOf")) > 0) {
        print_one_of(p, get(schema, "oneOf"), indent, depth);
    } else if (json_is_array(type) && print_type_list(p, type)) {
        return;
    } else if (gs_text_is(name, "object")) {
        print_object(p, schema, indent, depth);
    } else if (gs_text_is(name, "string")) {
        print_string(p, schema);
    } else if (gs_text_is(name, "number") || gs_text_is(name, "integer")) {
        gs_write(p->out, "number");
    } else if (gs_text_is(name, "boolean")) {
        gs_write(p->out, "boolean");
    } else if (gs_text_is(name, "array") && get(schema, "items")) {
        print_type(p, get(schema, "items"), indent, depth + 1);
        gs_write(p->out, "[]");
    } else if (gs_text_is(name, "array")) {
        gs_write(p->out, p->reference_arrays ? "Array<any>" : "any[]");
    } else {
        gs_write(p->out, "any");
    }
}

void gs_write_schema(struct gs_writer *writer, const json_t *schema, bool reference_arrays)
{
    const struct printer printer = {writer, reference_arrays};
    print_type(&printer, schema, 0, 0);
}
