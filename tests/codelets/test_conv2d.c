/* Convolution against a naive loop in double precision and finite differences. Hard shapes: 1x1 (no
 * matrix of windows is made), stride 2 and beyond the kernel, padding up to the kernel, a batch of
 * one, one channel, odd numbers, windows and images that are not square, no bias, fused
 * activations, accumulation; sums over many pixels; channels enough for Winograd's; bf16. */
#include "tests/common/products.h"

struct conv {
  int n, c, h, w;
  struct sl__conv2d o;
  const double *x, *param, *dy;
};

static int out_h(const struct conv *v) {
  return (v->h + 2 * v->o.pad_h - v->o.kernel_h) / v->o.stride_h + 1;
}
static int out_w(const struct conv *v) {
  return (v->w + 2 * v->o.pad_w - v->o.kernel_w) / v->o.stride_w + 1;
}
static int64_t x_count(const struct conv *v) { return (int64_t)v->n * v->c * v->h * v->w; }
static int64_t y_count(const struct conv *v) {
  return (int64_t)v->n * v->o.channels * out_h(v) * out_w(v);
}
static int64_t weights(const struct conv *v) {
  return (int64_t)v->o.channels * v->c * v->o.kernel_h * v->o.kernel_w;
}
static int64_t params(const struct conv *v) {
  return weights(v) + (v->o.has_bias ? v->o.channels : 0);
}

static double window(const struct conv *v, int n, int k, int oh, int ow) {
  double sum = v->o.has_bias ? v->param[weights(v) + k] : 0;
  for (int c = 0; c < v->c; c++)
    for (int r = 0; r < v->o.kernel_h; r++)
      for (int s = 0; s < v->o.kernel_w; s++) {
        int h = oh * v->o.stride_h - v->o.pad_h + r, w = ow * v->o.stride_w - v->o.pad_w + s;
        if (h < 0 || w < 0 || h >= v->h || w >= v->w) continue;
        sum += v->x[((int64_t)(n * v->c + c) * v->h + h) * v->w + w] *
               v->param[((int64_t)(k * v->c + c) * v->o.kernel_h + r) * v->o.kernel_w + s];
      }
  return sum;
}

static void forward(const struct conv *v, double *y) {
  for (int n = 0; n < v->n; n++)
    for (int k = 0; k < v->o.channels; k++)
      for (int oh = 0; oh < out_h(v); oh++)
        for (int ow = 0; ow < out_w(v); ow++) {
          double sum = window(v, n, k, oh, ow);
          *y++ = v->o.activation == SL_ACTIVATION_TANH   ? tanh(sum)
                 : v->o.activation == SL_ACTIVATION_RELU ? fmax(sum, 0)
                                                         : sum;
        }
}

static double of_x(const double *x, void *data) {
  struct conv v = *(struct conv *)data;
  double *y = zeros(y_count(&v));
  v.x = x;
  forward(&v, y);
  double sum = dot(y, v.dy, y_count(&v));
  free(y);
  return sum;
}

static double of_param(const double *param, void *data) {
  struct conv v = *(struct conv *)data;
  v.param = param;
  return of_x(v.x, &v);
}

/* n, c, h, w; channels, kernel, stride, padding, bias, activation */
static const struct conv cases[] = {
    {1, 1, 1, 1, {1, 1, 1, 1, 1, 0, 0, true, 0}},
    {3, 5, 4, 6, {7, 1, 1, 1, 1, 0, 0, true, SL_ACTIVATION_TANH}},
    {2, 1, 28, 28, {20, 5, 5, 1, 1, 0, 0, true, SL_ACTIVATION_TANH}},
    {3, 20, 12, 12, {50, 5, 5, 1, 1, 0, 0, true, SL_ACTIVATION_RELU}},
    {2, 3, 9, 7, {4, 3, 3, 2, 2, 1, 1, false, 0}},
    {1, 2, 11, 5, {3, 2, 4, 3, 1, 1, 3, true, 0}},
    {2, 3, 8, 10, {5, 2, 2, 3, 4, 0, 0, true, 0}},
    {4, 3, 5, 5, {6, 5, 3, 1, 2, 4, 2, true, SL_ACTIVATION_RELU}},
    {2, 4, 6, 6, {3, 1, 1, 2, 2, 0, 0, true, 0}},
    {2, 3, 9, 6, {4, 5, 1, 1, 1, 2, 0, true, 0}},
    {1, 3, 7, 9, {2, 7, 9, 1, 1, 0, 0, true, 0}},
    {2, 16, 6, 7, {18, 3, 3, 1, 1, 1, 1, true, SL_ACTIVATION_TANH}},
    {1, 17, 8, 8, {16, 3, 3, 1, 1, 1, 1, false, SL_ACTIVATION_RELU}},
    /* products of seven images and of one, of seven and of two */
    {8, 2, 6, 6, {3, 3, 3, 1, 1, 1, 1, true, SL_ACTIVATION_TANH}},
    {9, 3, 5, 7, {2, 1, 1, 1, 1, 0, 0, true, 0}}};
#define CASES (sizeof cases / sizeof *cases)

static struct sl__tensor *image(const struct conv *v, const double *x) {
  return tensor(SL_SHAPE(v->n, v->c, v->h, v->w), x);
}
static struct sl__tensor *result(const struct conv *v, const double *y) {
  return tensor(SL_SHAPE(v->n, v->o.channels, out_h(v), out_w(v)), y);
}

static void check_forward_is_the_sum(void) {
  for (size_t c = 0; c < CASES; c++) {
    struct conv v = cases[c];
    double *x = random_values(x_count(&v), 1), *param = random_values(params(&v), 2),
           *want = zeros(y_count(&v));
    v.x = x;
    v.param = param;
    forward(&v, want);
    struct sl__tensor *tx = image(&v, x), *tp = tensor(SL_SHAPE(params(&v)), param),
                      *ty = result(&v, NULL);
    OK(sl__conv2d_forward(context, &plain, tx, tp, ty, &v.o));
    assert_near("y", take(ty), want, y_count(&v), v.c * v.o.kernel_h * v.o.kernel_w, 1);
    sl__tensor_free(tx);
    sl__tensor_free(tp);
    free(x), free(param), free(want);
  }
}

static void check_backward_is_the_gradient(void) {
  for (size_t c = 0; c < CASES; c++)
    for (int add = 0; add < 2; add++) {
      struct conv v = cases[c];
      v.o.activation = SL_ACTIVATION_NONE;
      int64_t xs = x_count(&v), ps = params(&v);
      double *x = random_values(xs, 1), *param = random_values(ps, 2),
             *dy = random_values(y_count(&v), 3);
      double *old_x = random_values(xs, 4), *old_g = random_values(ps, 5);
      v.x = x;
      v.param = param;
      v.dy = dy;
      struct sl__tensor *tx = image(&v, x), *tp = tensor(SL_SHAPE(ps), param),
                        *tdy = result(&v, dy);
      struct sl__tensor *tdx = image(&v, old_x), *tg = tensor(SL_SHAPE(ps), old_g);
      OK(sl__conv2d_backward_data(context, add ? &adding : &plain, tdy, tp, tdx, &v.o));
      OK(sl__conv2d_backward_weight(context, add ? &adding : &plain, tx, tdy, tg, &v.o));
      double *dx = take(tdx), *grad = take(tg);
      for (int64_t i = 0; add && i < xs; i++) dx[i] -= old_x[i];
      for (int64_t i = 0; add && i < ps; i++) grad[i] -= old_g[i];
      assert_slope("dx", of_x, &v, x, dx, xs);
      assert_slope("grad", of_param, &v, param, grad, ps);
      sl__tensor_free(tx);
      sl__tensor_free(tp);
      sl__tensor_free(tdy);
      free(dx), free(grad), free(x), free(param), free(dy), free(old_x), free(old_g);
    }
}

/* One window's part of dx and grad. */
static void backward_window(const struct conv *v, int n, int k, int oh, int ow, double dy,
                            double *dx, double *grad) {
  for (int c = 0; c < v->c; c++)
    for (int r = 0; r < v->o.kernel_h; r++)
      for (int s = 0; s < v->o.kernel_w; s++) {
        int h = oh * v->o.stride_h - v->o.pad_h + r, w = ow * v->o.stride_w - v->o.pad_w + s;
        if (h < 0 || w < 0 || h >= v->h || w >= v->w) continue;
        int64_t at_x = ((int64_t)(n * v->c + c) * v->h + h) * v->w + w;
        int64_t at_w = ((int64_t)(k * v->c + c) * v->o.kernel_h + r) * v->o.kernel_w + s;
        dx[at_x] += dy * v->param[at_w];
        grad[at_w] += dy * v->x[at_x];
      }
  if (v->o.has_bias) grad[weights(v) + k] += dy;
}

static void backward(const struct conv *v, double *dx, double *grad) {
  const double *dy = v->dy;
  for (int n = 0; n < v->n; n++)
    for (int k = 0; k < v->o.channels; k++)
      for (int oh = 0; oh < out_h(v); oh++)
        for (int ow = 0; ow < out_w(v); ow++) backward_window(v, n, k, oh, ow, *dy++, dx, grad);
}

static void check_kind(const struct kind *k, struct conv v, bool add) {
  int64_t xs = x_count(&v), ps = params(&v), ys = y_count(&v);
  double *x = values_of(k, xs, 1), *param = values_of(k, ps, 2), *dy = values_of(k, ys, 3);
  double *want = zeros(ys), *dx = values_of(k, xs, 4), *grad = random_values(ps, 5);
  struct sl__launch l = launch_of(k, add);
  struct sl_shape x_shape = SL_SHAPE(v.n, v.c, v.h, v.w);
  struct sl_shape y_shape = SL_SHAPE(v.n, v.o.channels, out_h(&v), out_w(&v));
  v.x = x, v.param = param, v.dy = dy;
  struct sl__tensor *tx = tensor_of(k, x_shape, x), *tp = tensor_of(k, SL_SHAPE(ps), param),
                    *tdy = tensor_of(k, y_shape, dy), *ty = tensor_of(k, y_shape, NULL),
                    *tdx = tensor_of(k, x_shape, dx), *tg = tensor(SL_SHAPE(ps), grad);
  if (!add) memset(dx, 0, (size_t)xs * sizeof *dx), memset(grad, 0, (size_t)ps * sizeof *grad);
  forward(&v, want);
  backward(&v, dx, grad);
  OK(sl__conv2d_forward(context, &l, tx, tp, ty, &v.o));
  OK(sl__conv2d_backward_data(context, &l, tdy, tp, tdx, &v.o));
  OK(sl__conv2d_backward_weight(context, &l, tx, tdy, tg, &v.o));
  int64_t taps = v.c * v.o.kernel_h * v.o.kernel_w;
  assert_sums(k, "y", ty, want, (double)taps + stored_twice(k, want, ys));
  /* a GPU stores the sum before it adds it */
  assert_sums(k, "dx", tdx, dx,
              (double)(v.o.channels * v.o.kernel_h * v.o.kernel_w) +
                  (add && on_gpu() ? stored_twice(k, dx, xs) : 0));
  assert_sums(k, "grad", tg, grad, (double)v.n * out_h(&v) * out_w(&v));
  sl__tensor_free(tx), sl__tensor_free(tp), sl__tensor_free(tdy);
  free(x), free(param), free(dy), free(want), free(dx), free(grad);
}

static void types_agree_with_the_sums(void **state) {
  struct conv many_images = {20, 2, 24, 24, {5, 3, 3, 1, 1, 1, 1, true, SL_ACTIVATION_RELU}};
  (void)state;
  for (size_t k = 0; k < KINDS; k++)
    for (int add = 0; add < 2; add++) {
      for (size_t c = 0; c < CASES; c++) check_kind(&kinds[k], cases[c], add);
      check_kind(&kinds[k], many_images, add);
    }
}

/* Images whose windows are more than a GPU's workspace holds: it takes some at a time. */
static void batches_are_split(void **state) {
  struct conv many = {11, 1, 280, 280, {2, 5, 5, 1, 1, 0, 0, true, SL_ACTIVATION_TANH}};
  (void)state;
  for (size_t k = 0; k < KINDS; k++) check_kind(&kinds[k], many, k == 1);
}

/* Images so large that a GPU widens them one by one, and that no algorithm of cuDNN fits into the
 * workspace: for the weights' gradient, for the others. */
static void halves_of_large_images(void **state) {
  struct conv large = {2, 1, 1500, 1500, {1, 1, 1, 1, 1, 0, 0, true, SL_ACTIVATION_TANH}};
  struct conv deep = {1, 16, 512, 512, {1, 3, 3, 1, 1, 1, 1, true, SL_ACTIVATION_TANH}};
  (void)state;
  check_kind(&kinds[KINDS - 1], large, false);
  check_kind(&kinds[KINDS - 1], deep, false);
}

static void shapes_are_checked(void **state) {
  (void)state;
  struct sl__conv2d o = {4, 3, 3, 1, 1, 0, 0, true, 0}, large = {4, 9, 9, 1, 1, 0, 0, true, 0};
  struct sl__tensor *x = tensor(SL_SHAPE(2, 3, 8, 8), NULL), *flat = tensor(SL_SHAPE(2, 192), NULL);
  struct sl__tensor *y = tensor(SL_SHAPE(2, 4, 6, 6), NULL),
                    *small = tensor(SL_SHAPE(2, 4, 5, 6), NULL);
  struct sl__tensor *param = tensor(SL_SHAPE(4 * 28), NULL), *few = tensor(SL_SHAPE(4 * 27), NULL);
  OK(sl__conv2d_forward(context, &plain, x, param, y, &o));
  assert_int_equal(sl__conv2d_forward(context, &plain, x, few, y, &o), SL_BAD_SHAPE);
  assert_int_equal(sl__conv2d_forward(context, &plain, x, param, small, &o), SL_BAD_SHAPE);
  assert_int_equal(sl__conv2d_forward(context, &plain, flat, param, y, &o), SL_BAD_SHAPE);
  assert_int_equal(sl__conv2d_forward(context, &plain, x, param, y, &large), SL_BAD_SHAPE);
  assert_int_equal(sl__conv2d_backward_data(context, &plain, small, param, x, &o), SL_BAD_SHAPE);
  assert_int_equal(sl__conv2d_backward_weight(context, &plain, x, small, param, &o), SL_BAD_SHAPE);
  struct sl__tensor *all[] = {x, flat, y, small, param, few};
  for (int i = 0; i < 6; i++) sl__tensor_free(all[i]);
}

EACH_IMPLEMENTATION(forward_is_the_sum, check_forward_is_the_sum)

EACH_IMPLEMENTATION(backward_is_the_gradient, check_backward_is_the_gradient)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(forward_is_the_sum),     cmocka_unit_test(backward_is_the_gradient),
      cmocka_unit_test(batches_are_split),      cmocka_unit_test(types_agree_with_the_sums),
      cmocka_unit_test(halves_of_large_images), cmocka_unit_test(shapes_are_checked)};
  return cmocka_run_group_tests_name("conv2d", tests, open_operations, close_context);
}
