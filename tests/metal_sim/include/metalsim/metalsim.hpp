// The Metal language as C++20 for the simulator (docs/silicon.md): included before every kernel file. Flat mode
// executes, with one address space. Strict mode (METALSIM_STRICT) only checks: address spaces are real there.
#pragma once

#include "tests/metal_sim/module.h"
#include "tests/sim/fiber.h"

#ifdef METALSIM_STRICT
#define device __attribute__((address_space(1)))
#define constant const __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#else
#define device
#define constant const
#define threadgroup
#endif
#define thread
#define kernel

#include "metalsim/vectors.hpp"

#include "metalsim/math.hpp"

#include "metalsim/simdgroup.hpp"

#include "metalsim/atomics.hpp"

#ifndef METALSIM_STRICT
#include "metalsim/kernel.hpp"
#endif

#define assert(condition)                                                                                    \
    ((condition) ? (void)0 : sim_stop("assert(%s) at %s:%d", #condition, __FILE__, __LINE__))

// The constructors. A function-like macro expands only before a parenthesis, so the types keep their names.
#define char2(...) ::metalsim::make<char2>(__VA_ARGS__)
#define char3(...) ::metalsim::make<char3>(__VA_ARGS__)
#define char4(...) ::metalsim::make<char4>(__VA_ARGS__)
#define uchar2(...) ::metalsim::make<uchar2>(__VA_ARGS__)
#define uchar3(...) ::metalsim::make<uchar3>(__VA_ARGS__)
#define uchar4(...) ::metalsim::make<uchar4>(__VA_ARGS__)
#define short2(...) ::metalsim::make<short2>(__VA_ARGS__)
#define short3(...) ::metalsim::make<short3>(__VA_ARGS__)
#define short4(...) ::metalsim::make<short4>(__VA_ARGS__)
#define ushort2(...) ::metalsim::make<ushort2>(__VA_ARGS__)
#define ushort3(...) ::metalsim::make<ushort3>(__VA_ARGS__)
#define ushort4(...) ::metalsim::make<ushort4>(__VA_ARGS__)
#define int2(...) ::metalsim::make<int2>(__VA_ARGS__)
#define int3(...) ::metalsim::make<int3>(__VA_ARGS__)
#define int4(...) ::metalsim::make<int4>(__VA_ARGS__)
#define uint2(...) ::metalsim::make<uint2>(__VA_ARGS__)
#define uint3(...) ::metalsim::make<uint3>(__VA_ARGS__)
#define uint4(...) ::metalsim::make<uint4>(__VA_ARGS__)
#define long2(...) ::metalsim::make<long2>(__VA_ARGS__)
#define long3(...) ::metalsim::make<long3>(__VA_ARGS__)
#define long4(...) ::metalsim::make<long4>(__VA_ARGS__)
#define ulong2(...) ::metalsim::make<ulong2>(__VA_ARGS__)
#define ulong3(...) ::metalsim::make<ulong3>(__VA_ARGS__)
#define ulong4(...) ::metalsim::make<ulong4>(__VA_ARGS__)
#define float2(...) ::metalsim::make<float2>(__VA_ARGS__)
#define float3(...) ::metalsim::make<float3>(__VA_ARGS__)
#define float4(...) ::metalsim::make<float4>(__VA_ARGS__)
#define half2(...) ::metalsim::make<half2>(__VA_ARGS__)
#define half3(...) ::metalsim::make<half3>(__VA_ARGS__)
#define half4(...) ::metalsim::make<half4>(__VA_ARGS__)
#define bfloat2(...) ::metalsim::make<bfloat2>(__VA_ARGS__)
#define bfloat3(...) ::metalsim::make<bfloat3>(__VA_ARGS__)
#define bfloat4(...) ::metalsim::make<bfloat4>(__VA_ARGS__)

// Conversions of vectors, which the keyword does not know.
#define static_cast ::metalsim::cast
