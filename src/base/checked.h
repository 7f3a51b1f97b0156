/* Arithmetic on untrusted sizes: true and the result, or false on overflow. */
#ifndef GS_BASE_CHECKED_H
#define GS_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool gs_add_u64(uint64_t a, uint64_t b, uint64_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

static inline bool gs_mul_u64(uint64_t a, uint64_t b, uint64_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

#endif
