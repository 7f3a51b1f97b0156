/*
 * The stand-in for Metal and the Objective-C runtime: messages by the calling convention, counts of
 * references, what it stops at, what it fails with, and that the names it knows are the published ones.
 */
#include "backend/metal/objc.h"
#include "tests/metal_sim/around.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

typedef struct object *id;
typedef const struct selector *sel;
struct size3 {
    unsigned long width, height, depth;
};

void objc_msgSend(void);
void objc_msgSend_stret(void); /* x86-64 alone has it */
sel sel_registerName(const char *name);
id objc_getClass(const char *name);
void *objc_autoreleasePoolPush(void);
void objc_autoreleasePoolPop(void *pool);
id MTLCreateSystemDefaultDevice(void);

/* Through a pointer, as a program has it that opens the library. */
static void (*volatile send)(void) = objc_msgSend;

/* A call of the method's true type: SEND(id, device, "newCommandQueue"), and with arguments' types SEND_WITH.
 */
#define SEND(result, object, name) ((result(*)(id, sel))send)((object), sel_registerName(name))
#define SEND_WITH(result, types, object, name, ...)                                                          \
    ((result(*) types)send)((object), sel_registerName(name), __VA_ARGS__)
#define RELEASE(object) SEND(void, object, "release")

static char message[METALSIM_MESSAGE];

/* y[i] = factor * x[i]; shared memory is there to be set. */
static const char scale_source[] =
    "#include <metal_stdlib>\nusing namespace metal;\n"
    "constant uint factor [[function_constant(0)]];\n"
    "struct args { uint n; };\n"
    "kernel void scale(const device float *x [[buffer(0)]], device float *y [[buffer(1)]],\n"
    "                  constant args &a [[buffer(2)]], threadgroup float *shared [[threadgroup(0)]],\n"
    "                  uint2 i [[thread_position_in_grid]], uint2 t [[thread_position_in_threadgroup]])\n"
    "{\n"
    "    shared[t.x] = x[i.x];\n"
    "    if (i.x < a.n)\n"
    "        y[i.x] = shared[t.x] * float(factor);\n"
    "}\n";

/* ---------------------------------------------------------------- a host in few lines */

struct host {
    id device, queue, library, function, pipeline, x, y, commands, encoder;
    void *pool;
    uint32_t n;
};

static id string_of(const char *text)
{
    return SEND_WITH(id, (id, sel, const char *), objc_getClass("NSString"), "stringWithUTF8String:", text);
}

/* Everything up to the pipeline. False: something was nil. */
static bool make(struct host *h, const char *source, const char *kernel)
{
    id error = NULL;
    uint32_t three = 3;
    *h = (struct host){.n = 64, .pool = objc_autoreleasePoolPush()};
    h->device = MTLCreateSystemDefaultDevice();
    h->queue = SEND(id, h->device, "newCommandQueue");
    id text = string_of(source), name = string_of(kernel),
       values = SEND(id, objc_getClass("MTLFunctionConstantValues"), "new");
    if (text)
        h->library = SEND_WITH(id, (id, sel, id, id, id *), h->device,
                               "newLibraryWithSource:options:error:", text, NULL, &error);
    SEND_WITH(void, (id, sel, const void *, unsigned long, unsigned long), values,
              "setConstantValue:type:atIndex:", &three, (unsigned long)METALSIM_UINT, 0ul);
    if (name && values)
        h->function = SEND_WITH(id, (id, sel, id, id, id *), h->library,
                                "newFunctionWithName:constantValues:error:", name, values, &error);
    RELEASE(values);
    if (h->function)
        h->pipeline = SEND_WITH(id, (id, sel, id, id *), h->device,
                                "newComputePipelineStateWithFunction:error:", h->function, &error);
    if (error)
        snprintf(message, sizeof message, "%s",
                 SEND(const char *, SEND(id, error, "localizedDescription"), "UTF8String"));
    h->x = SEND_WITH(id, (id, sel, unsigned long, unsigned long), h->device,
                     "newBufferWithLength:options:", 64 * sizeof(float), 0ul);
    h->y = SEND_WITH(id, (id, sel, unsigned long, unsigned long), h->device,
                     "newBufferWithLength:options:", 64 * sizeof(float), 0ul);
    for (int i = 0; h->x && i < 64; i++)
        SEND(float *, h->x, "contents")[i] = (float)i;
    return h->queue && h->pipeline && h->x && h->y;
}

static void bind(struct host *h, id buffer, unsigned long offset, unsigned long index)
{
    SEND_WITH(void, (id, sel, id, unsigned long, unsigned long), h->encoder,
              "setBuffer:offset:atIndex:", buffer, offset, index);
}

static void dispatch(struct host *h, unsigned long groups, unsigned long threads)
{
    SEND_WITH(void, (id, sel, struct size3, struct size3), h->encoder,
              "dispatchThreadgroups:threadsPerThreadgroup:", ((struct size3){groups, 1, 1}),
              ((struct size3){threads, 1, 1}));
}

static void bind_all(struct host *h)
{
    SEND_WITH(void, (id, sel, id), h->encoder, "setComputePipelineState:", h->pipeline);
    bind(h, h->x, 0, 0);
    bind(h, h->y, 0, 1);
    SEND_WITH(void, (id, sel, const void *, unsigned long, unsigned long), h->encoder,
              "setBytes:length:atIndex:", &h->n, 4ul, 2ul);
    SEND_WITH(void, (id, sel, unsigned long, unsigned long), h->encoder,
              "setThreadgroupMemoryLength:atIndex:", 128ul, 0ul);
}

/* One dispatch, encoded; not committed. False: nil. */
static bool encode(struct host *h)
{
    h->commands = SEND(id, h->queue, "commandBuffer");
    h->encoder = SEND(id, h->commands, "computeCommandEncoder");
    if (!h->encoder)
        return false;
    bind_all(h);
    dispatch(h, 2, 32);
    SEND(void, h->encoder, "endEncoding");
    return true;
}

static void unmake(struct host *h)
{
    RELEASE(h->x), RELEASE(h->y);
    RELEASE(h->pipeline), RELEASE(h->function), RELEASE(h->library);
    RELEASE(h->queue), RELEASE(h->device);
    objc_autoreleasePoolPop(h->pool);
}

static bool scaled(const struct host *h)
{
    for (int i = 0; i < 64; i++)
        if (!(SEND(float *, h->y, "contents")[i] == 3.0f * (float)i))
            return false;
    return true;
}

static void assert_nothing_lives(void)
{
    if (metalsim_counts().live_objects || metalsim_counts().live_buffer_bytes)
        fail_msg("still there: %s", metalsim_live());
    assert_int_equal(metalsim_counts().autoreleased_without_pool, 0);
}

/* ---------------------------------------------------------------- what works */

static void a_kernel_runs_when_it_is_waited_for(void **state)
{
    (void)state;
    need_stand_in(false);
    for (int at_commit = 0; at_commit < 2; at_commit++) {
        struct host h;
        metalsim_controls()->run_at_commit = at_commit;
        if (!make(&h, scale_source, "scale"))
            fail_msg("%s", message);
        assert_true(encode(&h));
        assert_int_equal(SEND(unsigned long, h.commands, "status"), 0);
        SEND(void, h.commands, "commit");
        assert_int_equal(scaled(&h), at_commit);
        SEND(void, h.commands, "waitUntilCompleted");
        assert_true(scaled(&h));
        assert_int_equal(SEND(unsigned long, h.commands, "status"), 4);
        assert_null(SEND(id, h.commands, "error"));
        assert_true(SEND(double, h.commands, "GPUEndTime") > SEND(double, h.commands, "GPUStartTime"));
        unmake(&h);
        assert_nothing_lives();
    }
    struct metalsim_counts counts = metalsim_counts();
    assert_int_equal(counts.command_buffers, 2);
    assert_int_equal(counts.encoders, 2);
    assert_int_equal(counts.dispatches, 2);
    assert_int_equal(counts.run, 2);
    assert_int_equal(counts.threadgroups, 4);
    assert_int_equal(counts.set_buffers, 4);
    assert_int_equal(counts.bytes_set, 8);
}

static void earlier_command_buffers_run_first_and_status_gets_there(void **state)
{
    (void)state;
    need_stand_in(false);
    struct host h;
    assert_true(make(&h, scale_source, "scale"));
    assert_true(encode(&h));
    id first = h.commands;
    SEND(void, first, "commit");
    assert_true(encode(&h));
    SEND(void, h.commands, "commit");
    assert_int_equal(SEND(unsigned long, h.commands, "status"), 3);
    assert_int_equal(SEND(unsigned long, h.commands, "status"), 4);
    assert_int_equal(SEND(unsigned long, first, "status"), 4);
    assert_int_equal(metalsim_counts().run, 2);
    unmake(&h);
    assert_nothing_lives();
}

static void structures_are_returned(void **state)
{
    (void)state;
    need_stand_in(false);
    id device = MTLCreateSystemDefaultDevice();
#if defined(__x86_64__)
    void (*volatile send_stret)(void) = objc_msgSend_stret;
    struct size3 size =
        ((struct size3(*)(id, sel))send_stret)(device, sel_registerName("maxThreadsPerThreadgroup"));
#else
    struct size3 size = SEND(struct size3, device, "maxThreadsPerThreadgroup");
#endif
    assert_int_equal(size.width, 1024);
    assert_int_equal(size.depth, 1024);
    assert_true(SEND_WITH(bool, (id, sel, long), device, "supportsFamily:", 1007l));
    assert_false(SEND_WITH(bool, (id, sel, long), device, "supportsFamily:", 1008l));
    assert_null(SEND(id, NULL, "newCommandQueue"));
    RELEASE(device);
    assert_nothing_lives();
}

/* Two dispatches of a concurrent encoder, the second of which needs what the first writes. */
static void concurrent_dispatches_need_a_barrier(void **state)
{
    (void)state;
    need_stand_in(false);
    for (int barrier = 0; barrier < 2; barrier++)
        for (int reverse = 0; reverse < 2; reverse++) {
            struct host h;
            metalsim_controls()->order = reverse ? SIM_REVERSE : SIM_FORWARD;
            assert_true(make(&h, scale_source, "scale"));
            id end = SEND_WITH(id, (id, sel, unsigned long, unsigned long), h.device,
                               "newBufferWithLength:options:", 256ul, 0ul);
            h.commands = SEND(id, h.queue, "commandBuffer");
            h.encoder = SEND_WITH(id, (id, sel, unsigned long), h.commands,
                                  "computeCommandEncoderWithDispatchType:", 1ul);
            bind_all(&h);
            dispatch(&h, 2, 32);
            if (barrier)
                SEND_WITH(void, (id, sel, unsigned long), h.encoder, "memoryBarrierWithScope:", 1ul);
            bind(&h, h.y, 0, 0);
            bind(&h, end, 0, 1);
            dispatch(&h, 2, 32);
            SEND(void, h.encoder, "endEncoding");
            SEND(void, h.commands, "commit");
            SEND(void, h.commands, "waitUntilCompleted");
            assert_int_equal(SEND(float *, end, "contents")[5] == 45.0f, barrier || !reverse);
            RELEASE(end);
            unmake(&h);
        }
    assert_nothing_lives();
}

static void encoding_alone_counts_and_runs_nothing(void **state)
{
    (void)state;
    need_stand_in(false);
    struct host h;
    metalsim_controls()->encode_only = true;
    metalsim_controls()->log = true;
    metalsim_clear_log();
    assert_true(make(&h, scale_source, "scale"));
    id huge = SEND_WITH(id, (id, sel, unsigned long, unsigned long), h.device,
                        "newBufferWithLength:options:", 20ul << 30, 0ul);
    assert_non_null(huge);
    assert_true(encode(&h));
    SEND(void, h.commands, "commit");
    SEND(void, h.commands, "waitUntilCompleted");
    assert_false(scaled(&h));
    assert_int_equal(metalsim_counts().dispatches, 1);
    assert_int_equal(metalsim_counts().run, 0);
    assert_true(metalsim_counts().live_buffer_bytes > 20ull << 30);
    RELEASE(huge);
    unmake(&h);
    bool found = false;
    for (size_t i = 0; metalsim_log(i); i++)
        found =
            found || !strcmp(metalsim_log(i), "MTLComputeCommandEncoder setThreadgroupMemoryLength:atIndex:");
    assert_true(found);
    assert_nothing_lives();
}

/* ---------------------------------------------------------------- what fails, as it would on a Mac */

static void every_call_that_may_fail_can(void **state)
{
    (void)state;
    need_stand_in(false);
    bool done = false;
    uint64_t n = 0;
    while (!done) {
        struct host h;
        metalsim_reset_counts();
        metalsim_controls()->fail_at = ++n;
        done = make(&h, scale_source, "scale") && encode(&h);
        if (done) {
            SEND(void, h.commands, "commit");
            SEND(void, h.commands, "waitUntilCompleted");
            done = SEND(unsigned long, h.commands, "status") == 4 && scaled(&h);
            assert_int_equal(SEND(id, h.commands, "error") == NULL, done);
        }
        unmake(&h);
        assert_nothing_lives();
        assert_true(n < 50);
    }
    /* device, queue, two strings, constants, library, function, pipeline, two buffers, command buffer,
     * encoder, run */
    assert_int_equal(n, 14);
}

static void errors_carry_their_words(void **state)
{
    (void)state;
    need_stand_in(false);
    struct host h;
    assert_false(
        make(&h, "kernel void scale(device float *x [[buffer(0)]]) {\n x[0] = nothing;\n}\n", "scale"));
    assert_non_null(strstr(message, "program_source:2:"));
    assert_non_null(strstr(message, "nothing"));
    unmake(&h);
    assert_false(make(&h, scale_source, "scal"));
    assert_non_null(strstr(message, "no function 'scal'"));
    unmake(&h);
    metalsim_controls()->lost_at = 1;
    assert_true(make(&h, scale_source, "scale"));
    assert_true(encode(&h));
    SEND(void, h.commands, "commit");
    SEND(void, h.commands, "waitUntilCompleted");
    assert_int_equal(SEND(unsigned long, h.commands, "status"), 5);
    assert_non_null(strstr(
        SEND(const char *, SEND(id, SEND(id, h.commands, "error"), "localizedDescription"), "UTF8String"),
        "lost"));
    metalsim_controls()->lost_at = 0;
    /* a kernel that goes wrong: 96 threads, 64 values */
    h.n = 96;
    h.commands = SEND(id, h.queue, "commandBuffer");
    h.encoder = SEND(id, h.commands, "computeCommandEncoder");
    bind_all(&h);
    dispatch(&h, 3, 32);
    SEND(void, h.encoder, "endEncoding");
    SEND(void, h.commands, "commit");
    SEND(void, h.commands, "waitUntilCompleted");
    assert_int_equal(SEND(unsigned long, h.commands, "status"), 5);
    assert_non_null(strstr(
        SEND(const char *, SEND(id, SEND(id, h.commands, "error"), "localizedDescription"), "UTF8String"),
        "at byte 256 of a buffer of 256 bytes"));
    unmake(&h);
    metalsim_controls()->no_device = true;
    assert_null(MTLCreateSystemDefaultDevice());
    assert_nothing_lives();
}

static void leaks_are_named(void **state)
{
    (void)state;
    need_stand_in(false);
    struct host h;
    assert_true(make(&h, scale_source, "scale"));
    SEND(id, h.pipeline, "retain");
    unmake(&h);
    /* a pipeline holds its function */
    assert_string_equal(metalsim_live(), "MTLFunction 1, MTLComputePipelineState 1");
    RELEASE(h.pipeline);
    assert_nothing_lives();
    id outside = MTLCreateSystemDefaultDevice();
    SEND(id, outside, "name");
    assert_int_equal(metalsim_counts().autoreleased_without_pool, 1);
}

/* ---------------------------------------------------------------- what would end the process */

static void unknown_selector(struct host *h)
{
    SEND(void, h->encoder, "setBufer:offset:atIndex:");
}
static void early_release(struct host *h)
{
    RELEASE(h->x);
    RELEASE(h->x);
    SEND(void *, h->x, "contents"); /* the encoder does not hold it */
}
static void release_too_often(struct host *h)
{
    RELEASE(h->y), RELEASE(h->y);
    RELEASE(h->y);
}
static void encoder_not_ended(struct host *h)
{
    SEND(void, h->commands, "commit");
}
static void encoder_let_go(struct host *h)
{
    objc_autoreleasePoolPop(h->pool);
}
static void bytes_too_many(struct host *h)
{
    char bytes[4097] = "";
    SEND_WITH(void, (id, sel, const void *, unsigned long, unsigned long), h->encoder,
              "setBytes:length:atIndex:", bytes, 4097ul, 2ul);
}
static void shared_of_264(struct host *h)
{
    SEND_WITH(void, (id, sel, unsigned long, unsigned long), h->encoder,
              "setThreadgroupMemoryLength:atIndex:", 264ul, 0ul);
}
static void shared_of_too_much(struct host *h)
{
    SEND_WITH(void, (id, sel, unsigned long, unsigned long), h->encoder,
              "setThreadgroupMemoryLength:atIndex:", 32784ul, 0ul);
}
static void offset_past_end(struct host *h)
{
    bind(h, h->x, 256, 0);
}
static void index_31(struct host *h)
{
    bind(h, h->x, 0, 31);
}
static void nothing_bound(struct host *h)
{
    SEND_WITH(void, (id, sel, id), h->encoder, "setComputePipelineState:", h->pipeline);
    dispatch(h, 1, 32);
}
static void no_pipeline(struct host *h)
{
    dispatch(h, 1, 32);
}
static void too_many_threads(struct host *h)
{
    bind_all(h);
    dispatch(h, 1, 1025);
}
static void no_groups(struct host *h)
{
    bind_all(h);
    dispatch(h, 0, 32);
}
static void bytes_are_written(struct host *h)
{
    bind_all(h);
    SEND_WITH(void, (id, sel, const void *, unsigned long, unsigned long), h->encoder,
              "setBytes:length:atIndex:", &h->n, 4ul, 1ul);
    dispatch(h, 1, 32);
}
static void ended_twice(struct host *h)
{
    SEND(void, h->encoder, "endEncoding");
    SEND(void, h->encoder, "endEncoding");
}
static void committed_twice(struct host *h)
{
    SEND(void, h->encoder, "endEncoding");
    SEND(void, h->commands, "commit");
    SEND(void, h->commands, "commit");
}
static void waits_too_early(struct host *h)
{
    SEND(void, h->commands, "waitUntilCompleted");
}
static void not_a_page(struct host *h)
{
    void *pages = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *at = (char *)(((uintptr_t)pages + 16383) / 16384 * 16384);
    metalsim_controls()->page = 16384;
    SEND_WITH(id, (id, sel, void *, unsigned long, unsigned long, id), h->device,
              "newBufferWithBytesNoCopy:length:options:deallocator:", at + 4096, 16384ul, 0ul, NULL);
}
static void not_whole_pages(struct host *h)
{
    void *pages = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *at = (char *)(((uintptr_t)pages + 16383) / 16384 * 16384);
    metalsim_controls()->page = 16384;
    SEND_WITH(id, (id, sel, void *, unsigned long, unsigned long, id), h->device,
              "newBufferWithBytesNoCopy:length:options:deallocator:", at, 20480ul, 0ul, NULL);
}

static jmp_buf stopped;

static void note_stop(const char *line)
{
    snprintf(message, sizeof message, "%s", line);
    longjmp(stopped, 1);
}

/* Whether `wrong` would have ended the process, its words in `message`. */
static bool stops(void (*wrong)(struct host *))
{
    static struct host h; /* not a local variable: longjmp() */
    bool made = make(&h, scale_source, "scale");
    assert_true(made);
    h.commands = SEND(id, h.queue, "commandBuffer");
    h.encoder = SEND(id, h.commands, "computeCommandEncoder");
    metalsim_controls()->on_stop = note_stop;
    if (setjmp(stopped) == 0) {
        wrong(&h);
        metalsim_controls()->on_stop = NULL;
        return false;
    }
    metalsim_controls()->on_stop = NULL;
    return true;
}

static void misuse_stops_and_says_why(void **state)
{
    (void)state;
    need_stand_in(false);
    static const struct {
        void (*wrong)(struct host *);
        const char *says;
    } cases[] = {
        {unknown_selector, "MTLComputeCommandEncoder does not know -setBufer:offset:atIndex:"},
        {early_release, "is sent to a MTLBuffer that is gone"},
        {release_too_often, "gone"},
        {encoder_not_ended, "has an encoder that has not ended"},
        {encoder_let_go, "released without endEncoding"},
        {bytes_too_many, "setBytes: 4097 bytes at index 2: 1 to 4096"},
        {shared_of_264, "264 bytes at index 0: a multiple of 16"},
        {shared_of_too_much, "32784 bytes at index 0"},
        {offset_past_end, "offset 256 at index 0, in a buffer of 256 bytes"},
        {index_31, "index 31: 0 to 30"},
        {nothing_bound, "kernel scale: buffer 0, 'x', is not set"},
        {no_pipeline, "no pipeline is set"},
        {too_many_threads, "a threadgroup of 1025 x 1 x 1 threads: at most 1024"},
        {no_groups, "a grid of 0 x 1 x 1 threadgroups"},
        {bytes_are_written, "buffer 1, 'y', is written to, and setBytes gave it"},
        {ended_twice, "endEncoding: the encoder has ended"},
        {committed_twice, "commit: the command buffer is committed already"},
        {waits_too_early, "waitUntilCompleted: the command buffer is not committed"},
        {not_a_page, "not multiples of the page, 16384 bytes"},
        {not_whole_pages, "not multiples of the page, 16384 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        *metalsim_controls() = (struct metalsim_controls){0};
        if (!stops(cases[i].wrong))
            fail_msg("'%s' did not come: %s", cases[i].says, message);
        if (!strstr(message, cases[i].says))
            fail_msg("'%s' lacks '%s'", message, cases[i].says);
    }
}

/* ---------------------------------------------------------------- names */

static bool in_list(const char *list, const char *selector)
{
    char line[200];
    snprintf(line, sizeof line, "%s ", selector);
    for (const char *at = strstr(list, line); at; at = strstr(at + 1, line))
        if (at[-1] == '-' || at[-1] == '+')
            return true;
    return false;
}

/* data/selectors.txt was compared with the published headers: the stand-in and the host may know no others.
 */
static void names_are_the_published_ones(void **state)
{
    (void)state;
    static char list[1 << 14];
    static const char *const used[] = {
#define TEXT(field, text) text,
        GS_METAL_SELECTORS(TEXT)
#undef TEXT
    };
    FILE *file = fopen("tests/metal_sim/data/selectors.txt", "rb");
    assert_non_null(file);
    list[fread(list, 1, sizeof list - 1, file)] = '\0';
    fclose(file);
    const char *at = strchr(list, '\n') + 1; /* the first line is a comment */
    for (size_t i = 0; metalsim_method(i); i++) {
        const char *row = metalsim_method(i), *end = strchr(at, '\n');
        assert_non_null(end);
        if (strlen(row) != (size_t)(end - at) || strncmp(row, at, strlen(row)))
            fail_msg("'%s' is '%.*s' in the list", row, (int)(end - at), at);
        at = end + 1;
    }
    assert_int_equal(*at, '\0');
    for (size_t i = 0; i < sizeof used / sizeof used[0]; i++)
        if (!in_list(list, used[i]))
            fail_msg("the host's '%s' is not in the list", used[i]);
    assert_false(in_list(list, "setBufer:offset:atIndex:"));
    assert_false(in_list(list, "setBuffer:offset:"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_runs_when_it_is_waited_for),
        cmocka_unit_test(earlier_command_buffers_run_first_and_status_gets_there),
        cmocka_unit_test(structures_are_returned),
        cmocka_unit_test(concurrent_dispatches_need_a_barrier),
        cmocka_unit_test(encoding_alone_counts_and_runs_nothing),
        cmocka_unit_test(every_call_that_may_fail_can),
        cmocka_unit_test(errors_carry_their_words),
        cmocka_unit_test(names_are_the_published_ones),
        cmocka_unit_test(leaks_are_named),
        cmocka_unit_test(misuse_stops_and_says_why), /* last: what it leaves is not released */
    };
    return cmocka_run_group_tests_name("stand_in", tests, NULL, NULL);
}
