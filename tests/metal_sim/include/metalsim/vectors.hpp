// Types: scalars, vectors, conversions between them, as_type.
#pragma once

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;
typedef __bf16 bfloat;

static_assert(sizeof(1.0) == 4, "-cl-single-precision-constant does not work in this compiler");

constexpr half operator""h(long double x)
{
    return (half)x;
}
constexpr bfloat operator""bf(long double x)
{
    return (bfloat)x;
}

#define METALSIM_VECTORS(T)                                                                                  \
    typedef T T##2 __attribute__((ext_vector_type(2)));                                                      \
    typedef T T##3 __attribute__((ext_vector_type(3)));                                                      \
    typedef T T##4 __attribute__((ext_vector_type(4)));
METALSIM_VECTORS(char)
METALSIM_VECTORS(uchar)
METALSIM_VECTORS(short)
METALSIM_VECTORS(ushort)
METALSIM_VECTORS(int)
METALSIM_VECTORS(uint)
METALSIM_VECTORS(long)
METALSIM_VECTORS(ulong)
METALSIM_VECTORS(float)
METALSIM_VECTORS(half)
METALSIM_VECTORS(bfloat)
#undef METALSIM_VECTORS
// What comparing vectors of 32-bit elements gives: 0 and -1 here, false and true in Metal.
typedef int bool2 __attribute__((ext_vector_type(2)));
typedef int bool3 __attribute__((ext_vector_type(3)));
typedef int bool4 __attribute__((ext_vector_type(4)));

namespace metalsim {

template <class A, class B> constexpr bool same = __is_same(A, B);
template <bool, class T = void> struct enable {};
template <class T> struct enable<true, T> {
    typedef T type;
};
template <bool B, class T = void> using enable_t = typename enable<B, T>::type;
template <bool, class A, class> struct choose {
    typedef A type;
};
template <class A, class B> struct choose<false, A, B> {
    typedef B type;
};

template <class T> struct make_unsigned {
    typedef __make_unsigned(T) type;
};

// What a type is: its element and how many of them. A scalar is one of itself.
template <class T> struct shape {
    typedef T element;
    static constexpr int n = 1;
    static constexpr bool vector = false;
};
template <class T, int N> struct shape<T __attribute__((ext_vector_type(N)))> {
    typedef T element;
    static constexpr int n = N;
    static constexpr bool vector = true;
};
template <class T> struct shape<const T> : shape<T> {};
template <class T> struct shape<T &> : shape<T> {};
template <class T> struct shape<T &&> : shape<T> {};
template <class T> constexpr bool is_vector = shape<T>::vector;
template <class T> using element = typename shape<T>::element;

template <class T>
constexpr bool is_float = same<element<T>, float> || same<element<T>, half> || same<element<T>, bfloat>;
template <class T> constexpr bool is_integer = !is_float<T> && __is_integral(element<T>);

// static_cast of Metal: also between vectors of the same length, and from a scalar to a vector.
template <class To, class From> constexpr auto cast(From &&from) -> enable_t<!is_vector<To>, To>
{
    static_assert(!is_vector<From>, "a vector does not become a scalar");
    return static_cast<To>(static_cast<From &&>(from));
}
template <class To, class From> constexpr auto cast(From from) -> enable_t<is_vector<To>, To>
{
    if constexpr (same<To, From>)
        return from;
    else if constexpr (is_vector<From>) {
        static_assert(shape<From>::n == shape<To>::n, "vectors of different lengths");
        return __builtin_convertvector(from, To);
    } else
        return (To)(static_cast<element<To>>(from));
}

template <class To, class First> constexpr void put(To &to, int &at, First first)
{
    if constexpr (is_vector<First>)
        for (int i = 0; i < shape<First>::n; i++)
            to[at++] = static_cast<element<To>>(first[i]);
    else
        to[at++] = static_cast<element<To>>(first);
}

// The constructor: float4(x), float4(v), float4(x, y, z, w), float4(xy, z, w) ...
template <class To, class... From> constexpr To make(From... from)
{
    constexpr int n = (shape<From>::n + ... + 0);
    To to = {};
    if constexpr (sizeof...(From) == 0)
        return to;
    else if constexpr (sizeof...(From) == 1)
        return cast<To>(from...);
    else {
        static_assert(n == shape<To>::n, "a vector's constructor needs one value, or as many as it has elements");
        int at = 0;
        (put(to, at, from), ...);
        return to;
    }
}

} // namespace metalsim

template <class To, class From> constexpr To as_type(From from)
{
    static_assert(sizeof(To) == sizeof(From), "as_type between types of different sizes");
    return __builtin_bit_cast(To, from);
}

namespace metal {
using ::as_type;
using ::bfloat;
using ::half;
using ::uint;
using ::ulong;
using ::ushort;
template <class T, int N> using vec = T __attribute__((ext_vector_type(N)));
} // namespace metal
