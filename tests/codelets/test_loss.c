/* Softmax cross-entropy and accuracy against double precision and finite differences. Hard input:
 * ignored labels, labels outside, logits that overflow a careless exp, one class, ties. */
#include "tests/common/check.h"

struct loss {
  int64_t rows, classes;
  const int32_t *labels;
  double scale;
};

static bool counts(const struct loss *v, int64_t n) {
  return v->labels[n] >= 0 && v->labels[n] < v->classes;
}

static double sum_of_losses(const double *z, const struct loss *v) {
  double sum = 0;
  for (int64_t n = 0; n < v->rows; n++) {
    if (!counts(v, n)) continue;
    const double *row = z + n * v->classes;
    double most = row[0], total = 0;
    for (int64_t c = 1; c < v->classes; c++) most = fmax(most, row[c]);
    for (int64_t c = 0; c < v->classes; c++) total += exp(row[c] - most);
    sum += log(total) + most - row[v->labels[n]];
  }
  return sum;
}

static double scaled_loss(const double *z, void *data) {
  const struct loss *v = data;
  return v->scale * sum_of_losses(z, v);
}

static void gradient_of(const double *z, const struct loss *v, double *gradient) {
  for (int64_t n = 0; n < v->rows; n++) {
    if (!counts(v, n)) continue;
    const double *row = z + n * v->classes;
    double *out = gradient + n * v->classes, total = 0;
    for (int64_t c = 0; c < v->classes; c++) total += exp(row[c]);
    for (int64_t c = 0; c < v->classes; c++) out[c] = v->scale * exp(row[c]) / total;
    out[v->labels[n]] -= v->scale;
  }
}

/* rank of the label's logit, the first of equals first */
static int64_t right_within(const double *z, const struct loss *v, int top) {
  int64_t right = 0;
  for (int64_t n = 0; n < v->rows; n++) {
    if (!counts(v, n)) continue;
    const double *row = z + n * v->classes;
    int64_t before = 0;
    for (int64_t c = 0; c < v->classes; c++)
      before += row[c] > row[v->labels[n]] || (row[c] == row[v->labels[n]] && c < v->labels[n]);
    right += before < top;
  }
  return right;
}

/* bf16: the logits, and their gradient is rounded to it. */
static void check(int64_t rows, int64_t classes, double size, bool odd_labels, bool bf16) {
  struct sl__tensor *(*logits)(struct sl_shape, const double *) = bf16 ? bf16_tensor : tensor;
  int32_t *labels = calloc((size_t)rows, sizeof *labels);
  struct loss v = {rows, classes, labels, 0.125};
  double *z = random_values(rows * classes, 7), outside = 0, counted = 0;
  for (int64_t i = 0; i < rows * classes; i++) z[i] = (double)(float)(z[i] * size);
  if (bf16) round_bf16(z, rows * classes);
  for (int64_t n = 0; n < rows; n++) {
    labels[n] = (int32_t)((n * 7 + 1) % classes);
    if (odd_labels && n % 5 == 1) labels[n] = SL_IGNORE;
    if (odd_labels && n % 5 == 3) labels[n] = n % 2 ? (int32_t)classes : -7;
    outside += !counts(&v, n) && labels[n] != SL_IGNORE;
    counted += counts(&v, n);
  }
  struct sl__tensor *tz = logits(SL_SHAPE(rows, classes), z),
                    *tl = integers(SL_SHAPE(rows), labels);
  struct sl__tensor *stats = tensor(SL_SHAPE(4), NULL), *alone = tensor(SL_SHAPE(4), NULL);
  struct sl__tensor *dz = logits(SL_SHAPE(rows, classes), z), *top = tensor(SL_SHAPE(2), NULL);
  OK(sl__softmax_xent(context, &plain, tz, tl, stats, dz, (float)v.scale, 0));
  OK(sl__softmax_xent(context, &plain, tz, tl, alone, NULL, 0, 0));
  OK(sl__accuracy(context, &plain, tz, tl, top, 2));
  double want[4] = {sum_of_losses(z, &v), (double)right_within(z, &v, 1), counted, outside};
  double want_top[2] = {(double)right_within(z, &v, 2), counted};
  assert_near("stats", take(stats), want, 4, 20, 1 + want[0]);
  assert_near("stats without a gradient", take(alone), want, 4, 20, 1 + want[0]);
  assert_near("accuracy", take(top), want_top, 2, 0, 0);
  double *gradient = take(dz);
  if (bf16) {
    double *exact = zeros(rows * classes);
    gradient_of(z, &v, exact);
    assert_near_bf16("bf16 dlogits", gradient, exact, rows * classes, 20, v.scale);
    free(exact);
  } else {
    assert_slope("dlogits", scaled_loss, &v, z, gradient, rows * classes);
    free(gradient);
  }
  sl__tensor_free(tz);
  sl__tensor_free(tl);
  free(z), free(labels);
}

static void loss_matches(void **state) {
  (void)state;
  check(1, 1, 1, false, false);
  check(1, 10, 3, false, false);
  check(37, 10, 5, true, false);
  check(200, 6, 5, true, false); /* many right answers, of each class */
  check(8, 1001, 2, true, false);
  check(7, 3001, 2, true, false);   /* on a GPU a block's row */
  check(2, 10500, 2, false, false); /* one that its memory cannot hold */
}

/* Row n has its largest logit at n, and once more behind it. */
static void first_of_equals_counts(void **state) {
  (void)state;
  enum { ROWS = 299 };
  double *z = zeros(ROWS * (ROWS + 1));
  int32_t labels[ROWS];
  for (int turn = 0; turn < 2; turn++) { /* the first of the two, then the second */
    for (int n = 0; n < ROWS; n++) {
      z[n * (ROWS + 1) + n] = z[n * (ROWS + 1) + ROWS] = 3;
      labels[n] = turn ? ROWS : n;
    }
    struct sl__tensor *tz = tensor(SL_SHAPE(ROWS, ROWS + 1), z);
    struct sl__tensor *tl = integers(SL_SHAPE(ROWS), labels), *stats = tensor(SL_SHAPE(4), NULL);
    OK(sl__softmax_xent(context, &plain, tz, tl, stats, NULL, 1, 0));
    double *s = take(stats);
    assert_int_equal((int)s[1], turn ? 0 : ROWS);
    free(s);
    sl__tensor_free(tz);
    sl__tensor_free(tl);
  }
  free(z);
}

static void bf16_logits_match(void **state) {
  (void)state;
  check(37, 10, 5, true, true);
  check(5, 1001, 2, true, true);
  check(5, 3001, 2, true, true);
}

static void huge_logits_do_not_overflow(void **state) {
  (void)state;
  double z[] = {1e30, -1e30, 0, 3e4, 3e4 - 1, 0}, want[4] = {0 + log(1 + exp(-1)), 2, 2, 0};
  int32_t labels[] = {0, 0};
  struct sl__tensor *tz = tensor(SL_SHAPE(2, 3), z), *tl = integers(SL_SHAPE(2), labels);
  struct sl__tensor *stats = tensor(SL_SHAPE(4), NULL), *dz = tensor(SL_SHAPE(2, 3), NULL);
  OK(sl__softmax_xent(context, &plain, tz, tl, stats, dz, 1, 0));
  assert_near("stats", take(stats), want, 4, 4, 1);
  double *g = take(dz);
  for (int i = 0; i < 6; i++) assert_true(isfinite(g[i]));
  free(g);
  sl__tensor_free(tz);
  sl__tensor_free(tl);
}

static void nan_reaches_the_loss(void **state) {
  (void)state;
  double z[] = {0, NAN, 1};
  int32_t label = 0;
  struct sl__tensor *tz = tensor(SL_SHAPE(1, 3), z), *tl = integers(SL_SHAPE(1), &label);
  struct sl__tensor *stats = tensor(SL_SHAPE(4), NULL);
  OK(sl__softmax_xent(context, &plain, tz, tl, stats, NULL, 1, 0));
  double *s = take(stats);
  assert_true(isnan(s[0]));
  free(s);
  sl__tensor_free(tz);
  sl__tensor_free(tl);
}

static void shapes_are_checked(void **state) {
  (void)state;
  struct sl__tensor *z = tensor(SL_SHAPE(4, 3), NULL), *l = integers(SL_SHAPE(5), NULL),
                    *l4 = integers(SL_SHAPE(4), NULL);
  struct sl__tensor *stats = tensor(SL_SHAPE(4), NULL), *two = tensor(SL_SHAPE(2), NULL);
  assert_int_equal(sl__softmax_xent(context, &plain, z, l, stats, NULL, 1, 0), SL_BAD_SHAPE);
  assert_int_equal(sl__softmax_xent(context, &plain, z, l4, two, NULL, 1, 0), SL_BAD_SHAPE);
  assert_int_equal(sl__softmax_xent(context, &plain, z, l4, stats, stats, 1, 0), SL_BAD_SHAPE);
  assert_int_equal(sl__accuracy(context, &plain, z, l, two, 1), SL_BAD_SHAPE);
  assert_int_equal(sl__accuracy(context, &plain, z, l4, two, 0), SL_BAD_ARGUMENT);
  struct sl__tensor *t[] = {z, l, l4, stats, two};
  for (int i = 0; i < 5; i++) sl__tensor_free(t[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(loss_matches),         cmocka_unit_test(first_of_equals_counts),
      cmocka_unit_test(bf16_logits_match),    cmocka_unit_test(huge_logits_do_not_overflow),
      cmocka_unit_test(nan_reaches_the_loss), cmocka_unit_test(shapes_are_checked)};
  return cmocka_run_group_tests_name("loss", tests, open_operations, close_context);
}
