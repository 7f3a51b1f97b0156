/*
 * Short rows and about 16 vectors, with AVX-512 BF16; bf16_avx512.h includes this.
 *
 * The vectors are laid out side by side, a lane being a vector, and the rows are read where they lie, each
 * pair of weights for all lanes. That is done once for all tiles that meet the same vectors, where
 * bf16_sides_avx512.h lays out every tile. A turn and the order in which turns are added are as there: the
 * same bits.
 */
#define LANE_VECTORS 16
#define LANE_GROUPS  2 /* of vectors, for which the work has room */
#define QUARTER      4 /* turns that are summed together */

/* Where it pays: few lanes stay empty. */
INLINE bool is_for_lanes(size_t n, size_t n_x)
{
    return (n_x - 1) % LANE_VECTORS >= 11 && n_x <= LANE_GROUPS * LANE_VECTORS && n % STEP == 0 && n <= 1024;
}

/* laid [4 quarters][n / STEP][4 turns], of n_x vectors; lanes past them are the last one again. */
INLINE void lay_vectors(const uint16_t *const *x, size_t n_x, size_t n, __m512i *laid)
{
    size_t n_steps = n / STEP;
    for (size_t step = 0; step < n_steps; step++) {
        __m512i v[LANE_VECTORS];
#pragma GCC unroll 16
        for (size_t t = 0; t < LANE_VECTORS; t++)
            v[t] = _mm512_loadu_si512(x[t < n_x ? t : n_x - 1] + step * STEP);
        transpose(v);
#pragma GCC unroll 16
        for (size_t turn = 0; turn < TURNS; turn++)
            laid[(turn / QUARTER * n_steps + step) * QUARTER + turn % QUARTER] = v[turn];
    }
}

/*
 * sums[r] = turns (a + a+2) + (a+1 + a+3) of four rows, a being the quarter's first. The four rows that
 * follow are asked for meanwhile, and what lies `far` bytes on, from further away: a line a step.
 */
INLINE void sum_lanes_quarter(const unsigned char *const *rows, size_t far, const __m512i *laid,
                              size_t n_steps, size_t quarter, __m512 sums[4])
{
    const char *here = (const char *)rows[0] + quarter * n_steps * 64;
    __m512 turns[4][QUARTER];
#pragma GCC unroll 4
    for (size_t r = 0; r < 4; r++)
#pragma GCC unroll 4
        for (size_t i = 0; i < QUARTER; i++)
            turns[r][i] = _mm512_setzero_ps();
    laid += quarter * n_steps * QUARTER;
    for (size_t step = 0; step < n_steps; step++, laid += QUARTER, here += 64) {
        _mm_prefetch(here + 4 * n_steps * 64, _MM_HINT_T0);
        _mm_prefetch(here + far, _MM_HINT_T1);
#pragma GCC unroll 4
        for (size_t i = 0; i < QUARTER; i++) {
            __m512bh values = (__m512bh)_mm512_load_si512(laid + i);
#pragma GCC unroll 4
            for (size_t r = 0; r < 4; r++) {
                int32_t pair;
                __builtin_memcpy(&pair, rows[r] + step * 64 + (quarter * QUARTER + i) * 4, sizeof pair);
                turns[r][i] = _mm512_dpbf16_ps(turns[r][i], values, (__m512bh)_mm512_set1_epi32(pair));
            }
        }
    }
#pragma GCC unroll 4
    for (size_t r = 0; r < 4; r++)
        sums[r] =
            _mm512_add_ps(_mm512_add_ps(turns[r][0], turns[r][2]), _mm512_add_ps(turns[r][1], turns[r][3]));
}

/* Four rows by the vectors of a group. */
INLINE void multiply_lanes(const unsigned char *const *rows, size_t far, const __m512i *laid, size_t n_steps,
                           __m512i *out)
{
    __m512 quarters[4][4];
#pragma GCC unroll 4
    for (size_t quarter = 0; quarter < 4; quarter++)
        sum_lanes_quarter(rows, far, laid, n_steps, quarter, quarters[quarter]);
#pragma GCC unroll 4
    for (size_t r = 0; r < 4; r++)
        out[r] = _mm512_castps_si512(_mm512_add_ps(_mm512_add_ps(quarters[0][r], quarters[2][r]),
                                                   _mm512_add_ps(quarters[1][r], quarters[3][r])));
}

/* rows [32]: those past n_rows are there. */
static void multiply_vectors(const unsigned char *const *rows, size_t n_rows, size_t n,
                             const uint16_t *const *x, size_t n_x, bool same_x, __m512i *laid, float *out,
                             size_t stride)
{
    size_t n_steps = n / STEP, group_size = n_steps * TURNS;
    for (size_t first = 0; first < n_x; first += LANE_VECTORS, laid += group_size) {
        size_t n_lanes = n_x - first < LANE_VECTORS ? n_x - first : LANE_VECTORS;
        if (!same_x)
            lay_vectors(x + first, n_lanes, n, laid);
        for (size_t r = 0; r < n_rows; r += SIDE) {
            __m512i sums[SIDE];
            for (size_t i = 0; i < SIDE; i += 4)
                multiply_lanes(rows + r + i, n_rows * n * 2, laid, n_steps, sums + i);
            transpose(sums);
            __mmask16 mask = (__mmask16)(n_rows - r >= SIDE ? 0xFFFFu : (1u << (n_rows - r)) - 1);
            for (size_t t = 0; t < n_lanes; t++)
                _mm512_mask_storeu_ps(out + (first + t) * stride + r, mask, _mm512_castsi512_ps(sums[t]));
        }
    }
}
