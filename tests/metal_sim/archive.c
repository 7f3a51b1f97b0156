/*
 * MTLBinaryArchive and what belongs to it. An archive is a list of functions by their identity: source,
 * compile options, name, constants. As a file it is lines of text under the system that wrote it, with a sum
 * over them.
 */
#include "tests/metal_sim/archive.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FUNCTIONS 256
#define MAGIC         "metalsim archive 1"

struct url {
    struct object object;
    char *path;
};

struct array {
    struct object object;
    struct object *one; /* the stand-in knows arrays of one object */
};

struct archive_descriptor {
    struct object object;
    struct url *url;
};

struct pipeline_descriptor {
    struct object object;
    struct function_object *function;
    struct array *archives;
};

struct archive {
    struct object object;
    uint64_t functions[MAX_FUNCTIONS];
    size_t n;
};

/* ---------------------------------------------------------------- Foundation's */

void *url_file(void *self, selector cmd, struct string *path)
{
    (void)self, (void)cmd;
    if (metalsim_fails())
        return NULL;
    struct url *url = object_new(&class_url);
    url->path = strdup(path->text);
    return object_autorelease(url);
}

static void url_dealloc(void *self)
{
    free(((struct url *)self)->path);
}

void *array_with(void *self, selector cmd, void *object)
{
    (void)self, (void)cmd;
    if (!object)
        stop("arrayWithObject: nil");
    if (metalsim_fails())
        return NULL;
    struct array *array = object_new(&class_array);
    array->one = object_retain(object);
    return object_autorelease(array);
}

static void array_dealloc(void *self)
{
    object_release(((struct array *)self)->one);
}

void *process_info(void *self, selector cmd)
{
    (void)self, (void)cmd;
    return metalsim_fails() ? NULL : object_autorelease(object_new(&class_process));
}

static const char *system_text(void)
{
    const char *told = metalsim_controls()->system;
    return told ? told : "Version 13.0 (Build 22A380)";
}

void *process_system(void *self, selector cmd)
{
    (void)self, (void)cmd;
    return object_autorelease(string_new(system_text(), strlen(system_text())));
}

/* ---------------------------------------------------------------- descriptors */

void archive_descriptor_set_url(void *self, selector cmd, struct url *url)
{
    (void)cmd;
    struct archive_descriptor *descriptor = self;
    object_retain(url);
    object_release(descriptor->url);
    descriptor->url = url;
}

static void archive_descriptor_dealloc(void *self)
{
    object_release(((struct archive_descriptor *)self)->url);
}

void pipeline_descriptor_set_function(void *self, selector cmd, struct function_object *function)
{
    (void)cmd;
    struct pipeline_descriptor *descriptor = self;
    object_retain(function);
    object_release(descriptor->function);
    descriptor->function = function;
}

void pipeline_descriptor_set_archives(void *self, selector cmd, struct array *archives)
{
    (void)cmd;
    struct pipeline_descriptor *descriptor = self;
    if (archives && archives->one->class != &class_archive)
        stop("setBinaryArchives: a %s is no MTLBinaryArchive", archives->one->class->name);
    object_retain(archives);
    object_release(descriptor->archives);
    descriptor->archives = archives;
}

static void pipeline_descriptor_dealloc(void *self)
{
    struct pipeline_descriptor *descriptor = self;
    object_release(descriptor->function);
    object_release(descriptor->archives);
}

/* ---------------------------------------------------------------- archives */

static bool archive_has(const struct archive *archive, uint64_t function)
{
    for (size_t i = 0; i < archive->n; i++)
        if (archive->functions[i] == function)
            return true;
    return false;
}

static uint64_t sum_of(const struct archive *archive)
{
    uint64_t sum = 1469598103934665603u;
    for (size_t i = 0; i < archive->n; i++)
        sum = (sum ^ archive->functions[i]) * 1099511628211u;
    return sum;
}

/* What is wrong with the file; NULL: nothing. */
static const char *read_archive(struct archive *archive, const char *path)
{
    char line[256] = "";
    uint64_t sum = 0;
    const char *wrong = NULL;
    FILE *file = fopen(path, "rb");
    if (!file)
        return "the file cannot be opened";
    if (!fgets(line, sizeof line, file) || strcmp(line, MAGIC "\n") != 0)
        wrong = "the file is no archive";
    else if (!fgets(line, sizeof line, file) || strncmp(line, system_text(), strlen(system_text())) != 0)
        wrong = "the archive was made by another system";
    while (!wrong && archive->n < MAX_FUNCTIONS &&
           fscanf(file, "function %" SCNx64 "\n", &archive->functions[archive->n]) == 1)
        archive->n++;
    if (!wrong && (fscanf(file, "sum %" SCNx64, &sum) != 1 || sum != sum_of(archive)))
        wrong = "the archive is damaged";
    fclose(file);
    return wrong;
}

void *device_new_archive(void *self, selector cmd, struct archive_descriptor *descriptor,
                         struct error **error)
{
    (void)self, (void)cmd;
    if (!descriptor)
        stop("newBinaryArchiveWithDescriptor: nil");
    struct archive *archive = object_new(&class_archive);
    const char *wrong = metalsim_fails() ? "the compiler's service is gone" : NULL;
    if (!wrong && descriptor->url)
        wrong = read_archive(archive, descriptor->url->path);
    if (!wrong)
        return archive;
    error_give(error, error_new("%s", wrong));
    object_release(archive);
    return NULL;
}

bool archive_add(void *self, selector cmd, struct pipeline_descriptor *descriptor, struct error **error)
{
    (void)cmd;
    struct archive *archive = self;
    if (!descriptor || !descriptor->function)
        stop("addComputePipelineFunctionsWithDescriptor: no function is set");
    if (metalsim_fails() || archive->n == MAX_FUNCTIONS) {
        error_give(error, error_new("the function cannot be added"));
        return false;
    }
    if (!archive_has(archive, descriptor->function->identity)) {
        archive->functions[archive->n++] = descriptor->function->identity;
        counts.pipelines_compiled++;
    }
    return true;
}

bool archive_serialize(void *self, selector cmd, struct url *url, struct error **error)
{
    (void)cmd;
    const struct archive *archive = self;
    FILE *file = metalsim_fails() ? NULL : fopen(url->path, "wb");
    bool written = file && fprintf(file, MAGIC "\n%s\n", system_text()) > 0;
    for (size_t i = 0; written && i < archive->n; i++)
        written = fprintf(file, "function %016" PRIx64 "\n", archive->functions[i]) > 0;
    written = written && fprintf(file, "sum %016" PRIx64 "\n", sum_of(archive)) > 0;
    if (file && fclose(file) != 0)
        written = false;
    if (!written)
        error_give(error, error_new("the archive cannot be written: %s", strerror(errno)));
    return written;
}

/* MTLPipelineOptionFailOnBinaryArchiveMiss is 4. */
void *device_new_described_pipeline(void *self, selector cmd, struct pipeline_descriptor *descriptor,
                                    unsigned long options, void **reflection, struct error **error)
{
    (void)self, (void)cmd;
    if (!descriptor || !descriptor->function)
        stop("newComputePipelineStateWithDescriptor: no function is set");
    if ((options & ~4ul) != 0 || reflection)
        stop("newComputePipelineStateWithDescriptor: the stand-in knows option 4 alone, and no reflection");
    const struct array *archives = descriptor->archives;
    bool found =
        archives && archive_has((const struct archive *)archives->one, descriptor->function->identity);
    bool fails = metalsim_fails();
    if (fails || (!found && (options & 4))) {
        error_give(error, error_new(fails ? "the pipeline cannot be made"
                                          : "the archive does not have the function"));
        return NULL;
    }
    counts.pipelines_compiled += !found;
    counts.pipelines_found += found;
    struct pipeline *pipeline = object_new(&class_pipeline);
    pipeline->function = object_retain(descriptor->function);
    return pipeline;
}

struct class class_url = {.name = "NSURL", .size = sizeof(struct url), .dealloc = url_dealloc};
struct class class_array = {.name = "NSArray", .size = sizeof(struct array), .dealloc = array_dealloc};
struct class class_process = {.name = "NSProcessInfo", .size = sizeof(struct object)};
struct class class_archive = {.name = "MTLBinaryArchive", .size = sizeof(struct archive)};
struct class class_archive_descriptor = {.name = "MTLBinaryArchiveDescriptor",
                                         .size = sizeof(struct archive_descriptor),
                                         .dealloc = archive_descriptor_dealloc};
struct class class_pipeline_descriptor = {.name = "MTLComputePipelineDescriptor",
                                          .size = sizeof(struct pipeline_descriptor),
                                          .dealloc = pipeline_descriptor_dealloc};
