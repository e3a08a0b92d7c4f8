/* The monotonic clock. */
#ifndef SL_CORE_BASE_CLOCK_H
#define SL_CORE_BASE_CLOCK_H

#include <time.h>

static inline double sl__seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double sl__microseconds(void) { return 1e6 * sl__seconds(); }

#endif
