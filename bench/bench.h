/* Shared by the benchmarks: time, how much of the machine others took, the peak of products. */
#ifndef SL_BENCH_BENCH_H
#define SL_BENCH_BENCH_H

#include <jansson.h>
#include <stdbool.h>

#include "core/base/cpu_time.h"

double bench_now(void);

/* For qsort: doubles, the smallest first. */
static inline int bench_compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Print the object as one line and drop it. Returns 0, or 1 where that failed. */
int bench_print(json_t *line);

/* GFLOP/s of a product at 2048^3 by OpenBLAS or oneDNN, whichever is faster, one on each processor
 * at once; prints its line. Returns 0 or 1. */
int bench_peak(double *gflops);

/* Nanoseconds in which a value goes from one processor to another one and back, the first two that
 * this process may use: how far apart they are. 0: there is only one. */
double bench_round_trip_ns(void);

/* For benchmarks of two threads: the first two processors (false: there is only one), and the
 * calling thread stays on one. */
bool bench_two_cpus(int cpu[2]);
void bench_stay_on(int cpu);

/* Two threads that take turns: each waits for its numbers and passes the turn on to the next. */
static inline void bench_wait_for_turn(const int *turn, int number) {
  while (__atomic_load_n(turn, __ATOMIC_ACQUIRE) != number) continue;
}
static inline void bench_pass_turn(int *turn, int number) {
  __atomic_store_n(turn, number, __ATOMIC_RELEASE);
}

#endif
