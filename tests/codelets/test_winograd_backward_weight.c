/* The gradient of a convolution's weights with fewer products
 * (codelets/kernels/winograd_backward_weight.c) against a naive loop in double precision, for each
 * width of vectors that this processor has: odd heights and widths, single rows of tiles, numbers
 * of channels that are no whole vectors, more images than are multiplied at a time; 3x3 and 5x5
 * taps, these with any number of zeros around the image; added and not; scratch memory that is not
 * aligned. Nothing is written behind the end of the gradient, or of the scratch memory. */
#include "codelets/kernels/winograd_backward_weight.h"
#include "tests/common/convolution.h"

struct data {
  int64_t weights, scratches;
  float *x, *dy, *grad, *old, *memory, *scratch;
};

static struct data data_of(const struct sl__conv_args *a) {
  struct data d = {.weights = a->out_channels * sl__conv_taps(a),
                   .scratches = sl__winograd_backward_weight_scratch(a)};
  d.x = random_floats(a->images * sl__conv_x_size(a), 1);
  d.dy = random_floats(a->images * sl__conv_y_size(a), 2);
  d.old = random_floats(d.weights, 3);
  d.grad = guarded(d.weights);
  d.memory = guarded(d.scratches + 1);
  d.scratch = d.memory + 1; /* not aligned */
  return d;
}

static void free_data(struct data *d) {
  free(d->x), free(d->dy), free(d->old), free(d->grad), free(d->memory);
}

/* Transforms mix a window's sums: an error goes by the largest of them. */
static double largest(const double *size, int taps) {
  double most = 1;
  for (int i = 0; i < taps; i++)
    if (size[i] > most) most = size[i];
  return most;
}

static void check_gradient(const struct sl__conv_args *a, const struct data *d, const double *want,
                           const double *size, bool add, int most_lanes) {
  fill(d->grad, d->weights, NAN);
  fill(d->scratch, d->scratches, NAN);
  if (add) memcpy(d->grad, d->old, (size_t)d->weights * sizeof *d->grad);
  sl__winograd_backward_weight(a, d->x, d->dy, d->grad, d->scratch, add, most_lanes);
  for (int64_t i = 0; i < d->weights; i++) {
    double wanted = want[i] + (add ? (double)d->old[i] : 0);
    int taps = a->kernel_h * a->kernel_w;
    if (!(fabs((double)d->grad[i] - wanted) < 3e-6 * largest(size + i / taps * taps, taps)))
      fail_msg("weight %lld: %g, not %g", (long long)i, (double)d->grad[i], wanted);
  }
  check_guards(d->grad, d->weights);
  check_guards(d->memory, d->scratches + 1);
}

static void check_all(struct sl__conv_args a) {
  a = with_outputs(a);
  struct data d = data_of(&a);
  double *want = calloc((size_t)d.weights, sizeof *want);
  double *size = calloc((size_t)d.weights, sizeof *size);
  assert_true(sl__winograd_backward_weight_serves(&a));
  for (int n = 0; n < a.images; n++)
    add_terms(&a, d.x + n * sl__conv_x_size(&a), NULL, d.dy + n * sl__conv_y_size(&a), want, size);
  for (int w = 0; w < 3; w++)
    for (int add = 0; add < 2 && has_width(widths[w]); add++)
      check_gradient(&a, &d, want, size, add, widths[w]);
  free(want), free(size);
  free_data(&d);
}

static struct sl__conv_args image(int images, int channels, int height, int width,
                                  int out_channels) {
  struct sl__conv_args a = square(images, channels, height, out_channels, 3, 1, 1);
  a.width = width;
  return a;
}

static struct sl__conv_args five(struct sl__conv_args a, int pad_h, int pad_w) {
  a.kernel_h = a.kernel_w = 5;
  a.pad_h = pad_h;
  a.pad_w = pad_w;
  return a;
}

static void random_images(void **state) {
  (void)state;
  for (int i = 0; i < 40; i += EVERY)
    check_all(image(from(1, 4, 0, i), from(16, 35, 1, i), from(4, i % 4 ? 14 : 37, 2, i),
                    from(4, i % 3 ? 14 : 37, 3, i), from(16, 40, 4, i)));
}

/* At least 4x4 outputs. */
static void random_images_by_fives(void **state) {
  (void)state;
  for (int i = 0; i < 40; i += EVERY) {
    struct sl__conv_args a = image(from(1, 4, 0, i), from(16, 35, 1, i), from(8, 20, 2, i),
                                   from(8, i % 3 ? 14 : 37, 3, i), from(16, 40, 4, i));
    check_all(five(a, from(0, 4, 5, i), from(0, 4, 6, i)));
  }
}

static void shapes_of_networks(void **state) {
  (void)state;
  check_all(image(3, 16, 32, 32, 16));
  check_all(image(3, 32, 16, 16, 32));
  check_all(image(18, 64, 8, 8, 64)); /* more tiles than are multiplied at a time, and a rest */
  check_all(image(1, 16, 4, 4, 16));
  check_all(image(2, 16, 1, 16, 16));
  check_all(image(2, 16, 300, 3, 16));
  check_all(five(image(9, 20, 12, 12, 50), 0, 0)); /* vectors of output channels */
  check_all(five(image(9, 50, 8, 8, 20), 2, 2));
  check_all(five(image(2, 16, 4, 4, 16), 4, 4));
  check_all(five(image(2, 16, 5, 40, 16), 0, 1));
}

static void other_convolutions_are_not_for_it(void **state) {
  struct sl__conv_args few = with_outputs(image(2, 15, 8, 8, 16));
  struct sl__conv_args strided = with_outputs(square(2, 16, 8, 16, 3, 2, 1));
  struct sl__conv_args open = with_outputs(square(2, 16, 8, 16, 3, 1, 0));
  struct sl__conv_args small = with_outputs(image(2, 16, 3, 5, 16));
  struct sl__conv_args large = with_outputs(image(1, 16, 700, 700, 16));
  struct sl__conv_args padded = with_outputs(five(image(2, 16, 8, 8, 16), 0, 5));
  struct sl__conv_args pixel = with_outputs(five(image(2, 16, 3, 5, 16), 4, 4));
  (void)state;
  assert_false(sl__winograd_backward_weight_serves(&few));
  assert_false(sl__winograd_backward_weight_serves(&strided));
  assert_false(sl__winograd_backward_weight_serves(&open));
  assert_false(sl__winograd_backward_weight_serves(&small));
  assert_false(sl__winograd_backward_weight_serves(&large));
  assert_false(sl__winograd_backward_weight_serves(&padded));
  assert_false(sl__winograd_backward_weight_serves(&pixel));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_images), cmocka_unit_test(random_images_by_fives),
      cmocka_unit_test(shapes_of_networks), cmocka_unit_test(other_convolutions_are_not_for_it)};
  return cmocka_run_group_tests_name("winograd_backward_weight", tests, NULL, NULL);
}
