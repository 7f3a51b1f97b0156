/* One dispatch: arguments checked, threadgroup memory laid out, the grid run by the fiber scheduler. */
#include "tests/metal_sim/metal_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Between two pieces of threadgroup memory: nobody's, and looked at after each threadgroup. */
#define GAP         256
#define ARENA_BYTES ((size_t)2 * METALSIM_MAX_SHARED)

struct gap {
    size_t at, bytes;
    const char *name; /* of the piece before it */
};

struct machine {
    struct metalsim_call call;
    const struct metalsim_kernel *kernel;
    struct sim *sim;
    struct sim_buffer arena;
    struct sim_region poisoned; /* the part of the arena in use */
    size_t used, counted;       /* bytes with gaps, and without */
    struct gap gaps[64];
    int n_gap;
    uint64_t dispatch; /* no two are equal: variables' places hold for one */
};

/* One for each CPU thread, kept for the next dispatch. */
static _Thread_local struct machine *running;
static _Thread_local struct machine *machine;
static _Thread_local uint64_t n_dispatch;

/* ---------------------------------------------------------------- threadgroup memory */

/* Room for `bytes` bytes; *ok is false where there is none. */
static size_t place(struct machine *m, size_t bytes, size_t alignment, const char *name, bool *ok)
{
    size_t at = (m->used + alignment - 1) / alignment * alignment;
    size_t end = at + bytes, gap_end = (end + GAP + 15) / 16 * 16;
    m->counted += (bytes + 15) / 16 * 16;
    *ok = bytes <= METALSIM_MAX_SHARED && m->counted <= METALSIM_MAX_SHARED && gap_end <= ARENA_BYTES &&
          m->n_gap < (int)(sizeof m->gaps / sizeof m->gaps[0]);
    if (!*ok)
        return 0;
    m->gaps[m->n_gap++] = (struct gap){end, gap_end - end, name};
    m->used = m->poisoned.bytes = gap_end;
    return at;
}

void *metalsim_threadgroup_variable(struct metalsim_slot *slot, size_t bytes, size_t alignment,
                                    const char *name)
{
    struct machine *m = running;
    if (slot->dispatch != m->dispatch) {
        bool ok;
        slot->offset = place(m, bytes, alignment, name, &ok);
        if (!ok)
            sim_stop("threadgroup memory of kernel %s: %zu bytes with %s, at most %d", m->kernel->name,
                     m->counted, name, METALSIM_MAX_SHARED);
        slot->dispatch = m->dispatch;
    }
    return (unsigned char *)m->arena.data + slot->offset;
}

static bool gaps_intact(const struct machine *m, struct sim_fault *fault)
{
    const unsigned char *arena = m->arena.data;
    for (int i = 0; i < m->n_gap; i++)
        for (size_t at = m->gaps[i].at; at < m->gaps[i].at + m->gaps[i].bytes; at++)
            if (arena[at] != SIM_POISON) {
                fault->kind = SIM_MEMORY;
                snprintf(fault->message, sizeof fault->message,
                         "something wrote %zu bytes past the end of threadgroup memory '%s'",
                         at - m->gaps[i].at, m->gaps[i].name);
                return false;
            }
    return true;
}

/* ---------------------------------------------------------------- one thread, one threadgroup */

static void run_thread(void *context)
{
    struct machine *m = context;
    m->kernel->invoke(&m->call);
}

static bool begin_threadgroup(void *context, int64_t block, struct sim_fault *fault)
{
    (void)fault;
    struct machine *m = context;
    int64_t x = m->call.n_threadgroup[0], y = m->call.n_threadgroup[1];
    m->call.position[0] = (uint32_t)(block % x);
    m->call.position[1] = (uint32_t)(block / x % y);
    m->call.position[2] = (uint32_t)(block / x / y);
    return true;
}

static bool end_threadgroup(void *context, int64_t block, struct sim_fault *fault)
{
    (void)block;
    return gaps_intact(context, fault);
}

/* ---------------------------------------------------------------- arguments */

static const struct metalsim_bound *bound_at(const struct metalsim_dispatch *dispatch, int index)
{
    const struct metalsim_bound *found = NULL;
    for (int i = 0; i < dispatch->n_buffer; i++)
        if (dispatch->buffers[i].index == index)
            found = &dispatch->buffers[i];
    return found;
}

static bool bind_buffer(struct machine *m, const struct metalsim_argument *argument,
                        const struct metalsim_type *type, const struct metalsim_dispatch *dispatch,
                        char *message, size_t size)
{
    const struct metalsim_bound *bound = bound_at(dispatch, argument->index);
    if (argument->index < 0 || argument->index >= METALSIM_MAX_INDEX)
        snprintf(message, size, "%s: buffer index %d of '%s' is not below %d", m->kernel->name,
                 argument->index, argument->name, METALSIM_MAX_INDEX);
    else if (!bound)
        snprintf(message, size, "%s: buffer %d, '%s', is not set", m->kernel->name, argument->index,
                 argument->name);
    else if (bound->offset > bound->bytes ||
             (type->is_reference && bound->bytes - bound->offset < type->bytes))
        snprintf(message, size, "%s: buffer %d, '%s', has %zu bytes at offset %zu, and one value needs %zu",
                 m->kernel->name, argument->index, argument->name, bound->bytes, bound->offset, type->bytes);
    else if (((uintptr_t)bound->data + bound->offset) % type->alignment)
        snprintf(message, size,
                 "%s: buffer %d, '%s', is bound at an offset of %zu, which is no multiple of %zu",
                 m->kernel->name, argument->index, argument->name, bound->offset, type->alignment);
    else {
        m->call.buffers[argument->index] = (unsigned char *)bound->data + bound->offset;
        return true;
    }
    return false;
}

static bool bind_shared(struct machine *m, const struct metalsim_argument *argument,
                        const struct metalsim_dispatch *dispatch, char *message, size_t size)
{
    size_t bytes = 0;
    bool ok;
    for (int i = 0; i < dispatch->n_shared; i++)
        bytes = dispatch->shared[i].index == argument->index ? dispatch->shared[i].bytes : bytes;
    if (bytes == 0) {
        snprintf(message, size, "%s: threadgroup memory %d, '%s', has no length", m->kernel->name,
                 argument->index, argument->name);
        return false;
    }
    if (bytes % 16) {
        snprintf(message, size, "%s: threadgroup memory %d has %zu bytes, which is no multiple of 16",
                 m->kernel->name, argument->index, bytes);
        return false;
    }
    size_t at = place(m, bytes, 16, argument->name, &ok);
    m->call.shared[argument->index] = (unsigned char *)m->arena.data + at;
    if (!ok)
        snprintf(message, size, "%s: threadgroup memory: %zu bytes with '%s', at most %d", m->kernel->name,
                 m->counted, argument->name, METALSIM_MAX_SHARED);
    return ok;
}

static bool bind(struct machine *m, const struct metalsim_dispatch *dispatch, char *message, size_t size)
{
    for (int i = 0; i < m->kernel->n_argument; i++) {
        const struct metalsim_argument *argument = &m->kernel->arguments[i];
        if (argument->from == METALSIM_BUFFER &&
            !bind_buffer(m, argument, &m->kernel->types[i], dispatch, message, size))
            return false;
        if (argument->from == METALSIM_THREADGROUP && !bind_shared(m, argument, dispatch, message, size))
            return false;
    }
    return true;
}

static bool check_size(const struct metalsim_kernel *kernel, const struct metalsim_dispatch *dispatch,
                       char *message, size_t size)
{
    uint64_t n = 1, limit = kernel->max_threads ? (uint64_t)kernel->max_threads : METALSIM_MAX_THREADS;
    for (int d = 0; d < 3; d++) {
        if (dispatch->n_threadgroup[d] == 0 || dispatch->n_thread[d] == 0) {
            snprintf(message, size, "%s: a grid without threads (dimension %d)", kernel->name, d);
            return false;
        }
        n *= dispatch->n_thread[d] <= METALSIM_MAX_THREADS ? dispatch->n_thread[d] : METALSIM_MAX_THREADS + 1;
    }
    if (n <= limit)
        return true;
    snprintf(message, size, "%s: a threadgroup of %llu threads, at most %llu", kernel->name,
             (unsigned long long)n, (unsigned long long)limit);
    return false;
}

static struct machine *own_machine(char *message, size_t size)
{
    if (machine)
        return machine;
    struct machine *m = calloc(1, sizeof *m);
    if (m)
        m->sim = sim_new();
    if (m && m->sim && sim_buffer_init(&m->arena, "threadgroup memory", ARENA_BYTES, 256))
        return machine = m;
    if (m)
        sim_free(m->sim);
    free(m);
    snprintf(message, size, "no memory for the simulator's threads");
    return NULL;
}

bool metalsim_dispatch(const struct metalsim_kernel *kernel, const struct metalsim_dispatch *dispatch,
                       char *message, size_t size)
{
    struct machine *m = own_machine(message, size);
    struct sim_fault fault;
    if (!m || !check_size(kernel, dispatch, message, size))
        return false;
    m->call = (struct metalsim_call){0};
    memcpy(m->call.n_threadgroup, dispatch->n_threadgroup, sizeof m->call.n_threadgroup);
    memcpy(m->call.n_thread, dispatch->n_thread, sizeof m->call.n_thread);
    m->kernel = kernel;
    m->used = m->counted = 0;
    m->n_gap = 0;
    m->dispatch = ++n_dispatch;
    m->poisoned = (struct sim_region){.data = m->arena.data};
    if (!bind(m, dispatch, message, size))
        return false;
    memset(m->arena.data, SIM_POISON,
           ARENA_BYTES); /* variables are placed while the first threadgroup runs */
    const uint32_t *groups = dispatch->n_threadgroup, *threads = dispatch->n_thread;
    struct sim_launch launch = {.n_block = (int64_t)groups[0] * groups[1] * groups[2],
                                .n_thread = (int)(threads[0] * threads[1] * threads[2]),
                                .n_lane = METALSIM_WIDTH,
                                .order = dispatch->order,
                                .seed = dispatch->seed,
                                .kernel = run_thread,
                                .context = m,
                                .shared = &m->poisoned,
                                .n_shared = 1,
                                .before_block = begin_threadgroup,
                                .after_block = end_threadgroup};
    running = m;
    bool ok = sim_run(m->sim, &launch, &fault);
    running = NULL;
    if (!ok)
        snprintf(message, size, "%s: %s", kernel->name, fault.message);
    return ok;
}

/* ---------------------------------------------------------------- with guards */

bool metalsim_run(const struct metalsim_library *library, const char *name,
                  const struct metalsim_dispatch *dispatch, char *message, size_t size)
{
    const struct metalsim_kernel *kernel = metalsim_library_find(library, name);
    struct sim_buffer guarded[METALSIM_MAX_INDEX] = {0};
    struct metalsim_bound bound[METALSIM_MAX_INDEX];
    struct metalsim_dispatch guarded_dispatch = *dispatch;
    struct sim_fault fault;
    int n = 0;
    if (!kernel || dispatch->n_buffer > METALSIM_MAX_INDEX) {
        snprintf(message, size, "the library has no kernel '%s'", name);
        return false;
    }
    bool ok = true;
    for (; n < dispatch->n_buffer && ok; n++) {
        char label[32];
        bound[n] = dispatch->buffers[n];
        snprintf(label, sizeof label, "buffer %d", bound[n].index);
        ok = sim_buffer_init(&guarded[n], label, bound[n].bytes, 16);
        if (!ok)
            snprintf(message, size, "no memory for %zu bytes", bound[n].bytes);
        else if (bound[n].bytes)
            memcpy(guarded[n].data, bound[n].data, bound[n].bytes);
        bound[n].data = guarded[n].data;
    }
    guarded_dispatch.buffers = bound;
    ok = ok && metalsim_dispatch(kernel, &guarded_dispatch, message, size);
    for (int i = 0; i < n; i++) {
        if (ok && !sim_buffer_intact(&guarded[i], &fault)) {
            snprintf(message, size, "%s: %s", name, fault.message);
            ok = false;
        }
        if (guarded[i].mapping && bound[i].bytes)
            memcpy(dispatch->buffers[i].data, guarded[i].data, bound[i].bytes);
        sim_buffer_release(&guarded[i]);
    }
    return ok;
}
