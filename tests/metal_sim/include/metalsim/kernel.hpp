// From a kernel's C++ signature and the scanner's list of attributes to a function that any thread can call.
#pragma once

namespace metalsim {

template <int...> struct sequence {};
template <class T, T... I> using sequence_of = sequence<I...>;

template <class T> struct target { // a value
    typedef T type;
    static constexpr bool pointer = false, reference = false;
};
template <class T> struct target<T *> {
    typedef T type;
    static constexpr bool pointer = true, reference = false;
};
template <class T> struct target<T &> {
    typedef T type;
    static constexpr bool pointer = false, reference = true;
};
template <class T> struct measure {
    static constexpr size_t bytes = sizeof(T), alignment = alignof(T);
    static constexpr bool written = !__is_const(T);
};
template <> struct measure<void> {
    static constexpr size_t bytes = 1, alignment = 1;
    static constexpr bool written = true;
};
template <> struct measure<const void> : measure<void> {
    static constexpr bool written = false;
};

constexpr bool is_memory(const metalsim_argument &argument)
{
    return argument.from == METALSIM_BUFFER || argument.from == METALSIM_THREADGROUP;
}

// These six must agree in their number of components.
constexpr bool is_position(const metalsim_argument &argument)
{
    return argument.from >= METALSIM_THREAD_POSITION_IN_GRID && argument.from <= METALSIM_THREADGROUPS_PER_GRID;
}

template <class T> T value_of(const metalsim_argument &argument, const metalsim_call *call)
{
    const sim_thread *self = sim_self();
    uint32_t n = call->n_thread[0] * call->n_thread[1] * call->n_thread[2], i = self->index;
    uint32_t at[3] = {i % call->n_thread[0], i / call->n_thread[0] % call->n_thread[1],
                      i / call->n_thread[0] / call->n_thread[1]};
    uint32_t v[3] = {0, 0, 0};
    for (int d = 0; d < 3; d++)
        switch (argument.from) {
        case METALSIM_THREAD_POSITION_IN_GRID:
            v[d] = call->position[d] * call->n_thread[d] + at[d];
            break;
        case METALSIM_THREAD_POSITION_IN_THREADGROUP:
            v[d] = at[d];
            break;
        case METALSIM_THREADGROUP_POSITION_IN_GRID:
            v[d] = call->position[d];
            break;
        case METALSIM_THREADS_PER_GRID:
            v[d] = call->n_threadgroup[d] * call->n_thread[d];
            break;
        case METALSIM_THREADS_PER_THREADGROUP:
            v[d] = call->n_thread[d];
            break;
        case METALSIM_THREADGROUPS_PER_GRID:
            v[d] = call->n_threadgroup[d];
            break;
        case METALSIM_THREAD_INDEX_IN_THREADGROUP:
            v[d] = i;
            break;
        case METALSIM_THREAD_INDEX_IN_SIMDGROUP:
            v[d] = self->lane;
            break;
        case METALSIM_SIMDGROUP_INDEX_IN_THREADGROUP:
            v[d] = self->wave;
            break;
        case METALSIM_SIMDGROUPS_PER_THREADGROUP:
            v[d] = (n + self->n_lane - 1) / self->n_lane;
            break;
        default: // METALSIM_THREADS_PER_SIMDGROUP
            v[d] = self->n_lane;
        }
    if constexpr (is_vector<T>) {
        T result = {};
        for (int d = 0; d < shape<T>::n; d++)
            result[d] = (element<T>)v[d];
        return result;
    } else
        return (T)v[0];
}

template <class T> T argument_of(const metalsim_argument &argument, const metalsim_call *call)
{
    if constexpr (target<T>::pointer || target<T>::reference) {
        void *data = argument.from == METALSIM_BUFFER ? call->buffers[argument.index]
                                                      : call->shared[argument.index];
        if constexpr (target<T>::pointer)
            return (T)data;
        else
            return *(typename target<T>::type *)data;
    } else
        return value_of<T>(argument, call);
}

template <auto F, const auto &A> struct binding;
template <class... T, void (*F)(T...), const auto &A> struct binding<F, A> {
    static constexpr int n = sizeof...(T);
    static_assert(n == sizeof A / sizeof A[0] - 1, "the scanner and the compiler count different arguments");

    static constexpr bool kinds_right()
    {
        int i = 0;
        return ((is_memory(A[i++]) == (target<T>::pointer || target<T>::reference)) && ... && true);
    }
    static constexpr bool values_right()
    {
        int i = 0;
        return ((is_memory(A[i++]) || same<element<T>, uint> || same<element<T>, ushort>) && ... && true);
    }
    static constexpr bool scalars_right()
    {
        int i = 0;
        return ((is_memory(A[i]) || is_position(A[i]) || !is_vector<T> ? (i++, true) : false) && ... && true);
    }
    static constexpr bool components_agree()
    {
        int i = 0, first = 0;
        bool agree = true;
        ((is_position(A[i]) ? (first = first ? first : shape<T>::n, agree = agree && first == shape<T>::n) : true, i++),
         ...);
        return agree;
    }
    static constexpr bool indices_differ()
    {
        for (int i = 0; i < n; i++)
            for (int j = 0; j < i; j++)
                if (is_memory(A[i]) && A[i].from == A[j].from && A[i].index == A[j].index)
                    return false;
        return true;
    }
    static_assert(kinds_right(), "a [[buffer]] or [[threadgroup]] is a pointer or a reference, and nothing else is");
    static_assert(values_right(), "positions, sizes and indices are uint or ushort, or vectors of them");
    static_assert(scalars_right(), "an index or a count of SIMD-groups is a scalar");
    static_assert(components_agree(), "positions and sizes in one kernel must have the same number of components");
    static_assert(indices_differ(), "two arguments have the same index");

    template <int... I> static void call_with(const metalsim_call *call, sequence<I...>)
    {
        F(argument_of<T>(A[I], call)...);
    }
    static void invoke(const metalsim_call *call)
    {
        call_with(call, __make_integer_seq<sequence_of, int, n>{});
    }
    static constexpr metalsim_type types[n + 1] = {
        {measure<typename target<T>::type>::bytes, measure<typename target<T>::type>::alignment,
         target<T>::reference,
         (target<T>::pointer || target<T>::reference) && measure<typename target<T>::type>::written}...,
        {}};
};

// A function constant: becomes whatever type it is given to.
struct function_constant {
    int index;
    const char *name;
    template <class T> operator T() const
    {
        constexpr int type = same<T, float>    ? METALSIM_FLOAT
                             : same<T, half>   ? METALSIM_HALF
                             : same<T, int>    ? METALSIM_INT
                             : same<T, uint>   ? METALSIM_UINT
                             : same<T, short>  ? METALSIM_SHORT
                             : same<T, ushort> ? METALSIM_USHORT
                             : same<T, uchar>  ? METALSIM_UCHAR
                             : same<T, bool>   ? METALSIM_BOOL
                             : same<T, bfloat> ? METALSIM_BFLOAT
                                               : 0;
        static_assert(type != 0, "a function constant of this type is not known here");
        T value{};
        metalsim_constant(index, type, &value, sizeof value, name);
        return value;
    }
};

} // namespace metalsim
