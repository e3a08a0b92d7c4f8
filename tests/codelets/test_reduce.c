/* Sums, copies and fills. The ordered reduction must equal the sequential float sum to the bit, for
 * more terms than a task has places for buffers. */
#include "tests/common/check.h"
#include "tests/common/displaced.h"

enum { MOST = 130 }; /* terms; a GPU's kernel takes 64 at once */

static void reduction_is_the_sum_in_order(void **state) {
  (void)state;
  static const int64_t sizes[] = {1, 17, 2048, 5001};
  static const int counts[] = {1, 2, 3, 15, 16, 40, MOST};
  for (size_t s = 0; s < 4; s++)
    for (size_t c = 0; c < 7; c++)
      for (int add = 0; add < 2; add++) {
        int64_t n = sizes[s];
        int count = counts[c];
        struct sl__tensor *terms[MOST];
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
        struct sl__tensor *out = tensor(SL_SHAPE(n), old);
        OK(sl__reduce(context, add ? &adding : &plain, out, count, terms));
        assert_near("sum", take(out), want, n, 0, 0);
        for (int t = 0; t < count; t++) sl__tensor_free(terms[t]);
        free(old), free(want), free(sum);
      }
}

static void square_sum_is_exact(void **state) {
  (void)state;
  static const int64_t sizes[] = {1, 15, 16, 1001, 100000, 5000003};
  for (size_t s = 0; s < 6; s++) {
    double *x = random_values(sizes[s], 1), want = dot(x, x, sizes[s]);
    struct sl__tensor *tx = tensor(SL_SHAPE(sizes[s]), x), *sum = tensor(SL_SHAPE(1), NULL);
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
  struct sl__tensor *ta = tensor(SL_SHAPE(n), a), *tb = tensor(SL_SHAPE(n), b),
                    *y = tensor(SL_SHAPE(n), NULL);
  OK(sl__add(context, &plain, ta, tb, y, false));
  for (int64_t i = 0; i < n; i++) want[i] = a[i] + b[i];
  OK(sl__axpy(context, &adding, -0.5f, ta, y));
  for (int64_t i = 0; i < n; i++) want[i] -= 0.5 * a[i];
  assert_near("a + b - a/2", take(y), want, n, 2, 2);
  struct sl__tensor *copy = tensor(SL_SHAPE(n), b), *full = tensor(SL_SHAPE(n), b);
  OK(sl__axpy(context, &plain, 1, ta, copy));
  assert_near("copy", take(copy), a, n, 0, 0);
  OK(sl__fill(context, &plain, full, -2.5f));
  for (int64_t i = 0; i < n; i++) want[i] = -2.5;
  assert_near("fill", take(full), want, n, 0, 0);
  sl__tensor_free(ta);
  sl__tensor_free(tb);
  free(a), free(b), free(want);
}

/* relu(a + b), and both gradients; an output of 0 has none. */
static void sums_with_a_relu(void **state) {
  (void)state;
  int64_t n = 1003;
  double *a = random_values(n, 1), *b = random_values(n, 2), *dy = random_values(n, 3),
         *old = random_values(n, 4), *want = zeros(n), *slope = zeros(n);
  for (int64_t i = 0; i < n; i += 5) b[i] = -a[i];
  for (int types = 0; types < 2; types++)
    for (int add = 0; add < 2; add++) {
      struct sl__tensor *(*make)(struct sl_shape, const double *) = types ? bf16_tensor : tensor;
      if (types) round_bf16(a, n), round_bf16(b, n), round_bf16(dy, n), round_bf16(old, n);
      struct sl__tensor *ta = make(SL_SHAPE(n), a), *tb = make(SL_SHAPE(n), b),
                        *y = make(SL_SHAPE(n), NULL), *tdy = make(SL_SHAPE(n), dy),
                        *da = make(SL_SHAPE(n), old), *db = make(SL_SHAPE(n), old);
      OK(sl__add(context, &plain, ta, tb, y, true));
      OK(sl__add_relu_backward(context, add ? &adding : &plain, y, tdy, da, db));
      for (int64_t i = 0; i < n; i++) {
        want[i] = fmax(a[i] + b[i], 0);
        slope[i] = (add ? old[i] : 0) + (a[i] + b[i] > 0 ? dy[i] : 0);
      }
      (types ? assert_near_bf16 : assert_near)("relu(a + b)", take(y), want, n, 2, 2);
      (types ? assert_near_bf16 : assert_near)("da", take(da), slope, n, 2, 2);
      (types ? assert_near_bf16 : assert_near)("db", take(db), slope, n, 2, 2);
      sl__tensor_free(ta), sl__tensor_free(tb), sl__tensor_free(tdy);
    }
  free(a), free(b), free(dy), free(old), free(want), free(slope);
}

/* Any mixture of types; a change of type is an axpy. */
static void bf16_tensors_match(void **state) {
  (void)state;
  int64_t n = 1003;
  double *a = round_bf16(random_values(n, 1), n), *b = round_bf16(random_values(n, 2), n),
         *want = zeros(n);
  for (int types = 0; types < 4; types++)
    for (int add = 0; add < 2; add++) {
      bool from = types & 1, to = types & 2;
      struct sl__tensor *x = (from ? bf16_tensor : tensor)(SL_SHAPE(n), a),
                        *y = (to ? bf16_tensor : tensor)(SL_SHAPE(n), b);
      OK(sl__axpy(context, add ? &adding : &plain, 0.3f, x, y));
      for (int64_t i = 0; i < n; i++) want[i] = (double)0.3f * a[i] + (add ? b[i] : 0);
      (to ? assert_near_bf16 : assert_near)("axpy", take(y), want, n, 2, 2);
      sl__tensor_free(x);
    }
  struct sl__tensor *ta = bf16_tensor(SL_SHAPE(n), a), *tb = bf16_tensor(SL_SHAPE(n), b),
                    *sum = bf16_tensor(SL_SHAPE(n), NULL), *full = bf16_tensor(SL_SHAPE(n), a);
  OK(sl__add(context, &plain, ta, tb, sum, false));
  OK(sl__fill(context, &plain, full, 0.3f));
  for (int64_t i = 0; i < n; i++) want[i] = a[i] + b[i];
  assert_near_bf16("bf16 sum", take(sum), want, n, 2, 2);
  for (int64_t i = 0; i < n; i++) want[i] = (double)sl__bf16_value(sl__bf16_code(0.3f));
  assert_near("bf16 fill", take(full), want, n, 0, 0);
  sl__tensor_free(ta), sl__tensor_free(tb);
  free(a), free(b), free(want);
}

static void tensors_may_begin_anywhere(void **state) {
  (void)state;
  int64_t n = 4099;
  double *x = round_bf16(random_values(n, 1), n), *want = zeros(n), square = 0;
  struct displaced part = displaced(SL_SHAPE(n), x, SL_F32),
                   half = displaced(SL_SHAPE(n), x, SL_BF16);
  struct sl__tensor *tx = tensor(SL_SHAPE(n), x), *sum = tensor(SL_SHAPE(1), NULL),
                    *copy = tensor(SL_SHAPE(n), NULL), *y = bf16_tensor(SL_SHAPE(n), NULL);
  OK(sl__reduce(context, &adding, &part.tensor, 1, &tx));
  OK(sl__square_sum(context, &plain, &part.tensor, sum));
  OK(sl__axpy(context, &plain, 0.5f, &part.tensor, copy));
  OK(sl__add(context, &plain, &half.tensor, &half.tensor, y, false));
  for (int64_t i = 0; i < n; i++) {
    want[i] = 2 * x[i];
    square += want[i] * want[i];
  }
  assert_near("half of x + x", take(copy), x, n, 0, 0);
  assert_near("their squares", take(sum), &square, 1, 0, square);
  assert_near("bf16 x + x", take(y), want, n, 0, 0);
  sl__tensor_free(tx);
  put_back(&part), put_back(&half);
  free(x), free(want);
}

static void shapes_are_checked(void **state) {
  (void)state;
  struct sl__tensor *a = tensor(SL_SHAPE(4), NULL), *b = tensor(SL_SHAPE(5), NULL);
  assert_int_equal(sl__add(context, &plain, a, a, b, false), SL_BAD_SHAPE);
  assert_int_equal(sl__add_relu_backward(context, &plain, a, a, a, b), SL_BAD_SHAPE);
  assert_int_equal(sl__axpy(context, &plain, 1, a, b), SL_BAD_SHAPE);
  assert_int_equal(sl__reduce(context, &plain, a, 1, &b), SL_BAD_SHAPE);
  assert_int_equal(sl__reduce(context, &plain, a, 0, &b), SL_BAD_ARGUMENT);
  assert_int_equal(sl__square_sum(context, &plain, a, b), SL_BAD_SHAPE);
  sl__tensor_free(a);
  sl__tensor_free(b);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(reduction_is_the_sum_in_order),
                                     cmocka_unit_test(square_sum_is_exact),
                                     cmocka_unit_test(elementwise_operations),
                                     cmocka_unit_test(sums_with_a_relu),
                                     cmocka_unit_test(bf16_tensors_match),
                                     cmocka_unit_test(tensors_may_begin_anywhere),
                                     cmocka_unit_test(shapes_are_checked)};
  return cmocka_run_group_tests_name("reduce", tests, open_operations, close_context);
}
