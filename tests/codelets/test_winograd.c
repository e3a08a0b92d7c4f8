/* Convolution with fewer products (codelets/kernels/winograd.c) against a naive loop in double
 * precision, for each width of vectors that this processor has. Hard shapes: odd heights and
 * widths, single rows and columns, images of less than a vector, of whole vectors and of one tile
 * more or less, few channels and other numbers than multiples of a tile's; scratch memory that is
 * not aligned; with 5x5 taps any number of zeros around the image, too. Weights that were
 * transformed before give the same bits. Images of few tiles, whose vectors hold channels
 * (codelets/kernels/winograd_channels.c), alike. */
#include "codelets/kernels/winograd.h"
#include "codelets/kernels/winograd_channels.h"
#include "tests/common/convolution.h"

static void forward(const struct sl__conv_args *a, const float *x, const float *weight,
                    const float *bias, const struct sl__conv_epilogue *epilogue, float *y,
                    float *scratch, struct sl__work_range share, int most_lanes) {
  sl__winograd_forward(a, x, weight, false, bias, epilogue, y, scratch, share, most_lanes);
}

static float *transformed(const struct sl__conv_args *a, const float *weight) {
  int64_t n = sl__winograd_weights(a);
  float *to = guarded(n);
  fill(to, n, NAN);
  sl__winograd_transform(a, weight, 0, a->out_channels, to);
  check_guards(to, n);
  return to;
}

static void forward_formed(const struct sl__conv_args *a, const float *x, const float *weight,
                           const float *bias, const struct sl__conv_epilogue *epilogue, float *y,
                           float *scratch, struct sl__work_range share, int most_lanes) {
  float *form = transformed(a, weight);
  sl__winograd_forward(a, x, form, true, bias, epilogue, y, scratch, share, most_lanes);
  free(form);
}

static int64_t scratch(const struct sl__conv_args *a) { return sl__winograd_scratch(a, false); }
static int64_t scratch_formed(const struct sl__conv_args *a) {
  return sl__winograd_scratch(a, true);
}

static const struct way winograd = {sl__winograd_units, scratch, forward, SL__WINOGRAD, 0};
static const struct way displaced = {sl__winograd_units, scratch, forward, SL__WINOGRAD, 1};
static const struct way formed = {sl__winograd_units, scratch_formed, forward_formed, SL__WINOGRAD,
                                  0};

static struct sl__conv_args shape(int images, int channels, int height, int width,
                                  int out_channels) {
  return (struct sl__conv_args){.images = images,
                                .channels = channels,
                                .height = height,
                                .width = width,
                                .out_channels = out_channels,
                                .out_height = height,
                                .out_width = width,
                                .kernel_h = 3,
                                .kernel_w = 3,
                                .stride_h = 1,
                                .stride_w = 1,
                                .pad_h = 1,
                                .pad_w = 1};
}

/* Pixels of an image that has this number of outputs, or one pixel, which has more of them. */
static int32_t size_of(int32_t outputs, int32_t pad) {
  return outputs + 4 > 2 * pad ? outputs + 4 - 2 * pad : 1;
}

static struct sl__conv_args five(struct sl__conv_args a, int pad_h, int pad_w) {
  a.height = size_of(a.out_height, pad_h);
  a.width = size_of(a.out_width, pad_w);
  a.kernel_h = a.kernel_w = 5;
  a.pad_h = pad_h;
  a.pad_w = pad_w;
  return with_outputs(a);
}

static struct sl__conv_args random_image(int i) {
  int most = i % 3 == 0 ? 12 : 37, channels = i % 5 ? 7 : 35;
  struct sl__conv_args a = shape(from(1, 4, 0, i), from(1, channels, 1, i), from(1, most, 2, i),
                                 from(1, most, 3, i), from(1, 19, 4, i));
  if (i / 4 % 2) a = five(a, from(0, 4, 5, i), from(0, 4, 6, i));
  if (i / 2 % 2) a.images = 1;
  a.has_bias = i % 2;
  return a;
}

/* The same bits by weights that were transformed before. */
static void check_formed(struct sl__conv_args a, int most_lanes) {
  struct task task = {.args = a};
  struct memory m = memory_of(&winograd, &a);
  call_width(&winograd, &task, &m, m.whole, most_lanes);
  call_width(&formed, &task, &m, m.y, most_lanes);
  assert_memory_equal(m.y, m.whole, (size_t)m.ys * sizeof *m.y);
  free_memory(&m);
}

static void random_shapes(void **state) {
  (void)state;
  for (int w = 0; w < 3; w++)
    for (int i = 0; i < 200 && has_width(widths[w]); i += EVERY) {
      check(i % 2 ? &winograd : &displaced, random_image(i), widths[w]);
      check_formed(random_image(i), widths[w]);
    }
}

/* All small images: every place at which vectors, rows and units may begin and end. */
static void every_small_image(void **state) {
  (void)state;
  for (int w = 0; w < 3; w++)
    for (int height = 1; height <= 21 && has_width(widths[w]); height++)
      for (int width = 1 + height % EVERY; width <= 21; width += EVERY) {
        struct sl__conv_args a = shape(1, 2, height, width, 1);
        a.has_bias = width % 2;
        check(&winograd, a, widths[w]);
        check(&winograd, five(a, height % 5, width % 5), widths[w]);
      }
}

/* Every number of channels that a tile may have, and of vectors, an odd one too. */
static void every_tile(void **state) {
  (void)state;
  for (int w = 0; w < 3; w++)
    for (int k = 1; k <= 17 && has_width(widths[w]); k++)
      for (int images = 1; images <= 9; images++)
        for (int fives = 0; fives < 2; fives++) {
          struct sl__conv_args a = shape(images, 3, 4, widths[w], k);
          check(&winograd, fives ? five(a, 0, 2) : a, widths[w]);
        }
}

/* C, H, W, K, N */
static const int networks[][5] = {
    {16, 32, 32, 16, 1}, {32, 16, 16, 32, 1}, {64, 8, 8, 64, 1},  {16, 8, 8, 24, 5},
    {16, 7, 7, 18, 3},   {17, 13, 13, 16, 2}, {16, 28, 28, 8, 2}, {3, 40, 40, 17, 1},
    {16, 56, 17, 9, 1},  {2, 3, 1001, 3, 2},  {2, 1001, 3, 3, 2}, {16, 1, 50, 16, 1},
    {16, 50, 1, 16, 2},  {16, 1, 1, 16, 20},  {5, 2, 2, 8, 33},   {16, 4, 4, 16, 40},
    {1, 64, 64, 1, 1},   {2, 128, 8, 3, 2},   {2, 12, 128, 3, 1}, {2, 16, 192, 9, 1},
    {64, 16, 16, 32, 3}, {5, 14, 14, 6, 3},   {3, 33, 32, 4, 1},  {3, 30, 64, 4, 1},
    {2, 64, 4, 3, 2},    {2, 37, 4, 3, 2},    {2, 80, 16, 3, 1},  {130, 6, 6, 4, 1},
    {3, 34, 64, 5, 1}};
#define NETWORKS (sizeof networks / sizeof *networks)

/* The same shapes by 5x5 taps behind them, and LeNet's. */
static struct sl__conv_args network(size_t i) {
  const int *v = networks[i % NETWORKS];
  struct sl__conv_args a = shape(v[4], v[0], v[1], v[2], v[3]);
  if (i >= NETWORKS) a = five(a, (int)i % 5, (int)i / 5 % 5);
  if (i == 2 * NETWORKS) a = five(shape(5, 20, 8, 8, 50), 0, 0);
  a.has_bias = i % 2;
  return a;
}

static void networks_in_parts(void **state) {
  (void)state;
  for (size_t i = 0; i <= 2 * NETWORKS; i += EVERY)
    for (int w = 0; w < 3; w++) {
      if (!has_width(widths[w])) continue;
      check(&displaced, network(i), widths[w]);
      check_formed(network(i), widths[w]);
      check_cuts(i % 2 ? &winograd : &formed, network(i), (int)i, 2 + w, widths[w]);
    }
}

static struct sl__conv_args small_image(int i) {
  int most = i % 4 == 1 ? 6 : 10; /* five or six values a side are for the smaller tiles */
  struct sl__conv_args a = shape(from(1, 20, 0, i), 16 * from(1, 3, 1, i), from(4, most, 2, i),
                                 from(4, most, 3, i), from(10, 70, 4, i));
  if (i % 3 == 2) a = five(a, from(0, 2, 5, i), from(0, 2, 6, i));
  a.has_bias = i % 2;
  return a;
}

/* Parts of images begin and end anywhere among a vector's channels. */
static void small_images_go_by_channels(void **state) {
  int by_channels[3] = {0};
  (void)state;
  for (int i = 0; i < 60; i += EVERY) {
    struct sl__conv_args a = small_image(i);
    int layout = sl__winograd_layout(&a);
    if (layout >= KINDS) by_channels[layout - KINDS]++;
    for (int w = 0; w < 3 && has_width(widths[w]); w++) {
      check(i % 2 ? &winograd : &displaced, a, widths[w]);
      check_after(&winograd, a, widths[w]);
      check_formed(a, widths[w]);
      check_cuts(i % 4 < 2 ? &winograd : &formed, a, i, 2 + i % 5, widths[w]);
      check_batch(&winograd, a, widths[w]);
    }
    check_kernel(&winograd, a, 2 + i % 3);
  }
  for (int kind = 0; kind < 3 && EVERY == 1; kind++)
    if (by_channels[kind] < 5) fail_msg("kind %d: %d by channels", kind, by_channels[kind]);
}

static void the_batch_changes_nothing(void **state) {
  (void)state;
  for (int w = 0; w < 3; w++) {
    if (!has_width(widths[w])) continue;
    for (size_t i = 0; i <= 2 * NETWORKS; i += EVERY) check_batch(&winograd, network(i), widths[w]);
    for (int images = 2; images <= 9; images++)
      check_batch(&winograd, shape(images, 3, images, 5, 7), widths[w]);
  }
}

/* Cut between planes, some of an image's and some of the next one's, and between rows. */
static void parts_give_the_bits_of_the_whole(void **state) {
  static const int parts[] = {2, 3, 5, 11};
  (void)state;
  for (int w = 0; w < 3; w++) {
    int by_planes = 0, by_rows = 0;
    if (!has_width(widths[w])) continue;
    for (int i = 0; i < 200; i += EVERY) {
      struct sl__conv_args a = random_image(i);
      bool planes;
      sl__winograd_units(&a, &planes, widths[w]);
      by_planes += planes;
      by_rows += !planes;
      check_cuts(i % 7 ? &winograd : &formed, a, i, parts[i % 4], widths[w]);
    }
    if (by_planes < 20 / EVERY || by_rows < 20 / EVERY)
      fail_msg("%d by planes, %d by rows", by_planes, by_rows);
  }
}

/* The kernel's form of its parameter: transformed weights, the biases behind. */
static void call_formed_kernel(const struct way *way, struct task *task, const struct memory *m,
                               float *y, int most_lanes) {
  const struct sl__conv_args *a = &task->args;
  float *form = transformed(a, m->weight); /* K <= GUARDS */
  struct memory other = *m;
  other.weight = form;
  if (m->bias)
    memcpy(form + sl__winograd_weights(a), m->bias, (size_t)a->out_channels * sizeof *form);
  task->header.is_prepacked = 1;
  call_kernel(way, task, &other, y, most_lanes);
  task->header.is_prepacked = 0;
  free(form);
}

static void the_kernel_is_cut_alike(void **state) {
  static const int parts[] = {2, 3, 5};
  (void)state;
  for (int i = 0; i < 100; i += EVERY) {
    struct sl__conv_args a = random_image(i);
    if (i % 4 == 1) a.out_channels = a.out_channels % 3 * 8 + 8;
    a.activation = from(SL_ACTIVATION_NONE, SL_ACTIVATION_SILU, 11, i);
    check_kernel(&winograd, a, parts[i % 3]);
    a.implementation = SL__WINOGRAD;
    struct task task = {.args = a};
    struct memory m = memory_of(&winograd, &a);
    call_kernel(&winograd, &task, &m, m.whole, 0);
    call_formed_kernel(&winograd, &task, &m, m.y, 0);
    assert_memory_equal(m.y, m.whole, (size_t)m.ys * sizeof *m.y);
    free_memory(&m);
  }
}

/* Row i of G: powers of a point of the transform over its distances from the others; at infinity
 * the last power. */
static void row_of_g(int count, const double *points, int i, int taps, double row[5]) {
  double apart = 1;
  for (int k = 0; k < taps; k++) row[k] = k == taps - 1;
  if (i == count) return;
  for (int j = 0; j < count; j++)
    if (j != i) apart *= points[i] - points[j];
  for (int k = 0; k < taps; k++) row[k] = pow(points[i], k) / apart;
}

/* G g G' of one window's weights. With few points the first row's sign is another. */
static void in_double(const float *weight, int n, int taps, double to[6][6]) {
  static const double few[] = {0, 1, -1}, many[] = {0, 0.625, -0.625, 1.5, -1.5};
  double g[6][5];
  for (int i = 0; i < n; i++) row_of_g(n - 1, n == 4 ? few : many, i, taps, g[i]);
  if (n == 4) g[0][0] = 1;
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      to[i][j] = 0;
      for (int r = 0; r < taps; r++)
        for (int s = 0; s < taps; s++) to[i][j] += g[i][r] * (double)weight[r * taps + s] * g[j][s];
    }
}

/* n: values a side of what becomes of a window. */
static void check_transform(int n, int taps, int channels, int out_channels, int first, int end) {
  int side = n == 6 ? 16 : 8;
  struct sl__conv_args a = shape(1, channels, side, side, out_channels), some;
  if (taps == 5) a = five(a, 2, 2);
  some = a;
  some.out_channels = end - first;
  int64_t count = sl__winograd_weights(&some), each = count / (n * n);
  assert_int_equal(count, n * n * (some.out_channels * channels + 16));
  float *weight = random_floats(out_channels * sl__conv_taps(&a), 4), *to = guarded(count);
  sl__winograd_transform(&a, weight, first, end, to);
  check_guards(to, count);
  for (int64_t k = 0; k < end - first; k++)
    for (int64_t c = 0; c < channels; c++) {
      double want[6][6];
      in_double(weight + ((first + k) * channels + c) * taps * taps, n, taps, want);
      for (int64_t place = 0; place < n * n; place++) {
        double got = (double)to[place * each + k * channels + c];
        assert_true(fabs(got - want[place / n][place % n]) < 1e-6);
      }
    }
  free(weight);
  free(to);
}

static void weights_are_transformed(void **state) {
  (void)state;
  static const int sizes[][2] = {{4, 3}, {6, 3}, {6, 5}};
  for (int i = 0; i < 3; i++) {
    int n = sizes[i][0], taps = sizes[i][1];
    for (int channels = 1; channels <= 50; channels++) check_transform(n, taps, channels, 6, 0, 6);
    for (int first = 0; first < 7; first++)
      for (int end = first + 1; end <= 7; end++)
        check_transform(n, taps, 16 + first, 7, first, end);
  }
}

static void what_it_serves(void **state) {
  (void)state;
  struct sl__conv_args good = shape(1, 16, 8, 8, 16), a = good;
  assert_true(sl__winograd_serves(&good));
  int32_t *const fields[] = {&a.kernel_h, &a.kernel_w, &a.stride_h, &a.stride_w,    &a.pad_h,
                             &a.pad_w,    &a.channels, &a.channels, &a.out_channels};
  const int32_t others[] = {1, 5, 2, 2, 0, 2, 15, 3, 15};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    a = good;
    *fields[i] = others[i];
    assert_false(sl__winograd_serves(&a));
  }
  a = shape(1000000, 16, 100, 100, 16); /* images are apart */
  assert_true(sl__winograd_serves(&a));
  a = shape(1, 16, 8000, 8000, 16);
  assert_false(sl__winograd_serves(&a));
  a = shape(1, 70000, 100, 100, 16);
  assert_false(sl__winograd_serves(&a));
  a = shape(1, 16, 100, 100, 70000);
  assert_false(sl__winograd_serves(&a));
  a = shape(1, 256, 14, 14, 256);
  assert_true(sl__winograd_serves(&a));
  a = shape(1, 512, 14, 14, 512); /* weights */
  assert_false(sl__winograd_serves(&a));
  a = shape(8, 65, 5, 5, 64); /* tiles that are no whole vectors, and that lie beyond the image */
  assert_false(sl__winograd_serves(&a));
  a = shape(8, 16, 1, 2000, 16);
  assert_false(sl__winograd_serves(&a));
  a = shape(1, 16, 32, 1 << 17, 16); /* a row of tiles that no cache holds */
  assert_false(sl__winograd_serves(&a));
  for (int pad = 0; pad <= 4; pad++) {
    a = five(shape(2, 20, 8, 8, 50), pad, 4 - pad);
    assert_true(sl__winograd_serves(&a));
  }
  a.pad_h = 5;
  a = with_outputs(a);
  assert_false(sl__winograd_serves(&a));
  a = five(shape(2, 128, 8, 8, 129), 0, 0); /* weights */
  assert_false(sl__winograd_serves(&a));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_shapes),
                                     cmocka_unit_test(every_small_image),
                                     cmocka_unit_test(every_tile),
                                     cmocka_unit_test(networks_in_parts),
                                     cmocka_unit_test(small_images_go_by_channels),
                                     cmocka_unit_test(the_batch_changes_nothing),
                                     cmocka_unit_test(parts_give_the_bits_of_the_whole),
                                     cmocka_unit_test(the_kernel_is_cut_alike),
                                     cmocka_unit_test(weights_are_transformed),
                                     cmocka_unit_test(what_it_serves)};
  (void)plain, (void)adding, (void)context;
  return cmocka_run_group_tests_name("winograd", tests, NULL, NULL);
}
