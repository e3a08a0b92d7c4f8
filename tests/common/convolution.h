/* Common tests of the convolutions without a matrix of windows: each value against a naive loop in
 * double precision; no write behind the end of y or of the scratch memory; an image has the same
 * bits alone and among others; divided into parts the result has the same bits, and each part
 * writes its own values only. */
#ifndef SL_TESTS_COMMON_CONVOLUTION_H
#define SL_TESTS_COMMON_CONVOLUTION_H

#include "tests/common/check.h"
#include "tests/common/every.h"
#include "codelets/kernels/conv_epilogue.h"
#include "codelets/kernels/tiles.h"
#include "core/runtime/submit.h"

/* The functions of one of them: see codelets/kernels/direct_conv.h. */
struct way {
  int64_t (*units)(const struct sl__conv_args *a, bool *planes, int most_lanes);
  int64_t (*scratch)(const struct sl__conv_args *a);
  void (*forward)(const struct sl__conv_args *a, const float *x, const float *weight,
                  const float *bias, const struct sl__conv_epilogue *after, float *y,
                  float *scratch, struct sl__work_range share, int most_lanes);
  enum sl__implementation implementation;
  int displaced; /* floats from aligned memory to the scratch memory that it gets */
};

static const float guard = 12345.5f;
static const struct sl__conv_epilogue nothing;
enum { GUARDS = 64 };

static const int widths[] = {4, 8, 16};

static inline bool has_width(int lanes) { return sl__lanes(lanes) == lanes; }

static inline float *guarded(int64_t n) {
  float *v = calloc((size_t)(n + GUARDS), sizeof *v);
  for (int i = 0; i < GUARDS; i++) v[n + i] = guard;
  return v;
}

static inline void check_guards(const float *v, int64_t n) {
  for (int i = 0; i < GUARDS; i++) assert_true(v[n + i] == guard);
}

static inline void fill(float *v, int64_t n, float value) {
  for (int64_t i = 0; i < n; i++) v[i] = value;
}

static inline struct sl__conv_args with_outputs(struct sl__conv_args a) {
  a.out_height = (a.height + 2 * a.pad_h - 1 - (int)sl__conv_span_h(&a)) / a.stride_h + 1;
  a.out_width = (a.width + 2 * a.pad_w - 1 - (int)sl__conv_span_w(&a)) / a.stride_w + 1;
  return a;
}

static inline struct sl__conv_args square(int images, int channels, int size, int out_channels,
                                          int kernel, int stride, int pad) {
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

/* The i-th random shape with at most these numbers of images and channels; half are dilated. */
static inline struct sl__conv_args random_shape(int i, int images, int channels, int out_channels) {
  struct sl__conv_args a = {.images = from(1, images, 0, i),
                            .channels = from(1, channels, 1, i),
                            .out_channels = from(1, out_channels, 2, i),
                            .kernel_h = from(1, 5, 3, i),
                            .kernel_w = from(1, 5, 4, i),
                            .stride_h = from(1, 3, 5, i),
                            .stride_w = from(1, 3, 6, i),
                            .gap_h = i % 2 * from(0, 2, 11, i),
                            .gap_w = i % 2 * from(0, 2, 12, i)};
  a.pad_h = from(0, a.kernel_h, 7, i);
  a.pad_w = from(0, a.kernel_w, 8, i);
  a.height = 1 + (int)sl__conv_span_h(&a) + from(0, 12, 9, i);
  a.width = 1 + (int)sl__conv_span_w(&a) + from(0, 37, 10, i);
  return a;
}

static inline double naive(const struct sl__conv_args *a, const float *x, const float *weight,
                           double sum, int k, int oh, int ow) {
  for (int c = 0; c < a->channels; c++)
    for (int r = 0; r < a->kernel_h; r++)
      for (int s = 0; s < a->kernel_w; s++) {
        int h = oh * a->stride_h - a->pad_h + r * (a->gap_h + 1);
        int w = ow * a->stride_w - a->pad_w + s * (a->gap_w + 1);
        if (h < 0 || w < 0 || h >= a->height || w >= a->width) continue;
        sum += (double)x[(c * a->height + h) * a->width + w] *
               (double)weight[((k * a->channels + c) * a->kernel_h + r) * a->kernel_w + s];
      }
  return sum;
}

/* Adds an image's terms of the weights' gradient (weight is NULL) or of the input's (x is NULL) to
 * grad, and the terms' sizes to size. */
static inline void add_terms(const struct sl__conv_args *a, const float *x, const float *weight,
                             const float *dy, double *grad, double *size) {
  int taps = (int)sl__conv_taps(a);
  for (int k = 0; k < a->out_channels; k++)
    for (int oh = 0; oh < a->out_height; oh++)
      for (int ow = 0; ow < a->out_width; ow++, dy++)
        for (int t = 0; t < taps; t++) {
          int h = oh * a->stride_h - a->pad_h + t / a->kernel_w % a->kernel_h * (a->gap_h + 1);
          int w = ow * a->stride_w - a->pad_w + t % a->kernel_w * (a->gap_w + 1);
          int c = t / a->kernel_w / a->kernel_h;
          if (h < 0 || w < 0 || h >= a->height || w >= a->width) continue;
          int pixel = (c * a->height + h) * a->width + w, tap = k * taps + t;
          double term = (double)*dy * (double)(x ? x[pixel] : weight[tap]);
          grad[x ? tap : pixel] += term;
          size[x ? tap : pixel] += fabs(term);
        }
}

/* Rounding errors of transformed windows are a few times those of plain sums, and as large where a
 * sum is small: they go by what the sums of as many random values are. */
static inline void compare(const struct sl__conv_args *a, const float *x, const float *weight,
                           const float *bias, const float *y, bool is_transformed) {
  double most = is_transformed ? 1e-5 * sqrt(a->channels) : 1e-5;
  for (int n = 0; n < a->images; n++, x += sl__conv_x_size(a))
    for (int k = 0; k < a->out_channels; k++)
      for (int oh = 0; oh < a->out_height; oh++)
        for (int ow = 0; ow < a->out_width; ow++, y++) {
          double want = naive(a, x, weight, bias ? (double)bias[k] : 0, k, oh, ow);
          if (!(fabs((double)*y - want) <= most * (1 + fabs(want))))
            fail_msg("image %d channel %d (%d, %d): %g, not %g", n, k, oh, ow, (double)*y, want);
        }
}

/* ---- memory and calls ---- */

struct task {
  struct sl__args_header header;
  struct sl__conv_args args;
};

/* A task's data; weight includes the bias at its end. */
struct memory {
  int64_t xs, weights, ys, scratches;
  float *x, *weight, *bias, *whole, *y, *memory, *scratch, *after;
};

static inline struct memory memory_of(const struct way *way, const struct sl__conv_args *a) {
  int64_t taps = a->out_channels * sl__conv_taps(a);
  struct memory m = {.xs = a->images * sl__conv_x_size(a),
                     .weights = taps + a->has_bias * a->out_channels,
                     .ys = a->images * sl__conv_y_size(a),
                     .scratches = way->scratch(a)};
  if (a->implementation) m.scratches += (a->out_channels + 15) / 16 * 16; /* the kernel's own */
  m.x = random_floats(m.xs, 1);
  m.weight = random_floats(m.weights, 2);
  m.bias = a->has_bias ? m.weight + taps : NULL;
  m.whole = guarded(m.ys);
  m.y = guarded(m.ys);
  m.memory = guarded(m.scratches + way->displaced);
  m.scratch = m.memory + way->displaced;
  m.after = random_floats(m.ys + a->out_channels + 3, 3);
  fill(m.scratch, m.scratches, NAN); /* nothing is hoped for */
  fill(m.whole, m.ys, NAN);
  return m;
}

static inline void free_memory(struct memory *m) {
  free(m->x);
  free(m->weight);
  free(m->whole);
  free(m->y);
  free(m->memory);
  free(m->after);
}

typedef void call(const struct way *way, struct task *task, const struct memory *m, float *y,
                  int most_lanes);

/* As a captured graph calls it. */
static inline void call_kernel(const struct way *way, struct task *task, const struct memory *m,
                               float *y, int most_lanes) {
  struct starpu_vector_interface v[] = {{.ptr = (uintptr_t)m->x},
                                        {.ptr = (uintptr_t)m->weight},
                                        {.ptr = (uintptr_t)y},
                                        {.ptr = (uintptr_t)m->scratch}};
  (void)way, (void)most_lanes;
  sl__op_conv2d_forward.codelet.cpu_funcs[0]((void *[]){&v[0], &v[1], &v[2], &v[3]}, task);
}

static inline int64_t units_of(const struct way *way, const struct sl__conv_args *a,
                               int most_lanes) {
  bool planes;
  return way->units(a, &planes, most_lanes);
}

static inline void forward_by(const struct way *way, struct task *task, const struct memory *m,
                              const struct sl__conv_epilogue *after, float *y, int most_lanes) {
  struct sl__work_range share = sl__work_range(task, units_of(way, &task->args, most_lanes));
  way->forward(&task->args, m->x, m->weight, m->bias, after, y, m->scratch, share, most_lanes);
}

/* The same for vectors of any width, divided between any channels. */
static inline void call_width(const struct way *way, struct task *task, const struct memory *m,
                              float *y, int most_lanes) {
  forward_by(way, task, m, &nothing, y, most_lanes);
}

/* With every epilogue; the vectors of channels are parts of one array. */
static inline struct sl__conv_epilogue after_of(const struct memory *m) {
  return (struct sl__conv_epilogue){m->after, m->after + 1, m->after + 2, m->after + 3};
}

static inline void call_after(const struct way *way, struct task *task, const struct memory *m,
                              float *y, int most_lanes) {
  struct sl__conv_epilogue after = after_of(m);
  forward_by(way, task, m, &after, y, most_lanes);
}

/* ---- properties of each implementation ---- */

static inline void check(const struct way *way, struct sl__conv_args shape, int most_lanes) {
  struct task task = {.args = with_outputs(shape)};
  struct memory m = memory_of(way, &task.args);
  call_width(way, &task, &m, m.whole, most_lanes);
  compare(&task.args, m.x, m.weight, m.bias, m.whole, way->implementation == SL__WINOGRAD);
  check_guards(m.whole, m.ys);
  check_guards(m.scratch, m.scratches);
  free_memory(&m);
}

/* The epilogue gets the values that were written before. */
static inline void check_after(const struct way *way, struct sl__conv_args a, int most_lanes) {
  struct memory m = memory_of(way, &a);
  struct task task = {.args = a};
  struct sl__conv_epilogue after = after_of(&m);
  task.args.activation = SL_ACTIVATION_NONE;
  call_width(way, &task, &m, m.whole, most_lanes);
  task.args.activation = a.activation;
  call_after(way, &task, &m, m.y, most_lanes);
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

/* Exactly one part writes each value, and it equals the undivided result. */
static inline void check_parts(const struct way *way, call *run, struct sl__conv_args a,
                               int64_t units, int parts, int most_lanes) {
  struct memory m = memory_of(way, &a);
  struct task task = {.args = a};
  int *writers = calloc((size_t)m.ys, sizeof *writers);
  run(way, &task, &m, m.whole, most_lanes);
  task.header.parts = (uint32_t)parts;
  task.header.units = units;
  for (int part = parts; part--;) {
    task.header.part = (uint32_t)part;
    fill(m.y, m.ys, guard);
    fill(m.scratch, m.scratches, NAN); /* it has its own */
    run(way, &task, &m, m.y, most_lanes);
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

/* Divided between any units, without and with epilogue, whose activation changes from third to
 * third. */
static inline void check_cuts(const struct way *way, struct sl__conv_args a, int i, int parts,
                              int most_lanes) {
  static const int32_t activations[] = {SL_ACTIVATION_NONE, SL_ACTIVATION_RELU, SL_ACTIVATION_TANH};
  int64_t units = units_of(way, &a, most_lanes);
  check_parts(way, call_width, a, units, parts, most_lanes);
  a.activation = activations[i % 3];
  check_after(way, a, most_lanes);
  check_parts(way, call_after, a, units, parts, most_lanes);
}

/* The kernel is divided, too, between the units that it names. */
static inline void check_kernel(const struct way *way, struct sl__conv_args a, int parts) {
  bool planes;
  int64_t units = way->units(&a, &planes, 0);
  a.implementation = (int32_t)way->implementation;
  check_parts(way, call_kernel, a, planes && a.out_channels % 8 == 0 ? units / 8 : units, parts, 0);
}

/* An image's outputs are the same bits alone and among others. */
static inline void check_batch(const struct way *way, struct sl__conv_args shape, int most_lanes) {
  struct task task = {.args = with_outputs(shape)};
  struct memory m = memory_of(way, &task.args);
  int64_t each = sl__conv_y_size(&task.args), in = sl__conv_x_size(&task.args);
  const float *x = m.x;
  call_width(way, &task, &m, m.whole, most_lanes);
  task.args.images = 1;
  for (int n = 0; n < shape.images; n++) {
    m.x = (float *)x + n * in;
    call_width(way, &task, &m, m.y, most_lanes);
    assert_memory_equal(m.y, m.whole + n * each, (size_t)each * sizeof *m.y);
  }
  m.x = (float *)x;
  free_memory(&m);
}

#endif
