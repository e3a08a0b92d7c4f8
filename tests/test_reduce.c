/* Sums, copies and fills. The ordered reduction must equal the sequential float sum to the bit, for
 * more terms than a task has places for buffers. */
#include "check.h"

static void reduction_is_the_sum_in_order(void **state) {
  (void)state;
  static const int64_t sizes[] = {1, 17, 2048, 5001};
  static const int counts[] = {1, 2, 3, 15, 16, 40};
  for (size_t s = 0; s < 4; s++)
    for (size_t c = 0; c < 6; c++)
      for (int add = 0; add < 2; add++) {
        int64_t n = sizes[s];
        int count = counts[c];
        struct sl_tensor *terms[40];
        double *old = random_values(n, 99), *want = zeros(n);
        float *sum = calloc((size_t)n, sizeof *sum);
        for (int64_t i = 0; add && i < n; i++) sum[i] = (float)old[i];
        for (int t = 0; t < count; t++) {
          double *v = random_values(n, 10 + (uint64_t)t);
          for (int64_t i = 0; i < n; i++) sum[i] = t || add ? sum[i] + (float)v[i] : (float)v[i];
          terms[t] = tensor(SL_SHAPE(n), v);
          free(v);
        }
        for (int64_t i = 0; i < n; i++) want[i] = (double)sum[i];
        struct sl_tensor *out = tensor(SL_SHAPE(n), old);
        OK(sl__reduce(context, add ? &adding : &plain, out, count, terms));
        assert_near("sum", take(out), want, n, 0, 0);
        for (int t = 0; t < count; t++) sl__tensor_free(terms[t]);
        free(old), free(want), free(sum);
      }
}

static void square_sum_is_exact(void **state) {
  (void)state;
  static const int64_t sizes[] = {1, 15, 16, 1001, 100000};
  for (size_t s = 0; s < 5; s++) {
    double *x = random_values(sizes[s], 1), want = dot(x, x, sizes[s]);
    struct sl_tensor *tx = tensor(SL_SHAPE(sizes[s]), x), *sum = tensor(SL_SHAPE(1), NULL);
    OK(sl__square_sum(context, &plain, tx, sum));
    assert_near("sum of squares", take(sum), &want, 1, 0, want);
    sl__tensor_free(tx);
    free(x);
  }
}

static void elementwise_operations(void **state) {
  (void)state;
  int64_t n = 1003;
  double *a = random_values(n, 1), *b = random_values(n, 2), *want = zeros(n);
  struct sl_tensor *ta = tensor(SL_SHAPE(n), a), *tb = tensor(SL_SHAPE(n), b),
                   *y = tensor(SL_SHAPE(n), NULL);
  OK(sl__add(context, &plain, ta, tb, y));
  for (int64_t i = 0; i < n; i++) want[i] = a[i] + b[i];
  OK(sl__axpy(context, &adding, -0.5f, ta, y));
  for (int64_t i = 0; i < n; i++) want[i] -= 0.5 * a[i];
  assert_near("a + b - a/2", take(y), want, n, 2, 2);
  struct sl_tensor *copy = tensor(SL_SHAPE(n), b), *full = tensor(SL_SHAPE(n), b);
  OK(sl__axpy(context, &plain, 1, ta, copy));
  assert_near("copy", take(copy), a, n, 0, 0);
  OK(sl__fill(context, &plain, full, -2.5f));
  for (int64_t i = 0; i < n; i++) want[i] = -2.5;
  assert_near("fill", take(full), want, n, 0, 0);
  sl__tensor_free(ta);
  sl__tensor_free(tb);
  free(a), free(b), free(want);
}

static void shapes_are_checked(void **state) {
  (void)state;
  struct sl_tensor *a = tensor(SL_SHAPE(4), NULL), *b = tensor(SL_SHAPE(5), NULL);
  assert_int_equal(sl__add(context, &plain, a, a, b), SL_BAD_SHAPE);
  assert_int_equal(sl__axpy(context, &plain, 1, a, b), SL_BAD_SHAPE);
  assert_int_equal(sl__reduce(context, &plain, a, 1, &b), SL_BAD_SHAPE);
  assert_int_equal(sl__reduce(context, &plain, a, 0, &b), SL_BAD_ARGUMENT);
  assert_int_equal(sl__square_sum(context, &plain, a, b), SL_BAD_SHAPE);
  sl__tensor_free(a);
  sl__tensor_free(b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reduction_is_the_sum_in_order), cmocka_unit_test(square_sum_is_exact),
      cmocka_unit_test(elementwise_operations), cmocka_unit_test(shapes_are_checked)};
  return cmocka_run_group_tests_name("reduce", tests, open_context, close_context);
}
