/* Shared by the benchmarks: time, how much of the machine others took, the peak of OpenBLAS. */
#ifndef SL_BENCH_BENCH_H
#define SL_BENCH_BENCH_H

#include <jansson.h>

struct cpu_time {
  double wall, own, all; /* seconds: passed, of this process, of all processes on all processors */
};

double bench_now(void);
struct cpu_time bench_cpu_time(void);
/* Share of the machine that other programs took since begin. */
double bench_foreign_cpu(const struct cpu_time *begin);

/* Print the object as one line and drop it. Returns 0, or 1 where that failed. */
int bench_print(json_t *line);

/* GFLOP/s of OpenBLAS's sgemm at 2048^3, one product on each processor at once; prints its line.
 * Returns 0 or 1. */
int bench_peak(double *gflops);

#endif
