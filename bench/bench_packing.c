/* The cost and the gain of a dense layer's weights that stay packed: y = x W^T by dnnl_sgemm, by
 * oneDNN with W in the layout that oneDNN chooses, and the time of that rearrangement. One thread.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"

#ifdef SL_HAVE_ONEDNN
#include <oneapi/dnnl/dnnl.h>

void omp_set_num_threads(int threads); /* of the OpenMP runtime that oneDNN links */

enum { ROUNDS = 60 };

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t description_ref;
#define REF(d) (d)
#define DESCRIBE(d, dims, tag) dnnl_memory_desc_create_with_tag(&(d), 2, dims, dnnl_f32, tag)
#else
typedef const dnnl_memory_desc_t *description_ref;
#define REF(d) (&(d))
#define DESCRIBE(d, dims, tag) dnnl_memory_desc_init_by_tag(&(d), 2, dims, dnnl_f32, tag)
#endif

/* x [rows, in], weight [out, in], y [rows, out] */
struct product {
  int64_t rows, in, out;
  float *x, *weight, *y;
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  dnnl_primitive_t reorder, matmul;
  dnnl_memory_t x_memory, weight_memory, packed_memory, y_memory;
};

/* The three ways that are timed. Each returns whether oneDNN did it. */
static bool plain(struct product *p) {
  return dnnl_sgemm('N', 'T', p->rows, p->out, p->in, 1, p->x, p->in, p->weight, p->in, 0, p->y,
                    p->out) == dnnl_success;
}

static bool packing(struct product *p) {
  dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, p->weight_memory}, {DNNL_ARG_TO, p->packed_memory}};
  return dnnl_primitive_execute(p->reorder, p->stream, 2, args) == dnnl_success &&
         dnnl_stream_wait(p->stream) == dnnl_success;
}

static bool packed(struct product *p) {
  dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->x_memory},
                            {DNNL_ARG_WEIGHTS, p->packed_memory},
                            {DNNL_ARG_DST, p->y_memory}};
  return dnnl_primitive_execute(p->matmul, p->stream, 3, args) == dnnl_success &&
         dnnl_stream_wait(p->stream) == dnnl_success;
}

static dnnl_status_t create_matmul(dnnl_primitive_desc_t *made, dnnl_engine_t engine,
                                   description_ref x, description_ref weight, description_ref y) {
#if DNNL_VERSION_MAJOR >= 3
  return dnnl_matmul_primitive_desc_create(made, engine, x, weight, NULL, y, NULL);
#else
  dnnl_matmul_desc_t d;
  dnnl_status_t status = dnnl_matmul_desc_init(&d, x, weight, NULL, y);
  return status == dnnl_success ? dnnl_primitive_desc_create(made, &d, NULL, engine, NULL) : status;
#endif
}

/* The weights are seen as [in, out] with columns next to each other. The objects of oneDNN stay
 * until the process ends. */
static bool prepare(struct product *p) {
  dnnl_dims_t x_dims = {p->rows, p->in}, weight_dims = {p->in, p->out}, y_dims = {p->rows, p->out};
  dnnl_memory_desc_t x, weight, any, y;
  dnnl_primitive_desc_t matmul, reorder;
  if (DESCRIBE(x, x_dims, dnnl_ab) != dnnl_success ||
      DESCRIBE(weight, weight_dims, dnnl_ba) != dnnl_success ||
      DESCRIBE(any, weight_dims, dnnl_format_tag_any) != dnnl_success ||
      DESCRIBE(y, y_dims, dnnl_ab) != dnnl_success ||
      create_matmul(&matmul, p->engine, REF(x), REF(any), REF(y)) != dnnl_success)
    return false;
  description_ref best = dnnl_primitive_desc_query_md(matmul, dnnl_query_weights_md, 0);
  dnnl_engine_t e = p->engine;
  return dnnl_primitive_create(&p->matmul, matmul) == dnnl_success &&
         dnnl_reorder_primitive_desc_create(&reorder, REF(weight), e, best, e, NULL) ==
             dnnl_success &&
         dnnl_primitive_create(&p->reorder, reorder) == dnnl_success &&
         dnnl_memory_create(&p->x_memory, REF(x), e, p->x) == dnnl_success &&
         dnnl_memory_create(&p->weight_memory, REF(weight), e, p->weight) == dnnl_success &&
         dnnl_memory_create(&p->packed_memory, best, e, DNNL_MEMORY_ALLOCATE) == dnnl_success &&
         dnnl_memory_create(&p->y_memory, REF(y), e, p->y) == dnnl_success;
}

/* Microseconds of the quickest call, or -1. */
static double quickest(bool (*way)(struct product *), struct product *p) {
  double best = 1e9;
  for (int i = 0; i < ROUNDS; i++) {
    double begin = bench_now();
    if (!way(p)) return -1;
    double seconds = bench_now() - begin;
    if (seconds < best) best = seconds;
  }
  return 1e6 * best;
}

static int measure(struct product *p) {
  p->x = calloc((size_t)(p->rows * p->in), sizeof *p->x);
  p->weight = calloc((size_t)(p->out * p->in), sizeof *p->weight);
  p->y = calloc((size_t)(p->rows * p->out), sizeof *p->y);
  int failed = 1;
  if (p->x && p->weight && p->y && prepare(p)) {
    double plain_us = quickest(plain, p), packing_us = quickest(packing, p);
    double packed_us = quickest(packed, p);
    failed = bench_print(json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:f}", "bench", "packing",
                                   "rows", (json_int_t)p->rows, "in", (json_int_t)p->in, "out",
                                   (json_int_t)p->out, "plain_us", plain_us, "packed_us", packed_us,
                                   "packing_us", packing_us));
  }
  if (failed) fprintf(stderr, "bench_packing: oneDNN refuses, or there is no memory\n");
  free(p->x);
  free(p->weight);
  free(p->y);
  return failed;
}

int main(void) {
  static const int64_t shapes[][3] = {{32, 800, 500},  {64, 800, 500},   {128, 800, 500},
                                      {64, 784, 512},  {128, 784, 512},  {20, 2600, 650},
                                      {20, 650, 2600}, {20, 1300, 2600}, {0, 0, 0}};
  omp_set_num_threads(1);
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success ||
      dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) != dnnl_success) {
    fprintf(stderr, "bench_packing: oneDNN cannot start\n");
    return 1;
  }
  for (int i = 0; shapes[i][0]; i++) {
    struct product p = {.rows = shapes[i][0], .in = shapes[i][1], .out = shapes[i][2]};
    p.engine = engine;
    p.stream = stream;
    if (measure(&p) != 0) return 1;
  }
  return 0;
}
#else
int main(void) {
  fprintf(stderr, "bench_packing: this build has no oneDNN; configure with --with-onednn\n");
  return 1;
}
#endif
