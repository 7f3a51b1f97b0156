/* Ids that nobody guesses. */
#ifndef GS_SERVER_RANDOM_ID_H
#define GS_SERVER_RANDOM_ID_H

#include <stdint.h>

struct gs_random_id {
    char text[48];
};

/* `prefix` and 24 random letters and digits. */
struct gs_random_id gs_random_id(const char *prefix);

uint64_t gs_random_number(void);

#endif
