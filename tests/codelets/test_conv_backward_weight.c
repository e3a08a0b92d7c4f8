/* The gradient of a convolution's weights without a matrix of windows
 * (codelets/kernels/conv_backward_weight.c) against a naive loop in double precision, for each
 * width of vectors that this processor has: random shapes and those of the networks, every size of
 * tile; added and not; nothing is written behind the end of the gradient, or of the scratch memory.
 */
#include "codelets/kernels/conv_backward_weight.h"
#include "codelets/kernels/conv_frame.h"
#include "tests/common/convolution.h"

struct data {
  int64_t weights, scratches;
  float *x, *dy, *grad, *old, *scratch;
};

static struct data data_of(const struct sl__conv_args *a) {
  struct data d = {.weights = a->out_channels * sl__conv_taps(a),
                   .scratches = sl__conv_backward_weight_scratch(a)};
  d.x = random_floats(a->images * sl__conv_x_size(a), 1);
  d.dy = random_floats(a->images * sl__conv_y_size(a), 2);
  d.old = random_floats(d.weights, 3);
  d.grad = guarded(d.weights);
  d.scratch = guarded(d.scratches);
  return d;
}

static void free_data(struct data *d) {
  free(d->x), free(d->dy), free(d->old), free(d->grad), free(d->scratch);
}

/* The gradient and the sum of the terms' sizes, window by window. */
static void naive_gradient(const struct sl__conv_args *a, const struct data *d, double *grad,
                           double *size) {
  const float *dy = d->dy;
  for (int n = 0; n < a->images; n++)
    for (int k = 0; k < a->out_channels; k++)
      for (int oh = 0; oh < a->out_height; oh++)
        for (int ow = 0; ow < a->out_width; ow++, dy++)
          for (int t = 0; t < sl__conv_taps(a); t++) {
            int s = t % a->kernel_w, r = t / a->kernel_w % a->kernel_h;
            int c = t / a->kernel_w / a->kernel_h;
            int h = oh * a->stride_h - a->pad_h + r, w = ow * a->stride_w - a->pad_w + s;
            if (h < 0 || w < 0 || h >= a->height || w >= a->width) continue;
            int64_t at = ((int64_t)(n * a->channels + c) * a->height + h) * a->width + w;
            double term = (double)*dy * (double)d->x[at];
            grad[k * sl__conv_taps(a) + t] += term;
            size[k * sl__conv_taps(a) + t] += fabs(term);
          }
}

static void check_gradient(const struct sl__conv_args *a, const struct data *d, const double *want,
                           const double *size, bool add, int most_lanes) {
  fill(d->grad, d->weights, NAN);
  fill(d->scratch, d->scratches, NAN); /* zeros in gaps must not meet what is there by chance */
  if (add) memcpy(d->grad, d->old, (size_t)d->weights * sizeof *d->grad);
  sl__conv_backward_weight(a, d->x, d->dy, d->grad, d->scratch, add, most_lanes);
  for (int64_t i = 0; i < d->weights; i++) {
    double wanted = want[i] + (add ? (double)d->old[i] : 0);
    if (!(fabs((double)d->grad[i] - wanted) <= 3e-7 * (2 + size[i])))
      fail_msg("weight %lld: %g, not %g", (long long)i, (double)d->grad[i], wanted);
  }
  check_guards(d->grad, d->weights);
  check_guards(d->scratch, d->scratches);
}

static void check_all(struct sl__conv_args a) {
  a = with_outputs(a);
  struct data d = data_of(&a);
  double *want = calloc((size_t)d.weights, sizeof *want);
  double *size = calloc((size_t)d.weights, sizeof *size);
  assert_true(sl__conv_frame_fits(&a));
  naive_gradient(&a, &d, want, size);
  for (int w = 0; w < 3; w++)
    for (int add = 0; add < 2 && has_width(widths[w]); add++)
      check_gradient(&a, &d, want, size, add, widths[w]);
  free(want), free(size);
  free_data(&d);
}

static struct sl__conv_args random_shape(int i) {
  struct sl__conv_args a = {.images = from(1, 9, 0, i),
                            .channels = from(1, 4, 1, i),
                            .out_channels = from(1, 19, 2, i),
                            .kernel_h = from(1, 5, 3, i),
                            .kernel_w = from(1, 5, 4, i),
                            .stride_h = from(1, 3, 5, i),
                            .stride_w = from(1, 3, 6, i)};
  a.pad_h = from(0, a.kernel_h, 7, i);
  a.pad_w = from(0, a.kernel_w, 8, i);
  a.height = a.kernel_h + from(0, 12, 9, i);
  a.width = a.kernel_w + from(0, 37, 10, i);
  return a;
}

static void random_shapes(void **state) {
  (void)state;
  for (int i = 0; i < 100; i++) check_all(random_shape(i));
}

static struct sl__conv_args square(int images, int channels, int size, int out_channels, int kernel,
                                   int stride, int pad) {
  return (struct sl__conv_args){.images = images,
                                .channels = channels,
                                .height = size,
                                .width = size,
                                .out_channels = out_channels,
                                .kernel_h = kernel,
                                .kernel_w = kernel,
                                .stride_h = stride,
                                .stride_w = stride,
                                .pad_h = pad,
                                .pad_w = pad};
}

/* Rows that are whole vectors and rows that are not, by each number of channels. */
static void every_tile(void **state) {
  (void)state;
  for (int size = 15; size <= 17; size++)
    for (int channels = 1; channels <= 9; channels++)
      check_all(square(1, 1, size, channels, 1 + channels % 3, 1, channels % 2));
}

static void shapes_of_networks(void **state) {
  (void)state;
  check_all(square(3, 1, 28, 20, 5, 1, 0));
  check_all(square(2, 20, 12, 50, 5, 1, 0));
  check_all(square(1, 3, 32, 16, 3, 1, 1));
  check_all(square(2, 16, 32, 16, 3, 1, 1));
  check_all(square(2, 16, 32, 32, 3, 2, 1));
  check_all(square(2, 16, 32, 32, 1, 2, 0));
  check_all(square(15, 24, 8, 24, 3, 1, 1)); /* images that share registers, and a rest */
  check_all(square(2, 1, 1, 1, 1, 1, 0));
}

/* NaN in a corner of one channel stays with that channel's weights whose windows reach it. */
static void nan_does_not_spread(void **state) {
  static const int sizes[] = {6, 8, 12, 16, 24, 32};
  int served = 0;
  (void)state;
  for (int i = 0; i < 6; i++) {
    struct sl__conv_args a = with_outputs(square(3, 24, sizes[i], 24, 3, 1, 1));
    if (!sl__conv_backward_weight_serves(&a)) continue;
    served++;
    struct data d = data_of(&a);
    d.x[sl__conv_x_size(&a) + sizes[i] * sizes[i]] = NAN; /* image 1, channel 1, pixel (0, 0) */
    sl__conv_backward_weight(&a, d.x, d.dy, d.grad, d.scratch, false, 0);
    for (int64_t w = 0; w < d.weights; w++) {
      int64_t c = w / 9 % 24, r = w / 3 % 3, s = w % 3;
      assert_int_equal(isnan(d.grad[w]) != 0, c == 1 && r < 2 && s < 2);
    }
    free_data(&d);
  }
  assert_true(served >= 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_shapes), cmocka_unit_test(every_tile),
                                     cmocka_unit_test(shapes_of_networks),
                                     cmocka_unit_test(nan_does_not_spread)};
  return cmocka_run_group_tests_name("conv_backward_weight", tests, NULL, NULL);
}
