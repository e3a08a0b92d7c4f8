/* Requests cache lines that other cores hold, all at once. Without this, a kernel that works on one
 * part of a tensor meets these lines one by one and waits for each. */
#ifndef SL_CODELETS_KERNELS_CACHE_PREFETCH_H
#define SL_CODELETS_KERNELS_CACHE_PREFETCH_H

#include <stdint.h>

enum {
  SL__LINE = 16,                    /* floats */
  SL__CACHE_LINE_FLOATS = 16 * 1024 /* upper bound: the lines must stay in this core's own caches */
};

/* For memory that is read soon. Uses loads, since processors queue only a few prefetches. */
static inline void sl__prefetch_cache_lines(const float *x, int64_t count) {
  const volatile float *from = x;
  for (int64_t i = 0; i < count && count <= SL__CACHE_LINE_FLOATS; i += SL__LINE) (void)from[i];
}

/* The same for later: into the second-level cache. */
static inline void sl__prefetch_for_read(const float *x, int64_t count) {
  for (int64_t i = 0; i < count && count <= SL__CACHE_LINE_FLOATS; i += SL__LINE)
    __builtin_prefetch(x + i, 0, 2);
}

/* For memory that is written a little later; the lines arrive meanwhile. */
static inline void sl__prefetch_for_write(float *y, int64_t count) {
  for (int64_t i = 0; i < count && count <= SL__CACHE_LINE_FLOATS; i += SL__LINE) {
#if defined(__x86_64__) && defined(__GNUC__) /* a plain prefetch would request a shared copy */
    __asm__ volatile("prefetchw %0" : : "m"(y[i]));
#else
    __builtin_prefetch(y + i, 1, 3);
#endif
  }
}

#endif
