/* Objects, classes, selectors, pools: the part of the Objective-C runtime that the stand-in needs. */
#include "tests/metal_sim/objects.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct selector {
    struct selector *next;
    char name[];
};

struct message {
    const struct class *class;
    selector selector;
};

#define MAX_POOLED 65536

struct metalsim_counts counts;
static struct metalsim_controls controls;
static struct object live = {.next = &live, .previous = &live};
static struct object *gone; /* kept, so that a late message is noticed */
static struct selector *selectors;
static struct object *pooled[MAX_POOLED]; /* autoreleased, the newest last */
static size_t n_pooled;
static int n_pool;
static struct message *logged;
static size_t n_logged, logged_room;

void stop(const char *format, ...)
{
    char line[512];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (controls.on_stop)
        controls.on_stop(line);
    fprintf(stderr, "metalsim: %s\n", line);
    abort();
}

/* ---------------------------------------------------------------- counts */

void *object_new(const struct class *class)
{
    struct object *object = calloc(1, class->size);
    if (!object)
        stop("no memory for a %s", class->name);
    object->class = class;
    object->count = 1;
    object->next = &live;
    object->previous = live.previous;
    live.previous->next = object;
    live.previous = object;
    counts.live_objects++;
    return object;
}

static bool is_class(const struct object *object)
{
    return object->class == NULL;
}

void *object_retain(void *any)
{
    struct object *object = any;
    if (object && !is_class(object))
        object->count++;
    return object;
}

void object_release(void *any)
{
    struct object *object = any;
    if (!object || is_class(object))
        return;
    if (object->count <= 0)
        stop("a %s is released once too often", object->class->name);
    if (--object->count > 0)
        return;
    if (object->class->dealloc)
        object->class->dealloc(object);
    object->next->previous = object->previous;
    object->previous->next = object->next;
    object->next = gone;
    gone = object;
    counts.live_objects--;
}

void *object_autorelease(void *object)
{
    if (!object)
        return NULL;
    if (n_pool == 0)
        counts.autoreleased_without_pool++;
    if (n_pooled == MAX_POOLED)
        stop("%d objects wait for a pool to be popped", MAX_POOLED);
    pooled[n_pooled++] = object;
    return object;
}

void *objc_autoreleasePoolPush(void);
void objc_autoreleasePoolPop(void *pool);

void *objc_autoreleasePoolPush(void)
{
    n_pool++;
    return &pooled[n_pooled];
}

void objc_autoreleasePoolPop(void *pool)
{
    struct object **first = pool;
    if (n_pool == 0 || first < pooled || first > pooled + n_pooled)
        stop("a pool is popped that is not there");
    n_pool--;
    while (pooled + n_pooled > first)
        object_release(pooled[--n_pooled]);
}

const char *metalsim_live(void)
{
    static char text[512];
    size_t n = 0;
    text[0] = '\0';
    for (struct object *one = live.next; one != &live && n < sizeof text - 64; one = one->next) {
        int same = 0;
        bool named = false;
        for (struct object *other = live.next; other != &live; other = other->next) {
            named = named || (other->class == one->class && same == 0 && other != one);
            same += other->class == one->class;
        }
        if (!named)
            n +=
                (size_t)snprintf(text + n, sizeof text - n, "%s%s %d", n ? ", " : "", one->class->name, same);
    }
    return text;
}

/* ---------------------------------------------------------------- names */

selector sel_registerName(const char *name);
struct object *objc_getClass(const char *name);

selector sel_registerName(const char *name)
{
    for (struct selector *s = selectors; s; s = s->next)
        if (!strcmp(s->name, name))
            return s;
    struct selector *made = malloc(sizeof *made + strlen(name) + 1);
    if (!made)
        stop("no memory for a selector");
    strcpy(made->name, name);
    made->next = selectors;
    return selectors = made;
}

struct object *objc_getClass(const char *name)
{
    static struct class *const classes[] = {&class_string,
                                            &class_options,
                                            &class_constants,
                                            &class_pool,
                                            &class_url,
                                            &class_array,
                                            &class_process,
                                            &class_archive_descriptor,
                                            &class_pipeline_descriptor};
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        if (!strcmp(classes[i]->name, name))
            return &classes[i]->object;
    return NULL;
}

/* ---------------------------------------------------------------- messages */

static void note(const struct class *class, selector name)
{
    if (n_logged == logged_room) {
        logged_room = logged_room ? 2 * logged_room : 1024;
        logged = realloc(logged, logged_room * sizeof *logged);
        if (!logged)
            stop("no memory for the log");
    }
    logged[n_logged++] = (struct message){class, name};
}

const char *metalsim_log(size_t i)
{
    static char text[128];
    if (i >= n_logged)
        return NULL;
    snprintf(text, sizeof text, "%s %s", logged[i].class->name, logged[i].selector->name);
    return text;
}

void metalsim_clear_log(void)
{
    n_logged = 0;
}

/* What objc_msgSend goes on to: called by the assembly in message.c. */
void (*metalsim_lookup(struct object *object, selector cmd))(void);

void (*metalsim_lookup(struct object *object, selector cmd))(void)
{
    bool of_class = is_class(object);
    const struct class *class = of_class ? (const struct class *)object : object->class;
    if (!of_class && object->count <= 0)
        stop("%s is sent to a %s that is gone", cmd->name, class->name);
    if (controls.log)
        note(class, cmd);
    for (const struct method *m = metalsim_methods; m->name; m++)
        if (m->of_class == of_class && (m->class == NULL || m->class == class) && !strcmp(m->name, cmd->name))
            return m->function;
    stop("%s does not know %c%s", class->name, of_class ? '+' : '-', cmd->name);
}

const char *metalsim_method(size_t i)
{
    static char text[256];
    const struct method *m = metalsim_methods;
    for (size_t j = 0; j < i && m->name; j++)
        m++;
    if (!m->name)
        return NULL;
    snprintf(text, sizeof text, "%s %c%s %s", m->class ? m->class->name : "NSObject", m->of_class ? '+' : '-',
             m->name, m->types);
    return text;
}

/* ---------------------------------------------------------------- for tests */

__attribute__((constructor)) static void read_environment(void)
{
    const char *order = getenv("METALSIM_ORDER"), *page = getenv("METALSIM_PAGE");
    controls.encode_only = getenv("METALSIM_ENCODE_ONLY") != NULL;
    controls.run_at_commit = getenv("METALSIM_RUN_AT_COMMIT") != NULL;
    controls.no_device = getenv("METALSIM_NO_DEVICE") != NULL;
    controls.page = page ? strtoull(page, NULL, 10) : 0;
    if (order && !strcmp(order, "reverse"))
        controls.order = SIM_REVERSE;
    if (order && !strncmp(order, "random", 6)) {
        controls.order = SIM_RANDOM;
        controls.seed = order[6] == ':' ? strtoull(order + 7, NULL, 10) : 1;
    }
}

struct metalsim_controls *metalsim_controls(void)
{
    return &controls;
}

struct metalsim_counts metalsim_counts(void)
{
    return counts;
}

void metalsim_reset_counts(void)
{
    counts = (struct metalsim_counts){.live_objects = counts.live_objects,
                                      .live_buffer_bytes = counts.live_buffer_bytes};
}

bool metalsim_fails(void)
{
    return ++counts.calls == controls.fail_at;
}
