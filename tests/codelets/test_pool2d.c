/* Max and average pooling against naive loops in double precision; the average's gradient by finite
 * differences, the maximum's by the rule (each output's gradient goes to the first largest value).
 * bf16 against the same loops. Hard shapes: 2x2 (a path of its own), windows of many values,
 * overlapping and spread windows, padding, sizes that the windows do not fill. */
#include "tests/common/check.h"

struct pool {
  int planes, h, w;
  struct sl__pool2d o;
  const double *dy;
  bool half; /* bf16 */
};

static int out_h(const struct pool *v) {
  return (v->h + 2 * v->o.pad_h - v->o.kernel_h) / v->o.stride_h + 1;
}
static int out_w(const struct pool *v) {
  return (v->w + 2 * v->o.pad_w - v->o.kernel_w) / v->o.stride_w + 1;
}
static int64_t x_count(const struct pool *v) { return (int64_t)v->planes * v->h * v->w; }
static int64_t y_count(const struct pool *v) { return (int64_t)v->planes * out_h(v) * out_w(v); }

static const struct pool cases[] = {
    {1, 1, 1, {1, 1, 1, 1, 0, 0}},   {6, 24, 24, {2, 2, 2, 2, 0, 0}},
    {2, 7, 9, {2, 2, 2, 2, 0, 0}},   {4, 8, 8, {3, 3, 1, 1, 1, 1}},
    {2, 9, 7, {3, 2, 2, 3, 0, 1}},   {2, 5, 6, {2, 2, 3, 4, 0, 0}},
    {3, 6, 6, {6, 6, 6, 6, 0, 0}},   {2, 5, 5, {3, 3, 2, 2, 2, 2}},
    {40, 3, 70, {2, 2, 2, 2, 0, 0}}, {3, 7, 16, {2, 2, 2, 2, 0, 0}},
    {2, 12, 10, {7, 6, 3, 2, 3, 2}}};
#define CASES (sizeof cases / sizeof *cases)

/* Visits output (p, oh, ow): its sum, and where its first largest value is; each of its inputs gets
 * the share. */
static void look(const struct pool *v, const double *x, int p, int oh, int ow, double *sum,
                 int64_t *largest, double share, double *shares) {
  *sum = 0;
  *largest = -1;
  for (int r = 0; r < v->o.kernel_h; r++)
    for (int s = 0; s < v->o.kernel_w; s++) {
      int h = oh * v->o.stride_h - v->o.pad_h + r, w = ow * v->o.stride_w - v->o.pad_w + s;
      if (h < 0 || w < 0 || h >= v->h || w >= v->w) continue;
      int64_t at = ((int64_t)p * v->h + h) * v->w + w;
      *sum += x[at];
      if (shares) shares[at] += share;
      if (*largest < 0 || x[at] > x[*largest]) *largest = at;
    }
}

static void reference(const struct pool *v, const double *x, double *max, double *average,
                      double *max_dx, double *average_dx) {
  int64_t i = 0, at;
  double sum, area = v->o.kernel_h * v->o.kernel_w;
  for (int p = 0; p < v->planes; p++)
    for (int oh = 0; oh < out_h(v); oh++)
      for (int ow = 0; ow < out_w(v); ow++, i++) {
        look(v, x, p, oh, ow, &sum, &at, v->dy[i] / area, average_dx);
        if (max) max[i] = x[at];
        if (average) average[i] = sum / area;
        if (max_dx) max_dx[at] += v->dy[i];
      }
}

static double average_of_x(const double *x, void *data) {
  const struct pool *v = data;
  double *y = zeros(y_count(v));
  reference(v, x, NULL, y, NULL, NULL);
  double sum = dot(y, v->dy, y_count(v));
  free(y);
  return sum;
}

static struct sl__tensor *image(const struct pool *v, const double *x) {
  return (v->half ? bf16_tensor : tensor)(SL_SHAPE(1, v->planes, v->h, v->w), x);
}
static struct sl__tensor *result(const struct pool *v, const double *y) {
  return (v->half ? bf16_tensor : tensor)(SL_SHAPE(1, v->planes, out_h(v), out_w(v)), y);
}

static void pools_match_the_reference(void **state) {
  (void)state;
  for (size_t c = 0; c < CASES; c++)
    for (int add = 0; add < 2; add++) {
      struct pool v = cases[c];
      int64_t xs = x_count(&v), ys = y_count(&v);
      const struct sl__launch *l = add ? &adding : &plain;
      double *x = random_values(xs, 1), *dy = random_values(ys, 2), *old = random_values(xs, 3);
      double *max = zeros(ys), *average = zeros(ys), *max_dx = zeros(xs);
      for (int64_t i = 0; i < xs; i++) x[i] = round(x[i] * 4) / 4; /* many equal values */
      v.dy = dy;
      for (int64_t i = 0; add && i < xs; i++) max_dx[i] = old[i];
      reference(&v, x, max, average, max_dx, NULL);
      struct sl__tensor *tx = image(&v, x), *ty = result(&v, NULL), *ta = result(&v, NULL),
                        *tdy = result(&v, dy);
      struct sl__tensor *index = integers(ty->shape, NULL), *dmax = image(&v, old),
                        *daverage = image(&v, old);
      OK(sl__maxpool2d_forward(context, &plain, tx, ty, index, &v.o));
      OK(sl__avgpool2d_forward(context, &plain, tx, ta, &v.o));
      OK(sl__maxpool2d_backward(context, l, tdy, index, dmax, &v.o));
      OK(sl__avgpool2d_backward(context, l, tdy, daverage, &v.o));
      assert_near("maximum", take(ty), max, ys, 0, 0);
      assert_near("average", take(ta), average, ys, 42, 1);
      assert_near("gradient of the maximum", take(dmax), max_dx, xs, 9, 1);
      double *dx = take(daverage);
      for (int64_t i = 0; add && i < xs; i++) dx[i] -= old[i];
      assert_slope("gradient of the average", average_of_x, &v, x, dx, xs);
      sl__tensor_free(tx);
      sl__tensor_free(tdy);
      sl__tensor_free(index);
      free(dx), free(x), free(dy), free(old), free(max), free(average), free(max_dx);
    }
}

static void halves_match_the_reference(void **state) {
  (void)state;
  for (size_t c = 0; c < CASES; c++)
    for (int add = 0; add < 2; add++) {
      struct pool v = cases[c];
      int64_t xs = x_count(&v), ys = y_count(&v);
      const struct sl__launch *l = add ? &adding : &plain;
      double *x = round_bf16(random_values(xs, 1), xs), *dy = round_bf16(random_values(ys, 2), ys),
             *old = round_bf16(random_values(xs, 3), xs);
      double *max = zeros(ys), *average = zeros(ys), *max_dx = zeros(xs), *average_dx = zeros(xs);
      v.dy = dy, v.half = true;
      for (int64_t i = 0; add && i < xs; i++) max_dx[i] = average_dx[i] = old[i];
      reference(&v, x, max, average, max_dx, average_dx);
      struct sl__tensor *tx = image(&v, x), *ty = result(&v, NULL), *ta = result(&v, NULL),
                        *tdy = result(&v, dy);
      struct sl__tensor *index = integers(ty->shape, NULL), *dmax = image(&v, old),
                        *daverage = image(&v, old);
      OK(sl__maxpool2d_forward(context, &plain, tx, ty, index, &v.o));
      OK(sl__avgpool2d_forward(context, &plain, tx, ta, &v.o));
      OK(sl__maxpool2d_backward(context, l, tdy, index, dmax, &v.o));
      OK(sl__avgpool2d_backward(context, l, tdy, daverage, &v.o));
      assert_near("maximum", take(ty), max, ys, 0, 0);
      assert_near_bf16("average", take(ta), average, ys, 42, 1);
      assert_near_bf16("gradient of the maximum", take(dmax), max_dx, xs, 42, 4);
      assert_near_bf16("gradient of the average", take(daverage), average_dx, xs, 42, 4);
      sl__tensor_free(tx);
      sl__tensor_free(tdy);
      sl__tensor_free(index);
      free(x), free(dy), free(old), free(max), free(average), free(max_dx), free(average_dx);
    }
}

/* Four windows side by side; only the one that has the NaN shows it. */
static void a_nan_is_not_lost(void **state) {
  (void)state;
  for (int kernel = 2; kernel <= 3; kernel++)
    for (int at = 0; at < 4 * kernel * kernel; at++) {
      struct pool v = {1, kernel, 4 * kernel, {kernel, kernel, kernel, kernel, 0, 0}, NULL, false};
      double x[36];
      for (int i = 0; i < 36; i++) x[i] = i;
      x[at] = NAN;
      struct sl__tensor *tx = image(&v, x), *ty = result(&v, NULL),
                        *index = integers(ty->shape, NULL);
      OK(sl__maxpool2d_forward(context, &plain, tx, ty, index, &v.o));
      double *y = take(ty);
      for (int i = 0; i < 4; i++) assert_int_equal(isnan(y[i]) != 0, at / kernel % 4 == i);
      free(y);
      sl__tensor_free(tx);
      sl__tensor_free(index);
    }
}

static void a_whole_picture_keeps_its_digits(void **state) {
  (void)state;
  enum { SIDE = 301 };
  const struct sl__pool2d o = {SIDE, SIDE, 1, 1, 0, 0};
  const double want = (double)0.7f;
  double *x = zeros(SIDE * SIDE);
  for (int i = 0; i < SIDE * SIDE; i++) x[i] = want;
  struct sl__tensor *tx = tensor(SL_SHAPE(1, 1, SIDE, SIDE), x),
                    *ty = tensor(SL_SHAPE(1, 1, 1, 1), NULL);
  OK(sl__avgpool2d_forward(context, &plain, tx, ty, &o));
  assert_near("average", take(ty), &want, 1, 10, 1);
  sl__tensor_free(tx);
  free(x);
}

static void shapes_are_checked(void **state) {
  (void)state;
  struct sl__pool2d o = {2, 2, 2, 2, 0, 0}, wide = {2, 2, 2, 2, 2, 0};
  struct sl__tensor *x = tensor(SL_SHAPE(1, 2, 6, 6), NULL),
                    *y = tensor(SL_SHAPE(1, 2, 3, 3), NULL);
  struct sl__tensor *off = tensor(SL_SHAPE(1, 2, 3, 4), NULL), *index = integers(off->shape, NULL);
  assert_int_equal(sl__maxpool2d_forward(context, &plain, x, y, index, &o), SL_BAD_SHAPE);
  assert_int_equal(sl__maxpool2d_forward(context, &plain, x, off, index, &o), SL_BAD_SHAPE);
  assert_int_equal(sl__maxpool2d_backward(context, &plain, y, index, x, &o), SL_BAD_SHAPE);
  assert_int_equal(sl__avgpool2d_forward(context, &plain, x, off, &o), SL_BAD_SHAPE);
  assert_int_equal(sl__avgpool2d_forward(context, &plain, x, y, &wide), SL_BAD_SHAPE);
  assert_int_equal(sl__avgpool2d_backward(context, &plain, off, x, &o), SL_BAD_SHAPE);
  sl__tensor_free(x);
  sl__tensor_free(y);
  sl__tensor_free(off);
  sl__tensor_free(index);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pools_match_the_reference), cmocka_unit_test(halves_match_the_reference),
      cmocka_unit_test(a_nan_is_not_lost), cmocka_unit_test(a_whole_picture_keeps_its_digits),
      cmocka_unit_test(shapes_are_checked)};
  return cmocka_run_group_tests_name("pool2d", tests, open_operations, close_context);
}
