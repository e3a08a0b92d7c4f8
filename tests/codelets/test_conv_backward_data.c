/* The gradient of a convolution's input by the forward pass's kernels
 * (codelets/kernels/conv_backward_data.c) against a naive loop in double precision, for each width
 * of vectors that this processor has: random shapes and those of the networks; strides beyond the
 * kernel, paddings beyond it; added and not; nothing is written behind the end of dx, or of the
 * scratch memory; an image has the same bits alone and among others. Tap by tap
 * (codelets/kernels/conv_scatter.c), for every such shape, too. */
#include "codelets/kernels/choice.h"
#include "codelets/kernels/conv_backward_data.h"
#include "codelets/kernels/conv_scatter.h"
#include "codelets/kernels/winograd.h"
#include "codelets/kernels/winograd_backward_data.h"
#include "tests/common/convolution.h"

struct data {
  int64_t dxs, scratches;
  float *dy, *weight, *dx, *old, *scratch;
};

static struct data data_of(const struct sl__conv_args *a) {
  struct data d = {.dxs = a->images * sl__conv_x_size(a),
                   .scratches = sl__conv_backward_data_scratch(a)};
  d.dy = random_floats(a->images * sl__conv_y_size(a), 1);
  d.weight = random_floats(a->out_channels * sl__conv_taps(a), 2);
  d.old = random_floats(d.dxs, 3);
  d.dx = guarded(d.dxs);
  d.scratch = guarded(d.scratches);
  fill(d.scratch, d.scratches, NAN);
  return d;
}

static void free_data(struct data *d) {
  free(d->dy), free(d->weight), free(d->old), free(d->dx), free(d->scratch);
}

typedef void backward_data(const struct sl__conv_args *a, const float *dy, const float *weight,
                           float *dx, float *scratch, bool add, int most_lanes);

static void check_gradient(backward_data *run, const struct sl__conv_args *a, const struct data *d,
                           const double *want, const double *size, bool add, int most_lanes) {
  double rounding = a->implementation == SL__WINOGRAD ? 1e-6 : 3e-7;
  fill(d->dx, d->dxs, NAN);
  fill(d->scratch, d->scratches, NAN);
  if (add) memcpy(d->dx, d->old, (size_t)d->dxs * sizeof *d->dx);
  run(a, d->dy, d->weight, d->dx, d->scratch, add, most_lanes);
  for (int64_t i = 0; i < d->dxs; i++) {
    double wanted = want[i] + (add ? (double)d->old[i] : 0);
    if (!(fabs((double)d->dx[i] - wanted) <= rounding * (2 + 2 * size[i])))
      fail_msg("dx %lld: %g, not %g", (long long)i, (double)d->dx[i], wanted);
  }
  check_guards(d->dx, d->dxs);
  check_guards(d->scratch, d->scratches);
}

/* Tap by tap, where that does not pay, too; not those with dilation. */
static void check_by_taps(const struct sl__conv_args *a, struct data *d, const double *want,
                          const double *size) {
  float *memory = d->scratch;
  if (sl__conv_pixels(a) < 4 || a->gap_h || a->gap_w) return;
  d->scratches = sl__conv_scatter_scratch(a);
  d->scratch = guarded(d->scratches);
  for (int w = 0; w < 3; w++)
    for (int add = 0; add < 2 && has_width(widths[w]); add++)
      check_gradient(sl__conv_scatter, a, d, want, size, add, widths[w]);
  free(d->scratch);
  d->scratch = memory;
}

static void check_all(struct sl__conv_args a) {
  a = with_outputs(a);
  if (!a.implementation) a.implementation = SL__OWN;
  struct data d = data_of(&a);
  double *want = calloc((size_t)d.dxs, sizeof *want), *size = calloc((size_t)d.dxs, sizeof *size);
  assert_true(sl__conv_backward_data_fits(&a));
  for (int n = 0; n < a.images; n++) {
    int64_t image = n * sl__conv_x_size(&a);
    add_terms(&a, NULL, d.weight, d.dy + n * sl__conv_y_size(&a), want + image, size + image);
  }
  for (int w = 0; w < 3; w++)
    for (int add = 0; add < 2 && has_width(widths[w]); add++)
      check_gradient(sl__conv_backward_data, &a, &d, want, size, add, widths[w]);
  check_by_taps(&a, &d, want, size);
  free(want), free(size);
  free_data(&d);
}

static void random_shapes(void **state) {
  (void)state;
  for (int i = 0; i < 160; i++) {
    struct sl__conv_args a = random_shape(i, 3, 9, 5);
    if (a.stride_h > 1) a.gap_h = 0;
    if (a.stride_w > 1) a.gap_w = 0;
    check_all(a);
  }
}

/* LeNet's and ResNet-20's, also those that change the size; more images than the buffer holds. */
static void shapes_of_networks(void **state) {
  (void)state;
  check_all(square(1, 20, 12, 50, 5, 1, 0));
  check_all(square(2, 16, 32, 32, 3, 2, 1));
  check_all(square(2, 16, 32, 32, 1, 2, 0));
  check_all(square(3, 12, 33, 5, 3, 1, 1));
  check_all(square(1, 3, 1, 2, 1, 1, 0));
  check_all(square(2, 2, 6, 3, 2, 3, 0)); /* pixels that no window covers */
  check_all(square(2, 2, 5, 3, 5, 1, 4)); /* every window lies over an edge */
  check_all(square(2, 2, 9, 3, 4, 2, 1));
  check_all(square(1, 2, 24, 3, 11, 1, 0)); /* a column of the window in several tiles */
  check_all(square(2, 2, 24, 3, 7, 1, 3));
  check_all(square(2, 2, 25, 3, 11, 2, 0));
  check_all(square(2, 3, 8, 2, 1, 2, 1));          /* no window has pixels of odd rows or columns */
  check_all(square(2, 2, 5, 3, 3, 2000000000, 1)); /* one window */
}

static void winograd(void **state) {
  static const int channels[][2] = {{16, 16}, {17, 20}, {32, 64}};
  static const int sizes[] = {8, 13, 16, 32};
  int served = 0;
  (void)state;
  for (int c = 0; c < 3; c++)
    for (int s = 0; s < 4; s++) {
      struct sl__conv_args a =
          square(sizes[s] > 8 ? 1 : 3, channels[c][0], sizes[s], channels[c][1], 3, 1, 1);
      a = with_outputs(a);
      a.implementation = SL__WINOGRAD;
      if (!sl__conv_backward_data_winograd_serves(&a)) continue;
      served++;
      check_all(a);
    }
  assert_true(served >= 6);
  struct sl__conv_args strided = with_outputs(square(5, 16, 32, 16, 3, 2, 1));
  assert_false(sl__conv_backward_data_winograd_serves(&strided));
}

/* Images larger than their outputs by tiles, others by rotated filters. */
static void winograd_by_fives(void **state) {
  int by_tiles = 0, rotated = 0;
  (void)state;
  for (int i = 0; i < 60; i += EVERY) {
    struct sl__conv_args a = square(from(1, 5, 0, i), from(16, 35, 1, i), from(5, 20, 2, i),
                                    from(16, 40, 3, i), 5, 1, from(0, 4, 4, i));
    a.width = from(5, i % 3 ? 14 : 37, 5, i);
    if (i % 3 == 0) a.pad_w = from(0, 4, 6, i);
    a.implementation = SL__WINOGRAD;
    a = with_outputs(a);
    if (!sl__conv_backward_data_winograd_serves(&a)) continue;
    *(sl__winograd_backward_data_serves(&a) ? &by_tiles : &rotated) += 1;
    check_all(a);
  }
  struct sl__conv_args lenet = square(5, 20, 12, 50, 5, 1, 0);
  lenet.implementation = SL__WINOGRAD;
  check_all(lenet);
  for (int pad = 5; pad <= 7; pad++) { /* the rotated filters would have less than none */
    struct sl__conv_args wide = with_outputs(square(2, 16, 12, 16, 5, 1, pad));
    assert_false(sl__conv_backward_data_winograd_serves(&wide));
  }
  if (by_tiles < 10 / EVERY || rotated < 10 / EVERY)
    fail_msg("%d by tiles, %d by rotated filters", by_tiles, rotated);
}

static void winograd_by_tiles_serves(void **state) {
  struct sl__conv_args lenet = with_outputs(square(5, 20, 12, 50, 5, 1, 0)), a = lenet;
  (void)state;
  assert_true(sl__winograd_backward_data_serves(&lenet));
  int32_t *const fields[] = {&a.kernel_h, &a.kernel_w, &a.stride_h,    &a.stride_w,
                             &a.channels, &a.channels, &a.out_channels};
  const int32_t others[] = {3, 3, 2, 2, 15, 400, 15};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    a = lenet;
    *fields[i] = others[i];
    a = with_outputs(a);
    assert_false(sl__winograd_backward_data_serves(&a));
  }
  a = square(5, 20, 12, 50, 5, 1, 0);
  a.width = 8;
  a.height = 20;
  a.pad_h = 5; /* 26 x 4 outputs of 20 x 8 pixels */
  a = with_outputs(a);
  assert_false(sl__winograd_backward_data_serves(&a));
  a = with_outputs(square(5, 20, 12, 50, 5, 1, 2)); /* as many outputs as pixels */
  assert_false(sl__winograd_backward_data_serves(&a));
  a = with_outputs(square(5, 20, 40, 50, 5, 1, 0)); /* too many */
  assert_false(sl__winograd_backward_data_serves(&a));
  a = with_outputs(square(5, 20, 9, 50, 5, 1, 0)); /* tiles that are no whole vectors */
  assert_false(sl__winograd_backward_data_serves(&a));
}

/* An image's bits, so its way, do not depend on the number of images. */
static void the_way_does_not_depend_on_the_batch(void **state) {
  int served = 0;
  (void)state;
  for (int k = 16; k <= 1024; k *= 2)
    for (int size = 4; size <= 32; size++)
      for (int pad = 0; pad < 5; pad += 2) {
        struct sl__conv_args one = square(1, 16, size, k, 5, 1, pad), many;
        if (size + 2 * pad < 5) continue;
        one = with_outputs(one);
        many = one;
        many.images = 64;
        served += sl__winograd_serves(&one);
        assert_int_equal(sl__winograd_serves(&one), sl__winograd_serves(&many));
        assert_int_equal(sl__conv_backward_data_winograd_serves(&one),
                         sl__conv_backward_data_winograd_serves(&many));
        assert_int_equal(sl__winograd_backward_data_serves(&one),
                         sl__winograd_backward_data_serves(&many));
      }
  assert_true(served > 50);
}

static struct sl__conv_args batch(int i) {
  if (i == 3) return square(7, 20, 12, 50, 5, 1, 0);
  return square(7, 16, 8 << i, 16, 3, 1 + i % 2, 1);
}

static void batches_do_not_matter(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++)
    for (int add = 0; add < 2; add++) {
      struct sl__conv_args a = batch(i);
      a.implementation = i == 1 ? SL__OWN : SL__WINOGRAD;
      a = with_outputs(a);
      struct data d = data_of(&a);
      int64_t each = sl__conv_x_size(&a), in = sl__conv_y_size(&a);
      memcpy(d.dx, d.old, (size_t)d.dxs * sizeof *d.dx);
      sl__conv_backward_data(&a, d.dy, d.weight, d.dx, d.scratch, add, 0);
      a.images = 1;
      for (int n = 0; n < 7; n++) {
        float *alone = d.old + n * each;
        sl__conv_backward_data(&a, d.dy + n * in, d.weight, alone, d.scratch, add, 0);
        assert_memory_equal(alone, d.dx + n * each, (size_t)each * sizeof *alone);
      }
      free_data(&d);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_shapes),
                                     cmocka_unit_test(shapes_of_networks),
                                     cmocka_unit_test(winograd),
                                     cmocka_unit_test(winograd_by_fives),
                                     cmocka_unit_test(winograd_by_tiles_serves),
                                     cmocka_unit_test(the_way_does_not_depend_on_the_batch),
                                     cmocka_unit_test(batches_do_not_matter)};
  return cmocka_run_group_tests_name("conv_backward_data", tests, NULL, NULL);
}
