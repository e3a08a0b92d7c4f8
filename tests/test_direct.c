/* Convolution without a matrix (codelets/direct.c) against a naive loop in double precision, for
 * each width of vectors that this processor has: random shapes and those at which vectors begin or
 * end somewhere else; nothing is written behind the end of y, or of the scratch memory. In parts it
 * gives the same bits, each part its own planes and nothing else. */
#include "check.h"
#include "codelets/direct.h"
#include "codelets/tiles.h"

static const float guard = 12345.5f;
static const struct sl__after nothing;
enum { GUARDS = 64 };

static float *guarded(int64_t n) {
  float *v = calloc((size_t)(n + GUARDS), sizeof *v);
  for (int i = 0; i < GUARDS; i++) v[n + i] = guard;
  return v;
}

static void check_guards(const float *v, int64_t n) {
  for (int i = 0; i < GUARDS; i++) assert_true(v[n + i] == guard);
}

static double naive(const struct sl__conv_args *a, const float *x, const float *weight, double sum,
                    int k, int oh, int ow) {
  for (int c = 0; c < a->channels; c++)
    for (int r = 0; r < a->kernel_h; r++)
      for (int s = 0; s < a->kernel_w; s++) {
        int h = oh * a->stride_h - a->pad_h + r, w = ow * a->stride_w - a->pad_w + s;
        if (h < 0 || w < 0 || h >= a->height || w >= a->width) continue;
        sum += (double)x[(c * a->height + h) * a->width + w] *
               (double)weight[((k * a->channels + c) * a->kernel_h + r) * a->kernel_w + s];
      }
  return sum;
}

static void compare(const struct sl__conv_args *a, const float *x, const float *weight,
                    const float *bias, const float *y) {
  for (int n = 0; n < a->images; n++, x += sl__conv_x_size(a))
    for (int k = 0; k < a->out_channels; k++)
      for (int oh = 0; oh < a->out_height; oh++)
        for (int ow = 0; ow < a->out_width; ow++, y++) {
          double want = naive(a, x, weight, bias ? (double)bias[k] : 0, k, oh, ow);
          if (!(fabs((double)*y - want) <= 1e-5 * (1 + fabs(want))))
            fail_msg("image %d channel %d (%d, %d): %g, not %g", n, k, oh, ow, (double)*y, want);
        }
}

static float *random_floats(int64_t n, uint64_t stream) {
  float *v = calloc((size_t)n, sizeof *v);
  for (int64_t i = 0; i < n; i++) v[i] = 2 * sl__uniform(1, stream, (uint64_t)i) - 1;
  return v;
}

static struct sl__conv_args with_outputs(struct sl__conv_args a) {
  a.out_height = (a.height + 2 * a.pad_h - a.kernel_h) / a.stride_h + 1;
  a.out_width = (a.width + 2 * a.pad_w - a.kernel_w) / a.stride_w + 1;
  return a;
}

static struct sl__share all_of(const struct sl__conv_args *a, int most_lanes) {
  bool planes;
  return (struct sl__share){0, sl__direct_units(a, &planes, most_lanes)};
}

static void check(struct sl__conv_args a, int most_lanes) {
  a = with_outputs(a);
  int64_t ys = a.images * sl__conv_y_size(&a), scratches = sl__direct_scratch(&a);
  float *x = random_floats(a.images * sl__conv_x_size(&a), 1);
  float *weight = random_floats(a.out_channels * sl__conv_taps(&a), 2);
  float *bias = a.has_bias ? random_floats(a.out_channels, 3) : NULL;
  float *y = guarded(ys), *scratch = guarded(scratches);
  assert_true(sl__direct_fits(&a));
  for (int64_t i = 0; i < scratches; i++) scratch[i] = NAN; /* nothing is hoped for */
  for (int64_t i = 0; i < ys; i++) y[i] = NAN;
  sl__direct_forward(&a, x, weight, bias, &nothing, y, scratch, all_of(&a, most_lanes), most_lanes);
  compare(&a, x, weight, bias, y);
  check_guards(y, ys);
  check_guards(scratch, scratches);
  free(x);
  free(weight);
  free(bias);
  free(y);
  free(scratch);
}

static int from(int first, int last, uint64_t stream, int i) {
  return first + (int)(sl__uniform(7, stream, (uint64_t)i) * (float)(last - first + 1));
}

static struct sl__conv_args random_shape(int i) {
  struct sl__conv_args a = {.images = from(1, 3, 0, i),
                            .channels = from(1, 5, 1, i),
                            .out_channels = from(1, 19, 2, i),
                            .kernel_h = from(1, 5, 3, i),
                            .kernel_w = from(1, 5, 4, i),
                            .stride_h = from(1, 3, 5, i),
                            .stride_w = from(1, 3, 6, i),
                            .has_bias = i % 2};
  a.pad_h = from(0, a.kernel_h, 7, i);
  a.pad_w = from(0, a.kernel_w, 8, i);
  a.height = a.kernel_h + from(0, 12, 9, i);
  a.width = a.kernel_w + from(0, 37, 10, i);
  return a;
}

static const int widths[] = {4, 8, 16};

static bool has_width(int lanes) { return sl__lanes(lanes) == lanes; }

static void random_shapes(void **state) {
  (void)state;
  for (int w = 0; w < 3; w++)
    for (int i = 0; i < 150 && has_width(widths[w]); i++) check(random_shape(i), widths[w]);
}

/* Every number of vectors and of channels that a tile may have, with outputs as wide as vectors and
 * one more or less. */
static void every_tile(void **state) {
  (void)state;
  for (int w = 0; w < 3; w++)
    for (int width = 15; width <= 17 && has_width(widths[w]); width++)
      for (int height = 1; height <= 6; height++)
        for (int channels = 1; channels <= 9; channels++)
          check((struct sl__conv_args){.images = 1,
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
    check(plain_shape(1, 7, 1, 148, 10), widths[w]);
    check(plain_shape(1, 31, 1, 60, 34), widths[w]);
    check(plain_shape(1, 29, 1, 200, 36), widths[w]);
    check(plain_shape(1, 1, 2, 9, 9), widths[w]);
    check(plain_shape(2, 2, 7, 23, 30), widths[w]);
    check(plain_shape(3, 3, 2000000000, 5, 5), widths[w]);
  }
}

/* An image's outputs are the same bits alone and among others. */
static void the_batch_changes_nothing(void **state) {
  (void)state;
  struct sl__conv_args a = {.images = 5,
                            .channels = 3,
                            .height = 10,
                            .width = 9,
                            .out_channels = 7,
                            .out_height = 10,
                            .out_width = 9,
                            .kernel_h = 3,
                            .kernel_w = 3,
                            .stride_h = 1,
                            .stride_w = 1,
                            .pad_h = 1,
                            .pad_w = 1};
  int64_t each = sl__conv_y_size(&a), in = sl__conv_x_size(&a);
  float *x = random_floats(5 * in, 1), *weight = random_floats(7 * sl__conv_taps(&a), 2);
  float *all = calloc((size_t)(5 * each), sizeof *all), *one = calloc((size_t)each, sizeof *one);
  float *scratch = calloc((size_t)sl__direct_scratch(&a), sizeof *scratch);
  sl__direct_forward(&a, x, weight, NULL, &nothing, all, scratch, all_of(&a, 0), 0);
  a.images = 1;
  for (int n = 0; n < 5; n++) {
    sl__direct_forward(&a, x + n * in, weight, NULL, &nothing, one, scratch, all_of(&a, 0), 0);
    assert_memory_equal(one, all + n * each, (size_t)each * sizeof *one);
  }
  free(x);
  free(weight);
  free(all);
  free(one);
  free(scratch);
}

/* ---- in parts ---- */

struct task {
  struct sl__args_header header;
  struct sl__conv_args args;
};

/* What a task works on; weight: and the bias behind. */
struct memory {
  int64_t xs, weights, ys, scratches;
  float *x, *weight, *whole, *y, *scratch, *after;
};

static struct memory memory_of(const struct sl__conv_args *a) {
  struct memory m = {.xs = a->images * sl__conv_x_size(a),
                     .weights = a->out_channels * (sl__conv_taps(a) + a->has_bias),
                     .ys = a->images * sl__conv_y_size(a),
                     .scratches = sl__direct_scratch(a)};
  m.x = random_floats(m.xs, 1);
  m.weight = random_floats(m.weights, 2);
  m.whole = guarded(m.ys);
  m.y = guarded(m.ys);
  m.scratch = guarded(m.scratches);
  m.after = random_floats(m.ys + a->out_channels + 3, 3);
  return m;
}

static void free_memory(struct memory *m) {
  free(m->x);
  free(m->weight);
  free(m->whole);
  free(m->y);
  free(m->scratch);
  free(m->after);
}

static void fill(float *v, int64_t n, float value) {
  for (int64_t i = 0; i < n; i++) v[i] = value;
}

/* As a program calls it. */
static void call_kernel(struct task *task, const struct memory *m, float *y, int most_lanes) {
  struct starpu_vector_interface v[] = {{.ptr = (uintptr_t)m->x},
                                        {.ptr = (uintptr_t)m->weight},
                                        {.ptr = (uintptr_t)y},
                                        {.ptr = (uintptr_t)m->scratch}};
  (void)most_lanes;
  sl__op_conv2d_forward.codelet.cpu_funcs[0]((void *[]){&v[0], &v[1], &v[2], &v[3]}, task);
}

/* The same for vectors of any width, without the kernel's activation; cut between any channels. */
static void call_width(struct task *task, const struct memory *m, float *y, int most_lanes) {
  const struct sl__conv_args *a = &task->args;
  const float *bias = a->has_bias ? m->weight + a->out_channels * sl__conv_taps(a) : NULL;
  struct sl__share share = sl__share(task, all_of(a, most_lanes).end);
  sl__direct_forward(a, m->x, m->weight, bias, &nothing, y, m->scratch, share, most_lanes);
}

/* With all that may come after an output; the vectors of channels are parts of x. */
static struct sl__after after_of(const struct memory *m) {
  return (struct sl__after){m->after, m->after + 1, m->after + 2, m->after + 3};
}

static void call_after(struct task *task, const struct memory *m, float *y, int most_lanes) {
  const struct sl__conv_args *a = &task->args;
  const float *bias = a->has_bias ? m->weight + a->out_channels * sl__conv_taps(a) : NULL;
  struct sl__share share = sl__share(task, all_of(a, most_lanes).end);
  struct sl__after after = after_of(m);
  sl__direct_forward(a, m->x, m->weight, bias, &after, y, m->scratch, share, most_lanes);
}

/* What comes after is that of values that were written before. */
static void check_after(struct sl__conv_args a, int most_lanes) {
  struct memory m = memory_of(&a);
  struct task task = {.args = a};
  struct sl__after after = after_of(&m);
  task.args.activation = SL_ACTIVATION_NONE;
  call_width(&task, &m, m.whole, most_lanes);
  task.args.activation = a.activation;
  call_after(&task, &m, m.y, most_lanes);
  for (int64_t i = 0; i < m.ys; i++) {
    int64_t k = i / sl__conv_pixels(&a) % a.out_channels;
    double v = (double)after.scale[k] * ((double)m.whole[i] - (double)after.mean[k]) +
               (double)after.shift[k] + (double)after.residual[i];
    if (a.activation == SL_ACTIVATION_RELU && v < 0) v = 0;
    if (a.activation == SL_ACTIVATION_TANH) v = tanh(v);
    assert_true(fabs(v - (double)m.y[i]) < 1e-5 * (1 + fabs(v)));
  }
  free_memory(&m);
}

typedef void call(struct task *task, const struct memory *m, float *y, int most_lanes);

/* Each value is written by one part, and is the whole's. */
static void check_parts(call *run, struct sl__conv_args a, int64_t units, int parts,
                        int most_lanes) {
  struct memory m = memory_of(&a);
  struct task task = {.args = a};
  int *writers = calloc((size_t)m.ys, sizeof *writers);
  run(&task, &m, m.whole, most_lanes);
  task.header.parts = (uint32_t)parts;
  task.header.units = units;
  for (int part = parts; part--;) {
    task.header.part = (uint32_t)part;
    fill(m.y, m.ys, guard);
    fill(m.scratch, m.scratches, NAN); /* it has its own */
    run(&task, &m, m.y, most_lanes);
    for (int64_t i = 0; i < m.ys; i++) {
      bool writes = memcmp(m.y + i, &guard, sizeof guard) != 0;
      writers[i] += writes;
      if (writes) assert_memory_equal(m.y + i, m.whole + i, sizeof *m.y);
    }
    check_guards(m.y, m.ys);
    check_guards(m.scratch, m.scratches);
  }
  for (int64_t i = 0; i < m.ys; i++) assert_int_equal(writers[i], 1);
  free(writers);
  free_memory(&m);
}

static void parts_give_the_bits_of_the_whole(void **state) {
  static const int parts[] = {2, 3, 5};
  (void)state;
  for (int w = 0; w < 3; w++)
    for (int i = 0; i < 150 && has_width(widths[w]); i++) {
      struct sl__conv_args a = with_outputs(random_shape(i));
      check_parts(call_width, a, all_of(&a, widths[w]).end, parts[i % 3], widths[w]);
      a.activation = i % 3 == 0   ? SL_ACTIVATION_NONE
                     : i % 3 == 1 ? SL_ACTIVATION_RELU
                                  : SL_ACTIVATION_TANH;
      check_after(a, widths[w]);
      check_parts(call_after, a, all_of(&a, widths[w]).end, parts[i % 3], widths[w]);
    }
}

/* So does the kernel, with activations, cut between the units that it names. */
static void the_kernel_is_cut_alike(void **state) {
  static const int parts[] = {2, 3, 5};
  (void)state;
  for (int i = 0; i < 150; i++) {
    struct sl__conv_args a = with_outputs(random_shape(i));
    if (i % 4 == 1) a.out_channels = a.out_channels % 3 * 8 + 8;
    a.activation = from(SL_ACTIVATION_NONE, SL_ACTIVATION_GELU, 11, i);
    a.implementation = SL_DIRECT;
    bool planes;
    int64_t units = sl__direct_units(&a, &planes, 0);
    check_parts(call_kernel, a, planes && a.out_channels % 8 == 0 ? units / 8 : units, parts[i % 3],
                0);
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
      check(a, widths[w]);
      check_parts(call_width, a, all_of(&a, widths[w]).end, 2 + w, widths[w]);
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
  assert_false(sl__direct_fits(&a));
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
