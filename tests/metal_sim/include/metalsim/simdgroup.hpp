// Barriers, SIMD-group functions, matrices, atomics. Every function that waits takes its caller's place from
// default arguments, so that messages name the kernel's lines.
#pragma once

#define METALSIM_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace metal {

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
constexpr mem_flags operator|(mem_flags a, mem_flags b)
{
    return (mem_flags)((int)a | (int)b);
}

inline void threadgroup_barrier(mem_flags, METALSIM_PLACE)
{
    sim_barrier(SIM_SITE_OF("threadgroup_barrier", file, line));
}
inline void simdgroup_barrier(mem_flags, METALSIM_PLACE)
{
    sim_exchange(SIM_SITE_OF("simdgroup_barrier", file, line), nullptr, 0, nullptr, nullptr);
}

} // namespace metal

namespace metalsim {

// Slot `lane` as a T.
template <class T> inline T slot(const sim_wave *wave, int lane)
{
    T value;
    __builtin_memcpy(&value, wave->slots[lane], sizeof value);
    return value;
}

// A deposit of one value a lane.
template <class T> inline const sim_wave *deposit(const char *what, const char *file, int line, const T &value,
                                                  sim_combine *combine = nullptr, void *context = nullptr)
{
    static_assert(sizeof(T) <= SIM_SLOT_BYTES, "too large for a SIMD-group function");
    static_assert(!__is_pointer(T), "a pointer is no value for a SIMD-group function");
    return sim_exchange(SIM_SITE_OF(what, file, line), &value, sizeof value, combine, context);
}

// The active lanes' values combined in a butterfly's order; the result lands in slot 0.
template <class T, class F> void reduce(sim_wave *wave, void *)
{
    T value[SIM_MAX_LANES];
    uint64_t active = wave->active;
    for (int i = 0; i < SIM_MAX_LANES; i++)
        if (active >> i & 1)
            value[i] = slot<T>(wave, i);
    for (int stride = SIM_MAX_LANES / 2; stride > 0; stride /= 2)
        for (int i = 0; i < stride; i++) {
            bool low = active >> i & 1, high = active >> (i + stride) & 1;
            if (low && high)
                value[i] = F::apply(value[i], value[i + stride]);
            else if (high)
                value[i] = value[i + stride];
            active |= (uint64_t)(low || high) << i;
        }
    __builtin_memcpy(wave->slots[0], &value[0], sizeof(T));
}

// Each active lane gets the values of the active lanes before it, in order; `with_itself`: and its own.
template <class T, class F, bool with_itself> void scan(sim_wave *wave, void *)
{
    T sum = F::template identity<T>();
    for (int i = 0; i < SIM_MAX_LANES; i++)
        if (wave->active >> i & 1) {
            T next = F::apply(sum, slot<T>(wave, i));
            __builtin_memcpy(wave->slots[i], with_itself ? &next : &sum, sizeof(T));
            sum = next;
        }
}

struct add {
    template <class T> static T apply(T a, T b)
    {
        return (T)(a + b);
    }
    template <class T> static T identity()
    {
        return (T)0;
    }
};
struct multiply {
    template <class T> static T apply(T a, T b)
    {
        return (T)(a * b);
    }
    template <class T> static T identity()
    {
        return (T)1;
    }
};
struct smallest {
    template <class T> static T apply(T a, T b)
    {
        return metal::min(a, b);
    }
};
struct largest {
    template <class T> static T apply(T a, T b)
    {
        return metal::max(a, b);
    }
};
struct bits_and {
    template <class T> static T apply(T a, T b)
    {
        return a & b;
    }
};
struct bits_or {
    template <class T> static T apply(T a, T b)
    {
        return a | b;
    }
};
struct bits_xor {
    template <class T> static T apply(T a, T b)
    {
        return a ^ b;
    }
};

// What lane `from` deposited. A lane that takes no part has no value: in Metal undefined, here not a number.
template <class T> inline T shuffled(const sim_wave *wave, int from, int n_lane)
{
    T value;
    if (from >= 0 && from < n_lane && wave->active >> from & 1)
        return slot<T>(wave, from);
    __builtin_memset(&value, SIM_POISON, sizeof value);
    return value;
}

} // namespace metalsim

namespace metal {

#define METALSIM_REDUCTION(name, how)                                                                        \
    template <class T> inline T name(T value, METALSIM_PLACE)                                                \
    {                                                                                                        \
        return metalsim::slot<T>(                                                                            \
            metalsim::deposit(#name, file, line, value, metalsim::reduce<T, metalsim::how>), 0);             \
    }
METALSIM_REDUCTION(simd_sum, add)
METALSIM_REDUCTION(simd_product, multiply)
METALSIM_REDUCTION(simd_min, smallest)
METALSIM_REDUCTION(simd_max, largest)
METALSIM_REDUCTION(simd_and, bits_and)
METALSIM_REDUCTION(simd_or, bits_or)
METALSIM_REDUCTION(simd_xor, bits_xor)
#undef METALSIM_REDUCTION

#define METALSIM_SCAN(name, how, with_itself)                                                                \
    template <class T> inline T name(T value, METALSIM_PLACE)                                                \
    {                                                                                                        \
        return metalsim::slot<T>(                                                                            \
            metalsim::deposit(#name, file, line, value, metalsim::scan<T, metalsim::how, with_itself>),      \
            sim_self()->lane);                                                                               \
    }
METALSIM_SCAN(simd_prefix_inclusive_sum, add, true)
METALSIM_SCAN(simd_prefix_exclusive_sum, add, false)
METALSIM_SCAN(simd_prefix_inclusive_product, multiply, true)
METALSIM_SCAN(simd_prefix_exclusive_product, multiply, false)
#undef METALSIM_SCAN

#define METALSIM_SHUFFLE(name, argument, from)                                                               \
    template <class T> inline T name(T value, ushort argument, METALSIM_PLACE)                               \
    {                                                                                                        \
        const sim_thread *self = sim_self();                                                                 \
        return metalsim::shuffled<T>(metalsim::deposit(#name, file, line, value), (from), self->n_lane);     \
    }
METALSIM_SHUFFLE(simd_shuffle, lane, lane)
METALSIM_SHUFFLE(simd_broadcast, lane, lane)
METALSIM_SHUFFLE(simd_shuffle_xor, mask, self->lane ^ mask)
METALSIM_SHUFFLE(simd_shuffle_up, delta, self->lane - delta)
METALSIM_SHUFFLE(simd_shuffle_down, delta, self->lane + delta)
#undef METALSIM_SHUFFLE

template <class T> inline T simd_broadcast_first(T value, METALSIM_PLACE)
{
    const sim_wave *wave = metalsim::deposit("simd_broadcast_first", file, line, value);
    return metalsim::slot<T>(wave, __builtin_ctzll(wave->active));
}
inline bool simd_any(bool value, METALSIM_PLACE)
{
    return simd_or((int)value, file, line) != 0;
}
inline bool simd_all(bool value, METALSIM_PLACE)
{
    return simd_and((int)value, file, line) != 0;
}
inline bool simd_is_first()
{
    return sim_is_first();
}

// ---------------------------------------------------------------- matrices

// Element (row, column) belongs to lane row * 4 + column / 2. (Which lane has it is Metal's secret: kernels must
// not ask.) A matrix that was never given a value is not a number.
template <class T, int Columns, int Rows> struct simdgroup_matrix {
    static_assert(Columns == 8 && Rows == 8, "matrices are 8 x 8");
    T metalsim_own[2];

    simdgroup_matrix()
    {
        __builtin_memset(metalsim_own, SIM_POISON, sizeof metalsim_own);
    }
    // A diagonal, not a constant matrix.
    explicit simdgroup_matrix(T diagonal)
    {
        int lane = sim_self()->lane, row = lane / 4, column = lane % 4 * 2;
        metalsim_own[0] = row == column ? diagonal : (T)0;
        metalsim_own[1] = row == column + 1 ? diagonal : (T)0;
    }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int Columns, int Rows> inline simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(T value)
{
    simdgroup_matrix<T, Columns, Rows> result;
    result.metalsim_own[0] = result.metalsim_own[1] = value;
    return result;
}

} // namespace metal

namespace metalsim {

// Every matrix function needs the whole SIMD-group.
inline void all_lanes(const char *what, const char *file, int line)
{
    const sim_wave *wave = sim_exchange(SIM_SITE_OF(what, file, line), nullptr, 0, nullptr, nullptr);
    if (wave->active != 0xffffffffu)
        sim_stop("%s at %s:%d in a SIMD-group that has not all of its 32 threads", what, file, line);
}

// Where this lane's element i lies.
template <class P> inline P &element_at(P *data, ulong per_row, ulong2 origin, bool transpose, int i)
{
    int lane = sim_self()->lane, row = lane / 4, column = lane % 4 * 2 + i;
    ulong down = transpose ? column : row, right = transpose ? row : column;
    return data[(origin.y + down) * per_row + origin.x + right];
}

template <class A, class B, class C> struct operands {
    A a[2];
    B b[2];
    C c[2];
};

// d = a * b + c, rows by columns, summed in float in order; lane i's two elements land in slot i.
template <class D, class A, class B, class C> void multiply_matrices(sim_wave *wave, void *)
{
    float a[8][8], b[8][8], d[8][8];
    for (int lane = 0; lane < 32; lane++) {
        operands<A, B, C> own = slot<operands<A, B, C>>(wave, lane);
        for (int i = 0; i < 2; i++) {
            a[lane / 4][lane % 4 * 2 + i] = (float)own.a[i];
            b[lane / 4][lane % 4 * 2 + i] = (float)own.b[i];
            d[lane / 4][lane % 4 * 2 + i] = (float)own.c[i];
        }
    }
    for (int row = 0; row < 8; row++)
        for (int k = 0; k < 8; k++)
            for (int column = 0; column < 8; column++)
                d[row][column] = __builtin_fmaf(a[row][k], b[k][column], d[row][column]);
    for (int lane = 0; lane < 32; lane++) {
        D own[2] = {(D)d[lane / 4][lane % 4 * 2], (D)d[lane / 4][lane % 4 * 2 + 1]};
        __builtin_memcpy(wave->slots[lane], own, sizeof own);
    }
}

template <class D, class A, class B, class C>
inline void multiply_accumulate(const char *what, D (&d)[2], const A (&a)[2], const B (&b)[2], const C (&c)[2],
                                const char *file, int line)
{
    operands<A, B, C> own = {{a[0], a[1]}, {b[0], b[1]}, {c[0], c[1]}};
    const sim_wave *wave = deposit(what, file, line, own, multiply_matrices<D, A, B, C>);
    if (wave->active != 0xffffffffu)
        sim_stop("%s at %s:%d in a SIMD-group that has not all of its 32 threads", what, file, line);
    __builtin_memcpy(d, wave->slots[sim_self()->lane], sizeof d);
}

} // namespace metalsim

namespace metal {

template <class T>
inline void simdgroup_load(thread simdgroup_matrix<T, 8, 8> &to, const device T *from, ulong per_row = 8,
                           ulong2 origin = 0, bool transpose = false, METALSIM_PLACE)
{
    metalsim::all_lanes("simdgroup_load", file, line);
    for (int i = 0; i < 2; i++)
        to.metalsim_own[i] = metalsim::element_at(from, per_row, origin, transpose, i);
}
template <class T>
inline void simdgroup_store(thread simdgroup_matrix<T, 8, 8> from, device T *to, ulong per_row = 8,
                            ulong2 origin = 0, bool transpose = false, METALSIM_PLACE)
{
    metalsim::all_lanes("simdgroup_store", file, line);
    for (int i = 0; i < 2; i++)
        metalsim::element_at(to, per_row, origin, transpose, i) = from.metalsim_own[i];
}
#ifdef METALSIM_STRICT // elsewhere the same signatures
template <class T>
void simdgroup_load(thread simdgroup_matrix<T, 8, 8> &to, const threadgroup T *from, ulong per_row = 8,
                    ulong2 origin = 0, bool transpose = false);
template <class T>
void simdgroup_store(thread simdgroup_matrix<T, 8, 8> from, threadgroup T *to, ulong per_row = 8,
                     ulong2 origin = 0, bool transpose = false);
#endif
template <class D, class A, class B>
inline void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8> &d, thread simdgroup_matrix<A, 8, 8> &a,
                                          thread simdgroup_matrix<B, 8, 8> &b, thread simdgroup_matrix<D, 8, 8> &c,
                                          METALSIM_PLACE)
{
    metalsim::multiply_accumulate("simdgroup_multiply_accumulate", d.metalsim_own, a.metalsim_own, b.metalsim_own,
                                  c.metalsim_own, file, line);
}
template <class D, class A, class B>
inline void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8> &d, thread simdgroup_matrix<A, 8, 8> &a,
                               thread simdgroup_matrix<B, 8, 8> &b, METALSIM_PLACE)
{
    const D zero[2] = {(D)0, (D)0};
    metalsim::multiply_accumulate("simdgroup_multiply", d.metalsim_own, a.metalsim_own, b.metalsim_own, zero, file,
                                  line);
}

} // namespace metal
