#include "chat/harmony_text.h"

#include "base/status.h"
#include "chat/json_text.h"
#include "chat/tool_schema.h"

#include <stdlib.h>
#include <string.h>

/* Sections are separated by a blank line. */
static void begin_section(struct gs_writer *out, bool *first)
{
    if (!*first)
        gs_write(out, "\n\n");
    *first = false;
}

static void write_lines(struct gs_writer *out, struct gs_text text, const char *prefix)
{
    struct gs_text line;
    for (size_t at = 0; gs_next_line(text, &at, &line);) {
        gs_write(out, "\n");
        gs_write(out, prefix);
        gs_write_text(out, line);
    }
}

static void write_function(struct gs_writer *out, const struct gs_function *function, bool reference_arrays)
{
    write_lines(out, function->description, "// ");
    gs_write(out, "\ntype ");
    gs_write_text(out, function->name);
    if (function->parameters) {
        gs_write(out, " = (_: ");
        gs_write_schema(out, function->parameters, reference_arrays);
        gs_write(out, ") => any;\n");
    } else {
        gs_write(out, " = () => any;\n");
    }
}

static void write_namespace(struct gs_writer *out, const struct gs_namespace *tools, bool reference_arrays)
{
    gs_write(out, "## ");
    gs_write_text(out, tools->name);
    gs_write(out, "\n");
    if (tools->block) {
        gs_write(out, "\n");
        gs_write(out, tools->block);
        return;
    }
    write_lines(out, tools->description, tools->n_function > 0 ? "// " : "");
    if (tools->n_function == 0)
        return;
    gs_write(out, "\nnamespace ");
    gs_write_text(out, tools->name);
    gs_write(out, " {\n");
    for (size_t i = 0; i < tools->n_function && out->status == GS_OK; i++)
        write_function(out, &tools->functions[i], reference_arrays);
    gs_write(out, "\n} // namespace ");
    gs_write_text(out, tools->name);
}

static int compare_keys(const void *a, const void *b)
{
    struct gs_text x = (*(const struct gs_namespace *const *)a)->key;
    struct gs_text y = (*(const struct gs_namespace *const *)b)->key;
    size_t shared = x.size < y.size ? x.size : y.size;
    int order = shared > 0 ? memcmp(x.bytes, y.bytes, shared) : 0;
    return order != 0 ? order : (x.size > y.size) - (x.size < y.size);
}

static void write_tools(struct gs_writer *out, const struct gs_namespace *namespaces, size_t count,
                        bool reference_arrays)
{
    const struct gs_namespace **sorted = calloc(count, sizeof *sorted);
    if (!sorted) {
        if (out->status == GS_OK)
            out->status = gs_fail_memory(out->error, count * sizeof *sorted);
        return;
    }
    for (size_t i = 0; i < count; i++)
        sorted[i] = &namespaces[i];
    qsort(sorted, count, sizeof *sorted, compare_keys);
    gs_write(out, "# Tools");
    for (size_t i = 0; i < count; i++) {
        gs_write(out, "\n\n");
        write_namespace(out, sorted[i], reference_arrays);
    }
    free(sorted);
}

static void write_line(struct gs_writer *out, const char *label, struct gs_text value, bool *first)
{
    if (!value.bytes)
        return;
    gs_write(out, *first ? "" : "\n");
    gs_write(out, label);
    gs_write_text(out, value);
    *first = false;
}

static void write_channels(struct gs_writer *out, const struct gs_system_content *system, bool has_functions)
{
    gs_write(out, "# Valid channels: ");
    for (size_t i = 0; i < system->n_channel; i++) {
        gs_write(out, i > 0 ? ", " : "");
        gs_write_text(out, system->channels[i]);
    }
    gs_write(out, ".");
    if (system->channel_required)
        gs_write(out, " Channel must be included for every message.");
    if (has_functions)
        gs_write(out, "\nCalls to these tools must go to the commentary channel: 'functions'.");
}

void gs_write_system(struct gs_writer *out, const struct gs_system_content *system, bool has_functions,
                     bool reference_arrays)
{
    bool first = true;
    write_line(out, "", system->identity, &first);
    write_line(out, "Knowledge cutoff: ", system->cutoff, &first);
    write_line(out, "Current date: ", system->date, &first);
    if (system->effort.bytes) {
        begin_section(out, &first);
        gs_write(out, "Reasoning: ");
        gs_write_text(out, system->effort);
    }
    if (system->n_namespace > 0) {
        begin_section(out, &first);
        write_tools(out, system->namespaces, system->n_namespace, reference_arrays);
    }
    if (system->n_channel > 0) {
        begin_section(out, &first);
        write_channels(out, system, has_functions);
    }
}

void gs_write_developer(struct gs_writer *out, const struct gs_developer_content *developer,
                        bool reference_arrays)
{
    bool first = true;
    if (developer->instructions.bytes) {
        begin_section(out, &first);
        gs_write(out, "# Instructions\n\n");
        gs_write_text(out, developer->instructions);
    }
    if (developer->n_namespace > 0) {
        begin_section(out, &first);
        write_tools(out, developer->namespaces, developer->n_namespace, reference_arrays);
    }
    if (developer->format_schema) {
        begin_section(out, &first);
        gs_write(out, "# Response Formats\n\n## ");
        gs_write_text(out, developer->format_name);
        gs_write(out, "\n");
        write_lines(out, developer->format_description, "// ");
        gs_write(out, "\n");
        gs_write_json(out, developer->format_schema);
    }
}
