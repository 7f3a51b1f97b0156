// One CPU thread runs all: an atomic operation is a plain one. Only memory_order_relaxed exists, as in Metal.
// 64-bit minimum and maximum need a GPU of family Apple8 (M2): METALSIM_APPLE8 offers them.
#pragma once

namespace metal {

enum memory_order { memory_order_relaxed };

template <class T> struct atomic {
    T metalsim_value;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float; // in device memory: load, store, exchange, add, sub
#ifdef METALSIM_APPLE8
typedef atomic<ulong> atomic_ulong; // min and max alone
#endif

} // namespace metal

namespace metalsim {
template <class T> constexpr bool countable = same<T, int> || same<T, uint>;
} // namespace metalsim

// The same set for each address space; flat mode has only one.
#define METALSIM_ATOMICS(space)                                                                              \
    template <class T> inline T atomic_load_explicit(const volatile space atomic<T> *object, memory_order)   \
    {                                                                                                        \
        static_assert(sizeof(T) == 4, "64-bit atomics have min and max alone");                              \
        return object->metalsim_value;                                                                       \
    }                                                                                                        \
    template <class T, class U>                                                                              \
    inline void atomic_store_explicit(volatile space atomic<T> *object, U value, memory_order)               \
    {                                                                                                        \
        static_assert(sizeof(T) == 4, "64-bit atomics have min and max alone");                              \
        object->metalsim_value = (T)value;                                                                   \
    }                                                                                                        \
    METALSIM_ATOMIC(space, atomic_exchange_explicit, value, sizeof(T) == 4)                                  \
    METALSIM_ATOMIC(space, atomic_fetch_add_explicit, (T)(before + value), sizeof(T) == 4)                   \
    METALSIM_ATOMIC(space, atomic_fetch_sub_explicit, (T)(before - value), sizeof(T) == 4)                   \
    METALSIM_ATOMIC(space, atomic_fetch_min_explicit, value < before ? value : before, metalsim::countable<T>) \
    METALSIM_ATOMIC(space, atomic_fetch_max_explicit, value > before ? value : before, metalsim::countable<T>) \
    METALSIM_ATOMIC(space, atomic_fetch_and_explicit, before & value, metalsim::countable<T>)                \
    METALSIM_ATOMIC(space, atomic_fetch_or_explicit, before | value, metalsim::countable<T>)                 \
    METALSIM_ATOMIC(space, atomic_fetch_xor_explicit, before ^ value, metalsim::countable<T>)                \
    template <class T>                                                                                       \
    inline bool atomic_compare_exchange_weak_explicit(volatile space atomic<T> *object, thread T *expected,  \
                                                      T desired, memory_order, memory_order)                 \
    {                                                                                                        \
        static_assert(sizeof(T) == 4, "64-bit atomics have min and max alone");                              \
        T before = object->metalsim_value;                                                                   \
        bool equal = __builtin_memcmp(&before, (const void *)expected, sizeof(T)) == 0;                      \
        if (equal)                                                                                           \
            object->metalsim_value = desired;                                                                \
        else                                                                                                 \
            *expected = before;                                                                              \
        return equal;                                                                                        \
    }
#define METALSIM_ATOMIC(space, name, after, condition)                                                       \
    template <class T, class U> inline T name(volatile space atomic<T> *object, U given, memory_order)       \
    {                                                                                                        \
        static_assert(condition, #name " does not exist for this type");                                     \
        T before = object->metalsim_value, value = (T)given;                                                 \
        object->metalsim_value = (after);                                                                    \
        return before;                                                                                       \
    }

namespace metal {
METALSIM_ATOMICS(device)
#ifdef METALSIM_STRICT
METALSIM_ATOMICS(threadgroup)
#endif
#ifdef METALSIM_APPLE8
inline void atomic_min_explicit(volatile device atomic<ulong> *object, ulong value, memory_order)
{
    object->metalsim_value = min((ulong)object->metalsim_value, value);
}
inline void atomic_max_explicit(volatile device atomic<ulong> *object, ulong value, memory_order)
{
    object->metalsim_value = max((ulong)object->metalsim_value, value);
}
#endif
} // namespace metal

#undef METALSIM_ATOMICS
#undef METALSIM_ATOMIC
