/* The state's product of recurrent layers (codelets/kernels/recurrent_gemm.c) against sums in
 * double precision, for each width of vectors that this processor has: one gate and several, sums
 * of one block and of more, both layouts of the weights. A column's bits depend neither on the step
 * nor on the units that are computed with it, and nothing is written beside the units' columns. */
#include "tests/common/check.h"
#include "tests/common/every.h"
#include "codelets/kernels/recurrent_gemm.h"
#include "codelets/kernels/tiles.h"

enum { GUARD = 5 }; /* floats behind each row of y, and of x */

struct product {
  struct sl__recurrent_gemm gemm;
  int64_t rows;
  float *x, *weight, *old; /* weight [gates columns, length]; old: values of y before */
};

static int64_t width_of(const struct product *p) { return p->gemm.gates * p->gemm.columns; }

static struct sl__work_range all_units(const struct product *p) {
  return (struct sl__work_range){0, sl__recurrent_gemm_units(&p->gemm)};
}

/* y's rows, GUARD behind each. */
static float *run(const struct product *p, const float *packed, struct sl__work_range units,
                  int64_t k, bool add, int lanes) {
  int64_t pitch = width_of(p) + GUARD;
  float *y = malloc((size_t)(p->rows * pitch) * sizeof *y);
  memcpy(y, p->old, (size_t)(p->rows * pitch) * sizeof *y);
  sl__recurrent_gemm_step(&p->gemm, packed, units, k, p->rows, p->x, p->gemm.length + GUARD, add, y,
                          pitch, lanes);
  return y;
}

static bool is_of(const struct product *p, struct sl__work_range units, int64_t column) {
  int64_t unit = column % p->gemm.columns / (SL__SKINNY_GEMM_COLUMNS / p->gemm.gates);
  return column < width_of(p) && unit >= units.first && unit < units.end;
}

static void compare(const struct product *p, const float *y, struct sl__work_range units,
                    bool add) {
  int64_t length = p->gemm.length, pitch = width_of(p) + GUARD;
  for (int64_t n = 0; n < p->rows; n++)
    for (int64_t c = 0; c < pitch; c++) {
      double got = (double)y[n * pitch + c], want = (double)p->old[n * pitch + c];
      bool is_written = is_of(p, units, c);
      if (is_written && !add) want = 0;
      for (int64_t k = 0; k < length && is_written; k++)
        want += (double)p->x[n * (length + GUARD) + k] * (double)p->weight[c * length + k];
      double allowed = is_written ? 6e-8 * (double)(length + 4) : 0;
      if (!(fabs(got - want) <= allowed))
        fail_msg("%lld rows, %lld x %lld, length %lld: row %lld column %lld: %g, not %g",
                 (long long)p->rows, (long long)p->gemm.gates, (long long)p->gemm.columns,
                 (long long)length, (long long)n, (long long)c, got, want);
    }
}

static void check_bits(const struct product *p, const float *packed, const float *want,
                       struct sl__work_range units, int64_t k, int lanes) {
  int64_t pitch = width_of(p) + GUARD;
  float *y = run(p, packed, units, k, true, lanes);
  for (int64_t i = 0; i < p->rows * pitch; i++) {
    const float *same = is_of(p, units, i % pitch) ? want : p->old;
    assert_memory_equal(&y[i], &same[i], sizeof *y);
  }
  free(y);
}

static void check_packed(const struct product *p, const float *packed, int lanes) {
  const struct sl__work_range all = all_units(p), first = {0, all.end / 2},
                              last = {all.end / 2, all.end};
  float *y = run(p, packed, all, 0, false, lanes), *added = run(p, packed, all, 0, true, lanes);
  compare(p, y, all, false);
  compare(p, added, all, true);
  for (int64_t k = 0; k < 2; k++) {
    check_bits(p, packed, added, all, k, lanes);
    check_bits(p, packed, added, first, k, lanes);
    check_bits(p, packed, added, last, k, lanes);
  }
  free(y), free(added);
}

/* weight's transpose, [length, columns]. */
static float *plain_of(const struct product *p) {
  float *matrix = calloc((size_t)(width_of(p) * p->gemm.length), sizeof *matrix);
  for (int64_t c = 0; c < width_of(p); c++)
    for (int64_t k = 0; k < p->gemm.length; k++)
      matrix[k * width_of(p) + c] = p->weight[c * p->gemm.length + k];
  return matrix;
}

static void check(int64_t rows, int64_t gates, int64_t columns, int64_t length) {
  struct product p = {.gemm = {.gates = gates, .columns = columns, .length = length}, .rows = rows};
  int64_t pitch = width_of(&p) + GUARD, floats = sl__recurrent_gemm_floats(&p.gemm);
  float *memory = random_floats(floats, 4), *matrix;
  p.x = random_floats(rows * (length + GUARD), 1);
  p.weight = random_floats(width_of(&p) * length, 2);
  p.old = random_floats(rows * pitch, 3);
  matrix = plain_of(&p);
  for (int lanes = 4; lanes <= 16; lanes *= 2) {
    float *packed = sl__line_begin(memory);
    if (sl__lanes(lanes) != lanes) continue;
    sl__recurrent_gemm_pack(&p.gemm, p.weight, all_units(&p), packed, lanes);
    check_packed(&p, packed, lanes);
    if (gates > 1) continue;
    sl__recurrent_gemm_pack_plain(&p.gemm, matrix, all_units(&p), packed, lanes);
    check_packed(&p, packed, lanes);
  }
  free(memory), free(matrix), free(p.x), free(p.weight), free(p.old);
}

static void steps_equal_sums_in_double_precision(void **state) {
  static const int64_t rows[] = {1, 2, 7, 10, SL__RECURRENT_GEMM_ROWS},
                       columns[] = {1, 15, 16, 64, 70, 161}, lengths[] = {1, 33, 512, 513, 1100};
  int at = 0;
  (void)state;
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
    for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
      for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (int64_t gates = 1; gates <= 4; gates *= 2)
          if ((r != 4 || l < 2 || columns[c] == 70) && at++ % EVERY == 0)
            check(rows[r], gates, columns[c], lengths[l]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(steps_equal_sums_in_double_precision)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
