/* How much memory the machine could still give this process. */
#ifndef GS_BASE_MEMORY_H
#define GS_BASE_MEMORY_H

#include <stdint.h>

/* Bytes, without swap, the page cache counted as free; limited by the control group; 0 if unknown. */
uint64_t gs_memory_available(void);

#endif
