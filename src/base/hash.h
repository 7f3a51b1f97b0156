/* A fast hash of short byte strings for in-memory tables; not for untrusted collision resistance on disk. */
#ifndef GS_BASE_HASH_H
#define GS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t gs_hash_mix(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 u128;
    u128 product = (u128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Multiply-and-fold over 8-byte words, the tail zero-padded, the length mixed in. */
static inline uint64_t gs_hash_bytes(const void *bytes, size_t size)
{
    const uint64_t k0 = 0x9E3779B97F4A7C15u, k1 = 0xD1B54A32D192ED03u;
    const unsigned char *at = bytes;
    uint64_t hash = gs_hash_mix((uint64_t)size ^ k0, k1);
    uint64_t word;
    while (size >= 8) {
        memcpy(&word, at, 8);
        hash = gs_hash_mix(hash ^ word, k1);
        at += 8;
        size -= 8;
    }
    if (size > 0) {
        word = 0;
        memcpy(&word, at, size);
        hash = gs_hash_mix(hash ^ word, k1);
    }
    return hash ^ (hash >> 32);
}

#endif
