/* Cache lines that are in another core's caches, asked for all at once. Else a kernel that is cut
 * meets them one by one, and waits for each. */
#ifndef SL_CODELETS_KERNELS_CACHE_PREFETCH_H
#define SL_CODELETS_KERNELS_CACHE_PREFETCH_H

#include <stdint.h>

enum {
  SL__LINE = 16,                    /* floats */
  SL__CACHE_LINE_FLOATS = 16 * 1024 /* no more than these: they have to stay in the own caches */
};

/* What is read soon. Loads, since processors take few prefetches at a time. */
static inline void sl__prefetch_cache_lines(const float *x, int64_t count) {
  const volatile float *from = x;
  for (int64_t i = 0; i < count && count <= SL__CACHE_LINE_FLOATS; i += SL__LINE) (void)from[i];
}

/* What is written a little later: until then the lines are on their way. */
static inline void sl__prefetch_for_write(float *y, int64_t count) {
  for (int64_t i = 0; i < count && count <= SL__CACHE_LINE_FLOATS; i += SL__LINE) {
#if defined(__x86_64__) && defined(__GNUC__) /* a plain prefetch would ask for a copy */
    __asm__ volatile("prefetchw %0" : : "m"(y[i]));
#else
    __builtin_prefetch(y + i, 1, 3);
#endif
  }
}

#endif
