/* Dense forward and backward against naive double-precision sums and finite differences. Hard
 * shapes: one of everything, odd sizes, a batch of one, samples with several axes, no bias, every
 * fused activation, accumulation. */
#include "check.h"

struct dense {
  int64_t rows, in, out;
  bool bias;
  enum sl_activation activation;
  const double *x, *param, *dy;
};

static double activate(enum sl_activation a, double v) {
  switch (a) {
    case SL_ACTIVATION_RELU: return v > 0 ? v : 0;
    case SL_ACTIVATION_TANH: return tanh(v);
    case SL_ACTIVATION_SIGMOID: return 1 / (1 + exp(-v));
    default: return v;
  }
}

static void forward(const struct dense *d, double *y) {
  for (int64_t n = 0; n < d->rows; n++)
    for (int64_t o = 0; o < d->out; o++) {
      double sum = d->bias ? d->param[d->out * d->in + o] : 0;
      for (int64_t i = 0; i < d->in; i++) sum += d->x[n * d->in + i] * d->param[o * d->in + i];
      y[n * d->out + o] = activate(d->activation, sum);
    }
}

/* <dy, y> as a function of x, or of the parameters. */
static double of_x(const double *x, void *data) {
  struct dense d = *(struct dense *)data;
  double *y = zeros(d.rows * d.out);
  d.x = x;
  forward(&d, y);
  double sum = dot(y, d.dy, d.rows * d.out);
  free(y);
  return sum;
}

static double of_param(const double *param, void *data) {
  struct dense d = *(struct dense *)data;
  d.param = param;
  return of_x(d.x, &d);
}

static const struct dense cases[] = {
    {1, 1, 1, true, SL_ACTIVATION_NONE},     {1, 7, 3, true, SL_ACTIVATION_TANH},
    {5, 1, 2, false, SL_ACTIVATION_RELU},    {33, 17, 9, true, SL_ACTIVATION_SIGMOID},
    {64, 100, 10, true, SL_ACTIVATION_NONE}, {3, 260, 31, false, SL_ACTIVATION_TANH},
    {20, 13, 129, true, SL_ACTIVATION_RELU}};
#define CASES (sizeof cases / sizeof *cases)

static void check_forward_is_the_sum(void) {
  for (size_t c = 0; c < CASES; c++) {
    struct dense d = cases[c];
    int64_t count = d.out * (d.in + d.bias);
    double *x = random_values(d.rows * d.in, 1), *param = random_values(count, 2),
           *want = zeros(d.rows * d.out);
    d.x = x;
    d.param = param;
    forward(&d, want);
    struct sl_tensor *tx = tensor(SL_SHAPE(d.rows, d.in), x), *tp = tensor(SL_SHAPE(count), param);
    struct sl_tensor *ty = tensor(SL_SHAPE(d.rows, d.out), NULL);
    OK(sl__dense_forward(context, &plain, tx, tp, ty, d.bias, d.activation));
    assert_near("y", take(ty), want, d.rows * d.out, (double)d.in, 1);
    sl__tensor_free(tx);
    sl__tensor_free(tp);
    free(x);
    free(param);
    free(want);
  }
}

/* The backward halves know no activation: it is undone before them (test_activation.c). */
static void check_backward_is_the_gradient(void) {
  for (size_t c = 0; c < CASES; c++)
    for (int add = 0; add < 2; add++) {
      struct dense d = cases[c];
      d.activation = SL_ACTIVATION_NONE;
      int64_t count = d.out * (d.in + d.bias), xs = d.rows * d.in, ys = d.rows * d.out;
      double *x = random_values(xs, 1), *param = random_values(count, 2),
             *dy = random_values(ys, 3);
      double *old_x = random_values(xs, 4), *old_g = random_values(count, 5);
      d.x = x;
      d.param = param;
      d.dy = dy;
      struct sl_tensor *tx = tensor(SL_SHAPE(d.rows, d.in), x),
                       *tp = tensor(SL_SHAPE(count), param);
      struct sl_tensor *tdy = tensor(SL_SHAPE(d.rows, d.out), dy);
      struct sl_tensor *tdx = tensor(SL_SHAPE(d.rows, d.in), old_x),
                       *tg = tensor(SL_SHAPE(count), old_g);
      OK(sl__dense_backward_data(context, add ? &adding : &plain, tdy, tp, tdx));
      OK(sl__dense_backward_weight(context, add ? &adding : &plain, tx, tdy, tg, d.bias));
      double *dx = take(tdx), *grad = take(tg);
      for (int64_t i = 0; add && i < xs; i++) dx[i] -= old_x[i];
      for (int64_t i = 0; add && i < count; i++) grad[i] -= old_g[i];
      assert_slope("dx", of_x, &d, x, dx, xs);
      assert_slope("grad", of_param, &d, param, grad, count);
      sl__tensor_free(tx);
      sl__tensor_free(tp);
      sl__tensor_free(tdy);
      free(dx), free(grad), free(x), free(param), free(dy), free(old_x), free(old_g);
    }
}

/* Weight and bias in tensors of their own, and the bias's gradient on its own. */
static void check_shared_is_the_sum(void) {
  for (size_t c = 0; c < CASES; c++) {
    struct dense d = cases[c];
    d.bias = true;
    int64_t weights = d.out * d.in, ys = d.rows * d.out;
    double *x = random_values(d.rows * d.in, 1), *param = random_values(weights + d.out, 2);
    double *dy = random_values(ys, 3), *want = zeros(ys), *sums = random_values(d.out, 4);
    d.x = x;
    d.param = param;
    forward(&d, want);
    struct sl_tensor *tx = tensor(SL_SHAPE(d.rows, d.in), x),
                     *tdy = tensor(SL_SHAPE(ys / d.out, d.out), dy);
    struct sl_tensor *weight = tensor(SL_SHAPE(weights), param);
    struct sl_tensor *bias = tensor(SL_SHAPE(d.out), param + weights);
    struct sl_tensor *ty = tensor(SL_SHAPE(d.rows, d.out), NULL);
    struct sl_tensor *grad = tensor(SL_SHAPE(d.out), sums);
    OK(sl__dense_shared_forward(context, &plain, tx, weight, bias, ty, d.activation));
    assert_near("y", take(ty), want, ys, (double)d.in, 1);
    OK(sl__bias_backward(context, &adding, tdy, grad));
    for (int64_t i = 0; i < ys; i++) sums[i % d.out] += dy[i];
    assert_near("bias", take(grad), sums, d.out, (double)d.rows, (double)d.rows);
    sl__tensor_free(tx);
    sl__tensor_free(tdy);
    sl__tensor_free(weight);
    sl__tensor_free(bias);
    free(x), free(param), free(dy), free(want), free(sums);
  }
}

static void shapes_are_checked(void **state) {
  (void)state;
  struct sl_tensor *x = tensor(SL_SHAPE(4, 3, 2), NULL), *param = tensor(SL_SHAPE(5 * 7), NULL);
  struct sl_tensor *y = tensor(SL_SHAPE(4, 5), NULL), *y3 = tensor(SL_SHAPE(3, 5), NULL);
  OK(sl__dense_forward(context, &plain, x, param, y, true,
                       SL_ACTIVATION_NONE)); /* [3, 2] counts as 6 */
  assert_int_equal(sl__dense_forward(context, &plain, x, param, y, false, SL_ACTIVATION_NONE),
                   SL_BAD_SHAPE);
  assert_int_equal(sl__dense_forward(context, &plain, x, param, y3, true, SL_ACTIVATION_NONE),
                   SL_BAD_SHAPE);
  assert_int_equal(sl__dense_backward_data(context, &plain, y3, param, x), SL_BAD_SHAPE);
  assert_int_equal(sl__dense_backward_weight(context, &plain, x, y3, param, true), SL_BAD_SHAPE);
  sl__tensor_free(x);
  sl__tensor_free(param);
  sl__tensor_free(y);
  sl__tensor_free(y3);
}

EACH_IMPLEMENTATION(forward_is_the_sum, check_forward_is_the_sum)

EACH_IMPLEMENTATION(shared_is_the_sum, check_shared_is_the_sum)

EACH_IMPLEMENTATION(backward_is_the_gradient, check_backward_is_the_gradient)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(forward_is_the_sum), cmocka_unit_test(shared_is_the_sum),
      cmocka_unit_test(backward_is_the_gradient), cmocka_unit_test(shapes_are_checked)};
  return cmocka_run_group_tests_name("dense", tests, open_context, close_context);
}
