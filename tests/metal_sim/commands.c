/* MTLCommandQueue, MTLCommandBuffer, MTLComputeCommandEncoder: what is asked for, and later its running. */
#include "tests/metal_sim/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status { NOT_COMMITTED = 0, COMMITTED = 2, SCHEDULED = 3, COMPLETED = 4, FAILED = 5 };

/* What an index is bound to: a buffer, or bytes of the encoder's own. */
struct binding {
    struct buffer *buffer; /* retained, or NULL */
    struct sim_buffer *bytes;
    size_t offset;
};

struct dispatch {
    struct dispatch *next;
    struct pipeline *pipeline;
    struct binding bound[METALSIM_MAX_INDEX];
    size_t shared[METALSIM_MAX_INDEX];
    struct size3 groups, threads;
    uint64_t span; /* dispatches of a concurrent encoder with the same number may run in any order */
};

/* setBytes: shared by the dispatches that were encoded while it was bound, freed with the command buffer. */
struct piece {
    struct piece *next;
    struct sim_buffer buffer;
};

struct commands {
    struct object object;
    struct queue *queue;
    enum status status;
    struct encoder *encoder; /* that has not ended */
    struct dispatch *first, **last;
    struct piece *pieces;
    struct error *error;
    struct commands *next; /* committed after it */
    double start, end;
    uint64_t span;
};

struct queue {
    struct object object;
    struct commands *pending; /* committed and not run, the oldest first; retained */
    double clock;
};

struct encoder {
    struct object object;
    struct commands *commands; /* retained */
    bool ended, concurrent;
    struct pipeline *pipeline;
    struct binding bound[METALSIM_MAX_INDEX];
    size_t shared[METALSIM_MAX_INDEX];
};

static uint64_t n_committed;

/* ---------------------------------------------------------------- making */

void *queue_commands(void *self, selector cmd)
{
    (void)cmd;
    if (metalsim_fails())
        return NULL;
    struct commands *commands = object_new(&class_commands);
    commands->queue = object_retain(self);
    commands->last = &commands->first;
    counts.command_buffers++;
    return object_autorelease(commands);
}

void *commands_encoder_typed(void *self, selector cmd, unsigned long type)
{
    (void)cmd;
    struct commands *commands = self;
    if (type > 1)
        stop("computeCommandEncoderWithDispatchType: %lu is neither serial, 0, nor concurrent, 1", type);
    if (commands->status != NOT_COMMITTED || commands->encoder)
        stop("computeCommandEncoder: the command buffer %s",
             commands->encoder ? "has an encoder that has not ended" : "is committed");
    if (metalsim_fails())
        return NULL;
    struct encoder *encoder = object_new(&class_encoder);
    encoder->commands = object_retain(commands);
    encoder->concurrent = type == 1;
    commands->encoder = encoder;
    commands->span++;
    counts.encoders++;
    return object_autorelease(encoder);
}

void *commands_encoder(void *self, selector cmd)
{
    return commands_encoder_typed(self, cmd, 0);
}

/* ---------------------------------------------------------------- encoding */

static struct encoder *open_encoder(void *self, const char *method)
{
    struct encoder *encoder = self;
    if (encoder->ended)
        stop("%s: the encoder has ended", method);
    return encoder;
}

static void check_index(const char *method, unsigned long index)
{
    if (index >= METALSIM_MAX_INDEX)
        stop("%s: index %lu: 0 to %d", method, index, METALSIM_MAX_INDEX - 1);
}

void encoder_set_pipeline(void *self, selector cmd, struct pipeline *pipeline)
{
    (void)cmd;
    struct encoder *encoder = open_encoder(self, "setComputePipelineState");
    if (!pipeline)
        stop("setComputePipelineState: nil");
    object_retain(pipeline);
    object_release(encoder->pipeline);
    encoder->pipeline = pipeline;
}

static void rebind(struct encoder *encoder, unsigned long index, struct binding to)
{
    object_retain(to.buffer);
    object_release(encoder->bound[index].buffer);
    encoder->bound[index] = to;
}

void encoder_set_buffer(void *self, selector cmd, struct buffer *buffer, unsigned long offset,
                        unsigned long index)
{
    (void)cmd;
    struct encoder *encoder = open_encoder(self, "setBuffer");
    check_index("setBuffer", index);
    if (buffer && offset >= buffer->bytes)
        stop("setBuffer: offset %lu at index %lu, in a buffer of %zu bytes", offset, index, buffer->bytes);
    rebind(encoder, index, (struct binding){.buffer = buffer, .offset = offset});
    counts.set_buffers++;
}

void encoder_set_offset(void *self, selector cmd, unsigned long offset, unsigned long index)
{
    (void)cmd;
    struct encoder *encoder = open_encoder(self, "setBufferOffset");
    check_index("setBufferOffset", index);
    const struct buffer *buffer = encoder->bound[index].buffer;
    if (!buffer || offset >= buffer->bytes)
        stop("setBufferOffset: offset %lu at index %lu, %s", offset, index,
             buffer ? "past the buffer's end" : "where no buffer is set");
    encoder->bound[index].offset = offset;
}

void encoder_set_bytes(void *self, selector cmd, const void *bytes, unsigned long n, unsigned long index)
{
    (void)cmd;
    struct encoder *encoder = open_encoder(self, "setBytes");
    check_index("setBytes", index);
    if (n == 0 || n > METALSIM_MAX_SET_BYTES)
        stop("setBytes: %lu bytes at index %lu: 1 to %d", n, index, METALSIM_MAX_SET_BYTES);
    struct piece *piece = calloc(1, sizeof *piece);
    if (!piece || !sim_buffer_init(&piece->buffer, "setBytes", n, 16))
        stop("no memory for setBytes");
    memcpy(piece->buffer.data, bytes, n);
    piece->next = encoder->commands->pieces;
    encoder->commands->pieces = piece;
    rebind(encoder, index, (struct binding){.bytes = &piece->buffer});
    counts.set_bytes++;
    counts.bytes_set += n;
}

void encoder_set_shared(void *self, selector cmd, unsigned long bytes, unsigned long index)
{
    (void)cmd;
    struct encoder *encoder = open_encoder(self, "setThreadgroupMemoryLength");
    check_index("setThreadgroupMemoryLength", index);
    if (bytes % 16 || bytes > METALSIM_MAX_SHARED)
        stop("setThreadgroupMemoryLength: %lu bytes at index %lu: a multiple of 16, at most %d", bytes, index,
             METALSIM_MAX_SHARED);
    encoder->shared[index] = bytes;
}

void encoder_barrier(void *self, selector cmd, unsigned long scope)
{
    (void)cmd;
    struct encoder *encoder = open_encoder(self, "memoryBarrierWithScope");
    if (scope != 1)
        stop("memoryBarrierWithScope: %lu: the stand-in knows MTLBarrierScopeBuffers, 1", scope);
    encoder->commands->span++;
    counts.barriers++;
}

/* Every argument of the kernel has something bound to it that is large enough. */
static void check_arguments(const struct encoder *encoder)
{
    const struct metalsim_kernel *kernel = encoder->pipeline->function->kernel;
    for (int i = 0; i < kernel->n_argument; i++) {
        const struct metalsim_argument *argument = &kernel->arguments[i];
        if (argument->from == METALSIM_THREADGROUP && encoder->shared[argument->index] == 0)
            stop("kernel %s: threadgroup memory %d, '%s', has no length", kernel->name, argument->index,
                 argument->name);
        if (argument->from != METALSIM_BUFFER)
            continue;
        const struct binding *bound = &encoder->bound[argument->index];
        if (!bound->buffer && !bound->bytes)
            stop("kernel %s: buffer %d, '%s', is not set", kernel->name, argument->index, argument->name);
        size_t have = bound->buffer ? bound->buffer->bytes - bound->offset : bound->bytes->bytes;
        if (kernel->types[i].is_reference && have < kernel->types[i].bytes)
            stop("kernel %s: buffer %d, '%s', has %zu bytes, and one value needs %zu", kernel->name,
                 argument->index, argument->name, have, kernel->types[i].bytes);
        if (bound->bytes && kernel->types[i].is_written)
            stop("kernel %s: buffer %d, '%s', is written to, and setBytes gave it", kernel->name,
                 argument->index, argument->name);
    }
}

static void check_grid(const struct encoder *encoder, struct size3 groups, struct size3 threads)
{
    const char *name = encoder->pipeline->function->kernel->name;
    unsigned long limit = pipeline_max_threads(encoder->pipeline, NULL), most = METALSIM_MAX_THREADS;
    if (groups.width == 0 || groups.height == 0 || groups.depth == 0 || groups.width > UINT32_MAX ||
        groups.height > UINT32_MAX || groups.depth > UINT32_MAX)
        stop("kernel %s: a grid of %lu x %lu x %lu threadgroups", name, groups.width, groups.height,
             groups.depth);
    if (threads.width == 0 || threads.height == 0 || threads.depth == 0 || threads.width > most ||
        threads.height > most || threads.depth > most ||
        threads.width * threads.height * threads.depth > limit)
        stop("kernel %s: a threadgroup of %lu x %lu x %lu threads: at most %lu in all", name, threads.width,
             threads.height, threads.depth, limit);
}

void encoder_dispatch(void *self, selector cmd, struct size3 groups, struct size3 threads)
{
    (void)cmd;
    struct encoder *encoder = open_encoder(self, "dispatchThreadgroups");
    if (!encoder->pipeline)
        stop("dispatchThreadgroups: no pipeline is set");
    check_arguments(encoder);
    check_grid(encoder, groups, threads);
    counts.dispatches++;
    counts.threadgroups += groups.width * groups.height * groups.depth;
    if (metalsim_controls()->encode_only)
        return;
    struct dispatch *dispatch = calloc(1, sizeof *dispatch);
    if (!dispatch)
        stop("no memory for a dispatch");
    dispatch->pipeline = object_retain(encoder->pipeline);
    for (int i = 0; i < METALSIM_MAX_INDEX; i++) {
        dispatch->bound[i] = encoder->bound[i];
        object_retain(dispatch->bound[i].buffer);
    }
    memcpy(dispatch->shared, encoder->shared, sizeof dispatch->shared);
    dispatch->groups = groups;
    dispatch->threads = threads;
    if (!encoder->concurrent)
        encoder->commands->span++;
    dispatch->span = encoder->commands->span;
    *encoder->commands->last = dispatch;
    encoder->commands->last = &dispatch->next;
}

void encoder_end(void *self, selector cmd)
{
    (void)cmd;
    struct encoder *encoder = open_encoder(self, "endEncoding");
    encoder->ended = true;
    encoder->commands->encoder = NULL;
    encoder->commands->span++;
}

static void encoder_dealloc(void *self)
{
    struct encoder *encoder = self;
    if (!encoder->ended)
        stop("a MTLComputeCommandEncoder is released without endEncoding");
    for (int i = 0; i < METALSIM_MAX_INDEX; i++)
        object_release(encoder->bound[i].buffer);
    object_release(encoder->pipeline);
    object_release(encoder->commands);
}

/* ---------------------------------------------------------------- running */

static void free_dispatch(struct dispatch *dispatch)
{
    for (int i = 0; i < METALSIM_MAX_INDEX; i++)
        object_release(dispatch->bound[i].buffer);
    object_release(dispatch->pipeline);
    free(dispatch);
}

/* Lets go of everything that a command buffer holds on to. */
static void empty(struct commands *commands)
{
    for (struct dispatch *d = commands->first, *next; d; d = next) {
        next = d->next;
        free_dispatch(d);
    }
    commands->first = NULL;
    commands->last = &commands->first;
    for (struct piece *p = commands->pieces, *next; p; p = next) {
        next = p->next;
        sim_buffer_release(&p->buffer);
        free(p);
    }
    commands->pieces = NULL;
}

/* Reverses the order within each span: what may run in any order runs in another one. */
static void reorder(struct commands *commands)
{
    struct dispatch *done = NULL, **end = &done, *rest = commands->first;
    while (rest) {
        struct dispatch *reversed = NULL, *last = rest;
        uint64_t span = rest->span;
        while (rest && rest->span == span) {
            struct dispatch *next = rest->next;
            rest->next = reversed;
            reversed = rest;
            rest = next;
        }
        *end = reversed;
        end = &last->next;
    }
    commands->first = done;
    commands->last = end;
}

static bool run_one(const struct dispatch *d, char *message, size_t size)
{
    struct metalsim_bound bound[METALSIM_MAX_INDEX];
    struct metalsim_shared shared[METALSIM_MAX_INDEX];
    struct metalsim_dispatch run = {
        .n_threadgroup = {(uint32_t)d->groups.width, (uint32_t)d->groups.height, (uint32_t)d->groups.depth},
        .n_thread = {(uint32_t)d->threads.width, (uint32_t)d->threads.height, (uint32_t)d->threads.depth},
        .buffers = bound,
        .shared = shared,
        .order = metalsim_controls()->order,
        .seed = metalsim_controls()->seed + counts.run};
    for (int i = 0; i < METALSIM_MAX_INDEX; i++) {
        const struct binding *b = &d->bound[i];
        if (b->buffer)
            bound[run.n_buffer++] = (struct metalsim_bound){i, b->buffer->data, b->buffer->bytes, b->offset};
        else if (b->bytes)
            bound[run.n_buffer++] = (struct metalsim_bound){i, b->bytes->data, b->bytes->bytes, 0};
        if (d->shared[i])
            shared[run.n_shared++] = (struct metalsim_shared){i, d->shared[i]};
    }
    if (!metalsim_dispatch(d->pipeline->function->kernel, &run, message, size))
        return false;
    counts.run++;
    struct sim_fault fault;
    for (int i = 0; i < METALSIM_MAX_INDEX; i++)
        if (d->bound[i].buffer && d->bound[i].buffer->guarded.mapping &&
            !sim_buffer_intact(&d->bound[i].buffer->guarded, &fault)) {
            snprintf(message, size, "%s: %s", d->pipeline->function->kernel->name, fault.message);
            return false;
        }
    return true;
}

/* The oldest pending command buffer runs. */
static void run_oldest(struct queue *queue)
{
    struct commands *commands = queue->pending;
    char message[METALSIM_MESSAGE] = "";
    uint64_t lost = metalsim_controls()->lost_at;
    queue->pending = commands->next;
    commands->start = queue->clock += 1e-6;
    bool ok = !(lost && ++n_committed >= lost) && !metalsim_fails();
    if (!ok)
        snprintf(message, sizeof message,
                 "the device was lost (kIOGPUCommandBufferCallbackErrorDeviceRemoved)");
    if (metalsim_controls()->order != SIM_FORWARD)
        reorder(commands);
    for (struct dispatch *d = commands->first; d && ok; d = d->next)
        ok = run_one(d, message, sizeof message);
    commands->end = queue->clock += 1e-6;
    commands->status = ok ? COMPLETED : FAILED;
    if (!ok)
        commands->error = error_new("%s", message);
    empty(commands);
    object_release(commands);
}

static void run_through(struct commands *commands)
{
    object_retain(commands);
    while (commands->status == COMMITTED || commands->status == SCHEDULED)
        run_oldest(commands->queue);
    object_release(commands);
}

void commands_commit(void *self, selector cmd)
{
    (void)cmd;
    struct commands *commands = object_retain(self), **end = &commands->queue->pending;
    if (commands->status != NOT_COMMITTED)
        stop("commit: the command buffer is committed already");
    if (commands->encoder)
        stop("commit: the command buffer has an encoder that has not ended");
    while (*end)
        end = &(*end)->next;
    *end = commands;
    commands->status = COMMITTED;
    if (metalsim_controls()->run_at_commit)
        run_through(commands);
}

void commands_wait(void *self, selector cmd)
{
    (void)cmd;
    struct commands *commands = self;
    if (commands->status == NOT_COMMITTED)
        stop("waitUntilCompleted: the command buffer is not committed");
    run_through(commands);
}

/* Who asks again and again gets there too. */
unsigned long commands_status(void *self, selector cmd)
{
    (void)cmd;
    struct commands *commands = self;
    if (commands->status == SCHEDULED)
        run_through(commands);
    else if (commands->status == COMMITTED)
        commands->status = SCHEDULED;
    return commands->status;
}

void *commands_error(void *self, selector cmd)
{
    (void)cmd;
    return object_autorelease(object_retain(((struct commands *)self)->error));
}

double commands_start(void *self, selector cmd)
{
    (void)cmd;
    return ((struct commands *)self)->start;
}

double commands_end(void *self, selector cmd)
{
    (void)cmd;
    return ((struct commands *)self)->end;
}

static void commands_dealloc(void *self)
{
    struct commands *commands = self;
    empty(commands);
    object_release(commands->error);
    object_release(commands->queue);
}

struct class class_queue = {.name = "MTLCommandQueue", .size = sizeof(struct queue)};
struct class class_commands = {
    .name = "MTLCommandBuffer", .size = sizeof(struct commands), .dealloc = commands_dealloc};
struct class class_encoder = {
    .name = "MTLComputeCommandEncoder", .size = sizeof(struct encoder), .dealloc = encoder_dealloc};
