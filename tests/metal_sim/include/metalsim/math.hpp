// Functions of metal_math, metal_integer, metal_geometric, metal_relational. As in Metal, arguments of different
// scalar types are an error (an ambiguous call), and a scalar stands for a vector of its own type.
#pragma once

namespace metalsim {

// The common type of a call's arguments: the vector among them, or the one scalar type that all of them have.
template <class A, class... Rest> struct common {
    typedef typename common<Rest...>::type rest;
    typedef typename choose<is_vector<A> || !is_vector<rest>, A, rest>::type type;
};
template <class A> struct common<A> {
    typedef A type;
};
template <class T, class A>
constexpr bool fits = same<T, A> || (is_vector<T> && same<element<T>, A>);
template <class... A>
using common_t = enable_t<(fits<typename common<A...>::type, A> && ...), typename common<A...>::type>;
template <class... A> using float_t = enable_t<(is_float<A> && ...), common_t<A...>>;
template <class... A> using integer_t = enable_t<(is_integer<A> && ...), common_t<A...>>;

// Applies f to every element.
template <class T, class F, class... A> constexpr T each(F f, A... a)
{
    if constexpr (is_vector<T>) {
        T result = {};
        for (int i = 0; i < shape<T>::n; i++)
            result[i] = f(a[i]...);
        return result;
    } else
        return f(a...);
}

} // namespace metalsim

// name(x): in float, rounded to the element's type.
#define METALSIM_FLOAT_1(name, formula)                                                                      \
    template <class A> inline ::metalsim::float_t<A> name(A a)                                               \
    {                                                                                                        \
        return ::metalsim::each<A>([](float x) { return (::metalsim::element<A>)(formula); }, a);           \
    }
#define METALSIM_FLOAT_2(name, formula)                                                                      \
    template <class A, class B> inline ::metalsim::float_t<A, B> name(A a, B b)                              \
    {                                                                                                        \
        using T = ::metalsim::common_t<A, B>;                                                                \
        return ::metalsim::each<T>([](float x, float y) { return (::metalsim::element<T>)(formula); },      \
                                   ::metalsim::cast<T>(a), ::metalsim::cast<T>(b));                          \
    }

// These exist plain, in fast:: and in precise::.
#define METALSIM_TRANSCENDENTALS                                                                             \
    METALSIM_FLOAT_1(exp, __builtin_expf(x))                                                                 \
    METALSIM_FLOAT_1(exp2, __builtin_exp2f(x))                                                               \
    METALSIM_FLOAT_1(log, __builtin_logf(x))                                                                 \
    METALSIM_FLOAT_1(log2, __builtin_log2f(x))                                                               \
    METALSIM_FLOAT_1(sqrt, __builtin_sqrtf(x))                                                               \
    METALSIM_FLOAT_1(rsqrt, 1.0f / __builtin_sqrtf(x))                                                       \
    METALSIM_FLOAT_1(sin, __builtin_sinf(x))                                                                 \
    METALSIM_FLOAT_1(cos, __builtin_cosf(x))                                                                 \
    METALSIM_FLOAT_1(tanh, __builtin_tanhf(x))                                                               \
    METALSIM_FLOAT_1(floor, __builtin_floorf(x))                                                             \
    METALSIM_FLOAT_1(ceil, __builtin_ceilf(x))                                                               \
    METALSIM_FLOAT_1(round, __builtin_roundf(x))                                                             \
    METALSIM_FLOAT_1(rint, __builtin_rintf(x))                                                               \
    METALSIM_FLOAT_1(trunc, __builtin_truncf(x))                                                             \
    METALSIM_FLOAT_1(fabs, __builtin_fabsf(x))                                                               \
    METALSIM_FLOAT_2(pow, __builtin_powf(x, y))                                                              \
    METALSIM_FLOAT_2(powr, __builtin_powf(x, y))                                                             \
    METALSIM_FLOAT_2(fmod, __builtin_fmodf(x, y))                                                            \
    METALSIM_FLOAT_2(divide, x / y)                                                                          \
    template <class A> inline ::metalsim::float_t<A> sincos(A a, A &cosine)                                  \
    {                                                                                                        \
        cosine = cos(a);                                                                                     \
        return sin(a);                                                                                       \
    }

namespace metal {

METALSIM_TRANSCENDENTALS
namespace fast {
METALSIM_TRANSCENDENTALS
}
namespace precise {
METALSIM_TRANSCENDENTALS
}

template <class A, class B, class C> inline metalsim::float_t<A, B, C> fma(A a, B b, C c)
{
    using T = metalsim::common_t<A, B, C>;
    return __builtin_elementwise_fma(metalsim::cast<T>(a), metalsim::cast<T>(b), metalsim::cast<T>(c));
}
template <class A, class B> inline metalsim::common_t<A, B> min(A a, B b)
{
    using T = metalsim::common_t<A, B>;
    return __builtin_elementwise_min(metalsim::cast<T>(a), metalsim::cast<T>(b));
}
template <class A, class B> inline metalsim::common_t<A, B> max(A a, B b)
{
    using T = metalsim::common_t<A, B>;
    return __builtin_elementwise_max(metalsim::cast<T>(a), metalsim::cast<T>(b));
}
template <class A, class B> inline metalsim::float_t<A, B> fmin(A a, B b)
{
    return min(a, b);
}
template <class A, class B> inline metalsim::float_t<A, B> fmax(A a, B b)
{
    return max(a, b);
}
template <class A, class B, class C> inline metalsim::common_t<A, B, C> max3(A a, B b, C c)
{
    return max(max(a, b), c);
}
template <class A, class B, class C> inline metalsim::common_t<A, B, C> min3(A a, B b, C c)
{
    return min(min(a, b), c);
}
template <class A, class B, class C> inline metalsim::common_t<A, B, C> clamp(A a, B low, C high)
{
    return min(max(a, low), high);
}
template <class A> inline metalsim::float_t<A> saturate(A a)
{
    return clamp(a, (metalsim::element<A>)0.0f, (metalsim::element<A>)1.0f);
}
template <class A, class B, class C> inline metalsim::float_t<A, B, C> mix(A a, B b, C c)
{
    return a + (b - a) * c;
}
template <class A> inline metalsim::common_t<A> abs(A a)
{
    return __builtin_elementwise_abs(a);
}
template <class A> inline metalsim::float_t<A> sign(A a)
{
    return metalsim::each<A>(
        [](float x) { return (metalsim::element<A>)(x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? x : 0.0f); }, a);
}
template <class A, class B> inline metalsim::float_t<A, B> copysign(A a, B b)
{
    return metalsim::each<A>(
        [](float x, float y) { return (metalsim::element<A>)__builtin_copysignf(x, y); }, a, b);
}

// a where c is false (a vector comparison's elements are 0 and -1 here, false and true there), else b.
template <class T> inline T select(T a, T b, bool c)
{
    static_assert(!metalsim::is_vector<T>, "select of vectors takes a vector condition");
    return c ? b : a;
}
template <class A, class B, class C>
inline metalsim::enable_t<metalsim::is_vector<C>, metalsim::common_t<A, B>> select(A a, B b, C c)
{
    using T = metalsim::common_t<A, B>;
    T yes = metalsim::cast<T>(b), result = metalsim::cast<T>(a);
    for (int i = 0; i < metalsim::shape<T>::n; i++)
        result[i] = c[i] ? yes[i] : result[i];
    return result;
}
template <class T> inline bool any(T a)
{
    bool result = false;
    for (int i = 0; i < metalsim::shape<T>::n; i++)
        result = result || a[i];
    return result;
}
template <class T> inline bool all(T a)
{
    bool result = true;
    for (int i = 0; i < metalsim::shape<T>::n; i++)
        result = result && a[i];
    return result;
}
inline bool isnan(float x)
{
    return __builtin_isnan(x);
}
inline bool isinf(float x)
{
    return __builtin_isinf(x);
}
inline bool isfinite(float x)
{
    return __builtin_isfinite(x);
}

template <class T> inline metalsim::element<T> dot(T a, T b)
{
    metalsim::element<T> sum = 0;
    for (int i = 0; i < metalsim::shape<T>::n; i++)
        sum += a[i] * b[i];
    return sum;
}
template <class T> inline metalsim::element<T> length_squared(T a)
{
    return dot(a, a);
}
template <class T> inline metalsim::element<T> length(T a)
{
    return sqrt(dot(a, a));
}

template <class A> inline metalsim::integer_t<A> popcount(A a)
{
    return metalsim::each<A>(
        [](auto x) { return (metalsim::element<A>)__builtin_popcountg((typename metalsim::make_unsigned<decltype(x)>::type)x); },
        a);
}
template <class A> inline metalsim::integer_t<A> clz(A a)
{
    return metalsim::each<A>(
        [](auto x) {
            return (metalsim::element<A>)__builtin_clzg((typename metalsim::make_unsigned<decltype(x)>::type)x,
                                                        (int)sizeof x * 8);
        },
        a);
}
template <class A> inline metalsim::integer_t<A> ctz(A a)
{
    return metalsim::each<A>(
        [](auto x) {
            return (metalsim::element<A>)__builtin_ctzg((typename metalsim::make_unsigned<decltype(x)>::type)x,
                                                        (int)sizeof x * 8);
        },
        a);
}
template <class A, class B> inline metalsim::integer_t<A, B> rotate(A a, B b)
{
    using T = metalsim::common_t<A, B>;
    using U = typename metalsim::make_unsigned<metalsim::element<T>>::type;
    return metalsim::each<T>(
        [](auto x, auto n) {
            constexpr unsigned bits = sizeof(U) * 8;
            unsigned by = (unsigned)n % bits;
            return (metalsim::element<T>)((U)x << by | (U)x >> (bits - by) % bits);
        },
        metalsim::cast<T>(a), metalsim::cast<T>(b));
}
template <class A, class B> inline metalsim::integer_t<A, B> subsat(A a, B b)
{
    using T = metalsim::common_t<A, B>;
    return __builtin_elementwise_sub_sat(metalsim::cast<T>(a), metalsim::cast<T>(b));
}
template <class A, class B> inline metalsim::integer_t<A, B> addsat(A a, B b)
{
    using T = metalsim::common_t<A, B>;
    return __builtin_elementwise_add_sat(metalsim::cast<T>(a), metalsim::cast<T>(b));
}
inline uint mulhi(uint a, uint b)
{
    return (uint)((ulong)a * b >> 32);
}
inline int mulhi(int a, int b)
{
    return (int)((long)a * b >> 32);
}

} // namespace metal

#undef METALSIM_FLOAT_1
#undef METALSIM_FLOAT_2
#undef METALSIM_TRANSCENDENTALS

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define MAXFLOAT 3.402823466e+38f
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define HALF_MAX 65504.0h
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define M_PI_F 3.14159265358979323846f
#define M_LN2_F 0.69314718055994530942f
#define M_LOG2E_F 1.44269504088896340736f
