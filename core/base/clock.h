/* The monotonic clock: now, and deadlines. */
#ifndef SL_CORE_BASE_CLOCK_H
#define SL_CORE_BASE_CLOCK_H

#include <pthread.h>
#include <time.h>

static inline double sl__seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double sl__microseconds(void) { return 1e6 * sl__seconds(); }

/* A condition whose timed waits go by this clock: setting the date does not disturb them. */
static inline void sl__condition_init(pthread_cond_t *condition) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
}

/* Waits for the condition until sl__seconds() is `until`. */
static inline int sl__condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                     double until) {
  struct timespec deadline = {.tv_sec = (time_t)until};
  deadline.tv_nsec = (long)(1e9 * (until - (double)deadline.tv_sec));
  return pthread_cond_timedwait(condition, mutex, &deadline);
}

#endif
