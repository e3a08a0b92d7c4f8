/* Dense forward and backward against naive double-precision sums and finite differences. Hard
 * shapes: one of everything, odd sizes, a batch of one, samples with several axes, no bias, every
 * fused activation, accumulation; rows and outputs enough for sums in parts; bf16; rows whose bits
 * do not depend on their number; outputs in several blocks; bias gradients whose bits do not depend
 * on alignment. */
#include "tests/common/displaced.h"
#include "tests/common/every.h"
#include "tests/common/products.h"

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
    struct sl__tensor *tx = tensor(SL_SHAPE(d.rows, d.in), x), *tp = tensor(SL_SHAPE(count), param);
    struct sl__tensor *ty = tensor(SL_SHAPE(d.rows, d.out), NULL);
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
      struct sl__tensor *tx = tensor(SL_SHAPE(d.rows, d.in), x),
                        *tp = tensor(SL_SHAPE(count), param);
      struct sl__tensor *tdy = tensor(SL_SHAPE(d.rows, d.out), dy);
      struct sl__tensor *tdx = tensor(SL_SHAPE(d.rows, d.in), old_x),
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
    struct sl__tensor *tx = tensor(SL_SHAPE(d.rows, d.in), x),
                      *tdy = tensor(SL_SHAPE(ys / d.out, d.out), dy);
    struct sl__tensor *weight = tensor(SL_SHAPE(weights), param);
    struct sl__tensor *bias = tensor(SL_SHAPE(d.out), param + weights);
    struct sl__tensor *ty = tensor(SL_SHAPE(d.rows, d.out), NULL);
    struct sl__tensor *grad = tensor(SL_SHAPE(d.out), sums);
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

/* dx [rows, in] and grad [out * in + out], added to their old values. */
static void backward(const struct dense *d, double *dx, double *grad) {
  for (int64_t n = 0; n < d->rows; n++)
    for (int64_t o = 0; o < d->out; o++) {
      double dy = d->dy[n * d->out + o];
      for (int64_t i = 0; i < d->in; i++) {
        dx[n * d->in + i] += dy * d->param[o * d->in + i];
        grad[o * d->in + i] += dy * d->x[n * d->in + i];
      }
      if (d->bias) grad[d->out * d->in + o] += dy;
    }
}

static void check_kind(const struct kind *k, struct dense d, bool add) {
  int64_t count = d.out * (d.in + d.bias), xs = d.rows * d.in, ys = d.rows * d.out;
  double *x = values_of(k, xs, 1), *param = values_of(k, count, 2), *dy = values_of(k, ys, 3);
  double *want = zeros(ys), *dx = values_of(k, xs, 4), *grad = random_values(count, 5);
  struct sl__launch l = launch_of(k, add);
  d.x = x, d.param = param, d.dy = dy;
  struct sl__tensor *tx = tensor_of(k, SL_SHAPE(d.rows, d.in), x),
                    *tp = tensor_of(k, SL_SHAPE(count), param),
                    *tdy = tensor_of(k, SL_SHAPE(d.rows, d.out), dy);
  struct sl__tensor *ty = tensor_of(k, SL_SHAPE(d.rows, d.out), NULL),
                    *tdx = tensor_of(k, SL_SHAPE(d.rows, d.in), dx),
                    *tg = tensor(SL_SHAPE(count), grad);
  if (!add) memset(dx, 0, (size_t)xs * sizeof *dx), memset(grad, 0, (size_t)count * sizeof *grad);
  forward(&d, want);
  backward(&d, dx, grad);
  OK(sl__dense_forward(context, &l, tx, tp, ty, d.bias, d.activation));
  OK(sl__dense_backward_data(context, &l, tdy, tp, tdx));
  OK(sl__dense_backward_weight(context, &l, tx, tdy, tg, d.bias));
  assert_sums(k, "y", ty, want, (double)d.in + stored_twice(k, want, ys));
  /* a GPU stores the sum before it adds it */
  assert_sums(k, "dx", tdx, dx, (double)d.out + (add && on_gpu() ? stored_twice(k, dx, xs) : 0));
  assert_sums(k, "grad", tg, grad, (double)d.rows);
  sl__tensor_free(tx), sl__tensor_free(tp), sl__tensor_free(tdy);
  free(x), free(param), free(dy), free(want), free(dx), free(grad);
}

static void types_agree_with_the_sums(void **state) {
  static const struct dense large[] = {{700, 8, 24, true, SL_ACTIVATION_NONE},
                                       {333, 40, 37, true, SL_ACTIVATION_SIGMOID},
                                       {1000, 3, 256, true, SL_ACTIVATION_RELU},
                                       {700, 3, 700, true, SL_ACTIVATION_TANH},
                                       {400, 2, 1290, false, SL_ACTIVATION_NONE}};
  (void)state;
  for (size_t k = 0; k < KINDS; k++)
    for (int add = 0; add < 2; add++) {
      for (size_t c = 0; c < CASES; c++) check_kind(&kinds[k], cases[c], add);
      for (size_t c = 0; c < sizeof large / sizeof *large; c += EVERY)
        check_kind(&kinds[k], large[c], add);
    }
}

/* The same of bf16 by kernels of floats, which other processors have. */
static void the_adapter_agrees_with_the_sums(void **state) {
  (void)state;
  sl__choice_force(context, SL__OWN_OPENBLAS);
  for (int add = 0; add < 2; add++)
    for (size_t c = 0; c < CASES; c++) check_kind(&kinds[KINDS - 1], cases[c], add);
  sl__choice_force(context, -1);
}

/* Weight and bias in bf16 tensors of their own; the bias's gradient, in floats. */
static void shared_halves_agree(void **state) {
  const struct kind *k = &kinds[KINDS - 1];
  struct dense d = {17, 24, 16, true, SL_ACTIVATION_TANH};
  (void)state;
  double *x = values_of(k, d.rows * d.in, 1), *param = values_of(k, d.out * (d.in + 1), 2);
  double *dy = values_of(k, d.rows * d.out, 3), *want = zeros(d.rows * d.out);
  double *sums = random_values(d.out, 4);
  d.x = x, d.param = param;
  forward(&d, want);
  struct sl__tensor *tx = tensor_of(k, SL_SHAPE(d.rows, d.in), x),
                    *weight = tensor_of(k, SL_SHAPE(d.out * d.in), param),
                    *bias = tensor_of(k, SL_SHAPE(d.out), param + d.out * d.in),
                    *ty = tensor_of(k, SL_SHAPE(d.rows, d.out), NULL),
                    *tdy = tensor_of(k, SL_SHAPE(d.rows, d.out), dy),
                    *grad = tensor(SL_SHAPE(d.out), sums);
  OK(sl__dense_shared_forward(context, &plain, tx, weight, bias, ty, d.activation));
  assert_sums(k, "y", ty, want, (double)d.in + stored_twice(k, want, d.rows * d.out));
  OK(sl__bias_backward(context, &adding, tdy, grad));
  for (int64_t i = 0; i < d.rows * d.out; i++) sums[i % d.out] += dy[i];
  assert_sums(k, "bias", grad, sums, (double)(d.rows * d.rows));
  sl__tensor_free(tx), sl__tensor_free(weight), sl__tensor_free(bias), sl__tensor_free(tdy);
  free(x), free(param), free(dy), free(want), free(sums);
}

/* The bias's gradient from tensors that begin at a multiple of 16 bytes and elsewhere: the sums,
 * and the same bits. */
static void check_bias(const struct kind *k, int64_t rows, int64_t out, bool add) {
  const struct sl__launch *l = add ? &adding : &plain;
  double *dy = values_of(k, rows * out, 3), *sums = random_values(out, 4);
  struct displaced elsewhere = displaced(SL_SHAPE(rows, out), dy, k->half ? SL_BF16 : SL_F32);
  struct sl__tensor *tdy = tensor_of(k, SL_SHAPE(rows, out), dy),
                    *grad = tensor(SL_SHAPE(out), sums), *same = tensor(SL_SHAPE(out), sums);
  OK(sl__bias_backward(context, l, tdy, grad));
  OK(sl__bias_backward(context, l, &elsewhere.tensor, same));
  if (!add) memset(sums, 0, (size_t)out * sizeof *sums);
  for (int64_t i = 0; i < rows * out; i++) sums[i % out] += dy[i];
  double *got = take(grad);
  assert_near("bias, elsewhere", take(same), got, out, 0, 0);
  assert_near("bias", got, sums, out, (double)rows, 4);
  sl__tensor_free(tdy);
  put_back(&elsewhere);
  free(dy), free(sums);
}

/* Around the numbers of rows at which a GPU sums in another way, and of columns at which it has
 * another block; odd numbers lie across multiples of 16 bytes. */
static void bias_gradients_of_any_shape(void **state) {
  static const int64_t rows[] = {1, 33, 255, 256, 257, 1023, 1024, 1025};
  static const int64_t columns[] = {1, 31, 32, 36, 64, 65};
  (void)state;
  for (size_t k = 0; k < KINDS; k += KINDS - 1) /* products may use TensorFloat-32, sums do not */
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
      for (size_t c = r % EVERY % 6; c < sizeof columns / sizeof *columns; c += EVERY)
        for (int add = 0; add < 2; add++) check_bias(&kinds[k], rows[r], columns[c], add);
  check_bias(&kinds[0], 66000, 4, true); /* parts of more rows than few have */
}

/* relu keeps what is not a number: the loss must see it. */
static void relu_keeps_nan(void **state) {
  (void)state;
  for (size_t k = 0; k < KINDS; k++) {
    double x[] = {1, NAN, -1}, param[] = {1, 0.5};
    struct sl__tensor *tx = tensor_of(&kinds[k], SL_SHAPE(3, 1), x),
                      *tp = tensor_of(&kinds[k], SL_SHAPE(2), param),
                      *ty = tensor_of(&kinds[k], SL_SHAPE(3, 1), NULL);
    OK(sl__dense_forward(context, &plain, tx, tp, ty, true, SL_ACTIVATION_RELU));
    double *y = take(ty);
    assert_true(y[0] == 1.5 && isnan(y[1]) && y[2] == 0);
    free(y);
    sl__tensor_free(tx), sl__tensor_free(tp);
  }
}

enum { INVARIANT_ROWS = 60 };

/* Rows [first, first + d->rows) of y, of y with weight and bias apart, and of dx, added to dy's
 * sum. */
static void invariant_rows(const struct kind *k, const struct dense *d, int64_t first,
                           double *const out[3]) {
  struct sl__launch l = plain, add = adding;
  int64_t weights = d->out * d->in, rows = d->rows;
  l.batch_invariant = add.batch_invariant = true;
  struct sl__tensor *x = tensor_of(k, SL_SHAPE(rows, d->in), d->x + first * d->in),
                    *dy = tensor_of(k, SL_SHAPE(rows, d->out), d->dy + first * d->out),
                    *param = tensor_of(k, SL_SHAPE(weights + d->out), d->param),
                    *weight = tensor_of(k, SL_SHAPE(weights), d->param),
                    *bias = tensor_of(k, SL_SHAPE(d->out), d->param + weights),
                    *y = tensor_of(k, SL_SHAPE(rows, d->out), NULL),
                    *apart = tensor_of(k, SL_SHAPE(rows, d->out), NULL),
                    *dx = tensor_of(k, SL_SHAPE(rows, d->in), d->x + first * d->in);
  OK(sl__dense_forward(context, &l, x, param, y, true, SL_ACTIVATION_TANH));
  OK(sl__dense_shared_forward(context, &l, x, weight, bias, apart, SL_ACTIVATION_NONE));
  OK(sl__dense_backward_data(context, &add, dy, weight, dx));
  double *got[] = {take(y), take(apart), take(dx)};
  for (int i = 0; i < 3; i++) {
    int64_t width = i == 2 ? d->in : d->out;
    memcpy(out[i] + first * width, got[i], (size_t)(rows * width) * sizeof *got[i]);
    free(got[i]);
  }
  sl__tensor_free(x), sl__tensor_free(dy), sl__tensor_free(param);
  sl__tensor_free(weight), sl__tensor_free(bias);
}

/* All rows at once, and in groups of any number: the same bits. */
static void rows_have_bits_of_their_own(void **state) {
  static const int64_t sizes[][2] = {{16, 48}, {100, 65}, {300, 20}};
  static const int64_t groups[] = {1, 7, 30, 48};
  (void)state;
  if (on_gpu()) return skip();
  for (size_t k = 0; k < KINDS; k++)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
      int64_t in = sizes[s][0], out = sizes[s][1], widths[] = {out, out, in};
      double *x = random_values(INVARIANT_ROWS * in, 1),
             *dy = random_values(INVARIANT_ROWS * out, 2),
             *param = random_values(out * in + out, 3), *want[3], *got[3];
      for (int i = 0; i < 3; i++) {
        want[i] = zeros(INVARIANT_ROWS * widths[i]);
        got[i] = zeros(INVARIANT_ROWS * widths[i]);
      }
      struct dense d = {
          .rows = INVARIANT_ROWS, .in = in, .out = out, .x = x, .param = param, .dy = dy};
      invariant_rows(&kinds[k], &d, 0, want);
      for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        for (int64_t first = 0; first < INVARIANT_ROWS; first += groups[g]) {
          int64_t left = INVARIANT_ROWS - first;
          d.rows = groups[g] < left ? groups[g] : left;
          invariant_rows(&kinds[k], &d, first, got);
        }
        for (int i = 0; i < 3; i++)
          assert_memory_equal(got[i], want[i],
                              (size_t)(INVARIANT_ROWS * widths[i]) * sizeof *got[i]);
      }
      for (int i = 0; i < 3; i++) free(want[i]), free(got[i]);
      free(x), free(dy), free(param);
    }
}

static void shapes_are_checked(void **state) {
  (void)state;
  struct sl__tensor *x = tensor(SL_SHAPE(4, 3, 2), NULL), *param = tensor(SL_SHAPE(5 * 7), NULL);
  struct sl__tensor *y = tensor(SL_SHAPE(4, 5), NULL), *y3 = tensor(SL_SHAPE(3, 5), NULL);
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

EACH_OWN_OR_LIBRARY(forward_is_the_sum, check_forward_is_the_sum)

EACH_OWN_OR_LIBRARY(shared_is_the_sum, check_shared_is_the_sum)

EACH_OWN_OR_LIBRARY(backward_is_the_gradient, check_backward_is_the_gradient)

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(forward_is_the_sum),
                                     cmocka_unit_test(shared_is_the_sum),
                                     cmocka_unit_test(backward_is_the_gradient),
                                     cmocka_unit_test(types_agree_with_the_sums),
                                     cmocka_unit_test(the_adapter_agrees_with_the_sums),
                                     cmocka_unit_test(shared_halves_agree),
                                     cmocka_unit_test(bias_gradients_of_any_shape),
                                     cmocka_unit_test(relu_keeps_nan),
                                     cmocka_unit_test(rows_have_bits_of_their_own),
                                     cmocka_unit_test(shapes_are_checked)};
  return cmocka_run_group_tests_name("dense", tests, open_operations, close_context);
}
