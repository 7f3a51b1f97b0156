#include "tests/sim/guard.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#define STACK_BYTES       ((size_t)192 << 10)
/* Stacks begin at different offsets into their pages: they would all want the same lines of the cache. */
#define STACK_STEP        832
#define N_STEPS           64
#define FAULT_STACK_BYTES ((size_t)64 << 10)

enum state { READY, AT_EXCHANGE, AT_BARRIER, RETURNED };

struct fiber {
    void *sp; /* while another runs */
    enum state state;
    bool started;
    struct sim_thread self;
    struct sim_site site; /* where it waits, or waited last; what is NULL before the first */
    void *asan_stack;
};

struct wave {
    int first, n; /* fibers */
    enum { RUNNABLE, WAITING, ENDED } state;
    uint64_t alive;      /* lanes that had not returned when the wave last met */
    uint64_t ready;      /* lanes that may run on, and have not since the wave last met */
    uint64_t exchanging; /* lanes that wait in an exchange, all in the same unless `is_split` */
    bool is_split;
    struct sim_site site; /* of the first of them */
    int n_exchange;
    unsigned char (*slots[2])[SIM_SLOT_BYTES]; /* by turns, so that a lane ahead overwrites nothing unread */
    struct sim_wave view;
    sim_combine *combine; /* of the first active lane */
    void *combine_context;
};

struct sim {
    struct fiber fibers[SIM_MAX_THREADS];
    struct wave waves[SIM_MAX_THREADS / 32];
    int n_wave;
    unsigned char *stacks; /* [SIM_MAX_THREADS][guard + STACK_BYTES] */
    size_t guard;          /* bytes below each stack that nobody may touch */
    unsigned char *slots;  /* [wave][2][lane][SIM_SLOT_BYTES] */
    void *fault_stack;
    const struct sim_launch *launch;
    struct sim_fault *fault;
    struct fiber *running;
    struct wave *wave; /* whose lanes run, in this order, up to `turn` */
    int order[SIM_MAX_LANES], turn;
    void *sp; /* of the scheduler, while a fiber runs */
    uint64_t random;
    void *asan_stack;
    const void *asan_bottom;
    size_t asan_bytes;
};

/* The run of this CPU thread: kernels and the fault handler find it here. */
static _Thread_local struct sim *current;

/* ---------------------------------------------------------------- the switch */

/* switch_stacks() keeps what must be kept, stores the stack pointer in *from and goes on from `to`. */
void sim_entry(void);
void sim_main(void) __attribute__((noreturn));
void sim_landing(void) __attribute__((noreturn));

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl sim_entry\n.hidden sim_entry\n.type sim_entry, @function\n"
        "sim_entry:\n"
        "    xorl %ebp, %ebp\n"
        "    call sim_main\n"
        "    ud2\n"
        ".size sim_entry, . - sim_entry\n");

#ifdef __AVX512F__
#define MORE_REGISTERS                                                                                       \
    "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26",       \
        "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "k1", "k2", "k3", "k4", "k5", "k6", "k7",
#else
#define MORE_REGISTERS
#endif

/*
 * Inline and by a jump: a call's return address would be popped on another stack, and the processor would
 * foresee none of the returns that follow.
 */
static inline void switch_stacks(void **from, void *to)
{
    __asm__ volatile("leaq -128(%%rsp), %%rsp\n" /* the red zone */
                     "pushq %%rbp\n"
                     "pushq %%rbx\n"
                     "leaq 1f(%%rip), %%rax\n"
                     "pushq %%rax\n"
                     "movq %%rsp, (%%rdi)\n"
                     "movq %%rsi, %%rsp\n"
                     "popq %%rax\n"
                     "jmp *%%rax\n"
                     "1: popq %%rbx\n"
                     "popq %%rbp\n"
                     "leaq 128(%%rsp), %%rsp\n"
                     : "+D"(from), "+S"(to)
                     :
                     : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0",
                       "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
                       "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", MORE_REGISTERS "cc", "memory");
}

static void *first_stack_pointer(unsigned char *top)
{
    uintptr_t *sp = (uintptr_t *)(void *)top - 1;
    sp[0] = (uintptr_t)sim_entry; /* where the first switch jumps to; the stack is then a multiple of 16 */
    return sp;
}
#elif defined(__aarch64__)
void sim_switch(void **from, void *to);
__asm__(".text\n"
        ".globl sim_switch\n.hidden sim_switch\n.type sim_switch, %function\n"
        "sim_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp]\n    stp x21, x22, [sp, #16]\n    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n    stp x27, x28, [sp, #64]\n    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp]\n    ldp x21, x22, [sp, #16]\n    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n    ldp x27, x28, [sp, #64]\n    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size sim_switch, . - sim_switch\n"
        ".globl sim_entry\n.hidden sim_entry\n.type sim_entry, %function\n"
        "sim_entry:\n"
        "    mov x29, xzr\n"
        "    bl sim_main\n"
        "    brk #1\n"
        ".size sim_entry, . - sim_entry\n");

static void switch_stacks(void **from, void *to)
{
    sim_switch(from, to);
}

static void *first_stack_pointer(unsigned char *top)
{
    uintptr_t *sp = (uintptr_t *)(void *)top - 20;
    memset(sp, 0, 20 * sizeof *sp);
    sp[11] = (uintptr_t)sim_entry; /* x30 */
    return sp;
}
#else
#error "the stack switch is written for x86-64 and aarch64"
#endif

static unsigned char *stack_bottom(const struct sim *sim, const struct fiber *fiber)
{
    return sim->stacks + (size_t)(fiber - sim->fibers) * (sim->guard + STACK_BYTES) + sim->guard;
}

/* A multiple of 64. */
static unsigned char *stack_top(const struct sim *sim, const struct fiber *fiber)
{
    return stack_bottom(sim, fiber) + STACK_BYTES - (size_t)(fiber->self.index % N_STEPS) * STACK_STEP;
}

/* The next lane of the wave whose turn it is, or NULL. */
static struct fiber *next_lane(struct sim *sim)
{
    struct wave *wave = sim->wave;
    while (sim->turn < wave->n) {
        int lane = sim->order[sim->turn++];
        if (!(wave->ready >> lane & 1))
            continue;
        struct fiber *fiber = &sim->fibers[wave->first + lane];
        if (!fiber->started) {
            fiber->started = true;
            fiber->sp = first_stack_pointer(stack_top(sim, fiber));
        }
        return fiber;
    }
    return NULL;
}

/* From the scheduler to a fiber; comes back when no lane of the wave can run on, or after a fault. */
static void resume(struct sim *sim, struct fiber *fiber)
{
    sim->running = fiber;
#ifdef WITH_ASAN
    __sanitizer_start_switch_fiber(&sim->asan_stack, stack_bottom(sim, fiber), STACK_BYTES);
#endif
    switch_stacks(&sim->sp, fiber->sp);
#ifdef WITH_ASAN
    __sanitizer_finish_switch_fiber(sim->asan_stack, NULL, NULL);
#endif
    sim->running = NULL;
}

/* From a fiber to the wave's next lane, without a detour; after the last, or a fault, to the scheduler.
 * `for_ever`: it will not run again. */
static void leave(struct sim *sim, bool for_ever)
{
    struct fiber *fiber = sim->running, *next = sim->fault->kind == SIM_NO_FAULT ? next_lane(sim) : NULL;
    (void)for_ever;
#ifdef WITH_ASAN
    __sanitizer_start_switch_fiber(for_ever ? NULL : &fiber->asan_stack,
                                   next ? stack_bottom(sim, next) : sim->asan_bottom,
                                   next ? STACK_BYTES : sim->asan_bytes);
#endif
    sim->running = next;
    switch_stacks(&fiber->sp, next ? next->sp : sim->sp);
#ifdef WITH_ASAN
    __sanitizer_finish_switch_fiber(fiber->asan_stack, NULL, NULL);
#endif
    fiber->state = READY;
}

void sim_main(void)
{
    struct sim *sim = current;
#ifdef WITH_ASAN
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(NULL, &bottom, &bytes);
    if (!sim->asan_bottom) { /* the run's first fiber comes from the scheduler */
        sim->asan_bottom = bottom;
        sim->asan_bytes = bytes;
    }
#endif
    sim->launch->kernel(sim->launch->context);
    sim->running->state = RETURNED;
    leave(sim, true);
    abort();
}

/* ---------------------------------------------------------------- faults */

static void fail(struct sim *sim, enum sim_fault_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void fail(struct sim *sim, enum sim_fault_kind kind, const char *format, ...)
{
    if (sim->fault->kind != SIM_NO_FAULT)
        return; /* the first one counts */
    sim->fault->kind = kind;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sim->fault->message, sizeof sim->fault->message, format, arguments);
    va_end(arguments);
}

/* "thread 3 of block 0 (lane 3 of wave 0), after barrier at k.metal:12" */
static void describe_thread(const struct fiber *fiber, char *text, size_t size)
{
    int n = snprintf(text, size, "thread %d of block %lld (lane %d of wave %d)", fiber->self.index,
                     (long long)fiber->self.block, fiber->self.lane, fiber->self.wave);
    if (fiber->site.what && n > 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n, ", after %s at %s:%d", fiber->site.what, fiber->site.file,
                 fiber->site.line);
}

void sim_stop(const char *format, ...)
{
    char what[256], who[192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    struct sim *sim = current;
    if (!sim || !sim->running) {
        fprintf(stderr, "sim_stop outside a kernel: %s\n", what);
        abort();
    }
    describe_thread(sim->running, who, sizeof who);
    fail(sim, SIM_STOPPED, "%s: %s", who, what);
    leave(sim, true);
    abort();
}

/* The faulting fiber's end: the handler sends it here, on an empty stack of its own. */
void sim_landing(void)
{
    leave(current, true);
    abort();
}

/* Before a fault is ours it must be in a fiber; every other one gets the action that was there before. */
static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    struct sim *sim = current;
    if (!sim || !sim->running) {
        signal(signal_number, SIG_DFL);
        return;
    }
    struct fiber *fiber = sim->running;
    unsigned char *bottom = stack_bottom(sim, fiber), *address = info->si_addr;
    ucontext_t *machine = context;
    char who[192], where[192];
    describe_thread(fiber, who, sizeof who);
    if (signal_number == SIGFPE)
        fail(sim, SIM_MEMORY, "%s: a division by zero", who);
    else if (signal_number == SIGILL || signal_number == SIGTRAP)
        fail(sim, SIM_MEMORY, "%s: a trap: an index outside an array, or another check of the compiler", who);
    else if (address >= bottom - sim->guard && address < bottom)
        fail(sim, SIM_MEMORY, "%s: it ran off its stack", who);
    else {
        sim_describe_address(address, where, sizeof where);
        fail(sim, SIM_MEMORY, "%s: memory fault %s", who, where);
    }
#if defined(__x86_64__)
    machine->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)sim_landing;
    machine->uc_mcontext.gregs[REG_RSP] = (greg_t)(uintptr_t)(bottom + STACK_BYTES - 8);
#else
    machine->uc_mcontext.pc = (uintptr_t)sim_landing;
    machine->uc_mcontext.sp = (uintptr_t)(bottom + STACK_BYTES);
#endif
}

static const int fault_signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
#define N_SIGNALS (sizeof fault_signals / sizeof fault_signals[0])

struct handlers {
    struct sigaction actions[N_SIGNALS];
    stack_t stack;
};

static void install_handlers(const struct sim *sim, struct handlers *before)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    stack_t stack = {.ss_sp = sim->fault_stack, .ss_size = FAULT_STACK_BYTES};
    sigemptyset(&action.sa_mask);
    sigaltstack(&stack, &before->stack);
    for (size_t i = 0; i < N_SIGNALS; i++)
        sigaction(fault_signals[i], &action, &before->actions[i]);
}

static void restore_handlers(const struct handlers *before)
{
    for (size_t i = 0; i < N_SIGNALS; i++)
        sigaction(fault_signals[i], &before->actions[i], NULL);
    sigaltstack(&before->stack, NULL);
}

/* ---------------------------------------------------------------- what kernels call */

static bool same_site(const struct sim_site *a, const struct sim_site *b)
{
    return a->line == b->line && (a->what == b->what || !strcmp(a->what, b->what)) &&
           (a->file == b->file || !strcmp(a->file, b->file));
}

const struct sim_thread *sim_self(void)
{
    return &current->running->self;
}

bool sim_is_first(void)
{
    const struct fiber *fiber = current->running;
    return __builtin_ctzll(current->waves[fiber->self.wave].alive) == fiber->self.lane;
}

void sim_barrier(const struct sim_site *site)
{
    struct sim *sim = current;
    sim->running->site = *site;
    sim->running->state = AT_BARRIER;
    leave(sim, false);
}

const struct sim_wave *sim_exchange(const struct sim_site *site, const void *value, size_t bytes,
                                    sim_combine *combine, void *context)
{
    struct sim *sim = current;
    struct fiber *fiber = sim->running;
    struct wave *wave = &sim->waves[fiber->self.wave];
    if (bytes > SIM_SLOT_BYTES)
        sim_stop("%s: a lane exchanges %zu bytes, of at most %d", site->what, bytes, SIM_SLOT_BYTES);
    unsigned char *slot = wave->slots[wave->n_exchange & 1][fiber->self.lane];
    if (bytes == sizeof(float)) /* nearly always, and then without a call */
        memcpy(slot, value, sizeof(float));
    else if (bytes > 0)
        memcpy(slot, value, bytes);
    if (fiber->self.lane == __builtin_ctzll(wave->alive) || !wave->combine) {
        wave->combine = combine;
        wave->combine_context = context;
    }
    if (wave->exchanging == 0)
        wave->site = *site;
    else if (!same_site(site, &wave->site))
        wave->is_split = true;
    wave->exchanging |= 1ull << fiber->self.lane;
    fiber->site = *site;
    fiber->state = AT_EXCHANGE;
    leave(sim, false);
    return &wave->view;
}

/* ---------------------------------------------------------------- the scheduler */

/* splitmix64 */
static uint64_t next_random(struct sim *sim)
{
    uint64_t z = sim->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The order of n things, n at most SIM_MAX_LANES. */
static void turns(struct sim *sim, int n, int *order)
{
    bool reverse = sim->launch->order == SIM_REVERSE;
    for (int i = 0; i < n; i++)
        order[i] = reverse ? n - 1 - i : i;
    if (sim->launch->order == SIM_RANDOM)
        for (int i = n - 1; i > 0; i--) {
            int j = (int)(next_random(sim) % (uint64_t)(i + 1)), swapped = order[i];
            order[i] = order[j];
            order[j] = swapped;
        }
}

/* "waits in simd_sum at k.metal:12" */
static void describe_wait(const struct fiber *fiber, char *text, size_t size)
{
    if (fiber->state == RETURNED && fiber->site.what)
        snprintf(text, size, "thread %d has returned (after %s at %s:%d)", fiber->self.index,
                 fiber->site.what, fiber->site.file, fiber->site.line);
    else if (fiber->state == RETURNED)
        snprintf(text, size, "thread %d has returned", fiber->self.index);
    else
        snprintf(text, size, "thread %d waits in %s at %s:%d", fiber->self.index, fiber->site.what,
                 fiber->site.file, fiber->site.line);
}

static void fail_two(struct sim *sim, enum sim_fault_kind kind, const char *what, const struct fiber *a,
                     const struct fiber *b)
{
    char first[160], second[160];
    describe_wait(a, first, sizeof first);
    describe_wait(b, second, sizeof second);
    fail(sim, kind, "%s of block %lld: %s, %s", what, (long long)a->self.block, first, second);
}

/* The wave has lanes that wait in an exchange, and others that do not, or elsewhere. False: a fault. */
static bool meet_partly(struct sim *sim, const struct wave *wave)
{
    const struct fiber *fibers = sim->fibers + wave->first,
                       *at_exchange = &fibers[__builtin_ctzll(wave->exchanging)], *other = NULL;
    for (int i = 0; i < wave->n && !other; i++)
        if (fibers[i].state == RETURNED
                ? !sim->launch->returned_lanes_ok
                : fibers[i].state != AT_EXCHANGE || !same_site(&fibers[i].site, &at_exchange->site))
            other = &fibers[i];
    if (!other)
        return true;
    char what[64];
    snprintf(what, sizeof what, "split wave: wave %d", at_exchange->self.wave);
    fail_two(sim, SIM_SPLIT, what, at_exchange, other);
    return false;
}

/* All lanes of the wave have stopped. False: a fault. */
static bool meet(struct sim *sim, struct wave *wave)
{
    uint64_t active = wave->exchanging, all = wave->n == 64 ? ~0ull : (1ull << wave->n) - 1;
    if (active == 0 || active != all) {
        wave->alive = 0;
        for (int i = 0; i < wave->n; i++)
            wave->alive |= (uint64_t)(sim->fibers[wave->first + i].state != RETURNED) << i;
    }
    if (active == 0) {
        wave->state = wave->alive ? WAITING : ENDED;
        return true;
    }
    if ((active != all || wave->is_split) && !meet_partly(sim, wave))
        return false;
    wave->view = (struct sim_wave){.active = active, .slots = wave->slots[wave->n_exchange & 1]};
    wave->n_exchange++;
    if (wave->combine)
        wave->combine(&wave->view, wave->combine_context);
    wave->combine = NULL;
    wave->ready = active;
    wave->exchanging = 0;
    return true;
}

/* Lets each lane run until it stops, then lets the wave meet. False: a fault. */
static bool run_wave(struct sim *sim, struct wave *wave)
{
    turns(sim, wave->n, sim->order);
    sim->wave = wave;
    sim->turn = 0;
    struct fiber *first = next_lane(sim);
    if (first)
        resume(sim, first);
    if (sim->fault->kind != SIM_NO_FAULT)
        return false;
    wave->ready = 0;
    return meet(sim, wave);
}

/* No wave can run on: either all have ended, or all threads wait in one barrier. *ended: which. False: a
 * fault. */
static bool meet_block(struct sim *sim, bool *ended)
{
    const struct fiber *at_barrier = NULL;
    int n_thread = sim->launch->n_thread;
    for (int i = 0; i < n_thread && !at_barrier; i++)
        if (sim->fibers[i].state == AT_BARRIER)
            at_barrier = &sim->fibers[i];
    *ended = !at_barrier;
    if (!at_barrier)
        return true;
    for (int i = 0; i < n_thread; i++) {
        const struct fiber *fiber = &sim->fibers[i];
        if (fiber->state != AT_BARRIER || !same_site(&fiber->site, &at_barrier->site)) {
            fail_two(sim, SIM_BARRIER, "a barrier that not every thread reaches: block", at_barrier, fiber);
            return false;
        }
    }
    for (int w = 0; w < sim->n_wave; w++) {
        sim->waves[w].state = RUNNABLE;
        sim->waves[w].ready = sim->waves[w].alive; /* all: none has returned */
    }
    return true;
}

/* The wave whose turn it is, or NULL. */
static struct wave *next_wave(struct sim *sim)
{
    struct wave *runnable[SIM_MAX_THREADS / 32];
    int n = 0;
    for (int w = 0; w < sim->n_wave; w++)
        if (sim->waves[w].state == RUNNABLE)
            runnable[n++] = &sim->waves[w];
    if (n == 0)
        return NULL;
    if (sim->launch->order == SIM_RANDOM)
        return runnable[next_random(sim) % (uint64_t)n];
    return sim->launch->order == SIM_REVERSE ? runnable[n - 1] : runnable[0];
}

static void begin_block(struct sim *sim, int64_t block)
{
    const struct sim_launch *launch = sim->launch;
    sim->n_wave = (launch->n_thread + launch->n_lane - 1) / launch->n_lane;
    for (int i = 0; i < launch->n_thread; i++)
        sim->fibers[i] = (struct fiber){.self = {.block = block,
                                                 .index = i,
                                                 .wave = i / launch->n_lane,
                                                 .lane = i % launch->n_lane,
                                                 .n_lane = launch->n_lane,
                                                 .n_thread = launch->n_thread}};
    for (int w = 0; w < sim->n_wave; w++) {
        int first = w * launch->n_lane, n = launch->n_thread - first;
        n = n < launch->n_lane ? n : launch->n_lane;
        unsigned char *slots = sim->slots + (size_t)w * 2 * SIM_MAX_LANES * SIM_SLOT_BYTES;
        sim->waves[w] =
            (struct wave){.first = first,
                          .n = n,
                          .state = RUNNABLE,
                          .alive = n == 64 ? ~0ull : (1ull << n) - 1,
                          .ready = n == 64 ? ~0ull : (1ull << n) - 1,
                          .slots = {(void *)slots, (void *)(slots + SIM_MAX_LANES * SIM_SLOT_BYTES)}};
    }
    for (int i = 0; i < launch->n_shared; i++)
        memset(launch->shared[i].data, SIM_POISON, launch->shared[i].bytes);
}

static bool run_block(struct sim *sim, int64_t block)
{
    const struct sim_launch *launch = sim->launch;
    begin_block(sim, block);
    if (launch->before_block && !launch->before_block(launch->context, block, sim->fault))
        return false;
    for (bool ended = false; !ended;) {
        struct wave *wave = next_wave(sim);
        if (wave ? !run_wave(sim, wave) : !meet_block(sim, &ended))
            return false;
    }
    return !launch->after_block || launch->after_block(launch->context, block, sim->fault);
}

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b)
{
    return b == 0 ? a : greatest_common_divisor(b, a % b);
}

static void run_blocks(struct sim *sim)
{
    uint64_t n = (uint64_t)sim->launch->n_block, step = 1, first = 0;
    if (sim->launch->order == SIM_RANDOM && n > 2) {
        /* Steps of a size that has no factor in common with n visit every block once. */
        first = next_random(sim) % n;
        do
            step = 1 + next_random(sim) % (n - 1);
        while (greatest_common_divisor(step, n) != 1);
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t block = sim->launch->order == SIM_REVERSE ? n - 1 - i : first;
        if (!run_block(sim, (int64_t)block))
            return;
        first = (first + step) % n;
    }
}

static bool check_launch(struct sim *sim)
{
    const struct sim_launch *launch = sim->launch;
    if (launch->n_lane != 32 && launch->n_lane != 64)
        fail(sim, SIM_BAD_LAUNCH, "waves of %d lanes: 32 and 64 are known", launch->n_lane);
    else if (launch->n_thread < 1 || launch->n_thread > SIM_MAX_THREADS)
        fail(sim, SIM_BAD_LAUNCH, "a block of %d threads: 1 to %d are possible", launch->n_thread,
             SIM_MAX_THREADS);
    else if (launch->n_block < 0 || launch->n_block > (int64_t)1 << 48)
        fail(sim, SIM_BAD_LAUNCH, "a grid of %lld blocks", (long long)launch->n_block);
    return sim->fault->kind == SIM_NO_FAULT;
}

bool sim_run(struct sim *sim, const struct sim_launch *launch, struct sim_fault *fault)
{
    struct sim *outer = current;
    struct handlers before;
    *fault = (struct sim_fault){.kind = SIM_NO_FAULT};
    sim->launch = launch;
    sim->fault = fault;
    sim->random = launch->seed;
    sim->asan_bottom = NULL;
    if (!check_launch(sim))
        return false;
    install_handlers(sim, &before);
    current = sim;
    run_blocks(sim);
    current = outer;
    restore_handlers(&before);
#ifdef WITH_ASAN /* what abandoned fibers left behind: much to clear, so not after every run */
    if (fault->kind != SIM_NO_FAULT)
        __asan_unpoison_memory_region(sim->stacks, SIM_MAX_THREADS * (sim->guard + STACK_BYTES));
#endif
    return fault->kind == SIM_NO_FAULT;
}

struct sim *sim_new(void)
{
    struct sim *sim = calloc(1, sizeof *sim);
    if (!sim)
        return NULL;
    sim->guard = 8 * (size_t)sysconf(_SC_PAGESIZE);
    sim->slots =
        aligned_alloc(SIM_SLOT_BYTES, (size_t)2 * SIM_MAX_THREADS * SIM_MAX_LANES / 32 * SIM_SLOT_BYTES);
    sim->fault_stack = malloc(FAULT_STACK_BYTES);
    size_t each = sim->guard + STACK_BYTES;
    void *stacks = mmap(NULL, SIM_MAX_THREADS * each, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    sim->stacks = stacks == MAP_FAILED ? NULL : stacks;
    bool ok = sim->slots && sim->fault_stack && sim->stacks;
    for (int i = 0; ok && i < SIM_MAX_THREADS; i++)
        ok = mprotect(sim->stacks + (size_t)i * each, sim->guard, PROT_NONE) == 0;
    if (ok)
        return sim;
    sim_free(sim);
    return NULL;
}

void sim_free(struct sim *sim)
{
    if (!sim)
        return;
    if (sim->stacks)
        munmap(sim->stacks, SIM_MAX_THREADS * (sim->guard + STACK_BYTES));
    free(sim->slots);
    free(sim->fault_stack);
    free(sim);
}
