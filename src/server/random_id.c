#include "server/random_id.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define N_RANDOM 24

uint64_t gs_random_number(void)
{
    uint64_t number;
    if (getentropy(&number, sizeof number) != 0) /* only where the system has none yet */
        number = (uint64_t)(gs_clock_seconds() * 1e9);
    return number;
}

struct gs_random_id gs_random_id(const char *prefix)
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    struct gs_random_id id;
    unsigned char bytes[N_RANDOM];
    if (getentropy(bytes, sizeof bytes) != 0)
        for (size_t i = 0; i < sizeof bytes; i += sizeof(uint64_t)) {
            uint64_t number = gs_random_number() + i;
            memcpy(bytes + i, &number, sizeof number);
        }
    int length = snprintf(id.text, sizeof id.text - N_RANDOM, "%s", prefix);
    size_t at = length < 0 ? 0 : (size_t)length;
    if (at > sizeof id.text - N_RANDOM - 1)
        at = sizeof id.text - N_RANDOM - 1;
    for (size_t i = 0; i < N_RANDOM; i++)
        id.text[at + i] = digits[bytes[i] % 62];
    id.text[at + N_RANDOM] = '\0';
    return id;
}
