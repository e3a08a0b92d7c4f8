/* Streaming stores (non-temporal ones), which go to memory past the caches. They serve values that
 * other cores read next and that other cores have read before: an ordinary store must first take
 * the line away from each cache that has it. On a Zen 4 that takes 1 to 7 ns a line if both cores
 * share a third-level cache, and 27 to 36 if not; a streaming store takes 2 to 5. On an Intel Xeon
 * it takes longer than an ordinary one (bench/bench_streaming). */
#ifndef SL_CORE_BASE_STREAMING_H
#define SL_CORE_BASE_STREAMING_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Are they the faster way on this processor? Measured on AMD's and an Intel Xeon. */
static inline bool sl__streaming_is_faster(void) {
#if defined(__x86_64__) && defined(__GNUC__)
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}

/* Copies count floats; ordinary stores where there are no others, and in cache lines of which a
 * part stays as it is. `to` and `from` do not overlap. */
static inline void sl__stream_floats(float *to, const float *from, int64_t count) {
#ifdef __SSE2__
  enum { LINE = 16 }; /* floats */
  int64_t i = (int64_t)((64 - (uintptr_t)to % 64) % 64 / sizeof *to);
  if (i > count) i = count;
  memcpy(to, from, (size_t)i * sizeof *to);
  for (; i + LINE <= count; i += LINE)
    for (int k = 0; k < LINE; k += 4) _mm_stream_ps(to + i + k, _mm_loadu_ps(from + i + k));
  memcpy(to + i, from + i, (size_t)(count - i) * sizeof *to);
#else
  memcpy(to, from, (size_t)count * sizeof *to);
#endif
}

/* Before another thread learns that the values are there. */
static inline void sl__stream_end(void) {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

#endif
