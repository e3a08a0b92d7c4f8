/* Products of few rows (codelets/kernels/skinny_gemm.c) against sums in double precision, for each
 * width of vectors that this processor has: sizes at which blocks, panels and vectors begin or end
 * somewhere else, with and without a bias; nothing is written beside y. What does not belong to a
 * column is not a number: it must not get into it. */
#include "tests/common/check.h"
#include "tests/common/every.h"
#include "codelets/kernels/skinny_gemm.h"
#include "codelets/kernels/tiles.h"

enum { GUARD = 9 }; /* floats between rows of y, and after them */

static float *unset(int64_t n) {
  float *v = calloc((size_t)n, sizeof *v);
  for (int64_t i = 0; i < n; i++) v[i] = NAN;
  return v;
}

struct product {
  int64_t rows, length, columns;
  float *x, *weight, *bias;
};

static void compare(const struct product *p, const float *y, int64_t pitch) {
  for (int64_t n = 0; n < p->rows; n++)
    for (int64_t c = 0; c < pitch; c++) {
      float got = y[n * pitch + c];
      if (c >= p->columns) {
        assert_true(isnan(got));
        continue;
      }
      double want = p->bias ? (double)p->bias[c] : 0;
      for (int64_t k = 0; k < p->length; k++)
        want += (double)p->x[n * p->length + k] * (double)p->weight[c * p->length + k];
      if (!(fabs((double)got - want) <= 6e-8 * (double)(p->length + 4)))
        fail_msg("%lld x %lld -> %lld: row %lld column %lld: %g, not %g", (long long)p->rows,
                 (long long)p->length, (long long)p->columns, (long long)n, (long long)c,
                 (double)got, want);
    }
}

/* A transposed W gives the same bits, and the transposition writes nothing behind its end. */
static void check_turned(const struct product *p, const float *want, int lanes) {
  int64_t pitch = p->columns + GUARD, blocks = sl__skinny_gemm_blocks(p->columns);
  int64_t size = sl__skinny_gemm_transposed_size(p->columns, p->length);
  float *turned = unset(size + GUARD), *y = unset(p->rows * pitch);
  sl__skinny_gemm_transpose(p->columns, p->length, p->weight, turned, lanes);
  for (int i = 0; i < GUARD; i++) assert_true(isnan(turned[size + i]));
  sl__skinny_gemm_product(p->rows, p->columns, p->length, p->x, turned, true, p->bias, y, pitch, 0,
                          blocks, lanes);
  for (int64_t i = 0; i < p->rows; i++)
    assert_memory_equal(y + i * pitch, want + i * pitch, (size_t)p->columns * sizeof *y);
  free(turned), free(y);
}

/* Each row by itself, and a matrix in the other layout, onto old values, have the same bits. */
static void check_alike(const struct product *p, const float *want, int lanes) {
  int64_t pitch = p->columns + GUARD, blocks = sl__skinny_gemm_blocks(p->columns);
  size_t bytes = (size_t)p->columns * sizeof *want;
  float *y = unset(p->rows * p->columns + GUARD), *matrix = unset(p->length * p->columns);
  for (int64_t n = 0; n < p->rows; n++) {
    sl__skinny_gemm_product(1, p->columns, p->length, p->x + n * p->length, p->weight, false,
                            p->bias, y, p->columns, 0, blocks, lanes);
    assert_memory_equal(y, want + n * pitch, bytes);
  }
  for (int64_t c = 0; c < p->columns; c++) {
    for (int64_t k = 0; k < p->length; k++)
      matrix[k * p->columns + c] = p->weight[c * p->length + k];
    for (int64_t n = 0; p->bias && n < p->rows; n++) y[n * p->columns + c] = p->bias[c];
  }
  sl__skinny_gemm_plain(p->rows, p->columns, p->length, p->x, p->length, matrix, p->bias, y, lanes);
  for (int64_t n = 0; n < p->rows; n++)
    assert_memory_equal(y + n * p->columns, want + n * pitch, bytes);
  for (int i = 0; i < GUARD; i++) assert_true(isnan(y[p->rows * p->columns + i]));
  free(y), free(matrix);
}

static void check_product(const struct product *p, int lanes) {
  int64_t pitch = p->columns + GUARD, blocks = sl__skinny_gemm_blocks(p->columns);
  float *y = unset(p->rows * pitch);
  sl__skinny_gemm_product(p->rows, p->columns, p->length, p->x, p->weight, false, p->bias, y, pitch,
                          0, blocks, lanes);
  compare(p, y, pitch);
  check_turned(p, y, lanes);
  check_alike(p, y, lanes);
  free(y);
  if (p->rows > 1) return;
  y = unset(pitch);
  sl__skinny_gemm_dots(p->length, p->x, p->weight, p->bias, y, 0, p->columns, lanes);
  compare(p, y, pitch);
  free(y);
}

/* A block that is packed, and added to what is there. */
static void check_packed(struct product p, int lanes) {
  const float *column[SL__SKINNY_GEMM_COLUMNS];
  float *packed = unset(SL__SKINNY_GEMM_COLUMNS * p.length);
  float *y = calloc((size_t)(p.rows * SL__SKINNY_GEMM_COLUMNS), sizeof *y);
  for (int64_t c = 0; c < SL__SKINNY_GEMM_COLUMNS; c++) {
    column[c] = p.weight + c * p.length;
    for (int64_t n = 0; n < p.rows; n++) y[n * SL__SKINNY_GEMM_COLUMNS + c] = p.bias[c];
  }
  sl__skinny_gemm_pack(column, SL__SKINNY_GEMM_COLUMNS, p.length, packed, lanes);
  sl__skinny_gemm_add(p.rows, p.x, p.length, p.length, packed, SL__SKINNY_GEMM_COLUMNS, y,
                      SL__SKINNY_GEMM_CONTINUE, NULL, lanes);
  p.columns = SL__SKINNY_GEMM_COLUMNS;
  compare(&p, y, SL__SKINNY_GEMM_COLUMNS);
  free(packed), free(y);
}

static void check(int64_t rows, int64_t length, int64_t columns, bool has_bias) {
  int64_t width = columns > SL__SKINNY_GEMM_COLUMNS ? columns : SL__SKINNY_GEMM_COLUMNS;
  struct product p = {rows,
                      length,
                      columns,
                      random_floats(rows * length, 1),
                      random_floats(width * length, 2),
                      random_floats(width, 3)};
  float *bias = p.bias;
  for (int lanes = 4; lanes <= 16; lanes *= 2) {
    if (sl__lanes(lanes) != lanes) continue;
    p.bias = bias;
    check_packed(p, lanes);
    if (!has_bias) p.bias = NULL;
    check_product(&p, lanes);
  }
  free(p.x), free(p.weight), free(bias);
}

static void products_are_the_sums(void **state) {
  static const int64_t lengths[] = {1, 3, 4, 7, 16, 17, 31, 112, 113, 257, 530},
                       columns[] = {1, 4, 10, 16, 63, 64, 65, 77, 130};
  int at = 0;
  (void)state;
  for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
    for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
      for (int64_t rows = 1; rows <= 35; rows += rows < 9 ? 1 : 13)
        if (at++ % EVERY == 0) check(rows, lengths[l], columns[c], (l + c) % 2);
}

/* Sums of several panels with vectors of 16 floats, and several blocks of rows. */
static void large_products_are_the_sums(void **state) {
  (void)state;
  check(7, 1024, 65, true);
  check(2, 2051, 20, false);
  check(384, 5, 66, true);
  check(779, 9, 17, true);
}

/* Long sums of whole vectors of rows, for which x and y are transposed, not W: blocks of columns
 * that are whole, and the rest of W; and rows for which W is. compare, check_turned and check_alike
 * know one order of sums for both. */
static void x_is_transposed(void **state) {
  static const int64_t rows[] = {4, 8, 16, 32, 48, 64, 63, 80}, columns[] = {63, 64, 149};
  (void)state;
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
    for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
      check(rows[r], c % 2 ? 400 : 411, columns[c], (r + c) % 2);
  check(16, 1024, 128, true);
  check(16, 1025, 128, true);
}

/* Zero times infinity is no number: what is over at the end of a row must not be multiplied. */
static void rows_do_not_meet(void **state) {
  enum { LENGTH = 37, COLUMNS = 19 };
  (void)state;
  for (int lanes = 4; lanes <= 16; lanes *= 2) {
    if (sl__lanes(lanes) != lanes) continue;
    float *x = random_floats(LENGTH, 1), *weight = random_floats(LENGTH * COLUMNS, 2);
    float y[2][COLUMNS];
    for (int i = 0; i < LENGTH; i++) weight[4 * LENGTH + i] = INFINITY;
    sl__skinny_gemm_dots(LENGTH, x, weight, NULL, y[0], 0, COLUMNS, lanes);
    sl__skinny_gemm_product(1, COLUMNS, LENGTH, x, weight, false, NULL, y[1], COLUMNS, 0, 1, lanes);
    for (int i = 0; i < 2 * COLUMNS; i++)
      assert_true(isfinite(y[i / COLUMNS][i % COLUMNS]) == (i % COLUMNS != 4));
    free(x), free(weight);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_are_the_sums), cmocka_unit_test(large_products_are_the_sums),
      cmocka_unit_test(x_is_transposed), cmocka_unit_test(rows_do_not_meet)};
  return cmocka_run_group_tests_name("few", tests, NULL, NULL);
}
