/* Dropout: the share that is kept, the scale, the same numbers in the backward pass, and slices
 * that drop what the whole would, wherever they begin. */
#include "codelets/dropout.h"

#include "tests/common/check.h"

static double *drop(const double *x, int64_t n, const struct sl__dropout *d, bool backward,
                    bool add) {
  struct sl__tensor *tx = tensor(SL_SHAPE(n), x), *ty = tensor(SL_SHAPE(n), add ? x : NULL);
  if (backward)
    OK(sl__dropout_backward(context, add ? &adding : &plain, tx, ty, d));
  else
    OK(sl__dropout_forward(context, &plain, tx, ty, d));
  sl__tensor_free(tx);
  return take(ty);
}

static void values_are_dropped_and_scaled(void **state) {
  (void)state;
  int64_t n = 100000, kept = 0;
  double *x = random_values(n, 1);
  struct sl__dropout d = {.rate = 0.3f, .seed = 5, .stream = 6};
  double *y = drop(x, n, &d, false, false), *back = drop(x, n, &d, true, false),
         *sum = drop(x, n, &d, true, true);
  for (int64_t i = 0; i < n; i++) {
    bool keep = sl__dropout_factor(d.rate, d.seed, d.stream, (uint64_t)i) > 0;
    kept += keep;
    assert_true(fabs(y[i] - (keep ? x[i] / (1 - (double)d.rate) : 0)) < 1e-6);
    assert_true(y[i] == back[i]);
    assert_true(fabs(sum[i] - x[i] - y[i]) < 1e-6);
  }
  /* 6 standard deviations of a binomial */
  assert_true(fabs((double)kept / (double)n - 0.7) < 6 * sqrt(0.21 / (double)n));
  free(x), free(y), free(back), free(sum);
}

static void slices_drop_what_the_whole_does(void **state) {
  (void)state;
  int64_t n = 103;
  double *x = random_values(n, 1);
  struct sl__dropout whole = {.rate = 0.5f, .seed = 5, .stream = 6, .first = 1000001};
  double *y = drop(x, n, &whole, false, false);
  for (int64_t first = 0; first < 9; first++)
    for (int64_t count = 1; count < 12; count++) {
      struct sl__dropout part = whole;
      part.first += (uint64_t)first;
      double *z = drop(x + first, count, &part, false, false);
      for (int64_t i = 0; i < count; i++) assert_true(z[i] == y[first + i]);
      free(z);
    }
  free(x), free(y);
}

/* Runs of 6 values of lines of 13: what the whole lines would drop there. Each run begins in
 * another place of a group of four numbers. */
static void parts_of_lines_drop_what_the_lines_do(void **state) {
  (void)state;
  enum { LINES = 40, WIDTH = 13, RUN = 6, FROM = 3 };
  double *x = random_values(LINES * WIDTH, 1), part[LINES * RUN];
  for (int i = 0; i < LINES * RUN; i++) part[i] = x[i / RUN * WIDTH + FROM + i % RUN];
  struct sl__dropout d = {.rate = 0.4f, .seed = 5, .stream = 6, .first = 1000001};
  double *whole = drop(x, LINES * WIDTH, &d, false, false);
  d.first += FROM, d.run = RUN, d.stride = WIDTH;
  double *got = drop(part, LINES * RUN, &d, false, false);
  for (int i = 0; i < LINES * RUN; i++)
    assert_true(got[i] == whole[i / RUN * WIDTH + FROM + i % RUN]);
  free(x), free(whole), free(got);
}

static void bf16_tensors_match(void **state) {
  (void)state;
  int64_t n = 1003;
  double *x = round_bf16(random_values(n, 1), n), *old = round_bf16(random_values(n, 2), n),
         *want = zeros(n);
  for (int first = 0; first < 5; first++) {
    struct sl__dropout d = {.rate = 0.25f, .seed = 5, .stream = 6, .first = (uint64_t)first};
    for (int64_t i = 0; i < n; i++)
      want[i] = x[i] * (double)sl__dropout_factor(d.rate, 5, 6, (uint64_t)(first + i));
    struct sl__tensor *tx = bf16_tensor(SL_SHAPE(n), x), *ty = bf16_tensor(SL_SHAPE(n), NULL),
                      *sum = bf16_tensor(SL_SHAPE(n), old);
    OK(sl__dropout_forward(context, &plain, tx, ty, &d));
    OK(sl__dropout_backward(context, &adding, tx, sum, &d));
    assert_near_bf16("bf16 y", take(ty), want, n, 2, 2);
    for (int64_t i = 0; i < n; i++) want[i] += old[i];
    assert_near_bf16("bf16 dx", take(sum), want, n, 2, 3);
    sl__tensor_free(tx);
  }
  free(x), free(old), free(want);
}

static void rates_and_shapes_are_checked(void **state) {
  (void)state;
  struct sl__tensor *a = tensor(SL_SHAPE(4), NULL), *b = tensor(SL_SHAPE(5), NULL);
  assert_int_equal(sl__dropout_forward(context, &plain, a, b, &(struct sl__dropout){.rate = 0.5f}),
                   SL_BAD_SHAPE);
  assert_int_equal(sl__dropout_forward(context, &plain, a, a, &(struct sl__dropout){.rate = 1}),
                   SL_BAD_ARGUMENT);
  assert_int_equal(sl__dropout_backward(context, &plain, a, a, &(struct sl__dropout){.rate = -1}),
                   SL_BAD_ARGUMENT);
  sl__tensor_free(a);
  sl__tensor_free(b);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(values_are_dropped_and_scaled),
                                     cmocka_unit_test(slices_drop_what_the_whole_does),
                                     cmocka_unit_test(parts_of_lines_drop_what_the_lines_do),
                                     cmocka_unit_test(bf16_tensors_match),
                                     cmocka_unit_test(rates_and_shapes_are_checked)};
  return cmocka_run_group_tests_name("dropout", tests, open_operations, close_context);
}
