/* The state's products of an LSTM, step by step, on one core: by the library that serves products;
 * by our own code with weights packed in units of 64 columns; and by the same in alternate order,
 * from the first unit to the last in one step, from the last to the first in the next
 * (codelets/lstm.c). All in turns; medians. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "codelets/kernels/gemm.h"
#include "codelets/kernels/skinny_gemm.h"
#include "core/base/median.h"

enum { ROWS = 10, STEPS = 35, ROUNDS = 40, UNIT = SL__SKINNY_GEMM_COLUMNS };
enum way { LIBRARY, UNITS, ALTERNATE, WAYS };

/* gates [rows, 4 hidden] of each step += h [rows, hidden] times weights [hidden, 4 hidden]. */
struct layer {
  int64_t hidden;
  float *weight, *h, *gates;
};

static void add_unit(const struct layer *l, int64_t unit, float *gates) {
  float sums[ROWS * UNIT];
  int64_t width = 4 * l->hidden, first = unit * UNIT,
          count = width - first < UNIT ? width - first : UNIT;
  sl__skinny_gemm_add(ROWS, l->h, l->hidden, l->hidden, l->weight + first * l->hidden, UNIT, sums,
                      SL__SKINNY_GEMM_WRITE, 0);
  for (int64_t n = 0; n < ROWS; n++)
    for (int64_t j = 0; j < count; j++) gates[n * width + first + j] += sums[n * UNIT + j];
}

static void run_step(const struct layer *l, enum way way, int step) {
  int64_t width = 4 * l->hidden, units = (width + UNIT - 1) / UNIT;
  float *gates = l->gates + step * ROWS * width;
  if (way == LIBRARY)
    sl__gemm(sl__gemm_preferred(), false, false, ROWS, width, l->hidden, 1, l->h, l->hidden,
             l->weight, width, 1, gates, width);
  else
    for (int64_t i = 0; i < units; i++)
      add_unit(l, way == ALTERNATE && step % 2 ? units - 1 - i : i, gates);
}

static int measure(const struct layer *l) {
  static const char *const names[] = {"library", "units", "alternate"};
  double us[WAYS][ROUNDS];
  int failed = 0;
  for (int round = 0; round < ROUNDS; round++)
    for (int way = 0; way < WAYS; way++) {
      double begin = bench_now();
      for (int step = 0; step < STEPS; step++) run_step(l, (enum way)way, step);
      us[way][round] = 1e6 * (bench_now() - begin) / STEPS;
    }
  for (int way = 0; way < WAYS && !failed; way++)
    failed = bench_print(json_pack("{s:s, s:s, s:i, s:I, s:f}", "bench", "recurrent", "products",
                                   names[way], "rows", ROWS, "hidden", (json_int_t)l->hidden,
                                   "step_us", sl__median(ROUNDS, us[way])));
  return failed;
}

/* Written, since pages without a write are all the same page of zeros. */
static float *make(int64_t floats) {
  float *made = malloc((size_t)floats * sizeof *made);
  for (int64_t i = 0; made && i < floats; i++) made[i] = (float)(i % 17) * 0.01f;
  return made;
}

/* The last unit may have columns beyond the weights'. */
static int measure_hidden(int64_t hidden) {
  int64_t width = 4 * hidden;
  struct layer l = {hidden, make((width + UNIT) * hidden), make(ROWS * hidden),
                    make(STEPS * ROWS * width)};
  int failed = !l.weight || !l.h || !l.gates;
  if (failed)
    fprintf(stderr, "bench_recurrent: no memory\n");
  else
    failed = measure(&l);
  free(l.weight);
  free(l.h);
  free(l.gates);
  return failed;
}

int main(void) {
  static const int64_t hidden[] = {200, 400, 650, 1024};
  int failed = 0;
  for (size_t i = 0; i < sizeof hidden / sizeof *hidden && !failed; i++)
    failed = measure_hidden(hidden[i]);
  return failed;
}
