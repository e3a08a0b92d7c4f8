/* The state's products of an LSTM, step by step, on one core, of the forward and the backward
 * pass: by the library that serves products, and by our own code
 * (codelets/kernels/recurrent_gemm.h), whole columns in a unit; and the packing, once for all
 * steps. In turns; medians. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "codelets/kernels/gemm.h"
#include "codelets/kernels/recurrent_gemm.h"
#include "codelets/kernels/tiles.h"
#include "core/base/median.h"

enum { STEPS = 35, ROUNDS = 40 };
enum way { LIBRARY, OWN, PACKING, WAYS };

/* y [rows, columns] = x [rows, length] times weights, in each step. */
struct product {
  const char *pass;
  struct sl__recurrent_gemm gemm;
  int64_t rows;
  float *weight, *packed, *x, *y;
};

static void run_step(const struct product *p, enum way way, int step) {
  const struct sl__recurrent_gemm *g = &p->gemm;
  const struct sl__work_range all = {0, sl__recurrent_gemm_units(g)};
  if (way == PACKING)
    sl__recurrent_gemm_pack_plain(g, p->weight, all, sl__line_begin(p->packed), 0);
  else if (way == LIBRARY)
    sl__gemm(sl__gemm_preferred(), false, false, p->rows, g->columns, g->length, 1, p->x, g->length,
             p->weight, g->columns, 0, p->y, g->columns);
  else
    sl__recurrent_gemm_step(g, sl__line_begin(p->packed), all, step, p->rows, p->x, g->length,
                            false, p->y, g->columns, 0);
}

static int measure(const struct product *p, int64_t hidden) {
  static const char *const names[] = {"library", "own"};
  const int times[] = {STEPS, STEPS, 1};
  double us[WAYS][ROUNDS];
  int failed = 0;
  for (int round = 0; round < ROUNDS; round++)
    for (int way = 0; way < WAYS; way++) {
      double begin = bench_now();
      for (int step = 0; step < times[way]; step++) run_step(p, (enum way)way, step);
      us[way][round] = 1e6 * (bench_now() - begin) / times[way];
    }
  double packing = sl__median(ROUNDS, us[PACKING]);
  for (int way = 0; way < PACKING && !failed; way++)
    failed = bench_print(
        json_pack("{s:s, s:s, s:s, s:I, s:I, s:f, s:f}", "bench", "recurrent", "pass", p->pass,
                  "products", names[way], "rows", (json_int_t)p->rows, "hidden", (json_int_t)hidden,
                  "step_us", sl__median(ROUNDS, us[way]), "packing_us", way == OWN ? packing : 0));
  return failed;
}

/* Written, since pages without a write are all the same page of zeros. */
static float *make(int64_t floats) {
  float *made = malloc((size_t)floats * sizeof *made);
  for (int64_t i = 0; made && i < floats; i++) made[i] = (float)(i % 17) * 0.01f;
  return made;
}

static int measure_pass(const char *pass, int64_t rows, int64_t hidden, int64_t columns,
                        int64_t length) {
  struct product p = {.pass = pass,
                      .gemm = {.gates = 1, .columns = columns, .length = length},
                      .rows = rows,
                      .weight = make(columns * length),
                      .x = make(rows * length),
                      .y = make(rows * columns)};
  p.packed = make(sl__recurrent_gemm_floats(&p.gemm));
  int failed = !p.weight || !p.packed || !p.x || !p.y;
  if (failed) {
    fprintf(stderr, "bench_recurrent: no memory\n");
  } else {
    sl__recurrent_gemm_pack_plain(&p.gemm, p.weight,
                                  (struct sl__work_range){0, sl__recurrent_gemm_units(&p.gemm)},
                                  sl__line_begin(p.packed), 0);
    failed = measure(&p, hidden);
  }
  free(p.weight);
  free(p.packed);
  free(p.x);
  free(p.y);
  return failed;
}

int main(void) {
  static const int64_t hidden[] = {200, 400, 650, 1024}, rows[] = {10, 20, 32};
  int failed = 0;
  for (size_t i = 0; i < sizeof hidden / sizeof *hidden && !failed; i++)
    for (size_t r = 0; r < sizeof rows / sizeof *rows && !failed; r++) {
      failed = measure_pass("forward", rows[r], hidden[i], 4 * hidden[i], hidden[i]);
      if (!failed) failed = measure_pass("backward", rows[r], hidden[i], hidden[i], 4 * hidden[i]);
    }
  return failed;
}
