#include "backend/cpu/kv_pages.h"

#include <sys/mman.h>

#define PAGE ((uintptr_t)2 << 20)

#if defined(__linux__) && !defined(MADV_COLLAPSE)
#define MADV_COLLAPSE 25 /* Linux 6.1; an older system refuses it */
#endif

/* Bytes first ... end-1 of an array: the large pages wholly inside it that have most of theirs among them. */
static void enlarge(void *array, uintptr_t size, uintptr_t first, uintptr_t end)
{
    uintptr_t begin = (uintptr_t)array, least = (begin + PAGE - 1) / PAGE * PAGE;
    uintptr_t most = (begin + size) / PAGE * PAGE;
    uintptr_t from = (begin + first + PAGE / 2) / PAGE * PAGE, to = (begin + end + PAGE / 2) / PAGE * PAGE;
    from = from > least ? from : least;
    to = to < most ? to : most;
    if (from >= to)
        return;
#ifdef MADV_COLLAPSE
    char *pages = (char *)array + (from - begin);
    /* Hints: a system may refuse them, or have no large pages left. */
    if (madvise(pages, to - from, MADV_COLLAPSE) != 0)
        (void)madvise(pages, to - from, MADV_HUGEPAGE);
#endif
}

void gs_kv_enlarge_pages(struct gs_kv *kv, int64_t length, int64_t most)
{
    const struct gs_config *config = kv->config;
    int64_t n_head = config->n_kv_head, n_run = config->n_layer * n_head * 2;
    int64_t slot_bytes =
        config->d_head * (int64_t)(kv->format == GS_KV_F32 ? sizeof(float) : sizeof(uint16_t));
    int64_t step = (int64_t)PAGE / slot_bytes;
    step = step < kv->capacity ? step : kv->capacity;
    for (; kv->n_enlarged < kv->capacity && length > kv->n_enlarged + step / 2; kv->n_enlarged += step) {
        for (; kv->n_enlarged_run < n_run; kv->n_enlarged_run++) {
            int64_t i = kv->n_enlarged_run, number = i / 2 / n_head, head = i / 2 % n_head;
            const struct gs_kv_layer *layer = &kv->layers[number];
            uintptr_t run = (uintptr_t)(layer->n_slot * slot_bytes), begin = (uintptr_t)head * run;
            uintptr_t first = (uintptr_t)(kv->n_enlarged * slot_bytes),
                      end = first + (uintptr_t)(step * slot_bytes);
            if (config->layer_is_window[number])
                continue;
            if (most-- <= 0)
                return;
            enlarge(i % 2 ? layer->values : layer->keys, run * (uintptr_t)n_head, begin + first,
                    begin + (end < run ? end : run));
        }
        kv->n_enlarged_run = 0;
    }
}
