/* The gradient of a convolution's weights without a matrix of windows
 * (codelets/kernels/conv_backward_weight.c) against a naive loop in double precision, for each
 * width of vectors that this processor has: random shapes and those of the networks, every size of
 * tile; added and not; with and without a bias; NaN does not spread; nothing is written behind the
 * end of the gradient, or of the scratch memory. */
#include "codelets/kernels/conv_backward_weight.h"
#include "codelets/kernels/conv_frame.h"
#include "tests/common/convolution.h"

struct data {
  int64_t weights, scratches;
  float *x, *dy, *grad, *bias, *old, *scratch;
};

static struct data data_of(const struct sl__conv_args *a) {
  struct data d = {.weights = a->out_channels * sl__conv_taps(a),
                   .scratches = sl__conv_backward_weight_scratch(a)};
  d.x = random_floats(a->images * sl__conv_x_size(a), 1);
  d.dy = random_floats(a->images * sl__conv_y_size(a), 2);
  d.old = random_floats(d.weights, 3); /* a channel has a weight at least */
  d.grad = guarded(d.weights);
  d.bias = guarded(a->out_channels);
  d.scratch = guarded(d.scratches);
  return d;
}

static void free_data(struct data *d) {
  free(d->x), free(d->dy), free(d->old), free(d->grad), free(d->bias);
  free(d->scratch);
}

static void check_bias(const struct sl__conv_args *a, const struct data *d, bool add) {
  int64_t plane = sl__conv_pixels(a);
  for (int64_t k = 0; k < a->out_channels; k++) {
    double want = add ? (double)d->old[k] : 0, size = 0;
    for (int64_t n = 0; n < a->images; n++)
      for (int64_t p = 0; p < plane; p++) {
        double slope = (double)d->dy[(n * a->out_channels + k) * plane + p];
        want += slope, size += fabs(slope);
      }
    if (!(fabs((double)d->bias[k] - want) <= 3e-7 * (2 + size)))
      fail_msg("bias %lld: %g, not %g", (long long)k, (double)d->bias[k], want);
  }
  check_guards(d->bias, a->out_channels);
}

static void check_gradient(const struct sl__conv_args *a, const struct data *d, const double *want,
                           const double *size, bool add, int most_lanes) {
  fill(d->grad, d->weights, NAN);
  fill(d->scratch, d->scratches, NAN); /* zeros in gaps must not meet what is there by chance */
  fill(d->bias, a->out_channels, NAN);
  if (add) memcpy(d->grad, d->old, (size_t)d->weights * sizeof *d->grad);
  if (add) memcpy(d->bias, d->old, (size_t)a->out_channels * sizeof *d->bias);
  sl__conv_backward_weight(a, d->x, d->dy, d->grad, a->has_bias ? d->bias : NULL, d->scratch, add,
                           most_lanes);
  if (a->has_bias) check_bias(a, d, add);
  for (int64_t i = 0; i < d->weights; i++) {
    double wanted = want[i] + (add ? (double)d->old[i] : 0);
    if (!(fabs((double)d->grad[i] - wanted) <= 3e-7 * (2 + size[i])))
      fail_msg("weight %lld: %g, not %g", (long long)i, (double)d->grad[i], wanted);
  }
  check_guards(d->grad, d->weights);
  check_guards(d->scratch, d->scratches);
}

static void check_widths(const struct sl__conv_args *a) {
  struct data d = data_of(a);
  double *want = calloc((size_t)d.weights, sizeof *want);
  double *size = calloc((size_t)d.weights, sizeof *size);
  for (int n = 0; n < a->images; n++)
    add_terms(a, d.x + n * sl__conv_x_size(a), NULL, d.dy + n * sl__conv_y_size(a), want, size);
  for (int w = 0; w < 3; w++)
    for (int add = 0; add < 2 && has_width(widths[w]); add++)
      check_gradient(a, &d, want, size, add, widths[w]);
  free(want), free(size);
  free_data(&d);
}

/* Fewer than four outputs are left to the product of matrices. */
static bool check_all(struct sl__conv_args a) {
  a = with_outputs(a);
  assert_int_equal(sl__conv_backward_weight_serves(&a), sl__conv_pixels(&a) >= 4);
  if (!sl__conv_backward_weight_serves(&a)) return false;
  for (a.has_bias = 0; a.has_bias < 2; a.has_bias++) check_widths(&a);
  return true;
}

static void random_shapes(void **state) {
  (void)state;
  int served = 0;
  for (int i = 0; i < 100; i++) served += check_all(random_shape(i, 9, 4, 19));
  assert_true(served > 90);
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
  check_all(square(50, 3, 2, 5, 1, 1, 0));   /* one vector of four an image */
  check_all(square(2, 2, 7, 3, 3, 1, 1));
  assert_false(check_all(square(2, 1, 1, 1, 1, 1, 0)));
}

/* NaN in a corner of one channel stays with that channel's weights whose windows reach it. */
static void nan_does_not_spread(void **state) {
  static const int sizes[] = {3, 6, 7, 8, 12, 13, 16, 24, 32};
  (void)state;
  for (int i = 0; i < 9; i++) {
    struct sl__conv_args a = with_outputs(square(3, 24, sizes[i], 24, 3, 1, 1));
    int64_t last = sizes[i] * sizes[i] - 1;
    struct data d = data_of(&a);
    d.x[sl__conv_x_size(&a) + last + 1] = NAN;     /* image 1, channel 1, first pixel */
    d.x[sl__conv_x_size(&a) + 5 * last + 4] = NAN; /* channel 4, last pixel */
    sl__conv_backward_weight(&a, d.x, d.dy, d.grad, d.bias, d.scratch, false, 0);
    for (int64_t w = 0; w < d.weights; w++) {
      int64_t c = w / 9 % 24, r = w / 3 % 3, s = w % 3;
      assert_int_equal(isnan(d.grad[w]) != 0, (c == 1 && r < 2 && s < 2) || (c == 4 && r && s));
    }
    free_data(&d);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_shapes), cmocka_unit_test(every_tile),
                                     cmocka_unit_test(shapes_of_networks),
                                     cmocka_unit_test(nan_does_not_spread)};
  return cmocka_run_group_tests_name("conv_backward_weight", tests, NULL, NULL);
}
