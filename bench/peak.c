/* What the machine can do, so that a rate can be called good or bad. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <cblas.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#ifdef SL_HAVE_ONEDNN
#include <oneapi/dnnl/dnnl.h>

void omp_set_num_threads(int threads); /* of the OpenMP runtime that oneDNN links */
#endif

#include "bench/bench.h"

enum { SIZE = 2048, PRODUCTS = 12, MOST_THREADS = 256 };
/* No product begins later: a library that does not know the processor takes a second for each. */
static const double most_s = 1.5;

double bench_now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- results ---- */

int bench_print(json_t *line) {
  char *text = line ? json_dumps(line, JSON_REAL_PRECISION(6)) : NULL;
  json_decref(line);
  if (!text) {
    fprintf(stderr,
            "bench: a line of results cannot be made: no memory, or a number is not finite\n");
    return 1;
  }
  int failed = puts(text) < 0 || fflush(stdout) != 0;
  free(text);
  return failed;
}

/* ---- the peak ---- */

/* c = a b, square matrices, by one thread. */
typedef void product(const float *a, const float *b, float *c);

static void by_openblas(const float *a, const float *b, float *c) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIZE, SIZE, SIZE, 1, a, SIZE, b, SIZE, 0,
              c, SIZE);
}

#ifdef SL_HAVE_ONEDNN
static void by_onednn(const float *a, const float *b, float *c) {
  omp_set_num_threads(1); /* OpenMP keeps the number per thread */
  dnnl_sgemm('N', 'N', SIZE, SIZE, SIZE, 1, a, SIZE, b, SIZE, 0, c, SIZE);
}
#endif

struct worker {
  pthread_t thread;
  product *product;
  pthread_barrier_t *barrier;
  double best_s; /* of one product, while the other processors are at work too */
};

static void *multiply(void *argument) {
  struct worker *worker = argument;
  float *a = malloc(3UL * SIZE * SIZE * sizeof *a);
  pthread_barrier_wait(worker->barrier);
  if (!a) return NULL;
  float *b = a + SIZE * SIZE, *c = b + SIZE * SIZE;
  for (int i = 0; i < 2 * SIZE * SIZE; i++) a[i] = (float)(i % 17) / 17;
  worker->best_s = 1e9;
  double end = bench_now() + most_s, begin = 0;
  for (int i = 0; i < PRODUCTS && begin < end; i++) {
    begin = bench_now();
    worker->product(a, b, c);
    double seconds = bench_now() - begin;
    if (seconds < worker->best_s) worker->best_s = seconds;
  }
  free(a);
  return NULL;
}

/* The processors that this process may use. */
static int processors(void) {
  cpu_set_t set;
  int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return count < MOST_THREADS ? count : MOST_THREADS;
}

/* All processors at once. */
static int measure(product *product, double *gflops) {
  static struct worker workers[MOST_THREADS];
  pthread_barrier_t barrier;
  int count = processors(), started = 0;
  pthread_barrier_init(&barrier, NULL, (unsigned)count);
  for (; started < count; started++) {
    workers[started] = (struct worker){.barrier = &barrier, .product = product};
    if (pthread_create(&workers[started].thread, NULL, multiply, &workers[started]) != 0) break;
  }
  if (started < count) {
    fprintf(stderr, "bench: only %d of %d threads could be started\n", started, count);
    return 1; /* the threads wait at the barrier; the process ends */
  }
  *gflops = 0;
  for (int i = 0; i < count; i++) {
    pthread_join(workers[i].thread, NULL);
    if (workers[i].best_s > 0) *gflops += 2e-9 * SIZE * SIZE * SIZE / workers[i].best_s;
  }
  pthread_barrier_destroy(&barrier);
  return 0;
}

/* A library that is older than the processor may not use its widest vectors: the better one counts.
 */
int bench_peak(double *gflops) {
  const char *by = "OpenBLAS";
  struct sl__cpu_time begin = sl__cpu_time_now();
  openblas_set_num_threads(1);
  if (measure(by_openblas, gflops) != 0) return 1;
#ifdef SL_HAVE_ONEDNN
  double reached;
  if (measure(by_onednn, &reached) != 0) return 1;
  if (reached > *gflops) by = "oneDNN";
  if (reached > *gflops) *gflops = reached;
#endif
  return bench_print(json_pack("{s:s, s:s, s:s, s:i, s:f, s:f}", "peer", by, "bench", "peak",
                               "core", openblas_get_corename(), "threads", processors(), "gflops",
                               *gflops, "foreign_cpu", sl__foreign_cpu(&begin)));
}
