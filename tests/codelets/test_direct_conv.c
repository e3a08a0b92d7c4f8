/* Convolution without a matrix (codelets/kernels/direct_conv.c) against a naive loop in double
 * precision, for each width of vectors that this processor has: random shapes and those at which
 * vectors begin or end somewhere else; nothing is written behind the end of y, or of the scratch
 * memory. In parts it gives the same bits, each part its own planes and nothing else. */
#include "codelets/kernels/conv_frame.h"
#include "codelets/kernels/direct_conv.h"
#include "tests/common/convolution.h"

static const struct way direct = {sl__direct_conv_units, sl__direct_conv_scratch,
                                  sl__direct_conv_forward, SL__OWN, 0};

static void check_fitting(struct sl__conv_args a, int most_lanes) {
  a = with_outputs(a);
  assert_true(sl__conv_frame_fits(&a));
  check(&direct, a, most_lanes);
}

static struct sl__conv_args random_with_bias(int i) {
  struct sl__conv_args a = random_shape(i, 3, 5, 19);
  a.has_bias = i % 2;
  return a;
}

static void random_shapes(void **state) {
  (void)state;
  for (int w = 0; w < 3; w++)
    for (int i = 0; i < 150 && has_width(widths[w]); i++)
      check_fitting(random_with_bias(i), widths[w]);
}

/* Every number of vectors and of channels that a tile may have, with outputs as wide as vectors and
 * one more or less. */
static void every_tile(void **state) {
  (void)state;
  for (int w = 0; w < 3; w++)
    for (int width = 15; width <= 17 && has_width(widths[w]); width++)
      for (int height = 1; height <= 6; height++)
        for (int channels = 1; channels <= 9; channels++)
          check_fitting((struct sl__conv_args){.images = 1,
                                               .channels = 2,
                                               .height = height,
                                               .width = width,
                                               .out_channels = channels,
                                               .kernel_h = 3,
                                               .kernel_w = 3,
                                               .stride_h = 1,
                                               .stride_w = 1,
                                               .pad_h = 1,
                                               .pad_w = 1},
                        widths[w]);
}

static struct sl__conv_args plain_shape(int kernel_h, int kernel_w, int stride, int height,
                                        int width) {
  return (struct sl__conv_args){.images = 1,
                                .channels = 1,
                                .height = height,
                                .width = width,
                                .out_channels = 4,
                                .kernel_h = kernel_h,
                                .kernel_w = kernel_w,
                                .stride_h = stride,
                                .stride_w = stride};
}

/* Long kernels on narrow images, where wide vectors are more than narrow ones; strides beyond the
 * kernel and beyond the image. */
static void odd_shapes(void **state) {
  (void)state;
  for (int w = 0; w < 3; w++) {
    if (!has_width(widths[w])) continue;
    check_fitting(plain_shape(1, 7, 1, 148, 10), widths[w]);
    check_fitting(plain_shape(1, 31, 1, 60, 34), widths[w]);
    check_fitting(plain_shape(1, 29, 1, 200, 36), widths[w]);
    check_fitting(plain_shape(1, 1, 2, 9, 9), widths[w]);
    check_fitting(plain_shape(2, 2, 7, 23, 30), widths[w]);
    check_fitting(plain_shape(3, 3, 2000000000, 5, 5), widths[w]);
  }
}

static void the_batch_changes_nothing(void **state) {
  (void)state;
  struct sl__conv_args a = {.images = 5,
                            .channels = 3,
                            .height = 10,
                            .width = 9,
                            .out_channels = 7,
                            .kernel_h = 3,
                            .kernel_w = 3,
                            .stride_h = 1,
                            .stride_w = 1,
                            .pad_h = 1,
                            .pad_w = 1};
  check_batch(&direct, a, 0);
}

static void parts_give_the_bits_of_the_whole(void **state) {
  static const int parts[] = {2, 3, 5};
  (void)state;
  for (int w = 0; w < 3; w++)
    for (int i = 0; i < 150 && has_width(widths[w]); i++)
      check_cuts(&direct, with_outputs(random_with_bias(i)), i, parts[i % 3], widths[w]);
}

/* So does the kernel, with activations, cut between the units that it names. */
static void the_kernel_is_cut_alike(void **state) {
  static const int parts[] = {2, 3, 5};
  (void)state;
  for (int i = 0; i < 150; i++) {
    struct sl__conv_args a = with_outputs(random_with_bias(i));
    if (i % 4 == 1) a.out_channels = a.out_channels % 3 * 8 + 8;
    a.activation = from(SL_ACTIVATION_NONE, SL_ACTIVATION_SILU, 11, i);
    check_kernel(&direct, a, parts[i % 3]);
  }
}

/* Networks' shapes: rows that are whole vectors or not, and frames with and without copies. */
static void networks_in_parts(void **state) {
  static const int shapes[][7] = {/* C, H = W, K, R = S, stride, pad, N */
                                  {16, 32, 16, 3, 1, 1, 1}, {64, 8, 64, 3, 1, 1, 1},
                                  {64, 8, 64, 3, 1, 1, 3},  {16, 32, 32, 3, 2, 1, 1},
                                  {32, 16, 64, 3, 2, 1, 2}, {16, 32, 32, 1, 2, 0, 1},
                                  {1, 28, 20, 5, 1, 0, 1},  {20, 12, 50, 5, 1, 0, 2},
                                  {3, 30, 8, 3, 1, 1, 1},   {5, 13, 8, 11, 4, 5, 1}};
  (void)state;
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int w = 0; w < 3; w++) {
      const int *v = shapes[i];
      struct sl__conv_args a = with_outputs((struct sl__conv_args){.images = v[6],
                                                                   .channels = v[0],
                                                                   .height = v[1],
                                                                   .width = v[1],
                                                                   .out_channels = v[2],
                                                                   .kernel_h = v[3],
                                                                   .kernel_w = v[3],
                                                                   .stride_h = v[4],
                                                                   .stride_w = v[4],
                                                                   .pad_h = v[5],
                                                                   .pad_w = v[5]});
      if (!has_width(widths[w])) continue;
      check_fitting(a, widths[w]);
      check_parts(&direct, call_width, a, units_of(&direct, &a, widths[w]), 2 + w, widths[w]);
    }
}

static void what_needs_more_than_32_bits_is_not_for_it(void **state) {
  (void)state;
  struct sl__conv_args a = {.images = 1,
                            .channels = 70000,
                            .height = 300,
                            .width = 300,
                            .out_channels = 1,
                            .out_height = 300,
                            .out_width = 300,
                            .kernel_h = 1,
                            .kernel_w = 1,
                            .stride_h = 1,
                            .stride_w = 1};
  assert_false(sl__conv_frame_fits(&a));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_shapes),
                                     cmocka_unit_test(every_tile),
                                     cmocka_unit_test(odd_shapes),
                                     cmocka_unit_test(the_batch_changes_nothing),
                                     cmocka_unit_test(parts_give_the_bits_of_the_whole),
                                     cmocka_unit_test(the_kernel_is_cut_alike),
                                     cmocka_unit_test(networks_in_parts),
                                     cmocka_unit_test(what_needs_more_than_32_bits_is_not_for_it)};
  (void)plain, (void)adding, (void)context;
  return cmocka_run_group_tests_name("direct", tests, NULL, NULL);
}
