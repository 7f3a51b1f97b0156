/* A forward: rows into shared memory, the stages of every layer in order, logits where they were written. */
#include "backend/metal/encode.h"
#include "backend/steps.h"
#include "base/clock.h"
#include "base/status.h"

#include <stdatomic.h>
#include <string.h>

#define SUBMIT_ROWS                                                                                          \
    128 /* a call of more rows is handed over layer by layer, and looks at the cancel flag                   \
         */
#define MAX_TIMELINES 1024

/* ---------------------------------------------------------------- rows */

/* Cosine and sine of a position, side by side: [d_head/2][2]. */
static void fill_rope(const struct gs_device *device, int64_t position, float *out)
{
    float cosine[GS_MAX_D_HEAD / 2], sine[GS_MAX_D_HEAD / 2];
    gs_yarn_angles(&device->yarn, position, cosine, sine);
    for (int64_t j = 0; j < device->yarn.n_freq; j++) {
        out[2 * j] = cosine[j];
        out[2 * j + 1] = sine[j];
    }
}

static struct gs_metal_row *rows_of(struct gs_device *device)
{
    return device->scratch[GS_METAL_ROWS].contents;
}

static float *rope_of(struct gs_device *device)
{
    return device->scratch[GS_METAL_ROPE].contents;
}

/* The largest logit's token, or one that is drawn. */
static void set_draw(struct gs_metal_row *row, const struct gs_draw *draw)
{
    const float coldest =
        1e-30f; /* below it quotients of subnormal numbers decide, which a GPU may not have */
    row->temperature = !draw ? 0.0f : draw->temperature >= coldest ? draw->temperature : -1.0f;
    row->draw = draw ? (uint32_t)(draw->uniform * 0x1p32) : 0;
}

/* Row `row` of the call is the next logit row. */
static void add_logit_row(struct gs_metal_run *run, uint32_t row, const struct gs_step *step)
{
    struct gs_device *device = run->device;
    struct gs_metal_row *to = &rows_of(device)[run->n_logit_rows];
    to->logit_source = (int32_t)row;
    to->chosen_at = (int32_t)run->n_logit_rows;
    set_draw(to, step->want == GS_WANT_TOKEN ? step->draw : NULL);
    if (run->n_logit_rows < GS_METAL_LOGIT_ROWS) {
        device->is_chosen[run->n_logit_rows] = step->want == GS_WANT_TOKEN;
        run->n_chosen += step->want == GS_WANT_TOKEN;
    }
    run->n_logit_rows++;
}

/* Lays the steps out as rows; fills the run's sizes and its stretches [n_steps]. */
static gs_status lay_out(struct gs_metal_run *run, const struct gs_step *steps, size_t n_steps,
                         struct gs_metal_stretch *stretches)
{
    struct gs_device *device = run->device;
    struct gs_metal_row *rows = rows_of(device);
    for (size_t i = 0; i < n_steps; i++) {
        const struct gs_step *step = &steps[i];
        const struct gs_step_room room = {device->max_rows, run->n_rows, device->config.n_vocab,
                                          step->kv->length, step->kv->capacity};
        gs_status status = gs_step_check(steps, i, &room, run->error);
        if (status != GS_OK)
            return status;
        stretches[i] = (struct gs_metal_stretch){step->kv, run->n_rows, (uint32_t)step->n_tokens};
        for (size_t t = 0; t < step->n_tokens; t++) {
            int64_t position = step->kv->length + (int64_t)t;
            uint32_t row = run->n_rows++;
            rows[row].token = step->tokens[t];
            rows[row].position = (int32_t)position;
            rows[row].timeline = 0; /* each timeline's table is bound for its own rows */
            fill_rope(device, position, rope_of(device) + row * device->config.d_head);
            if (gs_step_wants(step, t))
                add_logit_row(run, row, step);
        }
        int64_t end = step->kv->length + (int64_t)step->n_tokens;
        run->n_ctx = end > run->n_ctx ? (uint32_t)end : run->n_ctx;
    }
    return GS_OK;
}

/* ---------------------------------------------------------------- taps */

static void tap(struct gs_metal_run *run, enum gs_stage stage, int64_t layer, enum gs_metal_buffer from,
                int64_t columns)
{
    struct gs_device *device = run->device;
    device->tap(device->tap_user, stage, layer, device->scratch[from].contents, run->n_rows, columns);
}

/* Whole numbers in the device's memory become floats in the tap's. */
static void tap_choice(struct gs_metal_run *run, int64_t layer)
{
    struct gs_device *device = run->device;
    const int32_t *choice = device->scratch[GS_METAL_CHOICE].contents;
    int64_t n = run->n_rows * device->config.n_active;
    for (int64_t i = 0; i < n; i++)
        device->tapped[i] = (float)choice[i];
    device->tap(device->tap_user, GS_STAGE_ROUTER_CHOICE, layer, device->tapped, run->n_rows,
                device->config.n_active);
}

static gs_status tap_attention(struct gs_metal_run *run, int64_t layer)
{
    gs_status status = gs_metal_finish(run);
    if (status == GS_OK)
        tap(run, GS_STAGE_ATTENTION, layer, GS_METAL_PROJECTED, run->device->config.d_model);
    return status;
}

static gs_status tap_experts(struct gs_metal_run *run, int64_t layer)
{
    const struct gs_config *c = &run->device->config;
    gs_status status = gs_metal_finish(run);
    if (status != GS_OK)
        return status;
    tap(run, GS_STAGE_ROUTER, layer, GS_METAL_ROUTER_LOGITS, c->n_expert);
    tap_choice(run, layer);
    tap(run, GS_STAGE_ROUTER_WEIGHT, layer, GS_METAL_CHOICE_WEIGHT, c->n_active);
    tap(run, GS_STAGE_MOE, layer, GS_METAL_PROJECTED, c->d_model);
    tap(run, GS_STAGE_LAYER, layer, GS_METAL_HIDDEN, c->d_model);
    return GS_OK;
}

static gs_status tap_around(struct gs_metal_run *run, enum gs_stage stage, enum gs_metal_buffer from)
{
    gs_status status = gs_metal_finish(run);
    if (status == GS_OK)
        tap(run, stage, 0, from, run->device->config.d_model);
    return status;
}

/* ---------------------------------------------------------------- the model */

/* After half a layer: what the way of decoding, the taps and a caller who may cancel ask for. */
static gs_status pause(struct gs_metal_run *run, int64_t layer, bool is_whole)
{
    const struct gs_device *device = run->device;
    if (device->tap)
        return is_whole ? tap_experts(run, layer) : tap_attention(run, layer);
    if ((device->decode == GS_DECODE_LEGACY || device->decode == GS_DECODE_STAGED) && !run->is_tiled)
        return gs_metal_finish(run);
    return is_whole && run->n_rows > SUBMIT_ROWS ? gs_metal_submit(run) : GS_OK;
}

static gs_status run_layers(struct gs_metal_run *run, const _Atomic bool *cancelled)
{
    struct gs_device *device = run->device;
    gs_status status = gs_metal_embed(run);
    if (status == GS_OK && device->tap)
        status = tap_around(run, GS_STAGE_EMBEDDING, GS_METAL_HIDDEN);
    for (int64_t layer = 0; status == GS_OK && layer < device->config.n_layer; layer++) {
        if (cancelled && atomic_load_explicit(cancelled, memory_order_relaxed))
            return gs_fail(run->error, GS_CANCELLED, "cancelled");
        status = gs_metal_attention(run, layer);
        if (status == GS_OK)
            status = pause(run, layer, false);
        if (status == GS_OK)
            status = gs_metal_experts(run, layer);
        if (status == GS_OK)
            status = pause(run, layer, true);
    }
    if (status == GS_OK && device->tap)
        status = gs_metal_final_norm(run);
    if (status == GS_OK && device->tap)
        status = tap_around(run, GS_STAGE_FINAL_NORM, GS_METAL_NORMED);
    return status;
}

/* The rows that are wanted. More than the device's memory for them holds are fetched part by part. */
static gs_status run_head(struct gs_metal_run *run)
{
    struct gs_device *device = run->device;
    const float *part = device->scratch[GS_METAL_LOGITS].contents;
    size_t n_vocab = (size_t)device->config.n_vocab;
    bool many = run->n_logit_rows > GS_METAL_LOGIT_ROWS;
    gs_status status = GS_OK;
    for (uint32_t at = 0; status == GS_OK && at < run->n_logit_rows; at += GS_METAL_LOGIT_ROWS) {
        uint32_t left = run->n_logit_rows - at, n = left < GS_METAL_LOGIT_ROWS ? left : GS_METAL_LOGIT_ROWS;
        status = gs_metal_head(run, at, n);
        if (status == GS_OK && run->n_chosen > 0 && !many)
            status = gs_metal_pick(run);
        if (status == GS_OK)
            status = gs_metal_finish(run);
        if (status == GS_OK && many)
            memcpy(device->many_logits + at * n_vocab, part, n * n_vocab * sizeof *part);
    }
    device->logits = many ? device->many_logits : part;
    if (status == GS_OK)
        status = gs_metal_finish(run);
    if (status == GS_OK && device->tap && run->n_logit_rows > 0)
        device->tap(device->tap_user, GS_STAGE_LOGITS, 0, device->logits, run->n_logit_rows,
                    device->config.n_vocab);
    return status;
}

static uint64_t expert_bytes(const struct gs_metal_experts *m)
{
    return (uint64_t)m->rows * m->columns / GS_MXFP4_GROUP * (GS_MXFP4_GROUP_BYTES + 1);
}

/* Bytes of weights that a forward reads. */
static uint64_t bytes_read(const struct gs_device *device, uint32_t n_rows, uint32_t n_logit_rows)
{
    const struct gs_config *c = &device->config;
    double bytes = 0.0, experts = gs_experts_expected(c->n_expert, c->n_active, n_rows);
    for (int64_t i = 0; i < c->n_layer; i++) {
        const struct gs_metal_layer *w = &device->layers[i];
        bytes += (double)(w->q.bytes + w->k.bytes + w->v.bytes + w->o.bytes + w->router.bytes) +
                 experts * (double)(expert_bytes(&w->gate_up) + expert_bytes(&w->down));
    }
    return (uint64_t)bytes + (n_logit_rows > 0 ? device->head.bytes : 0);
}

/* Under GS_CONTROL_SWIGLU_CLAMP the kernels count. */
static void count_past_limit(struct gs_device *device)
{
    uint32_t *n = device->scratch[GS_METAL_OUT].contents;
    device->stats.n_past_limit += *n;
    *n = 0;
}

static void count(struct gs_device *device, uint64_t n_tokens, uint64_t n_forward, uint64_t bytes,
                  double start)
{
    device->stats.n_tokens += n_tokens;
    device->stats.n_forward += n_forward;
    device->stats.weight_bytes += bytes;
    device->stats.seconds += gs_clock_seconds() - start;
}

static gs_status forward(struct gs_device *device, const struct gs_step *steps, size_t n_steps,
                         const _Atomic bool *cancelled, struct gs_error *error)
{
    double start = gs_clock_seconds();
    struct gs_metal_stretch stretches[MAX_TIMELINES];
    struct gs_metal_run run = {
        .device = device, .error = error, .stretches = stretches, .n_stretches = n_steps};
    if (n_steps > MAX_TIMELINES)
        return gs_fail(error, GS_INVALID_ARGUMENT, "a forward takes at most %d timelines", MAX_TIMELINES);
    gs_status status = lay_out(&run, steps, n_steps, stretches);
    if (status == GS_OK && run.n_logit_rows > GS_METAL_LOGIT_ROWS)
        status = gs_logits_reserve(&device->many_logits, &device->many_capacity, run.n_logit_rows,
                                   device->config.n_vocab, error);
    if (status != GS_OK || n_steps == 0)
        return status;
    run.is_tiled = device->precision == GS_PRECISION_FAST && run.n_rows >= GS_METAL_TILED_ROWS;
    run.is_few = gs_metal_takes_few(device, run.n_rows) && !run.is_tiled;
    run.is_tiled = run.is_tiled || run.is_few;
    for (size_t i = 0; i < n_steps; i++)
        gs_metal_kv_begin_write(steps[i].kv, (int64_t)steps[i].n_tokens);
    status = run_layers(&run, cancelled);
    if (status == GS_OK)
        status = run_head(&run);
    if (status != GS_OK) {
        gs_metal_abandon(&run); /* nothing is under way when this returns */
        return status;
    }
    count_past_limit(device);
    device->n_logit_rows = run.n_logit_rows;
    for (size_t i = 0; i < n_steps; i++)
        steps[i].kv->length += (int64_t)steps[i].n_tokens;
    count(device, run.n_rows, 1, bytes_read(device, run.n_rows, run.n_logit_rows), start);
    return GS_OK;
}

/* What Metal autoreleases on the way goes when the forward ends, not when the thread does. */
gs_status gs_metal_forward(struct gs_device *device, const struct gs_step *steps, size_t n_steps,
                           const _Atomic bool *cancelled, struct gs_error *error)
{
    void *pool = device->metal.objc.pool_push();
    gs_status status = forward(device, steps, n_steps, cancelled, error);
    device->metal.objc.pool_pop(pool);
    return status;
}

/* ---------------------------------------------------------------- chains */

static uint32_t rope_stride(const struct gs_device *device)
{
    return ((uint32_t)device->config.d_head * (uint32_t)sizeof(float) + 15) / 16 * 16;
}

/* Step j of a chain: its token is the one before's choice. */
static gs_status encode_step(struct gs_metal_run *run, const struct gs_kv *kv, int32_t token,
                             const struct gs_draw *draw, uint32_t j)
{
    struct gs_device *device = run->device;
    int64_t position = kv->length + j;
    rows_of(device)[j] = (struct gs_metal_row){
        .token = j == 0 ? token : -(int32_t)j, .position = (int32_t)position, .chosen_at = (int32_t)j};
    set_draw(&rows_of(device)[j], draw);
    run->row_offset = j * (uint32_t)sizeof(struct gs_metal_row);
    run->rope_offset = j * rope_stride(device);
    run->n_ctx = (uint32_t)position + 1;
    fill_rope(device, position, rope_of(device) + run->rope_offset / sizeof(float));
    gs_status status = gs_metal_embed(run);
    for (int64_t layer = 0; status == GS_OK && layer < device->config.n_layer; layer++) {
        status = gs_metal_attention(run, layer);
        if (status == GS_OK)
            status = gs_metal_experts(run, layer);
    }
    if (status == GS_OK)
        status = gs_metal_head(run, 0, 1);
    return status == GS_OK ? gs_metal_pick(run) : status;
}

/* Waits for the passes [n] and lets go of them; the first failure is told. */
static gs_status wait_for_chain(struct gs_device *device, size_t n, struct gs_error *error)
{
    gs_status status = GS_OK;
    for (size_t i = 0; i < n; i++) {
        struct gs_metal_pass *pass = &device->chain[i];
        gs_status done = gs_metal_pass_wait(&device->metal, pass, status == GS_OK ? error : NULL);
        status = status == GS_OK ? done : status;
        gs_metal_pass_end(&device->metal, pass);
    }
    return status;
}

static gs_status chain(struct gs_device *device, struct gs_kv *kv, int32_t token, const struct gs_draw *draws,
                       int32_t *out, size_t n, struct gs_error *error)
{
    double start = gs_clock_seconds();
    struct gs_metal_stretch stretch = {kv, 0, 1};
    struct gs_metal_run run = {.device = device,
                               .error = error,
                               .stretches = &stretch,
                               .n_stretches = 1,
                               .n_rows = 1,
                               .n_logit_rows = 1};
    if (n == 0 || n > GS_METAL_CHAIN_TOKENS || (int64_t)n > kv->capacity - kv->length)
        return gs_fail(error, GS_INVALID_ARGUMENT, "a chain of %zu tokens, must be 1 to %d and fit", n,
                       GS_METAL_CHAIN_TOKENS);
    gs_status status = gs_token_check(token, device->config.n_vocab, error);
    if (status != GS_OK)
        return status;
    gs_metal_kv_begin_write(kv, (int64_t)n);
    size_t n_committed = 0;
    while (status == GS_OK && n_committed < n) {
        status = encode_step(&run, kv, token, draws ? &draws[n_committed] : NULL, (uint32_t)n_committed);
        if (status == GS_OK) {
            gs_metal_pass_commit(&device->metal, &run.pass);
            device->chain[n_committed++] = run.pass;
            run.pass = (struct gs_metal_pass){0};
        }
    }
    gs_metal_pass_end(&device->metal, &run.pass);
    gs_status done = wait_for_chain(device, n_committed, status == GS_OK ? error : NULL);
    status = status == GS_OK ? done : status;
    if (status != GS_OK)
        return status;
    memcpy(out, device->scratch[GS_METAL_CHOSEN].contents, n * sizeof *out);
    kv->length += (int64_t)n;
    device->logits = device->scratch[GS_METAL_LOGITS].contents;
    device->n_logit_rows = 1;
    device->is_chosen[0] = false;
    count(device, n, n, n * bytes_read(device, 1, 1), start);
    return GS_OK;
}

gs_status gs_metal_chain(struct gs_device *device, struct gs_kv *kv, int32_t token,
                         const struct gs_draw *draws, int32_t *out, size_t n, struct gs_error *error)
{
    void *pool = device->metal.objc.pool_push();
    gs_status status = chain(device, kv, token, draws, out, n, error);
    device->metal.objc.pool_pop(pool);
    return status;
}
