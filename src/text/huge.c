#include "text/huge.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

void *gs_huge_alloc(size_t size)
{
    if (size < HUGE_PAGE)
        return calloc(size ? size : 1, 1);
    if (size > SIZE_MAX - HUGE_PAGE)
        return NULL;
    size = (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void *memory = aligned_alloc(HUGE_PAGE, size);
    if (!memory)
        return NULL;
#ifdef MADV_HUGEPAGE
    (void)madvise(memory, size, MADV_HUGEPAGE); /* a hint: without it the table is only slower */
#endif
    memset(memory, 0, size);
    return memory;
}
