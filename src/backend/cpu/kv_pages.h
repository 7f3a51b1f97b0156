/*
 * A long cache in large pages: with small ones two cores read it a fifth slower. A page becomes large when
 * the positions that it is for are half there: beyond what is filled, memory grows by a page for each head at
 * most, and never beyond the cache's own size.
 */
#ifndef GS_BACKEND_CPU_KV_PAGES_H
#define GS_BACKEND_CPU_KV_PAGES_H

#include "backend/cpu/kv.h"

/*
 * To be told before the first `length` positions are there; asks for the pages that they half fill, `most` of
 * them at once: each is moved by the system meanwhile, and takes longer than a small model's token.
 */
void gs_kv_enlarge_pages(struct gs_kv *kv, int64_t length, int64_t most);

#endif
