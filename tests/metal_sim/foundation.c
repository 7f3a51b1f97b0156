/* NSObject, NSString, NSError, and the two kinds of settings that Metal takes. */
#include "tests/metal_sim/foundation.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- every object */

void *any_retain(void *self, selector cmd)
{
    (void)cmd;
    return object_retain(self);
}

void any_release(void *self, selector cmd)
{
    (void)cmd;
    object_release(self);
}

void *any_autorelease(void *self, selector cmd)
{
    (void)cmd;
    return object_autorelease(self);
}

unsigned long any_retain_count(void *self, selector cmd)
{
    (void)cmd;
    return (unsigned long)((struct object *)self)->count;
}

void *any_alloc(void *self, selector cmd)
{
    (void)cmd;
    return metalsim_fails() ? NULL : object_new(self);
}

void *any_init(void *self, selector cmd)
{
    (void)cmd;
    if (((struct object *)self)->class == &class_options)
        ((struct options *)self)->fast_math = true;
    return self;
}

void *any_new(void *self, selector cmd)
{
    void *object = any_alloc(self, cmd);
    return object ? any_init(object, cmd) : NULL;
}

/* ---------------------------------------------------------------- strings and errors */

struct string *string_new(const char *text, size_t n)
{
    struct string *string = object_new(&class_string);
    string->text = malloc(n + 1);
    if (!string->text)
        stop("no memory for a string");
    memcpy(string->text, text, n);
    string->text[n] = '\0';
    string->n = n;
    return string;
}

static void string_dealloc(void *self)
{
    struct string *string = self;
    free(string->text);
}

void *string_with_utf8(void *self, selector cmd, const char *text)
{
    (void)self, (void)cmd;
    return metalsim_fails() ? NULL : object_autorelease(string_new(text, strlen(text)));
}

void *string_init_with_bytes(void *self, selector cmd, const void *bytes, unsigned long n,
                             unsigned long encoding)
{
    (void)cmd;
    struct string *string = self;
    if (encoding != 4)
        stop("initWithBytes: encoding %lu: the stand-in knows UTF-8, 4", encoding);
    if (metalsim_fails()) {
        object_release(self); /* as init does that returns nil */
        return NULL;
    }
    string->text = malloc(n + 1);
    if (!string->text)
        stop("no memory for a string");
    memcpy(string->text, bytes, n);
    string->text[n] = '\0';
    string->n = n;
    return string;
}

const char *string_utf8(void *self, selector cmd)
{
    (void)cmd;
    return ((struct string *)self)->text;
}

unsigned long string_length(void *self, selector cmd)
{
    (void)cmd;
    return ((struct string *)self)->n;
}

struct error *error_new(const char *format, ...)
{
    char text[METALSIM_MESSAGE + 256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    struct error *error = object_new(&class_error);
    error->description = string_new(text, strlen(text));
    return error;
}

void error_give(struct error **out, struct error *error)
{
    if (out)
        *out = object_autorelease(error);
    else
        object_release(error);
}

static void error_dealloc(void *self)
{
    struct error *error = self;
    object_release(error->description);
}

void *error_description(void *self, selector cmd)
{
    (void)cmd;
    return object_autorelease(object_retain(((struct error *)self)->description));
}

long error_code(void *self, selector cmd)
{
    (void)self, (void)cmd;
    return 1;
}

/* ---------------------------------------------------------------- settings */

void options_set_fast_math(void *self, selector cmd, bool fast)
{
    (void)cmd;
    ((struct options *)self)->fast_math = fast;
}

void options_set_version(void *self, selector cmd, unsigned long version)
{
    (void)cmd;
    static const unsigned long known[] = {131072, 131073, 131074, 131075, 131076, 196608, 196609, 196610};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i] == version) {
            ((struct options *)self)->version = version;
            return;
        }
    stop("setLanguageVersion: %lu is none: 2.0 is 131072, 3.0 is 196608, 3.1 is 196609", version);
}

static size_t bytes_of(unsigned long type)
{
    switch (type) {
    case METALSIM_BOOL:
    case METALSIM_CHAR:
    case METALSIM_UCHAR:
        return 1;
    case METALSIM_HALF:
    case METALSIM_BFLOAT:
    case METALSIM_SHORT:
    case METALSIM_USHORT:
        return 2;
    case METALSIM_FLOAT:
    case METALSIM_INT:
    case METALSIM_UINT:
        return 4;
    default:
        stop("setConstantValue: the stand-in does not know MTLDataType %lu", type);
    }
}

void constants_set(void *self, selector cmd, const void *value, unsigned long type, unsigned long index)
{
    (void)cmd;
    struct constants *constants = self;
    size_t bytes = bytes_of(type);
    int i = 0;
    while (i < constants->n && constants->list[i].index != (int)index)
        i++;
    if (i == (int)(sizeof constants->list / sizeof constants->list[0]))
        stop("setConstantValue: more than %d constants", i);
    memcpy(&constants->values[i], value, bytes);
    constants->list[i] = (struct metalsim_constant){(int)index, (int)type, &constants->values[i]};
    constants->n = i == constants->n ? i + 1 : constants->n;
}

struct class class_string = {.name = "NSString", .size = sizeof(struct string), .dealloc = string_dealloc};
struct class class_error = {.name = "NSError", .size = sizeof(struct error), .dealloc = error_dealloc};
struct class class_options = {.name = "MTLCompileOptions", .size = sizeof(struct options)};
struct class class_constants = {.name = "MTLFunctionConstantValues", .size = sizeof(struct constants)};
struct class class_pool = {.name = "NSObject", .size = sizeof(struct object)};
