/* The last norm, the head, and the choice of a token from its logits. */

#define GS_NOT_FINITE 3.402823466e38f /* the rank of what is no finite number: before every logit that is one */

static inline float rank_of(float logit)
{
    /* In whole numbers alone, and not by the usual mask: fast math takes that for a question with one answer. */
    return as_type<uint>(logit) << 1 >= 0xff000000u ? GS_NOT_FINITE : logit;
}

/* Is (logit, token) to be preferred? Larger first, then the lower token. */
static inline bool is_better(float logit, uint token, float than, uint than_token)
{
    return logit > than || (logit == than && token < than_token);
}

/* A threadgroup takes GS_METAL_HEAD_SETS times as many rows as it has at once, and names the best of them. */
[[max_total_threads_per_threadgroup(GS_METAL_THREADS)]] kernel void gs_head(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]],
    const device gs_metal_row *rows [[buffer(GS_METAL_ROWS)]],
    const device float *hidden [[buffer(GS_METAL_HIDDEN)]], device float *logits [[buffer(GS_METAL_LOGITS)]],
    device gs_metal_candidate *candidates [[buffer(GS_METAL_CANDIDATES)]],
    const device float *norm [[buffer(GS_METAL_NORM_WEIGHT)]],
    const device uchar *matrix [[buffer(GS_METAL_WEIGHT_0)]], uint3 group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    /* Two halves in turn, so that one barrier a set is enough. */
    threadgroup float shared[2 * GS_METAL_SIMDGROUPS * (GS_METAL_SET_ROWS + 1)];
    threadgroup float best_logit[GS_METAL_SIMDGROUPS];
    threadgroup uint best_token[GS_METAL_SIMDGROUPS];
    uint sets = GS_METAL_SIMDGROUPS / gs_simdgroups, set = simdgroup / gs_simdgroups;
    uint set_rows = sets * GS_METAL_SET_ROWS;
    const device float *x = hidden + (ulong)rows[group.x].logit_source * args.d_model;
    float best = -3.0e38f;
    uint token = 0xffffffffu;
    for (uint i = 0; i < GS_METAL_HEAD_SETS; i++) {
        uint first = (group.y * GS_METAL_HEAD_SETS + i) * set_rows + set * GS_METAL_SET_ROWS;
        dense_row w[GS_METAL_SET_ROWS];
        for (uint r = 0; r < GS_METAL_SET_ROWS; r++)
            w[r] = find_row(matrix, args.type[0], args.scales_at[0], min(first + r, args.n_vocab - 1),
                            args.d_model);
        float sums[GS_METAL_SET_ROWS + 1];
        dense_dots<GS_METAL_SET_ROWS, true>(w, x, norm, args.d_model, simdgroup % gs_simdgroups,
                                            gs_simdgroups, lane, sums);
        join_parts(sums, GS_METAL_SET_ROWS + 1,
                   shared + i % 2 * (GS_METAL_SIMDGROUPS * (GS_METAL_SET_ROWS + 1)), simdgroup, lane,
                   gs_simdgroups);
        if (simdgroup % gs_simdgroups != 0)
            continue;
        float scale = norm_scale(args, sums[GS_METAL_SET_ROWS]);
        for (uint r = 0; r < GS_METAL_SET_ROWS && first + r < args.n_vocab; r++) {
            float logit = sums[r] * scale;
            if (is_better(rank_of(logit), first + r, best, token)) {
                best = rank_of(logit);
                token = first + r;
            }
            if (lane == r)
                logits[(ulong)group.x * args.n_vocab + first + r] = logit;
        }
    }
    if (lane == 0 && simdgroup % gs_simdgroups == 0) {
        best_logit[set] = best;
        best_token[set] = token;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simdgroup != 0 || lane != 0)
        return;
    for (uint i = 1; i < sets; i++)
        if (is_better(best_logit[i], best_token[i], best, token)) {
            best = best_logit[i];
            token = best_token[i];
        }
    uint n_candidate = (args.n_vocab + set_rows * GS_METAL_HEAD_SETS - 1) / (set_rows * GS_METAL_HEAD_SETS);
    device gs_metal_candidate *out = candidates + (ulong)group.x * n_candidate + group.y;
    out->logit = best;
    out->token = (int)token;
}

#define GS_PICK_SIMDGROUPS (GS_METAL_PICK_THREADS / GS_METAL_LANES)

/*
 * Chances are whole numbers, so that their sums are exact in any order: exp((logit - largest) / temperature) times
 * 2^40, cut. At least one is 2^40. Against the formula in float64 such an exp is off by some 2^-21 of itself, and by
 * 2^-22 for each unit of its exponent (rounding of the difference and the quotient): over all tokens less than
 * 2^-18 of the sum, since chances with large exponents are small.
 */
static inline ulong chance(const device float *logits, uint i, float largest, float temperature)
{
    float scaled = precise::exp(max((logits[i] - largest) / temperature, -1.0e4f)) * 1048576.0f;
    uint whole = (uint)scaled;
    return ((ulong)whole << 20) + (uint)((scaled - (float)whole) * 1048576.0f);
}

/* Sums over the lanes, of parts of 24 bits. */
static inline ulong sum_chances(ulong chances)
{
    uint low = simd_sum((uint)chances & 0xffffffu), middle = simd_sum((uint)(chances >> 24) & 0xffffffu);
    return (ulong)low + ((ulong)middle << 24) + ((ulong)simd_sum((uint)(chances >> 48)) << 48);
}

/* Of this lane's and those of the lanes before it. */
static inline ulong sum_chances_upto(ulong chances)
{
    uint low = simd_prefix_inclusive_sum((uint)chances & 0xffffffu);
    return (ulong)low + ((ulong)simd_prefix_inclusive_sum((uint)(chances >> 24)) << 24);
}

/* Of what is drawn: the chance up to its token, and by how much a sum may differ from the formula's. */
struct gs_draw_target {
    ulong at, doubt;
};

/*
 * The token of begin ... end-1 at which the sum of chances, `before` at begin, passes the target; -1 where it could
 * be another one by the formula. One SIMD-group.
 */
static inline int draw_token(const device float *logits, uint begin, uint end, float largest, float temperature,
                             ulong before, gs_draw_target target, uint lane)
{
    for (uint base = begin; base < end; base += GS_METAL_LANES) {
        uint i = base + lane;
        ulong mine = i < end ? chance(logits, i, largest, temperature) : 0;
        ulong upto = before + sum_chances_upto(mine);
        uint found = simd_min(upto > target.at ? i : 0xffffffffu);
        bool is_behind = i == 0 || upto - mine + target.doubt <= target.at;
        bool is_past = upto > target.at + target.doubt;
        bool is_sure = simd_max(i == found && is_behind && is_past ? 1u : 0u) > 0;
        if (found != 0xffffffffu)
            return is_sure ? (int)found : -1;
        before += sum_chances(mine);
    }
    return -1;
}

/*
 * The token of a logit row: the largest logit, or one drawn by chance; -1 where the host has to choose. Grid: logit
 * rows.
 */
[[max_total_threads_per_threadgroup(GS_METAL_PICK_THREADS)]] kernel void gs_pick(
    constant gs_metal_args &args [[buffer(GS_METAL_ARGS)]],
    const device gs_metal_row *rows [[buffer(GS_METAL_ROWS)]],
    const device float *all_logits [[buffer(GS_METAL_LOGITS)]],
    const device gs_metal_candidate *candidates [[buffer(GS_METAL_CANDIDATES)]],
    device int *chosen [[buffer(GS_METAL_CHOSEN)]], uint3 group [[threadgroup_position_in_grid]],
    uint3 thread_at [[thread_position_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    threadgroup float best_logit[GS_PICK_SIMDGROUPS];
    threadgroup uint best_token[GS_PICK_SIMDGROUPS];
    threadgroup ulong sums[GS_PICK_SIMDGROUPS];
    uint at_once = GS_METAL_SIMDGROUPS / gs_simdgroups * GS_METAL_SET_ROWS * GS_METAL_HEAD_SETS;
    uint n = (args.n_vocab + at_once - 1) / at_once;
    const device gs_metal_candidate *mine = candidates + (ulong)group.x * n;
    float best = -3.0e38f;
    uint token = 0xffffffffu;
    for (uint i = thread_at.x; i < n; i += GS_METAL_PICK_THREADS)
        if (is_better(mine[i].logit, (uint)mine[i].token, best, token)) {
            best = mine[i].logit;
            token = (uint)mine[i].token;
        }
    float top = simd_max(best);
    token = simd_min(best == top ? token : 0xffffffffu);
    if (lane == 0) {
        best_logit[simdgroup] = top;
        best_token[simdgroup] = token;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float largest = simd_max(best_logit[lane]);
    token = simd_min(best_logit[lane] == largest ? best_token[lane] : 0xffffffffu);
    float temperature = rows[group.x].temperature;
    int answer = largest < GS_NOT_FINITE && temperature >= 0.0f ? (int)token : -1;
    if (temperature > 0.0f && answer >= 0) {
        const device float *logits = all_logits + (ulong)group.x * args.n_vocab;
        uint length = (args.n_vocab + GS_PICK_SIMDGROUPS - 1) / GS_PICK_SIMDGROUPS;
        uint begin = simdgroup * length, end = min(begin + length, args.n_vocab);
        ulong sum = 0, total = 0, passed = 0;
        for (uint i = begin + lane; i < end; i += GS_METAL_LANES)
            sum += chance(logits, i, largest, temperature);
        sum = sum_chances(sum);
        if (lane == 0)
            sums[simdgroup] = sum;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = 0; i < GS_PICK_SIMDGROUPS; i++)
            total += sums[i];
        gs_draw_target target;
        target.at = (total >> 32) * rows[group.x].draw + ((total & 0xffffffffu) * rows[group.x].draw >> 32);
        target.doubt = (total >> 17) + 2 * args.n_vocab; /* twice the bound; and what is cut off */
        uint segment = 0;
        while (segment + 1 < GS_PICK_SIMDGROUPS && passed + sums[segment] <= target.at)
            passed += sums[segment++];
        if (simdgroup == 0)
            answer = draw_token(logits, segment * length, min((segment + 1) * length, args.n_vocab), largest,
                                temperature, passed, target, lane);
    }
    if (simdgroup == 0 && lane == 0)
        chosen[rows[group.x].chosen_at] = answer;
}
