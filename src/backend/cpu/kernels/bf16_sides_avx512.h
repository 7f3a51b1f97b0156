/*
 * Short rows and several vectors, with AVX-512 BF16; bf16_avx512.h includes this.
 *
 * Adding up the lanes of a short row costs as much as its products. So 16 rows are laid out side by side, a
 * lane being a row: one register for each pair of weights, all pairs of a lane of the row one after the
 * other. What a lane of multiply_batch sums is summed here in a register of its own (a turn), and the turns
 * are added in the order in which add_lanes adds lanes: the same bits.
 */
#define SIDE  16
#define TURNS 16

/* Where it pays: rows that stay in the first cache, or in the second with few vectors. */
INLINE bool is_for_sides(size_t n, size_t n_x)
{
    return n_x >= 3 && n % STEP == 0 && (n <= 1024 || (n <= 3072 && n_x <= 32));
}

/* Registers of a turn: an odd number, or a step's turns lie in the same few sets of the cache. */
INLINE size_t turn_stride(size_t n)
{
    return n / STEP | 1;
}

/* laid [16 turns][turn_stride], of rows [16] */
INLINE void lay_side(const unsigned char *const *rows, size_t n, __m512i *laid)
{
    for (size_t step = 0; step < n / STEP; step++) {
        __m512i v[SIDE];
#pragma GCC unroll 16
        for (size_t r = 0; r < SIDE; r++)
            v[r] = _mm512_loadu_si512(rows[r] + step * 64);
        transpose(v);
#pragma GCC unroll 16
        for (size_t turn = 0; turn < TURNS; turn++)
            laid[turn * turn_stride(n) + step] = v[turn];
    }
}

/* The products of two sides and n_x vectors, a constant. */
struct sides {
    const __m512i *laid[2];
    const uint16_t *const *x;
    size_t n_steps, stride; /* of a turn */
    struct ahead ahead;
};

INLINE void sum_turn(struct sides *sides, size_t n_x, size_t turn, __m512 sums[2][4])
{
    prefetch_piece(&sides->ahead);
    const __m512i *from[2] = {sides->laid[0] + turn * sides->stride, sides->laid[1] + turn * sides->stride};
#pragma GCC unroll 4
    for (size_t t = 0; t < n_x; t++)
        sums[0][t] = sums[1][t] = _mm512_setzero_ps();
    for (size_t step = 0; step < sides->n_steps; step++) {
        __m512bh weights[2] = {(__m512bh)from[0][step], (__m512bh)from[1][step]};
#pragma GCC unroll 4
        for (size_t t = 0; t < n_x; t++) {
            int32_t pair;
            __builtin_memcpy(&pair, sides->x[t] + step * STEP + 2 * turn, sizeof pair);
            __m512bh value = (__m512bh)_mm512_set1_epi32(pair);
            sums[0][t] = _mm512_dpbf16_ps(sums[0][t], weights[0], value);
            sums[1][t] = _mm512_dpbf16_ps(sums[1][t], weights[1], value);
        }
    }
}

INLINE void add_sums(size_t n_x, __m512 to[2][4], __m512 from[2][4])
{
#pragma GCC unroll 4
    for (size_t t = 0; t < n_x; t++) {
        to[0][t] = _mm512_add_ps(to[0][t], from[0][t]);
        to[1][t] = _mm512_add_ps(to[1][t], from[1][t]);
    }
}

/* Turns (a + a+2) + (a+1 + a+3): those of 128 bits of a register. */
INLINE void sum_quarter(struct sides *sides, size_t n_x, size_t a, __m512 sums[2][4])
{
    __m512 second[2][4], one[2][4];
    sum_turn(sides, n_x, a, sums);
    sum_turn(sides, n_x, a + 2, one);
    add_sums(n_x, sums, one);
    sum_turn(sides, n_x, a + 1, second);
    sum_turn(sides, n_x, a + 3, one);
    add_sums(n_x, second, one);
    add_sums(n_x, sums, second);
}

INLINE void multiply_sides(struct sides *sides, size_t n_x, size_t n_rows, float *out, size_t stride)
{
    __m512 total[2][4], odd[2][4], quarter[2][4];
    sum_quarter(sides, n_x, 0, total);
    sum_quarter(sides, n_x, 8, quarter);
    add_sums(n_x, total, quarter);
    sum_quarter(sides, n_x, 4, odd);
    sum_quarter(sides, n_x, 12, quarter);
    add_sums(n_x, odd, quarter);
    add_sums(n_x, total, odd);
    __mmask32 rows = n_rows >= 32 ? 0xFFFFFFFF : (__mmask32)((1u << n_rows) - 1);
    for (size_t t = 0; t < n_x; t++) {
        _mm512_mask_storeu_ps(out + t * stride, (__mmask16)rows, total[0][t]);
        _mm512_mask_storeu_ps(out + t * stride + SIDE, (__mmask16)(rows >> SIDE), total[1][t]);
    }
}

/* The rows that follow these in memory, a piece each turn. */
INLINE struct ahead plan_ahead(const unsigned char *rows, size_t bytes, size_t n_x)
{
    size_t n_lines = bytes / 64 + 1, n_turns = (n_x + 3) / 4 * TURNS;
    return (struct ahead){
        {(const char *)rows + bytes, NULL}, {n_lines, 0}, {(n_lines + n_turns - 1) / n_turns, 0}};
}

/* rows [32]: those past n_rows are there. */
static void multiply_short(const unsigned char *const *rows, size_t n_rows, size_t n,
                           const uint16_t *const *x, size_t n_x, void *work, float *out, size_t stride)
{
    __m512i *laid = work, *second = laid + TURNS * turn_stride(n);
    struct sides sides = {
        {laid, second}, x, n / STEP, turn_stride(n), plan_ahead(rows[0], n_rows * n * 2, n_x)};
    lay_side(rows, n, laid);
    lay_side(rows + SIDE, n, second);
    for (; n_x >= 4; n_x -= 4, sides.x += 4, out += 4 * stride)
        multiply_sides(&sides, 4, n_rows, out, stride);
    if (n_x == 3)
        multiply_sides(&sides, 3, n_rows, out, stride);
    else if (n_x == 2)
        multiply_sides(&sides, 2, n_rows, out, stride);
    else if (n_x == 1)
        multiply_sides(&sides, 1, n_rows, out, stride);
}
