/*
 * A long cache in large pages: with small ones two cores read it a fifth slower. A page becomes large when
 * the positions that it is for are half there: beyond what is filled, memory grows by a page for each head at
 * most, and never beyond the cache's own size.
 */
#ifndef GS_BACKEND_CPU_KV_PAGES_H
#define GS_BACKEND_CPU_KV_PAGES_H

#include "backend/cpu/kv.h"

/* To be told before the first `length` positions are there; asks for the pages that they half fill. */
void gs_kv_enlarge_pages(struct gs_kv *kv, int64_t length);

#endif
