/* Shared by the benchmarks: time, how much of the machine others took, the peak of products. */
#ifndef SL_BENCH_BENCH_H
#define SL_BENCH_BENCH_H

#include <jansson.h>

#include "core/base/cpu_time.h"

double bench_now(void);

/* Print the object as one line and drop it. Returns 0, or 1 where that failed. */
int bench_print(json_t *line);

/* GFLOP/s of a product at 2048^3 by OpenBLAS or oneDNN, whichever is faster, one on each processor
 * at once; prints its line. Returns 0 or 1. */
int bench_peak(double *gflops);

#endif
