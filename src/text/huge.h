/*
 * Memory for large hash tables, in huge pages where the system has them: looked up at random, such a table
 * otherwise costs a page walk for nearly every look.
 */
#ifndef GS_TEXT_HUGE_H
#define GS_TEXT_HUGE_H

#include <stddef.h>

/* Zeroed; NULL if memory is out. Release with free(). */
void *gs_huge_alloc(size_t size);

#endif
