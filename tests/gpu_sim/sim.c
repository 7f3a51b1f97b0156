#include "tests/gpu_sim/sim.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The C side of gpu.h's words. */
struct gs_sim_block {
    int at[3], n[3], n_thread;
};
extern struct gs_sim_block gs_sim_block;
struct gs_sim_block gs_sim_block;

int gs_sim_thread(void);
void *gs_sim_shared(void);
void gs_sim_at(const char *file, int line);
void gs_sim_sync(void);
int32_t gs_sim_shuffle(int32_t value, int mask);
extern bool gs_sim_sums_whole;
bool gs_sim_sums_whole;
float gs_sim_sum(float value);
float gs_sim_float_of_f16(uint16_t bits);
uint16_t gs_sim_f16_of_float(float value);
__attribute__((visibility("default"))) const struct gpu_sim *gpu_sim_table(void);

/* Static shared arrays of the kernels: gpu.h puts them into this section. */
extern char __start_gs_shared[], __stop_gs_shared[];

/* The launch under way. */
static struct {
    struct sim *sim;
    const struct gpu_sim_kernel *kernel;
    const struct gpu_sim_launch *launch;
    struct sim_buffer shared;               /* dynamic */
    struct sim_site sites[SIM_MAX_THREADS]; /* where each thread's next exchange is written */
} state;

int gs_sim_thread(void)
{
    return sim_self()->index;
}

void *gs_sim_shared(void)
{
    return state.shared.data;
}

void gs_sim_at(const char *file, int line)
{
    struct sim_site *site = &state.sites[sim_self()->index];
    site->file = file;
    site->line = line;
}

void gs_sim_sync(void)
{
    struct sim_site *site = &state.sites[sim_self()->index];
    site->what = "gs_sync";
    sim_barrier(site);
}

int32_t gs_sim_shuffle(int32_t value, int mask)
{
    const struct sim_thread *self = sim_self();
    struct sim_site *site = &state.sites[self->index];
    int from = self->lane ^ mask;
    int32_t result;
    site->what = "an exchange";
    const struct sim_wave *wave = sim_exchange(site, &value, sizeof value, NULL, NULL);
    if (from < 0 || from >= self->n_lane || !(wave->active >> from & 1))
        sim_stop("lane %d asks lane %d of %d, which takes no part (%s:%d)", self->lane, from, self->n_lane,
                 site->file, site->line);
    memcpy(&result, wave->slots[from], sizeof result);
    return result;
}

/* gs_warp_sum of all lanes at once: the same butterfly. */
static void add_lanes(struct sim_wave *wave, void *context)
{
    float values[2][SIM_MAX_LANES];
    int from = 0;
    (void)context;
    for (int i = 0; i < GS_GPU_SIM; i++)
        memcpy(&values[0][i], wave->slots[i], sizeof(float));
    for (int mask = GS_GPU_SIM / 2; mask > 0; mask /= 2, from = 1 - from)
        for (int i = 0; i < GS_GPU_SIM; i++)
            values[1 - from][i] = values[from][i] + values[from][i ^ mask];
    for (int i = 0; i < GS_GPU_SIM; i++)
        memcpy(wave->slots[i], &values[from][i], sizeof(float));
}

float gs_sim_sum(float value)
{
    const struct sim_thread *self = sim_self();
    struct sim_site *site = &state.sites[self->index];
    float sum;
    site->what = "gs_warp_sum";
    const struct sim_wave *wave = sim_exchange(site, &value, sizeof value, add_lanes, NULL);
    if (wave->active != (GS_GPU_SIM == 64 ? ~0ull : (1ull << 32) - 1))
        sim_stop("a sum over a wave of which not every lane takes part (%s:%d)", site->file, site->line);
    memcpy(&sum, wave->slots[self->lane], sizeof sum);
    return sum;
}

float gs_sim_float_of_f16(uint16_t bits)
{
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    float magnitude = exponent == 31  ? (mantissa ? NAN : INFINITY)
                      : exponent == 0 ? ldexpf((float)mantissa, -24)
                                      : ldexpf((float)(1024 + mantissa), exponent - 25);
    return bits >> 15 ? -magnitude : magnitude;
}

/* To nearest, ties to even. */
uint16_t gs_sim_f16_of_float(float value)
{
    unsigned sign = signbit(value) ? 0x8000u : 0;
    int exponent;
    if (value == 0.0f)
        return (uint16_t)sign;
    if (isnan(value))
        return (uint16_t)(sign | 0x7e00u);
    if (fabsf(value) >= 65520.0f)
        return (uint16_t)(sign | 0x7c00u);
    frexpf(value, &exponent);
    int unit = exponent - 11 > -24 ? exponent - 11 : -24; /* the last place is 2^unit */
    unsigned n = (unsigned)nearbyintf(ldexpf(fabsf(value), -unit));
    return (uint16_t)(sign | (((unsigned)(unit + 24) << 10) + n));
}

/* ---------------------------------------------------------------- the table */

static const struct gpu_sim_kernel *find(const char *name)
{
    for (size_t i = 0; i < gpu_sim_kernel_count; i++)
        if (strcmp(gpu_sim_kernels[i].name, name) == 0)
            return &gpu_sim_kernels[i];
    return NULL;
}

static size_t args_bytes(const char *name)
{
    const struct gpu_sim_kernel *kernel = find(name);
    return kernel ? kernel->args_bytes : 0;
}

static size_t count(void)
{
    return gpu_sim_kernel_count;
}

static const char *name_of(size_t index)
{
    return gpu_sim_kernels[index].name;
}

static void run_thread(void *context)
{
    (void)context;
    state.kernel->run(state.launch->args);
}

static bool before_block(void *context, int64_t block, struct sim_fault *fault)
{
    const uint32_t *grid = state.launch->grid;
    (void)context;
    (void)fault;
    gs_sim_block.at[0] = (int)(block % grid[0]);
    gs_sim_block.at[1] = (int)(block / grid[0] % grid[1]);
    gs_sim_block.at[2] = (int)(block / grid[0] / grid[1]);
    return true;
}

static bool refuse(struct sim_fault *fault, const char *what, const char *kernel)
{
    fault->kind = SIM_BAD_LAUNCH;
    snprintf(fault->message, sizeof fault->message, "kernel %s: %s", kernel, what);
    return false;
}

static bool run(const struct gpu_sim_launch *launch, struct sim_fault *fault)
{
    *fault = (struct sim_fault){0};
    state.kernel = find(launch->kernel);
    state.launch = launch;
    gs_sim_sums_whole = launch->sums_whole;
    if (!state.kernel)
        return refuse(fault, "there is none", launch->kernel);
    if (!state.sim)
        state.sim = sim_new();
    size_t shared = launch->shared_bytes > 0 ? launch->shared_bytes : 4;
    if (!state.sim || !sim_buffer_init(&state.shared, "shared memory", shared, 4))
        return refuse(fault, "no memory", launch->kernel);
    for (int i = 0; i < 3; i++)
        gs_sim_block.n[i] = (int)launch->grid[i];
    gs_sim_block.n_thread = (int)launch->block;
    struct sim_region regions[] = {{__start_gs_shared, (size_t)(__stop_gs_shared - __start_gs_shared)},
                                   {state.shared.data, shared}};
    struct sim_launch all = {.n_block = (int64_t)launch->grid[0] * launch->grid[1] * launch->grid[2],
                             .n_thread = (int)launch->block,
                             .n_lane = GS_GPU_SIM,
                             .order = launch->order,
                             .seed = launch->seed,
                             .kernel = run_thread,
                             .shared = regions,
                             .n_shared = 2,
                             .before_block = before_block};
    bool ok = sim_run(state.sim, &all, fault);
    ok = ok && sim_buffer_intact(&state.shared, fault);
    sim_buffer_release(&state.shared);
    state.shared.data = NULL;
    return ok;
}

static const struct gpu_sim table = {
    .n_lane = GS_GPU_SIM,
    .args_bytes = args_bytes,
    .count = count,
    .name = name_of,
    .run = run,
    .buffer_init = sim_buffer_init,
    .buffer_release = sim_buffer_release,
    .buffer_intact = sim_buffer_intact,
};

const struct gpu_sim *gpu_sim_table(void)
{
    return &table;
}
