/* The cases of gpu_ops: every operation with hard shapes: size 1 everywhere, odd sizes, sizes that
 * are no multiple of 4, 8 or 32, rows longer than a block of threads, more rows than a block,
 * strides, padding, gradients of many replicas, labels and tokens out of range. */
#include <math.h>
#include <stdlib.h>

#include <starling/data.h>

#include "codelets/kernels/recurrent.h"
#include "core/runtime/dry_run.h"
#include "core/base/error.h"
#include "tests/gpu/gpu_custom.h"
#include "tests/gpu/gpu_ops.h"

static const struct sums exact = {0};
#define L (&t->launch)

static struct sums sums_of(double terms, double magnitude) {
  return (struct sums){.terms = terms, .magnitude = magnitude};
}
/* A sum of products of factors below 1, the second ones below `size`. */
static struct sums products(double terms, double size) {
  return (struct sums){.terms = terms, .magnitude = size, .factors = size};
}
/* The same, and then bias and activation. */
static struct sums fused(double terms, double size) {
  return (struct sums){.terms = terms, .magnitude = size, .factors = size, .between = true};
}
/* Elementwise arithmetic: a few roundings of values of about this size. */
static struct sums roundings(double magnitude) { return sums_of(8, magnitude); }

/* ---- dense: rows, inputs, outputs, bias, activation, positions, saving -------------------- */

static struct sl_shape dense_shape(const int64_t *d, int64_t features) {
  return d[5] ? SL_SHAPE(d[0] / d[5], d[5], features) : SL_SHAPE(d[0], features);
}

/* What the activation's backward pass needs; NULL: nothing. */
static struct sl__tensor *saved_of(struct trial *t, const int64_t *d) {
  if (!d[6]) return NULL;
  return written(t, t->type, dense_shape(d, d[2]), fused((double)d[1] + 1, 1));
}

static enum sl_status dense_forward(struct trial *t, const int64_t *d) {
  struct sl__tensor *x = given(t, t->type, dense_shape(d, d[1]));
  struct sl__tensor *param = given(t, t->type, SL_SHAPE(d[2] * (d[1] + d[3])));
  struct sl__tensor *y = written(t, t->type, dense_shape(d, d[2]), fused((double)d[1] + 1, 1));
  struct sl__tensor *saved = saved_of(t, d);
  if (t->status != SL_OK) return t->status;
  return sl__dense_forward_saving(t->context, L, x, param, y, saved, d[3] != 0,
                                  (enum sl_activation)d[4]);
}

static enum sl_status dense_shared_forward(struct trial *t, const int64_t *d) {
  struct sl__tensor *x = given(t, t->type, dense_shape(d, d[1]));
  struct sl__tensor *weight = given(t, t->type, SL_SHAPE(d[2] * d[1]));
  struct sl__tensor *bias = given(t, t->type, SL_SHAPE(d[2]));
  struct sl__tensor *y = written(t, t->type, dense_shape(d, d[2]), fused((double)d[1] + 1, 1));
  struct sl__tensor *saved = saved_of(t, d);
  if (t->status != SL_OK) return t->status;
  return sl__dense_shared_forward_saving(t->context, L, x, weight, bias, y, saved,
                                         (enum sl_activation)d[4]);
}

static enum sl_status dense_backward_data(struct trial *t, const int64_t *d) {
  struct sl__tensor *dy = given(t, t->type, dense_shape(d, d[2]));
  struct sl__tensor *param = given(t, t->type, SL_SHAPE(d[2] * (d[1] + d[3])));
  struct sl__tensor *dx = added(t, t->type, dense_shape(d, d[1]), products((double)d[2] + 1, 1));
  if (t->status != SL_OK) return t->status;
  return sl__dense_backward_data(t->context, L, dy, param, dx);
}

static enum sl_status dense_backward_weight(struct trial *t, const int64_t *d) {
  struct sl__tensor *x = given(t, t->type, dense_shape(d, d[1]));
  struct sl__tensor *dy = given(t, t->type, dense_shape(d, d[2]));
  struct sl__tensor *grad =
      added(t, SL_F32, SL_SHAPE(d[2] * (d[1] + d[3])), products((double)d[0] + 1, 1));
  if (t->status != SL_OK) return t->status;
  return sl__dense_backward_weight(t->context, L, x, dy, grad, d[3] != 0);
}

static enum sl_status bias_backward(struct trial *t, const int64_t *d) {
  struct sl__tensor *dy = given(t, t->type, dense_shape(d, d[2]));
  struct sl__tensor *grad = added(t, SL_F32, SL_SHAPE(d[2]), sums_of((double)d[0] + 1, 1));
  if (t->status != SL_OK) return t->status;
  return sl__bias_backward(t->context, L, dy, grad);
}

#define DENSE_SIZES(CASE, ...)                                                                     \
  CASE(__VA_ARGS__, {1, 1, 1, 1, SL_ACTIVATION_NONE})                                              \
  CASE(__VA_ARGS__, {1, 7, 3, 1, SL_ACTIVATION_TANH})                                              \
  CASE(__VA_ARGS__, {5, 1, 2, 0, SL_ACTIVATION_RELU})                                              \
  CASE(__VA_ARGS__, {33, 17, 9, 1, SL_ACTIVATION_SIGMOID})                                         \
  CASE(__VA_ARGS__, {12, 20, 15, 1, SL_ACTIVATION_RELU, 4})                                        \
  CASE(__VA_ARGS__, {9, 14, 21, 1, SL_ACTIVATION_GELU_TANH, 3, 1})                                 \
  CASE(__VA_ARGS__, {1, 16, 24, 0, SL_ACTIVATION_SILU, 0, 1})                                      \
  CASE(__VA_ARGS__, {20, 13, 129, 1, SL_ACTIVATION_RELU})                                          \
  CASE(__VA_ARGS__, {3, 1100, 31, 0, SL_ACTIVATION_TANH})                                          \
  CASE(__VA_ARGS__, {2300, 2, 1, 1, SL_ACTIVATION_RELU})                                           \
  CASE(__VA_ARGS__, {1030, 40, 24, 1, SL_ACTIVATION_RELU})                                         \
  CASE(__VA_ARGS__, {128, 128, 128, 1, SL_ACTIVATION_NONE})

/* ---- convolution: N, C, H, W, K, kernel, stride, pad, bias, activation --------------------- */

struct conv {
  struct sl__conv2d options;
  struct sl_shape x, y;
  int64_t params, taps, places;
};

/* The kernel is one wider than high, unless it is 1 x 1; so is the stride where it is above 1.
 * Below 0: as wide as high. */
static struct conv conv_of(const int64_t *d) {
  int wide = d[5] > 1, high = (int)(d[5] < 0 ? -d[5] : d[5]), step = (int)(d[6] < 0 ? -d[6] : d[6]);
  struct conv c = {.options = {.channels = (int)d[4],
                               .kernel_h = high,
                               .kernel_w = high + wide,
                               .stride_h = step,
                               .stride_w = step + (d[6] > 1),
                               .pad_h = (int)d[7],
                               .pad_w = (int)d[7],
                               .has_bias = d[8] != 0,
                               .activation = (enum sl_activation)d[9]},
                   .x = SL_SHAPE(d[0], d[1], d[2], d[3])};
  const struct sl__conv2d *o = &c.options;
  c.y = SL_SHAPE(d[0], d[4], (d[2] + 2 * d[7] - o->kernel_h) / o->stride_h + 1,
                 (d[3] + 2 * d[7] - o->kernel_w) / o->stride_w + 1);
  c.taps = d[1] * o->kernel_h * o->kernel_w;
  c.params = d[4] * (c.taps + (d[8] != 0));
  c.places = d[0] * c.y.dim[2] * c.y.dim[3];
  return c;
}

static enum sl_status conv2d_forward(struct trial *t, const int64_t *d) {
  struct conv c = conv_of(d);
  struct sl__tensor *x = given(t, t->type, c.x);
  struct sl__tensor *param = given(t, t->type, SL_SHAPE(c.params));
  struct sl__tensor *y = written(t, t->type, c.y, fused((double)c.taps + 1, 1));
  if (t->status != SL_OK) return t->status;
  return sl__conv2d_forward(t->context, L, x, param, y, &c.options);
}

static enum sl_status conv2d_backward_data(struct trial *t, const int64_t *d) {
  struct conv c = conv_of(d);
  double taps = (double)(c.taps / d[1] * d[4]);
  struct sl__tensor *dy = given(t, t->type, c.y);
  struct sl__tensor *param = given(t, t->type, SL_SHAPE(c.params));
  struct sl__tensor *dx = added(t, t->type, c.x, products(taps + 1, 1));
  if (t->status != SL_OK) return t->status;
  return sl__conv2d_backward_data(t->context, L, dy, param, dx, &c.options);
}

static enum sl_status conv2d_backward_weight(struct trial *t, const int64_t *d) {
  struct conv c = conv_of(d);
  struct sl__tensor *x = given(t, t->type, c.x), *dy = given(t, t->type, c.y);
  struct sl__tensor *grad = added(t, SL_F32, SL_SHAPE(c.params), products((double)c.places + 1, 1));
  if (t->status != SL_OK) return t->status;
  return sl__conv2d_backward_weight(t->context, L, x, dy, grad, &c.options);
}

#define CONV_SIZES(CASE, ...)                                                                      \
  CASE(__VA_ARGS__, {1, 1, 1, 1, 1, 1, 1, 0, 1, SL_ACTIVATION_NONE})                               \
  CASE(__VA_ARGS__, {2, 3, 7, 9, 5, 3, 1, 1, 1, SL_ACTIVATION_RELU})                               \
  CASE(__VA_ARGS__, {1, 4, 8, 6, 7, 2, 2, 0, 0, SL_ACTIVATION_TANH})                               \
  CASE(__VA_ARGS__, {3, 2, 11, 13, 3, 3, 2, 2, 1, SL_ACTIVATION_SIGMOID})                          \
  CASE(__VA_ARGS__, {5, 6, 4, 5, 8, 1, 2, 0, 1, SL_ACTIVATION_RELU})                               \
  CASE(__VA_ARGS__, {2, 1, 28, 28, 20, 5, 1, 0, 1, SL_ACTIVATION_RELU})                            \
  CASE(__VA_ARGS__, {4, 16, 8, 8, 32, 3, 1, 1, 0, SL_ACTIVATION_NONE})                             \
  CASE(__VA_ARGS__, {33, 3, 6, 6, 2, 3, 1, 1, 1, SL_ACTIVATION_NONE})                              \
  CASE(__VA_ARGS__, {2, 2, 16, 16, 3, 1, 1, 1, 0, SL_ACTIVATION_RELU})                             \
  CASE(__VA_ARGS__, {2, 2, 21, 20, 3, 3, 1, 1, 1, SL_ACTIVATION_RELU})                             \
  CASE(__VA_ARGS__, {3, 5, 12, 12, 6, -3, -2, 1, 1, SL_ACTIVATION_GELU})                           \
  CASE(__VA_ARGS__, {2, 9, 11, 13, 5, -1, -2, 0, 1, SL_ACTIVATION_RELU})                           \
  CASE(__VA_ARGS__, {1, 17, 5, 8, 33, 2, 1, 0, 1, SL_ACTIVATION_RELU})                             \
  CASE(__VA_ARGS__, {3, 20, 12, 12, 50, 5, 1, 0, 1, SL_ACTIVATION_RELU})                           \
  CASE(__VA_ARGS__, {3, 16, 32, 33, 16, 3, 1, 1, 1, SL_ACTIVATION_RELU})                           \
  CASE(__VA_ARGS__, {2, 16, 32, 32, 40, -3, -2, 1, 0, SL_ACTIVATION_NONE})                         \
  CASE(__VA_ARGS__, {2, 64, 8, 9, 64, 3, 1, 1, 0, SL_ACTIVATION_NONE})                             \
  CASE(__VA_ARGS__, {131, 64, 4, 5, 5, 3, 1, 1, 1, SL_ACTIVATION_NONE})                            \
  CASE(__VA_ARGS__, {2, 65, 4, 4, 3, 3, 1, 1, 1, SL_ACTIVATION_RELU})

/* ---- groups: N, C, H, W, K, kernel, stride, pad, dilation, groups, bias, transposed; rows of the
 * outputs left out, for which cuDNN has no description ----------------------------------------- */

struct groupconv {
  struct sl__groupconv2d options;
  struct sl_shape x, y; /* of the convolution; a transposed one goes from y to x */
  int64_t params;
};

static struct groupconv groupconv_of(const int64_t *d) {
  struct groupconv g = {.options = {.conv = {.channels = (int)(d[11] ? d[1] : d[4]),
                                             .kernel_h = (int)d[5],
                                             .kernel_w = (int)d[5],
                                             .stride_h = (int)d[6],
                                             .stride_w = (int)d[6],
                                             .pad_h = (int)d[7],
                                             .pad_w = (int)d[7],
                                             .has_bias = d[10] != 0},
                                    .groups = (int)d[9],
                                    .dilation_h = (int)d[8],
                                    .dilation_w = (int)d[8],
                                    .transposed = d[11] != 0},
                        .x = SL_SHAPE(d[0], d[1], d[2], d[3])};
  int64_t reach = 2 * d[7] - d[8] * (d[5] - 1) - 1;
  g.y = SL_SHAPE(d[0], d[4], (d[2] + reach) / d[6] + 1 - d[12], (d[3] + reach) / d[6] + 1);
  g.params = d[4] * (d[1] / d[9]) * d[5] * d[5] + (d[10] ? g.options.conv.channels : 0);
  return g;
}

static double group_terms(const int64_t *d) { return (double)((d[1] + d[4]) * d[5] * d[5] + 1); }

static enum sl_status groupconv2d_forward(struct trial *t, const int64_t *d) {
  struct groupconv g = groupconv_of(d);
  struct sl__tensor *x = given(t, t->type, d[11] ? g.y : g.x);
  struct sl__tensor *param = given(t, t->type, SL_SHAPE(g.params));
  struct sl__tensor *y = added(t, t->type, d[11] ? g.x : g.y, fused(group_terms(d), 1));
  if (t->status != SL_OK) return t->status;
  g.options.conv.activation = t->launch.accumulate ? SL_ACTIVATION_NONE : SL_ACTIVATION_RELU;
  return sl__groupconv2d_forward(t->context, L, x, param, y, &g.options);
}

static enum sl_status groupconv2d_backward_data(struct trial *t, const int64_t *d) {
  struct groupconv g = groupconv_of(d);
  struct sl__tensor *dy = given(t, t->type, d[11] ? g.x : g.y);
  struct sl__tensor *param = given(t, t->type, SL_SHAPE(g.params));
  struct sl__tensor *dx = added(t, t->type, d[11] ? g.y : g.x, products(group_terms(d), 1));
  if (t->status != SL_OK) return t->status;
  return sl__groupconv2d_backward_data(t->context, L, dy, param, dx, &g.options);
}

/* A NaN goes into the side with the padding: one of the other side, times a zero of the padding, is
 * NaN on a CPU alone. */
static enum sl_status groupconv2d_backward_weight(struct trial *t, const int64_t *d) {
  struct groupconv g = groupconv_of(d);
  struct sl__tensor *wide = given(t, t->type, g.x), *narrow = given(t, t->type, g.y);
  struct sl__tensor *x = d[11] ? narrow : wide, *dy = d[11] ? wide : narrow;
  struct sl__tensor *grad =
      added(t, SL_F32, SL_SHAPE(g.params), products((double)sl_shape_count(&g.x) + 1, 1));
  if (t->status != SL_OK) return t->status;
  return sl__groupconv2d_backward_weight(t->context, L, x, dy, grad, &g.options);
}

#define PLAIN_GROUPS(CASE, ...)                                                                    \
  CASE(__VA_ARGS__, {1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 0})                                          \
  CASE(__VA_ARGS__, {2, 6, 7, 9, 6, 3, 1, 1, 1, 6, 1, 0})                                          \
  CASE(__VA_ARGS__, {2, 4, 9, 8, 8, 3, 2, 1, 1, 2, 0, 0})                                          \
  CASE(__VA_ARGS__, {1, 3, 12, 13, 5, 3, 1, 2, 2, 1, 1, 0})
#define TRANSPOSED_GROUPS(CASE, ...)                                                               \
  CASE(__VA_ARGS__, {2, 4, 10, 8, 6, 2, 2, 0, 1, 1, 1, 1})                                         \
  CASE(__VA_ARGS__, {1, 6, 9, 12, 4, 3, 2, 1, 1, 2, 1, 1})                                         \
  CASE(__VA_ARGS__, {1, 6, 9, 12, 4, 3, 2, 1, 1, 2, 1, 1, 1})                                      \
  CASE(__VA_ARGS__, {2, 3, 8, 7, 3, 3, 1, 1, 2, 3, 0, 1})
#define GROUP_SIZES(CASE, ...)                                                                     \
  PLAIN_GROUPS(CASE, __VA_ARGS__)                                                                  \
  TRANSPOSED_GROUPS(CASE, __VA_ARGS__)

/* ---- pooling: N, C, H, W, kernel, stride, pad ---------------------------------------------- */

struct pool {
  struct sl__pool2d options;
  struct sl_shape x, y;
};

static struct pool pool_of(const int64_t *d) {
  struct pool p = {.options = {.kernel_h = (int)d[4],
                               .kernel_w = (int)d[4] + (d[4] > 2),
                               .stride_h = (int)d[5],
                               .stride_w = (int)d[5],
                               .pad_h = (int)d[6],
                               .pad_w = (int)d[6]},
                   .x = SL_SHAPE(d[0], d[1], d[2], d[3])};
  const struct sl__pool2d *o = &p.options;
  p.y = SL_SHAPE(d[0], d[1], (d[2] + 2 * d[6] - o->kernel_h) / o->stride_h + 1,
                 (d[3] + 2 * d[6] - o->kernel_w) / o->stride_w + 1);
  return p;
}

static enum sl_status maxpool2d_forward(struct trial *t, const int64_t *d) {
  struct pool p = pool_of(d);
  struct sl__tensor *x = given(t, t->type, p.x), *y = written(t, t->type, p.y, exact);
  struct sl__tensor *index = written(t, SL_I32, p.y, exact);
  if (t->status != SL_OK) return t->status;
  return sl__maxpool2d_forward(t->context, L, x, y, index, &p.options);
}

/* Somewhere in each window, in the plane. */
static struct sl__tensor *places(struct trial *t, const struct pool *p) {
  const struct sl__pool2d *o = &p->options;
  int64_t n = sl_shape_count(&p->y), h = p->y.dim[2], w = p->y.dim[3];
  int32_t *at = calloc((size_t)n, sizeof *at);
  for (int64_t i = 0; at && i < n; i++) {
    float u = sl__uniform(t->seed, 77, (uint64_t)i), v = sl__uniform(t->seed, 78, (uint64_t)i);
    int64_t y = i / w % h * o->stride_h - o->pad_h + (int64_t)(u * (float)o->kernel_h);
    int64_t x = i % w * o->stride_w - o->pad_w + (int64_t)(v * (float)o->kernel_w);
    y = y < 0 ? 0 : y >= p->x.dim[2] ? p->x.dim[2] - 1 : y;
    x = x < 0 ? 0 : x >= p->x.dim[3] ? p->x.dim[3] - 1 : x;
    at[i] = (int32_t)(y * p->x.dim[3] + x);
  }
  struct sl__tensor *index = given_values(t, p->y, at);
  free(at);
  return index;
}

static double windows(const struct pool *p) {
  return (double)(p->options.kernel_h * p->options.kernel_w);
}

static enum sl_status maxpool2d_backward(struct trial *t, const int64_t *d) {
  struct pool p = pool_of(d);
  struct sl__tensor *dy = given(t, t->type, p.y), *index = places(t, &p);
  struct sl__tensor *dx = added(t, t->type, p.x, sums_of(windows(&p) + 1, 1));
  if (t->status != SL_OK) return t->status;
  return sl__maxpool2d_backward(t->context, L, dy, index, dx, &p.options);
}

static enum sl_status avgpool2d_forward(struct trial *t, const int64_t *d) {
  struct pool p = pool_of(d);
  struct sl__tensor *x = given(t, t->type, p.x);
  struct sl__tensor *y = written(t, t->type, p.y, sums_of(windows(&p), 1));
  if (t->status != SL_OK) return t->status;
  return sl__avgpool2d_forward(t->context, L, x, y, &p.options);
}

static enum sl_status avgpool2d_backward(struct trial *t, const int64_t *d) {
  struct pool p = pool_of(d);
  struct sl__tensor *dy = given(t, t->type, p.y);
  struct sl__tensor *dx = added(t, t->type, p.x, sums_of(windows(&p) + 1, 1));
  if (t->status != SL_OK) return t->status;
  return sl__avgpool2d_backward(t->context, L, dy, dx, &p.options);
}

#define POOL_SIZES(CASE, ...)                                                                      \
  CASE(__VA_ARGS__, {1, 1, 1, 1, 1, 1, 0})                                                         \
  CASE(__VA_ARGS__, {2, 3, 6, 8, 2, 2, 0})                                                         \
  CASE(__VA_ARGS__, {3, 2, 7, 9, 3, 2, 1})                                                         \
  CASE(__VA_ARGS__, {1, 5, 9, 11, 3, 1, 1})                                                        \
  CASE(__VA_ARGS__, {2, 2, 10, 7, 2, 3, 0})                                                        \
  CASE(__VA_ARGS__, {2, 3, 11, 13, 7, 3, 2})                                                       \
  CASE(__VA_ARGS__, {3, 4, 8, 9, 8, 1, 0})                                                         \
  CASE(__VA_ARGS__, {4, 20, 24, 24, 2, 2, 0})

/* ---- upsampling: N, C, H, W, scales, bilinear ----------------------------------------------- */

static struct sl__upsample2d upsample_of(const int64_t *d) {
  return (struct sl__upsample2d){.scale_h = (int)d[4], .scale_w = (int)d[5], .bilinear = d[6] != 0};
}

static enum sl_status upsample2d_forward(struct trial *t, const int64_t *d) {
  const struct sl__upsample2d o = upsample_of(d);
  struct sl__tensor *x = given(t, t->type, SL_SHAPE(d[0], d[1], d[2], d[3]));
  struct sl__tensor *y =
      written(t, t->type, SL_SHAPE(d[0], d[1], d[2] * d[4], d[3] * d[5]), roundings(1));
  if (t->status != SL_OK) return t->status;
  return sl__upsample2d_forward(t->context, L, x, y, &o);
}

static enum sl_status upsample2d_backward(struct trial *t, const int64_t *d) {
  const struct sl__upsample2d o = upsample_of(d);
  struct sl__tensor *dy = given(t, t->type, SL_SHAPE(d[0], d[1], d[2] * d[4], d[3] * d[5]));
  struct sl__tensor *dx = added(t, t->type, SL_SHAPE(d[0], d[1], d[2], d[3]),
                                sums_of(9.0 * (double)(d[4] * d[5]) + 8, 1));
  if (t->status != SL_OK) return t->status;
  return sl__upsample2d_backward(t->context, L, dy, dx, &o);
}

#define UPSAMPLE_SIZES(CASE, ...)                                                                  \
  CASE(__VA_ARGS__, {1, 1, 1, 1, 1, 1, 0})                                                         \
  CASE(__VA_ARGS__, {2, 3, 5, 7, 2, 2, 0})                                                         \
  CASE(__VA_ARGS__, {1, 4, 3, 9, 3, 1, 0})                                                         \
  CASE(__VA_ARGS__, {1, 1, 1, 1, 4, 4, 1})                                                         \
  CASE(__VA_ARGS__, {2, 3, 5, 7, 2, 2, 1})                                                         \
  CASE(__VA_ARGS__, {3, 2, 4, 33, 5, 3, 1})

/* ---- activations: count, which -------------------------------------------------------------- */

static enum sl_status activation_forward(struct trial *t, const int64_t *d) {
  struct sl__tensor *x = given_in(t, t->type, SL_SHAPE(d[0]), -4, 4);
  struct sl__tensor *y = written(t, t->type, SL_SHAPE(d[0]), roundings(4));
  if (t->status != SL_OK) return t->status;
  return sl__activation_forward(t->context, L, x, y, (enum sl_activation)d[1]);
}

static enum sl_status activation_backward(struct trial *t, const int64_t *d) {
  struct sl__tensor *saved = given(t, t->type, SL_SHAPE(d[0]));
  struct sl__tensor *dy = given(t, t->type, SL_SHAPE(d[0]));
  struct sl__tensor *dx = added(t, t->type, SL_SHAPE(d[0]), roundings(2));
  if (t->status != SL_OK) return t->status;
  return sl__activation_backward(t->context, L, saved, dy, dx, (enum sl_activation)d[1]);
}

static enum sl_status activation_backward_inplace(struct trial *t, const int64_t *d) {
  struct sl__tensor *saved = given(t, t->type, SL_SHAPE(d[0]));
  struct sl__tensor *dy = changed(t, t->type, SL_SHAPE(d[0]), -1, 1, roundings(1));
  if (t->status != SL_OK) return t->status;
  return sl__activation_backward_inplace(t->context, L, saved, dy, (enum sl_activation)d[1]);
}

#define ACTIVATION_SIZES(CASE, ...)                                                                \
  CASE(__VA_ARGS__, {1, SL_ACTIVATION_NONE})                                                       \
  CASE(__VA_ARGS__, {15, SL_ACTIVATION_RELU})                                                      \
  CASE(__VA_ARGS__, {64, SL_ACTIVATION_TANH})                                                      \
  CASE(__VA_ARGS__, {1003, SL_ACTIVATION_SIGMOID})                                                 \
  CASE(__VA_ARGS__, {4093, SL_ACTIVATION_RELU})                                                    \
  CASE(__VA_ARGS__, {70001, SL_ACTIVATION_RELU})                                                   \
  CASE(__VA_ARGS__, {259, SL_ACTIVATION_GELU})                                                     \
  CASE(__VA_ARGS__, {260, SL_ACTIVATION_GELU_TANH})                                                \
  CASE(__VA_ARGS__, {261, SL_ACTIVATION_SILU})                                                     \
  CASE(__VA_ARGS__, {2163003, SL_ACTIVATION_GELU_TANH})

/* ---- gated linear unit: rows, features ------------------------------------------------------ */

static enum sl_status swiglu_forward(struct trial *t, const int64_t *d) {
  struct sl__tensor *x = given_in(t, t->type, SL_SHAPE(d[0], 2 * d[1]), -4, 4);
  struct sl__tensor *y = written(t, t->type, SL_SHAPE(d[0], d[1]), roundings(16));
  if (t->status != SL_OK) return t->status;
  return sl__swiglu_forward(t->context, L, x, y);
}

static enum sl_status swiglu_backward(struct trial *t, const int64_t *d) {
  struct sl__tensor *x = given_in(t, t->type, SL_SHAPE(d[0], 2 * d[1]), -4, 4);
  struct sl__tensor *dy = given(t, t->type, SL_SHAPE(d[0], d[1]));
  struct sl__tensor *dx = added(t, t->type, SL_SHAPE(d[0], 2 * d[1]), roundings(8));
  if (t->status != SL_OK) return t->status;
  return sl__swiglu_backward(t->context, L, x, dy, dx);
}

#define SWIGLU_SIZES(CASE, ...)                                                                    \
  CASE(__VA_ARGS__, {1, 1})                                                                        \
  CASE(__VA_ARGS__, {7, 33})                                                                       \
  CASE(__VA_ARGS__, {60, 128})

/* ---- positions: N, T, features, first, length ----------------------------------------------- */

static enum sl_status position_forward(struct trial *t, const int64_t *d) {
  struct sl__tensor *x = given(t, t->type, SL_SHAPE(d[0], d[1], d[2]));
  struct sl__tensor *table = given(t, t->type, SL_SHAPE(d[4] * d[2]));
  struct sl__tensor *y = written(t, t->type, SL_SHAPE(d[0], d[1], d[2]), exact);
  if (t->status != SL_OK) return t->status;
  return sl__position_forward(t->context, L, x, table, y, d[3]);
}

static enum sl_status position_backward_weight(struct trial *t, const int64_t *d) {
  struct sl__tensor *dy = given(t, t->type, SL_SHAPE(d[0], d[1], d[2]));
  struct sl__tensor *grad = added(t, SL_F32, SL_SHAPE(d[4] * d[2]), exact);
  if (t->status != SL_OK) return t->status;
  return sl__position_backward_weight(t->context, L, dy, grad, d[3]);
}

#define POSITION_SIZES(CASE, ...)                                                                  \
  CASE(__VA_ARGS__, {1, 1, 1, 0, 1})                                                               \
  CASE(__VA_ARGS__, {3, 5, 7, 2, 9})                                                               \
  CASE(__VA_ARGS__, {9, 16, 64, 0, 16})

/* ---- batch normalisation: N, C, plane, relu ------------------------------------------------- */

enum { MEANS, DEVIATIONS };

static struct sl_shape norm_shape(const int64_t *d) {
  return d[2] > 1 ? SL_SHAPE(d[0], d[1], d[2]) : SL_SHAPE(d[0], d[1]);
}

static enum sl_status batchnorm_forward(struct trial *t, const int64_t *d) {
  double values = (double)(d[0] * d[2]);
  struct sl__tensor *x = given(t, t->type, norm_shape(d));
  struct sl__tensor *param = given(t, SL_F32, SL_SHAPE(2 * d[1]));
  /* divided by a deviation that may be as small as sqrt(epsilon) where there is one value */
  double size = values > 8 ? 4 : 100;
  struct sl__tensor *y = written(t, t->type, norm_shape(d), roundings(size));
  struct sl__tensor *saved = written(t, SL_F32, SL_SHAPE(4 * d[1]), sums_of(32, size));
  if (t->status != SL_OK) return t->status;
  return sl__batchnorm_forward(t->context, L, x, param, y, saved, 1e-2f, d[3]);
}

static enum sl_status batchnorm_inference(struct trial *t, const int64_t *d) {
  struct sl__tensor *x = given(t, t->type, norm_shape(d));
  struct sl__tensor *param = given(t, SL_F32, SL_SHAPE(2 * d[1]));
  struct sl__tensor *running = given_in(t, SL_F32, SL_SHAPE(2 * d[1]), 0.5, 2);
  struct sl__tensor *y = written(t, t->type, norm_shape(d), roundings(4));
  if (t->status != SL_OK) return t->status;
  return sl__batchnorm_inference(t->context, L, x, param, running, y, 1e-5f, d[3]);
}

static enum sl_status batchnorm_backward_sums(struct trial *t, const int64_t *d) {
  struct sl__tensor *x = given(t, t->type, norm_shape(d));
  struct sl__tensor *param = given(t, SL_F32, SL_SHAPE(2 * d[1]));
  struct sl__tensor *saved =
      changed(t, SL_F32, SL_SHAPE(4 * d[1]), 0.5, 2, sums_of((double)(d[0] * d[2]) + 1, 4));
  struct sl__tensor *dy = given(t, t->type, norm_shape(d));
  if (t->status != SL_OK) return t->status;
  return sl__batchnorm_backward_sums(t->context, L, x, param, saved, dy, d[3]);
}

static enum sl_status batchnorm_backward_data(struct trial *t, const int64_t *d) {
  struct sl__tensor *x = given(t, t->type, norm_shape(d));
  struct sl__tensor *param = given(t, SL_F32, SL_SHAPE(2 * d[1]));
  struct sl__tensor *saved = given_in(t, SL_F32, SL_SHAPE(4 * d[1]), 0.5, 2);
  struct sl__tensor *dy = given(t, t->type, norm_shape(d));
  struct sl__tensor *dx = added(t, t->type, norm_shape(d), sums_of(16, 16));
  if (t->status != SL_OK) return t->status;
  return sl__batchnorm_backward_data(t->context, L, x, param, saved, dy, dx, d[3]);
}

static enum sl_status batchnorm_backward_weight(struct trial *t, const int64_t *d) {
  struct sl__tensor *saved = given_in(t, SL_F32, SL_SHAPE(4 * d[1]), 0.5, 2);
  struct sl__tensor *grad = added(t, SL_F32, SL_SHAPE(2 * d[1]), roundings(4));
  if (t->status != SL_OK) return t->status;
  return sl__batchnorm_backward_weight(t->context, L, saved, grad);
}

static enum sl_status batchnorm_running(struct trial *t, const int64_t *d) {
  struct sl__tensor *saved = given_in(t, SL_F32, SL_SHAPE(4 * d[1]), 0.5, 2);
  struct sl__tensor *running = changed(t, SL_F32, SL_SHAPE(2 * d[1]), 0, 1, roundings(4));
  if (t->status != SL_OK) return t->status;
  return sl__batchnorm_running(t->context, L, saved, running, 0.1f, 1e-5f, d[0] * d[2]);
}

static enum sl_status batchnorm_take_running(struct trial *t, const int64_t *d) {
  struct sl__tensor *running = given_in(t, SL_F32, SL_SHAPE(2 * d[1]), 0.5, 2);
  struct sl__tensor *saved = written(t, SL_F32, SL_SHAPE(4 * d[1]), roundings(2));
  if (t->status != SL_OK) return t->status;
  return sl__batchnorm_take_running(t->context, L, running, saved, 1e-5f);
}

#define NORM_SIZES(CASE, ...)                                                                      \
  CASE(__VA_ARGS__, {1, 1, 1})                                                                     \
  CASE(__VA_ARGS__, {1, 3, 7, 1})                                                                  \
  CASE(__VA_ARGS__, {17, 5, 1, 1})                                                                 \
  CASE(__VA_ARGS__, {4, 33, 15})                                                                   \
  CASE(__VA_ARGS__, {3, 2, 1031, 1})                                                               \
  CASE(__VA_ARGS__, {40, 8, 256, 1})                                                               \
  CASE(__VA_ARGS__, {9, 3, 4099})                                                                  \
  CASE(__VA_ARGS__, {5, 3, 24, 1})                                                                 \
  CASE(__VA_ARGS__, {5, 3, 12, 1})                                                                 \
  CASE(__VA_ARGS__, {6, 3, 20, 1})                                                                 \
  CASE(__VA_ARGS__, {3, 4, 8})

/* ---- normalisation of samples: N, groups, channels of a group, plane, plain, rms --------------
 */

static struct sl__layernorm layernorm_of(const int64_t *d) {
  return (struct sl__layernorm){.size = d[2] * d[3],
                                .groups = d[1],
                                .params = d[1] * d[2],
                                .epsilon = 1e-2f,
                                .rms = d[5] != 0};
}

static struct sl__tensor *layernorm_param(struct trial *t, const int64_t *d) {
  return d[4] ? NULL : given(t, SL_F32, SL_SHAPE((d[5] ? 1 : 2) * d[1] * d[2]));
}

static enum sl_status layernorm_forward(struct trial *t, const int64_t *d) {
  const struct sl__layernorm o = layernorm_of(d);
  struct sl_shape shape = SL_SHAPE(d[0], d[1] * d[2], d[3]);
  struct sl__tensor *x = given(t, t->type, shape), *param = layernorm_param(t, d);
  struct sl__tensor *y = written(t, t->type, shape, sums_of(32, 8));
  if (t->status != SL_OK) return t->status;
  return sl__layernorm_forward(t->context, L, x, param, y, &o);
}

static enum sl_status layernorm_backward_data(struct trial *t, const int64_t *d) {
  const struct sl__layernorm o = layernorm_of(d);
  struct sl_shape shape = SL_SHAPE(d[0], d[1] * d[2], d[3]);
  struct sl__tensor *x = given(t, t->type, shape), *param = layernorm_param(t, d);
  struct sl__tensor *dy = given(t, t->type, shape);
  struct sl__tensor *dx = added(t, t->type, shape, sums_of(64, 32));
  if (t->status != SL_OK) return t->status;
  return sl__layernorm_backward_data(t->context, L, x, param, dy, dx, &o);
}

static enum sl_status layernorm_backward_weight(struct trial *t, const int64_t *d) {
  const struct sl__layernorm o = layernorm_of(d);
  struct sl_shape shape = SL_SHAPE(d[0], d[1] * d[2], d[3]);
  struct sl__tensor *x = given(t, t->type, shape), *dy = given(t, t->type, shape);
  struct sl__tensor *grad = added(t, SL_F32, SL_SHAPE((d[5] ? 1 : 2) * d[1] * d[2]),
                                  sums_of((double)(d[0] * d[3]) + 32, 8));
  if (t->status != SL_OK) return t->status;
  return sl__layernorm_backward_weight(t->context, L, x, dy, grad, &o);
}

#define LAYERNORM_SIZES(CASE, ...)                                                                 \
  CASE(__VA_ARGS__, {1, 1, 2, 1})                                                                  \
  CASE(__VA_ARGS__, {7, 1, 33, 1})                                                                 \
  CASE(__VA_ARGS__, {21, 1, 65, 1, 0, 1})                                                          \
  CASE(__VA_ARGS__, {1, 1, 1601, 1})                                                               \
  CASE(__VA_ARGS__, {1, 1, 1203, 1, 0, 1})                                                         \
  CASE(__VA_ARGS__, {300, 1, 65, 1, 0, 1})                                                         \
  CASE(__VA_ARGS__, {3, 1, 1031, 1, 1})                                                            \
  CASE(__VA_ARGS__, {2, 3, 2, 35})                                                                 \
  CASE(__VA_ARGS__, {5, 8, 1, 49, 1})                                                              \
  CASE(__VA_ARGS__, {4, 2, 5, 1})                                                                  \
  CASE(__VA_ARGS__, {9, 4, 3, 256})                                                                \
  CASE(__VA_ARGS__, {21, 1, 256, 1})                                                               \
  CASE(__VA_ARGS__, {37, 1, 768, 1, 0, 1})                                                         \
  CASE(__VA_ARGS__, {6, 2, 512, 1})                                                                \
  CASE(__VA_ARGS__, {2, 1, 9, 64})                                                                 \
  CASE(__VA_ARGS__, {9, 1, 2056, 1})                                                               \
  CASE(__VA_ARGS__, {2, 1, 12296, 1})                                                              \
  CASE(__VA_ARGS__, {2, 2, 3, 4100})

/* ---- dropout: count, run, the first number ------------------------------------------------- */

static struct sl__dropout dropout_of(const int64_t *d) {
  return (struct sl__dropout){.rate = 0.4f,
                              .seed = 5,
                              .stream = sl__stream(SL__STREAM_DROPOUT, 3),
                              .first = (uint64_t)d[2],
                              .run = d[1],
                              .stride = d[1] ? d[1] + 5 : 0};
}

static enum sl_status dropout_forward(struct trial *t, const int64_t *d) {
  const struct sl__dropout dropout = dropout_of(d);
  struct sl__tensor *x = given(t, t->type, SL_SHAPE(d[0]));
  struct sl__tensor *y = written(t, t->type, SL_SHAPE(d[0]), roundings(1));
  if (t->status != SL_OK) return t->status;
  return sl__dropout_forward(t->context, L, x, y, &dropout);
}

static enum sl_status dropout_backward(struct trial *t, const int64_t *d) {
  const struct sl__dropout dropout = dropout_of(d);
  struct sl__tensor *dy = given(t, t->type, SL_SHAPE(d[0]));
  struct sl__tensor *dx = added(t, t->type, SL_SHAPE(d[0]), roundings(2));
  if (t->status != SL_OK) return t->status;
  return sl__dropout_backward(t->context, L, dy, dx, &dropout);
}

#define DROPOUT_SIZES(CASE, ...)                                                                   \
  CASE(__VA_ARGS__, {1, 0, 0})                                                                     \
  CASE(__VA_ARGS__, {1003, 0, 7})                                                                  \
  CASE(__VA_ARGS__, {36, 9, 2})                                                                    \
  CASE(__VA_ARGS__, {60000, 30, 1})                                                                \
  CASE(__VA_ARGS__, {4096, 0, ((int64_t)1 << 33) + 1})

/* ---- embedding: N, T of the tokens, from, T of the values, vocabulary, features; room for rows,
 * 0: enough ------------------------------------------------------------------------------------ */

/* Some are out of range. */
static struct sl__tensor *tokens_of(struct trial *t, const int64_t *d) {
  return given_integers(t, SL_SHAPE(d[0], d[1]), -1, d[4] + 1);
}

/* Numbers are tokens, too; those given here are 0 or none. */
static struct sl__tensor *number_tokens_of(struct trial *t, const int64_t *d) {
  return given(t, SL_F32, SL_SHAPE(d[0], d[1]));
}

static enum sl_status embedding_forward(struct trial *t, const int64_t *d) {
  struct sl__tensor *tokens = d[2] == 2 ? number_tokens_of(t, d) : tokens_of(t, d);
  struct sl__tensor *param = given(t, t->type, SL_SHAPE(d[4] * d[5]));
  struct sl__tensor *y = written(t, t->type, SL_SHAPE(d[0], d[3], d[5]), exact);
  if (t->status != SL_OK) return t->status;
  return sl__embedding_forward(t->context, L, tokens, param, y, d[4], d[2]);
}

static double repeats(const int64_t *d) {
  return 8 + 4 * (double)(d[0] * d[3]) / (double)d[4]; /* of the commonest token, about */
}

static enum sl_status embedding_backward_weight(struct trial *t, const int64_t *d) {
  struct sl__tensor *tokens = d[2] == 2 ? number_tokens_of(t, d) : tokens_of(t, d);
  struct sl__tensor *dy = given(t, t->type, SL_SHAPE(d[0], d[3], d[5]));
  struct sl__tensor *grad = added(t, SL_F32, SL_SHAPE(d[4] * d[5]), sums_of(repeats(d), 1));
  if (t->status != SL_OK) return t->status;
  return sl__embedding_backward_weight(t->context, L, tokens, dy, grad, d[4], d[2]);
}

/* In an accumulating case half of the table's rows are taken already, or all that there is room
 * for.
 */
static enum sl_status embedding_backward_rows(struct trial *t, const int64_t *d) {
  int64_t places = d[0] * d[3], capacity = places < d[4] ? places : d[4], taken = d[4] / 2;
  if (t->launch.accumulate) capacity = d[4];
  if (d[6]) capacity = taken = d[6];
  struct sl__tensor *tokens = tokens_of(t, d);
  struct sl__tensor *dy = given(t, t->type, SL_SHAPE(d[0], d[3], d[5]));
  struct sl__tensor *rows = t->launch.accumulate
                                ? given_rows(t, capacity, taken, d[4])
                                : written(t, SL_I32, SL_SHAPE(1 + capacity), exact);
  t->buffers[t->count - 1].result = true;
  struct sl__tensor *values =
      added(t, SL_F32, SL_SHAPE(capacity, d[5]), sums_of(repeats(d) + 1, 1));
  last_are_rows(t, d[5]);
  if (t->status != SL_OK) return t->status;
  return sl__embedding_backward_rows(t->context, L, tokens, dy, rows, values, d[4], d[2]);
}

#define EMBEDDING_SIZES(CASE, ...)                                                                 \
  CASE(__VA_ARGS__, {1, 1, 0, 1, 1, 1})                                                            \
  CASE(__VA_ARGS__, {3, 7, 0, 7, 5, 9})                                                            \
  CASE(__VA_ARGS__, {4, 9, 3, 5, 30, 33})                                                          \
  CASE(__VA_ARGS__, {20, 35, 0, 35, 11, 20})                                                       \
  CASE(__VA_ARGS__, {2, 5, 2, 3, 1000, 300})                                                       \
  CASE(__VA_ARGS__, {3, 33, 1, 31, 4, 8})                                                          \
  CASE(__VA_ARGS__, {5, 1650, 0, 1650, 900, 3})
#define EMBEDDING_ROWS_SIZES(CASE, ...)                                                            \
  EMBEDDING_SIZES(CASE, __VA_ARGS__)                                                               \
  CASE(__VA_ARGS__, {4, 9, 3, 5, 30, 33, 3}) /* too little room: NaN */

/* ---- attention: rows, steps, heads, heads of keys, their size, turned values, position, dropout
 */

struct attention {
  struct sl__attention options;
  struct sl_shape x, y, lse, state;
  struct sums sums;
};

/* Scores and weights are rounded where they are a product's factors; their sums are scaled, or
 * averages. */
static struct sums attention_sums(const int64_t *d) {
  return (struct sums){.terms = (double)(8 * (d[1] + d[6]) + d[4]) + 64,
                       .magnitude = 8,
                       .factors = 0.1,
                       .between = true};
}

static struct attention attention_of(const int64_t *d) {
  const struct sl__dropout drop = {.rate = d[7] ? 0.25f : 0, .seed = 5, .stream = 3, .first = 2};
  int64_t context = d[6] + d[1] + 1;
  return (struct attention){.options = {.heads = (int)d[2],
                                        .kv_heads = (int)d[3],
                                        .rope_dims = (int)d[5],
                                        .rope_base = 100,
                                        .position = d[6],
                                        .context = context,
                                        .dropout = drop},
                            .x = SL_SHAPE(d[0], d[1], (d[2] + 2 * d[3]) * d[4]),
                            .y = SL_SHAPE(d[0], d[1], d[2] * d[4]),
                            .lse = SL_SHAPE(d[0], d[1], d[2]),
                            .state = SL_SHAPE(d[0], context, 2 * d[3] * d[4]),
                            .sums = attention_sums(d)};
}

/* With a state where a case has a position above 0. */
static struct sl__tensor *attention_state(struct trial *t, const int64_t *d,
                                          const struct attention *a) {
  return d[6] ? changed(t, SL_F32, a->state, -1, 1, a->sums) : NULL;
}

static enum sl_status attention_forward(struct trial *t, const int64_t *d) {
  const struct attention a = attention_of(d);
  struct sl__tensor *x = given(t, t->type, a.x), *y = written(t, t->type, a.y, a.sums);
  struct sl__tensor *lse = written(t, SL_F32, a.lse, a.sums);
  struct sl__tensor *state = attention_state(t, d, &a);
  if (t->status != SL_OK) return t->status;
  return sl__attention_forward(t->context, L, x, y, lse, state, &a.options);
}

/* lse is such that the probabilities are about 1 at most. */
/* Behind a forward pass, which fills the state with the keys and values that it reads. */
static enum sl_status attention_backward(struct trial *t, const int64_t *d) {
  const struct attention a = attention_of(d);
  struct sl__tensor *x = given(t, t->type, a.x), *y = written(t, t->type, a.y, a.sums);
  struct sl__tensor *lse = written(t, SL_F32, a.lse, a.sums), *dy = given(t, t->type, a.y);
  struct sl__tensor *dx = added(t, t->type, a.x, a.sums), *state = attention_state(t, d, &a);
  struct sl__tensor *dstate = attention_state(t, d, &a);
  if (t->status != SL_OK) return t->status;
  enum sl_status status = SL_OK;
  if (!sl__is_dry_run(t->context)) /* which asks for the case's own operation */
    status = sl__attention_forward(t->context, L, x, y, lse, state, &a.options);
  if (status != SL_OK) return status;
  return sl__attention_backward(t->context, L, x, y, lse, dy, dx, state, dstate, &a.options);
}

#define ATTENTION_SIZES(CASE, ...)                                                                 \
  CASE(__VA_ARGS__, {1, 1, 1, 1, 8})                                                               \
  CASE(__VA_ARGS__, {2, 5, 4, 2, 20, 12, 0, 1})                                                    \
  CASE(__VA_ARGS__, {1, 19, 2, 1, 64, 64})                                                         \
  CASE(__VA_ARGS__, {2, 3, 2, 2, 12, 4, 18, 1})                                                    \
  CASE(__VA_ARGS__, {1, 3, 1, 1, 160, 8, 2})                                                       \
  CASE(__VA_ARGS__, {1, 70, 2, 1, 12, 0, 9})                                                       \
  CASE(__VA_ARGS__, {1, 19, 1, 1, 128, 0, 5})                                                      \
  CASE(__VA_ARGS__, {2, 200, 4, 2, 64})                                                            \
  CASE(__VA_ARGS__, {1, 80, 2, 1, 64, 0, 0, 1})                                                    \
  CASE(__VA_ARGS__, {1, 70, 2, 1, 96})                                                             \
  CASE(__VA_ARGS__, {1, 90, 2, 2, 100, 100, 70, 1})

/* ---- rows: rows of the table, width, terms; capacity -------------------------------------- */

#define MOST_TERMS 70

static enum sl_status rows_reduce(struct trial *t, const int64_t *d) {
  struct sl__tensor *rows[MOST_TERMS], *values[MOST_TERMS];
  for (int64_t i = 0; i < d[2]; i++) {
    rows[i] = given_rows(t, d[0], (i * 3 + 1) % d[0] + 1, d[0]);
    values[i] = given(t, SL_F32, SL_SHAPE(d[0], d[1]));
  }
  struct sl__tensor *sum_rows = written(t, SL_I32, SL_SHAPE(1 + d[3]), exact);
  struct sl__tensor *sum = written(t, SL_F32, SL_SHAPE(d[3], d[1]), sums_of((double)d[2], 1));
  last_are_rows(t, d[1]);
  if (t->status != SL_OK) return t->status;
  return sl__rows_reduce(t->context, L, sum_rows, sum, (int)d[2], rows, values, d[0]);
}

static enum sl_status rows_square(struct trial *t, const int64_t *d) {
  struct sl__tensor *rows = given_rows(t, d[0], (d[0] + 1) / 2, d[0]);
  struct sl__tensor *values = given(t, SL_F32, SL_SHAPE(d[0], d[1]));
  /* in double: the rounding at the end counts */
  struct sl__tensor *sum = written(t, SL_F32, SL_SHAPE(1), sums_of(1, (double)(d[0] * d[1])));
  if (t->status != SL_OK) return t->status;
  return sl__rows_square(t->context, L, rows, values, sum);
}

static enum sl_status rows_dense(struct trial *t, const int64_t *d) {
  struct sl__tensor *rows = given_rows(t, d[0], (d[0] + 1) / 2, d[0]);
  struct sl__tensor *values = given(t, SL_F32, SL_SHAPE(d[0], d[1]));
  struct sl__tensor *dense = written(t, SL_F32, SL_SHAPE(d[0] * d[1]), exact);
  if (t->status != SL_OK) return t->status;
  return sl__rows_dense(t->context, L, rows, values, dense);
}

/* A shard from the middle of a row to the middle of another. */
static enum sl_status rows_sgd(struct trial *t, const int64_t *d) {
  int64_t table = d[0] * d[1], first = table / 5, count = (table - first + 1) / 2;
  const struct sl__update update = {.lr = 0.1f, .max_norm = 0.5f};
  struct sl__tensor *rows = given_rows(t, d[0], (d[0] + 1) / 2, d[0]);
  struct sl__tensor *values = given(t, SL_F32, SL_SHAPE(d[0], d[1]));
  struct sl__tensor *norm = d[2] > 1 ? given_in(t, SL_F32, SL_SHAPE(1), 0.1, 2) : NULL;
  struct sl__tensor *param = changed(t, SL_F32, SL_SHAPE(count), -1, 1, roundings(1));
  if (t->status != SL_OK) return t->status;
  return sl__rows_sgd(t->context, L, param, first, rows, values, norm, &update);
}

#define ROWS_SIZES(CASE, ...)                                                                      \
  CASE(__VA_ARGS__, {1, 1, 1, 1})                                                                  \
  CASE(__VA_ARGS__, {7, 5, 2, 7})                                                                  \
  CASE(__VA_ARGS__, {40, 33, 3, 40})                                                               \
  CASE(__VA_ARGS__, {9, 300, 1, 9})                                                                \
  CASE(__VA_ARGS__, {300, 20, 4, 300})
#define ROWS_REDUCE_SIZES(CASE, ...)                                                               \
  ROWS_SIZES(CASE, __VA_ARGS__)                                                                    \
  CASE(__VA_ARGS__, {20, 6, 70, 20})                                                               \
  CASE(__VA_ARGS__, {20, 6, 5, 3}) /* too little room: NaN */

/* ---- recurrent layers: N, T, inputs, hidden, set of enum sl__time; weights as small as PyTorch's
 */

struct recurrent {
  double size, terms;
  struct sums sums;
  struct sl_shape x, y;
  int64_t ways; /* number of directions */
};

static struct recurrent recurrent_of(const int64_t *d, int terms_a_step) {
  double size = 1 / sqrt((double)d[3]), terms = (double)(d[2] + d[3]) * terms_a_step;
  int64_t ways = d[4] & SL__TIME_BOTH ? 2 : 1;
  return (struct recurrent){
      .size = size,
      .terms = terms,
      .sums = {.terms = terms, .magnitude = 1, .factors = size, .steps = (double)d[1]},
      .x = SL_SHAPE(d[0], d[1], d[2]),
      .ways = ways,
      .y = d[4] & SL__TIME_LAST ? SL_SHAPE(d[0], ways * d[3]) : SL_SHAPE(d[0], d[1], ways * d[3])};
}

struct cell {
  int gates, width, states; /* times hidden */
  enum sl_status (*forward)(struct sl_context *, const struct sl__launch *, struct sl__tensor *,
                            struct sl__tensor *, struct sl__tensor *, struct sl__tensor *,
                            struct sl__tensor *, int);
  enum sl_status (*backward_gates)(struct sl_context *, const struct sl__launch *,
                                   struct sl__tensor *, struct sl__tensor *, struct sl__tensor *,
                                   struct sl__tensor *, int64_t, int);
  enum sl_status (*backward_data)(struct sl_context *, const struct sl__launch *,
                                  struct sl__tensor *, struct sl__tensor *, struct sl__tensor *,
                                  int);
  enum sl_status (*backward_weight)(struct sl_context *, const struct sl__launch *,
                                    struct sl__tensor *, struct sl__tensor *, struct sl__tensor *,
                                    int);
};

static const struct cell lstm = {4,
                                 6,
                                 2,
                                 sl__lstm_forward,
                                 sl__lstm_backward_gates,
                                 sl__lstm_backward_data,
                                 sl__lstm_backward_weight};
static const struct cell gru = {3,
                                5,
                                1,
                                sl__gru_forward,
                                sl__gru_backward_gates,
                                sl__gru_backward_data,
                                sl__gru_backward_weight};

static int64_t cell_params(const struct cell *c, const int64_t *d) {
  return (d[4] & SL__TIME_BOTH ? 2 : 1) * c->gates * d[3] * (d[2] + d[3] + 2);
}

static enum sl_status cell_forward(struct trial *t, const int64_t *d, const struct cell *c) {
  struct recurrent r = recurrent_of(d, 1);
  struct sl__tensor *x = given(t, t->type, r.x);
  struct sl__tensor *param = given_in(t, t->type, SL_SHAPE(cell_params(c, d)), -r.size, r.size);
  struct sl__tensor *state =
      changed(t, SL_F32, SL_SHAPE(d[0], r.ways * c->states * d[3]), -0.5, 0.5, r.sums);
  struct sl__tensor *y = written(t, t->type, r.y, r.sums);
  struct sl__tensor *saved =
      written(t, t->type, SL_SHAPE(d[0], d[1], r.ways * c->width * d[3]), r.sums);
  if (t->status != SL_OK) return t->status;
  return c->forward(t->context, L, x, param, state, y, saved, (int)d[4]);
}

static enum sl_status cell_backward_gates(struct trial *t, const int64_t *d, const struct cell *c) {
  struct recurrent r = recurrent_of(d, c->gates);
  struct sl__tensor *param = given_in(t, t->type, SL_SHAPE(cell_params(c, d)), -r.size, r.size);
  struct sl__tensor *saved =
      changed(t, t->type, SL_SHAPE(d[0], d[1], r.ways * c->width * d[3]), 0.1, 0.9, r.sums);
  struct sl__tensor *dy = given(t, t->type, r.y);
  struct sl__tensor *dstate =
      changed(t, SL_F32, SL_SHAPE(d[0], r.ways * c->states * d[3]), -0.5, 0.5, r.sums);
  if (t->status != SL_OK) return t->status;
  return c->backward_gates(t->context, L, param, saved, dy, dstate, d[2], (int)d[4]);
}

static enum sl_status cell_backward_data(struct trial *t, const int64_t *d, const struct cell *c) {
  struct recurrent r = recurrent_of(d, c->gates);
  struct sl__tensor *dgates = given(t, t->type, SL_SHAPE(d[0], d[1], r.ways * c->width * d[3]));
  struct sl__tensor *param = given_in(t, t->type, SL_SHAPE(cell_params(c, d)), -r.size, r.size);
  struct sums sums = products((double)(r.ways * c->gates * d[3]) + 1, r.size);
  if (r.ways == 2) sums.steps = 2; /* the second direction adds to the first one's, rounded */
  struct sl__tensor *dx = added(t, t->type, r.x, sums);
  if (t->status != SL_OK) return t->status;
  return c->backward_data(t->context, L, dgates, param, dx, (int)d[4]);
}

static enum sl_status cell_backward_weight(struct trial *t, const int64_t *d,
                                           const struct cell *c) {
  struct recurrent r = recurrent_of(d, 1);
  struct sl__tensor *x = given(t, t->type, r.x);
  struct sl__tensor *dgates = given(t, t->type, SL_SHAPE(d[0], d[1], r.ways * c->width * d[3]));
  struct sl__tensor *grad =
      added(t, SL_F32, SL_SHAPE(cell_params(c, d)), products((double)(d[0] * d[1]) + 1, 1));
  if (t->status != SL_OK) return t->status;
  return c->backward_weight(t->context, L, x, dgates, grad, (int)d[4]);
}

#define CELL(kind, half)                                                                           \
  static enum sl_status kind##_##half(struct trial *t, const int64_t *d) {                         \
    return cell_##half(t, d, &kind);                                                               \
  }
CELL(lstm, forward)
CELL(lstm, backward_gates)
CELL(lstm, backward_data)
CELL(lstm, backward_weight)
CELL(gru, forward)
CELL(gru, backward_gates)
CELL(gru, backward_data)
CELL(gru, backward_weight)

#define CELL_SIZES(CASE, ...)                                                                      \
  CASE(__VA_ARGS__, {1, 1, 1, 1})                                                                  \
  CASE(__VA_ARGS__, {3, 4, 5, 7})                                                                  \
  CASE(__VA_ARGS__, {2, 9, 16, 8})                                                                 \
  CASE(__VA_ARGS__, {5, 3, 33, 31})                                                                \
  CASE(__VA_ARGS__, {70, 2, 10, 65})                                                               \
  CASE(__VA_ARGS__, {17, 6, 8, 40})                                                                \
  CASE(__VA_ARGS__, {250, 2, 4, 65})                                                               \
  CASE(__VA_ARGS__, {470, 2, 3, 66})                                                               \
  CASE(__VA_ARGS__, {920, 2, 3, 65})                                                               \
  CASE(__VA_ARGS__, {3, 4, 5, 7, SL__TIME_REVERSE})                                                \
  CASE(__VA_ARGS__, {3, 4, 5, 7, SL__TIME_BOTH})                                                   \
  CASE(__VA_ARGS__, {2, 5, 16, 33, SL__TIME_BOTH | SL__TIME_LAST})                                 \
  CASE(__VA_ARGS__, {5, 3, 8, 16, SL__TIME_LAST})

/* ---- a layer kind as a program registers it: rows, values of a sample, 1: of several inputs:
 * y = w (x0 + 2 x1 + 3 x2 + ...) --------------------------------------------------------------- */

enum { SEVERAL = 40 };

static enum sl_status scale(struct sl_layer_task *t) {
  for (int64_t i = 0; i < t->rows * t->out.dim[0]; i++) {
    t->y[i] = *t->param[0] * t->x[0][i];
    for (int k = 1; k < t->input_count; k++)
      t->y[i] += *t->param[0] * ((float)(k + 1) * t->x[k][i]);
    if (t->saved) t->saved[i] = t->x[0][i] / 2;
  }
  return SL_OK;
}

static enum sl_status add_scaled(struct sl_layer_task *t) {
  float w = (float)(t->input + 1) * *t->param[0];
  for (int64_t i = 0; i < t->rows * t->out.dim[0]; i++) t->dx[i] += w * t->dy[i];
  return SL_OK;
}

static enum sl_status add_products(struct sl_layer_task *t) {
  float sum = 0;
  for (int k = 0; k < t->input_count; k++)
    for (int64_t i = 0; i < t->rows * t->out.dim[0]; i++)
      sum += (float)(k + 1) * t->x[k][i] * t->dy[i];
  *t->grad[0] += sum;
  return SL_OK;
}

/* Tasks hold its address. */
static const struct sl__custom *scaling(bool several) {
  static struct sl_layer_kind kind = {.name = "scale",
                                      .forward = scale,
                                      .backward_data = add_scaled,
                                      .backward_weight = add_products};
  static const struct sl__custom layers[] = {
      {.kind = &kind, .inputs = 1, .params = 1, .total = 1},
      {.kind = &kind, .inputs = SEVERAL, .params = 1, .total = 1}};
  gpu_custom_kernels(&kind);
  return &layers[several];
}

static void give_inputs(struct trial *t, const int64_t *d, struct sl__tensor **x) {
  for (int i = 0; i < (d[2] ? SEVERAL : 1); i++) x[i] = given(t, t->type, SL_SHAPE(d[0], d[1]));
}

static enum sl_status custom(struct trial *t, const int64_t *d, bool saves) {
  struct sl__tensor *param = given(t, SL_F32, SL_SHAPE(1));
  struct sl__tensor *x[SEVERAL];
  give_inputs(t, d, x);
  /* a GPU multiplies and adds with one rounding where the CPU may have two; one product has one */
  struct sl__tensor *y =
      written(t, t->type, SL_SHAPE(d[0], d[1]), d[2] ? sums_of(SEVERAL, SEVERAL) : exact);
  struct sl__tensor *saved = saves ? written(t, t->type, SL_SHAPE(d[0], d[1]), exact) : NULL;
  if (t->status != SL_OK) return t->status;
  return sl__custom_forward(t->context, L, scaling(d[2]), x, param, y, saved, true);
}

static enum sl_status custom_forward(struct trial *t, const int64_t *d) {
  return custom(t, d, false);
}

static enum sl_status custom_forward_saving(struct trial *t, const int64_t *d) {
  return custom(t, d, true);
}

static enum sl_status custom_backward(struct trial *t, const int64_t *d, bool of_weight) {
  struct sl__tensor *x[SEVERAL];
  give_inputs(t, d, x);
  struct sl__custom_buffers b = {.x = x, .param = given(t, SL_F32, SL_SHAPE(1))};
  b.y = given(t, t->type, SL_SHAPE(d[0], d[1]));
  b.dy = given(t, t->type, SL_SHAPE(d[0], d[1]));
  struct sl__tensor *result =
      of_weight ? added(t, SL_F32, SL_SHAPE(1),
                        sums_of(SEVERAL * (double)(d[0] * d[1]) + 1, d[2] ? SEVERAL : 1))
                : added(t, t->type, SL_SHAPE(d[0], d[1]), roundings(2));
  if (t->status != SL_OK) return t->status;
  const struct sl__custom *layer = scaling(d[2]);
  return of_weight ? sl__custom_backward_weight(t->context, L, layer, &b, result)
                   : sl__custom_backward_data(t->context, L, layer, &b, d[2] ? 33 : 0, result);
}

static enum sl_status custom_backward_data(struct trial *t, const int64_t *d) {
  return custom_backward(t, d, false);
}

static enum sl_status custom_backward_weight(struct trial *t, const int64_t *d) {
  return custom_backward(t, d, true);
}

#define CUSTOM_SIZES(CASE, ...)                                                                    \
  CASE(__VA_ARGS__, {1, 1})                                                                        \
  CASE(__VA_ARGS__, {3, 67})                                                                       \
  CASE(__VA_ARGS__, {5, 35, 1})                                                                    \
  CASE(__VA_ARGS__, {130, 33})

/* ---- elementwise --------------------------------------------------------------------------- */

enum { MANY = 150 }; /* inputs: more than a CUDA kernel's argument has room for */

/* d[2]: number of terms, if there are more than two. */
static enum sl_status add(struct trial *t, const int64_t *d) {
  int count = d[2] ? (int)d[2] : 2;
  struct sl__tensor *x[MANY];
  for (int i = 0; i < count; i++) x[i] = given(t, t->type, SL_SHAPE(d[0]));
  struct sl__tensor *y = written(t, t->type, SL_SHAPE(d[0]), exact);
  if (t->status != SL_OK) return t->status;
  return sl__add_terms(t->context, L, count, x, y, d[1] & 1);
}

/* A factor whose product with many others neither vanishes nor overflows. */
static struct sl__tensor *given_factor(struct trial *t, struct sl_shape shape) {
  return given_in(t, t->type, shape, 0.9, 1.1);
}

static enum sl_status multiply(struct trial *t, const int64_t *d) {
  int count = d[2] ? (int)d[2] : 2;
  struct sl__tensor *x[MANY];
  struct sl__tensor *y = added(t, t->type, SL_SHAPE(d[0]), roundings(2));
  for (int i = 0; i < count; i++)
    x[i] = i ? given_factor(t, SL_SHAPE(d[0])) : given(t, t->type, SL_SHAPE(d[0]));
  if (t->status != SL_OK) return t->status;
  return sl__multiply(t->context, L, count, x, y);
}

/* N, C, W, kind, further factors: y [N, C, W] = x * gate [N, C, 1] * row [N, W]; the gradient of
 * the gate; of the row; a sum over all axes of a sample. */
static enum sl_status multiply_broadcast(struct trial *t, const int64_t *d) {
  const struct sl_shape whole = SL_SHAPE(d[0], d[1], d[2]), gate = SL_SHAPE(d[0], d[1], 1),
                        row = SL_SHAPE(d[0], d[2]), one = SL_SHAPE(d[0], 1, 1);
  const struct sl_shape out[] = {whole, gate, row, one};
  const int64_t terms[] = {1, d[2], d[1], d[1] * d[2]};
  struct sl__tensor *x[MANY] = {given(t, t->type, whole),
                                given(t, t->type, d[3] == 1 ? whole : gate),
                                given(t, t->type, d[3] == 2 ? whole : row)};
  for (int i = 0; i < d[4]; i++) x[3 + i] = given_factor(t, out[i % 4]);
  struct sl__tensor *y =
      added(t, t->type, out[d[3]], d[3] ? products((double)terms[d[3]] + 2, 1) : roundings(2));
  if (t->status != SL_OK) return t->status;
  return sl__multiply_broadcast(t->context, L, d[3] == 3 ? 1 : 3 + (int)d[4], x, y);
}

#define BROADCAST_SIZES(CASE, ...)                                                                 \
  CASE(__VA_ARGS__, {1, 1, 1, 0})                                                                  \
  CASE(__VA_ARGS__, {3, 5, 35, 0})                                                                 \
  CASE(__VA_ARGS__, {3, 5, 35, 1})                                                                 \
  CASE(__VA_ARGS__, {3, 5, 35, 2})                                                                 \
  CASE(__VA_ARGS__, {3, 5, 7, 0, 20})                                                              \
  CASE(__VA_ARGS__, {2, 3, 9, 1, MANY - 3})                                                        \
  CASE(__VA_ARGS__, {4, 3, 9, 3})

static enum sl_status add_relu_backward(struct trial *t, const int64_t *d) {
  struct sl__tensor *y = given(t, t->type, SL_SHAPE(d[0])), *dy = given(t, t->type, SL_SHAPE(d[0]));
  struct sl__tensor *da = added(t, t->type, SL_SHAPE(d[0]), exact);
  struct sl__tensor *db = added(t, t->type, SL_SHAPE(d[0]), exact);
  if (t->status != SL_OK) return t->status;
  return sl__add_relu_backward(t->context, L, y, dy, da, db);
}

/* d[1]: which of x and y are always float. */
static enum sl_status axpy(struct trial *t, const int64_t *d) {
  struct sl__tensor *x = given(t, d[1] & 1 ? SL_F32 : t->type, SL_SHAPE(d[0]));
  struct sl__tensor *y = added(t, d[1] & 2 ? SL_F32 : t->type, SL_SHAPE(d[0]), roundings(2));
  if (t->status != SL_OK) return t->status;
  return sl__axpy(t->context, L, d[2] ? 1.0f : 0.3f, x, y);
}

static enum sl_status fill(struct trial *t, const int64_t *d) {
  struct sl__tensor *y = written(t, t->type, SL_SHAPE(d[0]), exact);
  if (t->status != SL_OK) return t->status;
  return sl__fill(t->context, L, y, 0.7f);
}

#define COUNT_SIZES(CASE, ...)                                                                     \
  CASE(__VA_ARGS__, {1})                                                                           \
  CASE(__VA_ARGS__, {7, 1})                                                                        \
  CASE(__VA_ARGS__, {64, 2})                                                                       \
  CASE(__VA_ARGS__, {1003, 0, 5})                                                                  \
  CASE(__VA_ARGS__, {70005, 1, 4})                                                                 \
  CASE(__VA_ARGS__, {67, 1, 17})                                                                   \
  CASE(__VA_ARGS__, {331, 1, MANY})

/* ---- copies between views: a sample's shape [N, d0, d1, d2], what is done ------------------- */

enum view { TURN, TURN_ROWS, CUT, CUT_ROWS, PUT, SPREAD, FLIP };

static enum sl_status strided_copy(struct trial *t, const int64_t *d) {
  struct sl_shape whole = SL_SHAPE(d[0], d[1], d[2], d[3]), part = whole, y_shape = whole;
  int axis = d[4] == CUT_ROWS ? 0 : 2;
  int64_t first = whole.dim[axis] / 3;
  part.dim[axis] -= first;
  if (d[4] == TURN) y_shape = SL_SHAPE(d[0], d[3], d[1], d[2]);
  if (d[4] == TURN_ROWS) y_shape = SL_SHAPE(d[0], d[2], d[1], d[3]);
  if (d[4] == CUT || d[4] == CUT_ROWS) y_shape = part;
  struct sl_shape x_shape = d[4] == PUT      ? part
                            : d[4] == SPREAD ? SL_SHAPE(d[0], d[1], 1, d[3])
                                             : whole;
  struct sl__tensor *x = given(t, t->type, x_shape);
  struct sl__tensor *y = added(t, t->type, y_shape, d[4] == SPREAD ? roundings(2) : exact);
  if (t->status != SL_OK) return t->status;
  switch ((enum view)d[4]) {
    case TURN: return sl__permute(t->context, L, x, y, (int[]){0, 3, 1, 2});
    case TURN_ROWS: return sl__permute(t->context, L, x, y, (int[]){0, 2, 1, 3});
    case CUT:
    case CUT_ROWS: return sl__slice(t->context, L, x, y, axis, first);
    case PUT: return sl__slice_backward(t->context, L, x, y, axis, first);
    case FLIP: return sl__flip(t->context, L, x, y, 2);
    case SPREAD: return sl__broadcast(t->context, L, 0.3f, x, y, 1u << 2);
  }
  return SL_BAD_ARGUMENT;
}

#define VIEW_SIZES(CASE, ...)                                                                      \
  CASE(__VA_ARGS__, {1, 1, 1, 1, TURN})                                                            \
  CASE(__VA_ARGS__, {3, 7, 5, 33, TURN})                                                           \
  CASE(__VA_ARGS__, {2, 4, 9, 64, TURN_ROWS})                                                      \
  CASE(__VA_ARGS__, {2, 3, 7, 5, CUT})                                                             \
  CASE(__VA_ARGS__, {9, 3, 5, 31, CUT_ROWS})                                                       \
  CASE(__VA_ARGS__, {2, 3, 7, 5, PUT})                                                             \
  CASE(__VA_ARGS__, {5, 2, 11, 65, PUT})                                                           \
  CASE(__VA_ARGS__, {2, 3, 7, 33, FLIP})                                                           \
  CASE(__VA_ARGS__, {2, 3, 7, 5, SPREAD})                                                          \
  CASE(__VA_ARGS__, {4, 20, 24, 24, SPREAD})

/* ---- concatenation: N, inner, three sizes along the axis, further inputs ------------------- */

static enum sl_status concatenate(struct trial *t, const int64_t *d) {
  struct sl__tensor *x[MANY];
  int count = 0;
  int64_t whole = 0;
  for (; count < 3 && d[2 + count]; whole += d[2 + count++])
    x[count] = given(t, t->type, SL_SHAPE(d[0], d[2 + count], d[1]));
  for (int64_t i = 0; i < d[5]; i++, whole += 1 + i % 3)
    x[count++] = given(t, t->type, SL_SHAPE(d[0], 1 + i % 3, d[1]));
  struct sl__tensor *y = written(t, t->type, SL_SHAPE(d[0], whole, d[1]), exact);
  if (t->status != SL_OK) return t->status;
  return sl__concatenate(t->context, L, count, x, y, 1);
}

#define CONCATENATE_SIZES(CASE, ...)                                                               \
  CASE(__VA_ARGS__, {1, 1, 1})                                                                     \
  CASE(__VA_ARGS__, {3, 5, 2, 7})                                                                  \
  CASE(__VA_ARGS__, {17, 1, 33, 1, 64})                                                            \
  CASE(__VA_ARGS__, {3, 5, 2, 7, 1, 60})                                                           \
  CASE(__VA_ARGS__, {4, 576, 3, 20, 1})

/* ---- means: the axes' sizes, the axes that go ----------------------------------------------- */

static enum sl_status mean(struct trial *t, const int64_t *d) {
  struct sl_shape y_shape = {0};
  double terms = 1;
  for (int i = 0; i < 4; i++) {
    y_shape.dim[y_shape.ndim++] = d[4] >> i & 1 ? 1 : d[i];
    if (d[4] >> i & 1) terms *= (double)d[i];
  }
  struct sl__tensor *x = given(t, t->type, SL_SHAPE(d[0], d[1], d[2], d[3]));
  struct sl__tensor *y = written(t, t->type, y_shape, sums_of(terms, 1));
  if (t->status != SL_OK) return t->status;
  return sl__mean(t->context, L, x, y, (uint32_t)d[4]);
}

#define MEAN_SIZES(CASE, ...)                                                                      \
  CASE(__VA_ARGS__, {1, 1, 2, 1, 4})                                                               \
  CASE(__VA_ARGS__, {3, 5, 7, 9, 8 | 4})                                                           \
  CASE(__VA_ARGS__, {3, 5, 7, 9, 2})                                                               \
  CASE(__VA_ARGS__, {2, 3, 5, 130, 8 | 2})                                                         \
  CASE(__VA_ARGS__, {2, 33, 5, 6, 4})                                                              \
  CASE(__VA_ARGS__, {4, 20, 24, 24, 8 | 4})

/* ---- loss: rows, positions of the labels, from, positions, classes, is plain if odd, kind of
 * outputs ---- */

static struct sl_shape logits_shape(const int64_t *d) {
  return d[1] > 1 ? SL_SHAPE(d[0], d[3], d[4]) : SL_SHAPE(d[0], d[4]);
}

/* The kind of a loss's outputs, if they are not just random: the last number of a case. */
enum { TIES = 1, ROW_OF_NAN = 2 };

static struct sl__tensor *logits_of(struct trial *t, const int64_t *d) {
  if (d[6] == TIES) return given_wholes(t, t->type, logits_shape(d), -3, 3);
  if (d[6] == ROW_OF_NAN) t->spoilt = d[4];
  return given_in(t, t->type, logits_shape(d), -3, 3);
}

/* Some are to be ignored, some are wrong. */
static struct sl__tensor *labels_of(struct trial *t, const int64_t *d) {
  struct sl_shape shape = d[1] > 1 ? SL_SHAPE(d[0], d[1]) : SL_SHAPE(d[0]);
  int64_t n = sl_shape_count(&shape);
  int32_t *labels = calloc((size_t)n, sizeof *labels);
  for (int64_t i = 0; labels && i < n; i++) {
    labels[i] = (int32_t)((d[4] * 2 / 3 + 7 * i) % d[4]);
    if (i % 5 == 1) labels[i] = 0; /* a row of NaN counts it as right */
    if (i % 5 == 2) labels[i] = SL_IGNORE;
    if (i % 7 == 3) labels[i] = i % 2 ? -2 : (int32_t)d[4];
  }
  struct sl__tensor *tensor = given_values(t, shape, labels);
  free(labels);
  return tensor;
}

static enum sl_status xent(struct trial *t, const int64_t *d, bool gradient) {
  struct sl__tensor *logits = logits_of(t, d), *labels = labels_of(t, d);
  struct sl__tensor *stats = written(t, SL_F32, SL_SHAPE(4), sums_of(32, (double)(d[0] * d[3])));
  struct sl__tensor *dlogits =
      gradient ? written(t, t->type, logits_shape(d), roundings(0.25)) : NULL;
  /* else label smoothing and class weights, too */
  struct sl__tensor *weights = d[5] % 2 == 0 ? given_in(t, SL_F32, SL_SHAPE(d[4]), 0.5, 2) : NULL;
  if (t->status != SL_OK) return t->status;
  const struct sl__loss_task task = {logits, labels, stats, dlogits, 0.125f, d[2], 0};
  return sl__softmax_xent(t->context, L, &task, weights ? 0.2f : 0, weights);
}

static enum sl_status softmax_xent(struct trial *t, const int64_t *d) { return xent(t, d, false); }
static enum sl_status softmax_xent_gradient(struct trial *t, const int64_t *d) {
  return xent(t, d, true);
}

/* ---- head: lines, steps, inputs, words, where the biases are (0: none, 1, 2), rows of a chunk ---
 */

static enum sl_status head(struct trial *t, const int64_t *d, bool gradient) {
  int64_t rows = d[0] * d[1], count = d[3] * (d[2] + (d[4] == 1));
  double terms = 4 * (double)(d[2] + d[3] + rows) + 64;
  bool weighted = d[2] % 2 == 0;
  struct sl__linear_xent task = {.x = given(t, t->type, SL_SHAPE(d[0], d[1], d[2])),
                                 .param = given(t, t->type, SL_SHAPE(count)),
                                 .bias = d[4] == 2 ? given(t, t->type, SL_SHAPE(d[3])) : NULL,
                                 .has_bias = d[4] != 0,
                                 .scale = 0.125f};
  task.targets = given_integers(t, SL_SHAPE(d[0], d[1]), -2, d[3] + 1);
  task.stats = written(t, SL_F32, SL_SHAPE(4), sums_of(terms, 4 * (double)rows));
  if (gradient) {
    task.dx = written(t, t->type, SL_SHAPE(d[0], d[1], d[2]), sums_of(terms, 1));
    task.grad = added(t, SL_F32, SL_SHAPE(count), sums_of(terms, 1));
    if (task.bias) task.bias_grad = added(t, SL_F32, SL_SHAPE(d[3]), sums_of(terms, 1));
  }
  if (weighted) {
    task.class_weights = given_in(t, SL_F32, SL_SHAPE(d[3]), 0.5, 2);
    task.smoothing = 0.2f;
  }
  if (t->status != SL_OK) return t->status;
  sl__linear_xent_force((d[5] + 1) * d[3]);
  enum sl_status status = sl__linear_xent(t->context, L, &task);
  sl__linear_xent_force(0);
  return status;
}

static enum sl_status linear_xent(struct trial *t, const int64_t *d) { return head(t, d, false); }
static enum sl_status linear_xent_gradient(struct trial *t, const int64_t *d) {
  return head(t, d, true);
}

#define HEAD_SIZES(CASE, ...)                                                                      \
  CASE(__VA_ARGS__, {1, 1, 1, 1, 0, 1})                                                            \
  CASE(__VA_ARGS__, {3, 5, 7, 11, 1, 4})                                                           \
  CASE(__VA_ARGS__, {4, 9, 8, 33, 0, 16})                                                          \
  CASE(__VA_ARGS__, {2, 3, 4, 1031, 1, 2})                                                         \
  CASE(__VA_ARGS__, {2, 3, 4, 4104, 1, 2})
#define LONE_BIAS_SIZES(CASE, ...)                                                                 \
  CASE(__VA_ARGS__, {3, 5, 7, 11, 2, 4})                                                           \
  CASE(__VA_ARGS__, {2, 4, 6, 40, 2, 8})

/* ---- losses of targets ----------------------------------------------------------------------- */

/* lines, steps of targets, first, steps of outputs, width, kind; 1: a target is missing */

static struct sl__loss_task loss_task(struct trial *t, const int64_t *d, bool gradient,
                                      struct sl__tensor *outputs, struct sl__tensor *targets) {
  struct sl__tensor *stats =
      written(t, SL_F32, SL_SHAPE(4), sums_of(32, (double)(16 * d[0] * d[3] * d[4])));
  struct sl__tensor *slope =
      gradient ? written(t, t->type, SL_SHAPE(d[0], d[3], d[4]), roundings(1)) : NULL;
  return (struct sl__loss_task){outputs, targets, stats, slope, 0.125f, d[2], 0};
}

static enum sl_status regression(struct trial *t, const int64_t *d, bool gradient) {
  struct sl__tensor *outputs = given_in(t, t->type, SL_SHAPE(d[0], d[3], d[4]), -3, 3);
  t->spoilt = d[6];
  struct sl__tensor *targets = given_in(t, SL_F32, SL_SHAPE(d[0], d[1], d[4]), 0, 1);
  const struct sl__loss_task task = loss_task(t, d, gradient, outputs, targets);
  if (t->status != SL_OK) return t->status;
  if (d[5] == SL_LOSS_COSINE) return sl__cosine_loss(t->context, L, &task);
  return sl__elementwise_loss(t->context, L, &task, (enum sl_loss_kind)d[5], 0.75f);
}

static enum sl_status elementwise_loss(struct trial *t, const int64_t *d) {
  return regression(t, d, false);
}
static enum sl_status elementwise_loss_gradient(struct trial *t, const int64_t *d) {
  return regression(t, d, true);
}
static enum sl_status cosine_loss(struct trial *t, const int64_t *d) {
  return regression(t, d, false);
}
static enum sl_status cosine_loss_gradient(struct trial *t, const int64_t *d) {
  return regression(t, d, true);
}

/* ---- losses of a program's own: lines, steps of targets, first, steps of outputs, width, 1: of
 * labels --------------------------------------------------------------------------------------- */

static enum sl_status own_row(struct sl_loss_row *row) {
  if (row->target)
    for (int64_t i = 0; i < row->size; i++) {
      float d = row->y[i] - row->target[i];
      row->loss += (double)(d * d);
      if (row->dy) row->dy[i] = 2 * d;
    }
  else {
    float d = row->y[row->label] - 1;
    row->loss = (double)(d * d);
    if (row->dy) row->dy[row->label] = 2 * d;
  }
  return SL_OK;
}

static enum sl_status own_loss(struct trial *t, const int64_t *d, bool gradient) {
  struct sl_own_loss own = {.name = "own", .takes_labels = d[5] == 1, .row = own_row};
  struct sl__tensor *outputs = given_in(t, t->type, SL_SHAPE(d[0], d[3], d[4]), -3, 3);
  t->spoilt = !d[5]; /* a target is missing */
  struct sl__tensor *targets =
      d[5] ? given_integers(t, SL_SHAPE(d[0], d[1]), -2, d[4] + (d[4] > 3 ? 1 : 6))
           : given_in(t, SL_F32, SL_SHAPE(d[0], d[1], d[4]), 0, 1);
  const struct sl__loss_task task = loss_task(t, d, gradient, outputs, targets);
  if (t->status != SL_OK) return t->status;
  gpu_custom_loss(&own);
  return sl__custom_loss(t->context, L, &task, &own);
}

static enum sl_status custom_loss(struct trial *t, const int64_t *d) {
  return own_loss(t, d, false);
}
static enum sl_status custom_loss_gradient(struct trial *t, const int64_t *d) {
  return own_loss(t, d, true);
}

#define OWN_LOSS_SIZES(CASE, ...)                                                                  \
  CASE(__VA_ARGS__, {1, 1, 0, 1, 1, 0})                                                            \
  CASE(__VA_ARGS__, {37, 1, 0, 1, 5, 1})                                                           \
  CASE(__VA_ARGS__, {3, 7, 2, 4, 33, 0})                                                           \
  CASE(__VA_ARGS__, {3, 7, 2, 4, 33, 1})                                                           \
  CASE(__VA_ARGS__, {1, 7, 2, 4, 9, 0})                                                            \
  CASE(__VA_ARGS__, {5, 4, 1, 3, 131072, 0})                                                       \
  CASE(__VA_ARGS__, {4, 1, 0, 1, 1031, 0})                                                         \
  CASE(__VA_ARGS__, {300, 1, 0, 1, 1031, 1})

#define ELEMENTWISE_SIZES(CASE, ...)                                                               \
  CASE(__VA_ARGS__, {1, 1, 0, 1, 1, SL_LOSS_MSE})                                                  \
  CASE(__VA_ARGS__, {37, 1, 0, 1, 5, SL_LOSS_MAE})                                                 \
  CASE(__VA_ARGS__, {37, 1, 0, 1, 5, SL_LOSS_MSE, 1})                                              \
  CASE(__VA_ARGS__, {3, 7, 2, 4, 33, SL_LOSS_HUBER})                                               \
  CASE(__VA_ARGS__, {300, 1, 0, 1, 3, SL_LOSS_BCE})                                                \
  CASE(__VA_ARGS__, {4, 1, 0, 1, 1031, SL_LOSS_MSE})
#define COSINE_SIZES(CASE, ...)                                                                    \
  CASE(__VA_ARGS__, {1, 1, 0, 1, 1, SL_LOSS_COSINE})                                               \
  CASE(__VA_ARGS__, {37, 1, 0, 1, 5, SL_LOSS_COSINE})                                              \
  CASE(__VA_ARGS__, {37, 1, 0, 1, 5, SL_LOSS_COSINE, 1})                                           \
  CASE(__VA_ARGS__, {3, 7, 2, 4, 33, SL_LOSS_COSINE})                                              \
  CASE(__VA_ARGS__, {4, 1, 0, 1, 1031, SL_LOSS_COSINE})

/* targets, of which some are no whole numbers; rows, values of a row, first, labels of a row */
static enum sl_status labels(struct trial *t, const int64_t *d) {
  struct sl__tensor *targets = given_in(t, SL_F32, SL_SHAPE(d[0], d[1]), -2, 9);
  struct sl__tensor *wholes = written(t, SL_I32, SL_SHAPE(d[0], d[3]), exact);
  if (t->status != SL_OK) return t->status;
  return sl__labels(t->context, L, targets, wholes, d[2]);
}

#define LABELS_SIZES(CASE, ...)                                                                    \
  CASE(__VA_ARGS__, {1, 1, 0, 1})                                                                  \
  CASE(__VA_ARGS__, {37, 5, 2, 3})                                                                 \
  CASE(__VA_ARGS__, {300, 33, 32, 1})

#define LOSS_SIZES(CASE, ...)                                                                      \
  CASE(__VA_ARGS__, {1, 1, 0, 1, 1, 1})                                                            \
  CASE(__VA_ARGS__, {5, 1, 0, 1, 3, 1})                                                            \
  CASE(__VA_ARGS__, {64, 1, 0, 1, 10, 5})                                                          \
  CASE(__VA_ARGS__, {3, 7, 2, 4, 33, 2})                                                           \
  CASE(__VA_ARGS__, {4, 3, 0, 3, 1031, 5})                                                         \
  CASE(__VA_ARGS__, {2, 3, 0, 3, 4504, 5})                                                         \
  CASE(__VA_ARGS__, {3, 1, 0, 1, 1032, 1, TIES})                                                   \
  CASE(__VA_ARGS__, {3, 1, 0, 1, 1032, 1, ROW_OF_NAN})                                             \
  CASE(__VA_ARGS__, {3, 1, 0, 1, 12, 1, ROW_OF_NAN})                                               \
  CASE(__VA_ARGS__, {40, 1, 0, 1, 12, 3, TIES})                                                    \
  CASE(__VA_ARGS__, {1, 1, 0, 1, 4000, 1})                                                         \
  CASE(__VA_ARGS__, {300, 1, 0, 1, 40, 3})

/* ---- sums and updates: count, gradients, norm, flag ----------------------------------------- */

static void terms_of(struct trial *t, const int64_t *d, struct sl__tensor **terms) {
  for (int64_t i = 0; i < d[1]; i++) terms[i] = given(t, SL_F32, SL_SHAPE(d[0]));
}

static enum sl_status reduce(struct trial *t, const int64_t *d) {
  struct sl__tensor *terms[MOST_TERMS];
  terms_of(t, d, terms);
  struct sl__tensor *sum = added(t, SL_F32, SL_SHAPE(d[0]), sums_of((double)d[1] + 1, 1));
  if (t->status != SL_OK) return t->status;
  return sl__reduce(t->context, L, sum, (int)d[1], terms);
}

static enum sl_status square_sum(struct trial *t, const int64_t *d) {
  struct sl__tensor *x = given(t, SL_F32, SL_SHAPE(d[0]));
  struct sl__tensor *sum = written(t, SL_F32, SL_SHAPE(1), sums_of(1, (double)d[0]));
  if (t->status != SL_OK) return t->status;
  return sl__square_sum(t->context, L, x, sum);
}

static struct sl__update update_of(const int64_t *d) {
  return (struct sl__update){.lr = 0.1f,
                             .weight_decay = d[3] ? 0.01f : 0,
                             .momentum = 0.9f,
                             .nesterov = d[3] != 0,
                             .beta1 = 0.9f,
                             .beta2 = 0.999f,
                             .epsilon = 1e-3f,
                             .decoupled = d[3] != 0,
                             .step = 3,
                             .max_norm = 0.5f};
}

static struct sl__tensor *norm_of(struct trial *t, const int64_t *d) {
  return d[2] ? given_in(t, SL_F32, SL_SHAPE(1), 0.05, 2) : NULL;
}

static enum sl_status update(struct trial *t, struct sl__op *op, const int64_t *d) {
  struct sl__tensor *terms[MOST_TERMS], *state[2];
  bool linear = op == &sl__op_sgd || op == &sl__op_sgd_momentum; /* else it sums squares, too */
  struct sums sums = sums_of((double)d[1] + 8, linear ? 1 : (double)d[1] + 1);
  const struct sl__update settings = update_of(d);
  terms_of(t, d, terms);
  struct sl__tensor *norm = norm_of(t, d);
  struct sl__tensor *param = changed(t, SL_F32, SL_SHAPE(d[0]), -1, 1, sums);
  for (int k = 0; k < sl__update_states(op); k++) /* the last one may be a mean of squares */
    state[k] =
        changed(t, SL_F32, SL_SHAPE(d[0]), k + 1 < sl__update_states(op) ? -1 : 0.01, 1, sums);
  if (t->status != SL_OK) return t->status;
  return sl__update(t->context, op, L, param, state, (int)d[1], terms, norm, &settings);
}

#define SL__OP(name, modes, where)
#define SL__UPDATE(name, states, modes)                                                            \
  static enum sl_status name(struct trial *t, const int64_t *d) {                                  \
    return update(t, &sl__op_##name, d);                                                           \
  }
#include "codelets/ops.def"
#undef SL__OP

/* A layer's weight and bias, or a shard of its weight alone. */
static struct sl__update_parts parts_of(const int64_t *d) {
  return (struct sl__update_parts){2, {d[3] ? d[0] - d[0] / 5 : d[0], d[0]}, {true, false}};
}

static enum sl_status lamb_moments(struct trial *t, const int64_t *d) {
  struct sl__tensor *terms[MOST_TERMS], *state[2];
  const struct sl__update settings = update_of(d);
  const struct sl__update_parts parts = parts_of(d);
  struct sums sums = sums_of((double)d[1] + 8, (double)d[1] + 1);
  terms_of(t, d, terms);
  struct sl__tensor *norm = norm_of(t, d), *param = given(t, SL_F32, SL_SHAPE(d[0]));
  state[0] = changed(t, SL_F32, SL_SHAPE(d[0]), -1, 1, sums);
  state[1] = changed(t, SL_F32, SL_SHAPE(d[0]), 0.01, 1, sums);
  /* a direction is up to some thousands: its denominator has a mean of squares above 0.01 */
  struct sl__tensor *squares =
      written(t, SL_F32, SL_SHAPE(4), sums_of((double)d[1] + 8, 1e3 * (double)d[0]));
  if (t->status != SL_OK) return t->status;
  return sl__lamb_moments(t->context, L, param, state, (int)d[1], terms, norm, &settings, &parts,
                          squares);
}

static enum sl_status lamb(struct trial *t, const int64_t *d) {
  const struct sl__update settings = update_of(d);
  const struct sl__update_parts parts = parts_of(d);
  struct sl__tensor *param = changed(t, SL_F32, SL_SHAPE(d[0]), -1, 1, sums_of(8, 10));
  struct sl__tensor *state[] = {given(t, SL_F32, SL_SHAPE(d[0])),
                                given_in(t, SL_F32, SL_SHAPE(d[0]), 0.01, 1)};
  struct sl__tensor *squares = given_in(t, SL_F32, SL_SHAPE(4), 0.5, 2);
  if (t->status != SL_OK) return t->status;
  return sl__lamb(t->context, L, param, state, squares, &settings, &parts);
}

#define UPDATE_SIZES(CASE, ...)                                                                    \
  CASE(__VA_ARGS__, {1, 1, 0, 0})                                                                  \
  CASE(__VA_ARGS__, {1003, 2, 1, 1})                                                               \
  CASE(__VA_ARGS__, {259, 17, 1, 0})                                                               \
  CASE(__VA_ARGS__, {70, 70, 1, 1})                                                                \
  CASE(__VA_ARGS__, {8001, 1, 0, 0})                                                               \
  CASE(__VA_ARGS__, {70005, 3, 0, 0})

/* ---- compression: count, method -------------------------------------------------------------- */

static struct sl__compress method_of(const int64_t *d) {
  return (struct sl__compress){.method = (enum sl__compression)d[1], .threshold = 0.5f};
}

/* The two means of 1bit are divisions of sums in double. */
static enum sl_status compress(struct trial *t, const int64_t *d) {
  const struct sl__compress c = method_of(d);
  bool means = c.method == SL__COMPRESS_1BIT;
  struct sl__tensor *gradient = given(t, SL_F32, SL_SHAPE(d[0])), *residual = NULL;
  if (sl__compress_has_residual(&c))
    residual = changed(t, SL_F32, SL_SHAPE(d[0]), -0.5, 0.5, means ? roundings(2) : exact);
  struct sl__tensor *packed = written(t, SL_I32, SL_SHAPE(sl__compress_words(&c, d[0])), exact);
  if (means) last_has_means(t, 2, roundings(1));
  if (t->status != SL_OK) return t->status;
  return sl__compress(t->context, L, &c, gradient, residual, packed);
}

/* Any bits serve, except for the means; 16-bit values are chosen so that no NaN results. */
static struct sl__tensor *packed_of(struct trial *t, const struct sl__compress *c, int64_t words) {
  bool halves = c->method == SL__COMPRESS_FP16 || c->method == SL__COMPRESS_BF16;
  int32_t *values = calloc((size_t)words, sizeof *values);
  for (int64_t i = 0; values && i < words; i++) {
    uint32_t bits = sl__philox(t->seed, 79, (uint64_t)i).v[0];
    if (c->method == SL__COMPRESS_1BIT && i < 2) bits = i ? 0xbf000000u : 0x3e800000u;
    values[i] = (int32_t)(halves ? bits & 0xbbffbbffu : bits);
  }
  struct sl__tensor *packed = given_values(t, SL_SHAPE(words), values);
  free(values);
  return packed;
}

static enum sl_status decompress(struct trial *t, const int64_t *d) {
  const struct sl__compress c = method_of(d);
  struct sl__tensor *packed = packed_of(t, &c, sl__compress_words(&c, d[0]));
  struct sl__tensor *values = added(t, SL_F32, SL_SHAPE(d[0]), exact);
  if (t->status != SL_OK) return t->status;
  return sl__decompress(t->context, L, &c, packed, values);
}

#define RESIDUAL_SIZES(CASE, ...)                                                                  \
  CASE(__VA_ARGS__, {1, SL__COMPRESS_2BIT})                                                        \
  CASE(__VA_ARGS__, {16, SL__COMPRESS_2BIT})                                                       \
  CASE(__VA_ARGS__, {1003, SL__COMPRESS_2BIT})                                                     \
  CASE(__VA_ARGS__, {70005, SL__COMPRESS_2BIT})                                                    \
  CASE(__VA_ARGS__, {1, SL__COMPRESS_1BIT})                                                        \
  CASE(__VA_ARGS__, {33, SL__COMPRESS_1BIT})                                                       \
  CASE(__VA_ARGS__, {1003, SL__COMPRESS_1BIT})                                                     \
  CASE(__VA_ARGS__, {70005, SL__COMPRESS_1BIT})
#define HALF_SIZES(CASE, ...)                                                                      \
  CASE(__VA_ARGS__, {1, SL__COMPRESS_FP16})                                                        \
  CASE(__VA_ARGS__, {1003, SL__COMPRESS_FP16})                                                     \
  CASE(__VA_ARGS__, {17, SL__COMPRESS_BF16})                                                       \
  CASE(__VA_ARGS__, {70004, SL__COMPRESS_BF16})
#define PACKED_SIZES(CASE, ...) RESIDUAL_SIZES(CASE, __VA_ARGS__) HALF_SIZES(CASE, __VA_ARGS__)

/* ---- all of them ---------------------------------------------------------------------------- */

#define CASE(name, function, types, ...) {&sl__op_##name, function, types, __VA_ARGS__},
#define CASES(name, sizes, types) sizes(CASE, name, name, types)

/* One operation a line. */
/* clang-format off */
static const struct gpu_case cases[] = {
    CASES(dense_forward, DENSE_SIZES, GPU_ALL)
    CASES(dense_shared_forward, DENSE_SIZES, GPU_ALL)
    CASES(dense_backward_data, DENSE_SIZES, GPU_ALL)
    CASES(dense_backward_weight, DENSE_SIZES, GPU_ALL)
    CASES(bias_backward, DENSE_SIZES, GPU_HALVES)
    CASES(conv2d_forward, CONV_SIZES, GPU_ALL)
    CASES(conv2d_backward_data, CONV_SIZES, GPU_ALL)
    CASES(conv2d_backward_weight, CONV_SIZES, GPU_ALL)
    PLAIN_GROUPS(CASE, groupconv2d_gather, groupconv2d_forward, GPU_HALVES)
    TRANSPOSED_GROUPS(CASE, groupconv2d_gather, groupconv2d_backward_data, GPU_HALVES)
    TRANSPOSED_GROUPS(CASE, groupconv2d_scatter, groupconv2d_forward, GPU_HALVES)
    PLAIN_GROUPS(CASE, groupconv2d_scatter, groupconv2d_backward_data, GPU_HALVES)
    CASES(groupconv2d_backward_weight, GROUP_SIZES, GPU_HALVES)
    CASES(maxpool2d_forward, POOL_SIZES, GPU_HALVES)
    CASES(maxpool2d_backward, POOL_SIZES, GPU_HALVES)
    CASES(avgpool2d_forward, POOL_SIZES, GPU_HALVES)
    CASES(avgpool2d_backward, POOL_SIZES, GPU_HALVES)
    CASES(upsample2d_forward, UPSAMPLE_SIZES, GPU_HALVES)
    CASES(upsample2d_backward, UPSAMPLE_SIZES, GPU_HALVES)
    CASES(activation_forward, ACTIVATION_SIZES, GPU_HALVES)
    CASES(activation_backward, ACTIVATION_SIZES, GPU_HALVES)
    CASES(activation_backward_inplace, ACTIVATION_SIZES, GPU_HALVES)
    CASES(swiglu_forward, SWIGLU_SIZES, GPU_HALVES)
    CASES(swiglu_backward, SWIGLU_SIZES, GPU_HALVES)
    CASES(position_forward, POSITION_SIZES, GPU_HALVES)
    CASES(position_backward_weight, POSITION_SIZES, GPU_HALVES)
    CASES(batchnorm_forward, NORM_SIZES, GPU_HALVES)
    CASES(batchnorm_inference, NORM_SIZES, GPU_HALVES)
    CASES(batchnorm_backward_sums, NORM_SIZES, GPU_HALVES)
    CASES(batchnorm_backward_data, NORM_SIZES, GPU_HALVES)
    CASES(batchnorm_backward_weight, NORM_SIZES, GPU_F32)
    CASES(batchnorm_running, NORM_SIZES, GPU_F32)
    CASES(batchnorm_take_running, NORM_SIZES, GPU_F32)
    CASES(layernorm_forward, LAYERNORM_SIZES, GPU_HALVES)
    CASES(layernorm_backward_data, LAYERNORM_SIZES, GPU_HALVES)
    CASES(layernorm_backward_weight, LAYERNORM_SIZES, GPU_HALVES)
    CASES(custom_forward, CUSTOM_SIZES, GPU_F32)
    CASES(custom_forward_saving, CUSTOM_SIZES, GPU_F32)
    CASES(custom_backward_data, CUSTOM_SIZES, GPU_F32)
    CASES(custom_backward_weight, CUSTOM_SIZES, GPU_F32)
    CASES(dropout_forward, DROPOUT_SIZES, GPU_HALVES)
    CASES(dropout_backward, DROPOUT_SIZES, GPU_HALVES)
    CASES(attention_forward, ATTENTION_SIZES, GPU_ALL)
    CASES(attention_backward, ATTENTION_SIZES, GPU_ALL)
    CASES(embedding_forward, EMBEDDING_SIZES, GPU_HALVES)
    CASES(embedding_backward_weight, EMBEDDING_SIZES, GPU_HALVES)
    CASES(embedding_backward_rows, EMBEDDING_ROWS_SIZES, GPU_HALVES)
    CASES(rows_reduce, ROWS_REDUCE_SIZES, GPU_F32)
    CASES(rows_square, ROWS_SIZES, GPU_F32)
    CASES(rows_dense, ROWS_SIZES, GPU_F32)
    CASES(rows_sgd, ROWS_SIZES, GPU_F32)
    CASES(lstm_forward, CELL_SIZES, GPU_ALL)
    CASES(lstm_backward_gates, CELL_SIZES, GPU_ALL)
    CASES(lstm_backward_data, CELL_SIZES, GPU_ALL)
    CASES(lstm_backward_weight, CELL_SIZES, GPU_ALL)
    CASES(gru_forward, CELL_SIZES, GPU_ALL)
    CASES(gru_backward_gates, CELL_SIZES, GPU_ALL)
    CASES(gru_backward_data, CELL_SIZES, GPU_ALL)
    CASES(gru_backward_weight, CELL_SIZES, GPU_ALL)
    CASES(add, COUNT_SIZES, GPU_HALVES)
    CASES(add_relu_backward, COUNT_SIZES, GPU_HALVES)
    CASES(multiply, COUNT_SIZES, GPU_HALVES)
    CASES(multiply_broadcast, BROADCAST_SIZES, GPU_HALVES)
    CASES(strided_copy, VIEW_SIZES, GPU_HALVES)
    CASES(concatenate, CONCATENATE_SIZES, GPU_HALVES)
    CASES(mean, MEAN_SIZES, GPU_HALVES)
    CASES(axpy, COUNT_SIZES, GPU_HALVES)
    CASES(fill, COUNT_SIZES, GPU_HALVES)
    CASES(labels, LABELS_SIZES, GPU_F32)
    CASES(softmax_xent, LOSS_SIZES, GPU_HALVES)
    CASES(softmax_xent_gradient, LOSS_SIZES, GPU_HALVES)
    CASES(linear_xent, HEAD_SIZES, GPU_F32)
    CASES(linear_xent_gradient, HEAD_SIZES, GPU_F32)
    LONE_BIAS_SIZES(CASE, linear_xent_bias_gradient, linear_xent_gradient, GPU_F32)
    CASES(elementwise_loss, ELEMENTWISE_SIZES, GPU_HALVES)
    CASES(elementwise_loss_gradient, ELEMENTWISE_SIZES, GPU_HALVES)
    CASES(cosine_loss, COSINE_SIZES, GPU_HALVES)
    CASES(cosine_loss_gradient, COSINE_SIZES, GPU_HALVES)
    CASES(custom_loss, OWN_LOSS_SIZES, GPU_F32)
    CASES(custom_loss_gradient, OWN_LOSS_SIZES, GPU_F32)
    CASES(reduce, UPDATE_SIZES, GPU_F32)
    CASES(square_sum, UPDATE_SIZES, GPU_F32)
    CASES(lamb_moments, UPDATE_SIZES, GPU_F32)
    CASES(lamb, UPDATE_SIZES, GPU_F32)
    RESIDUAL_SIZES(CASE, compress_residual, compress, GPU_F32)
    HALF_SIZES(CASE, compress_half, compress, GPU_F32)
    CASES(decompress, PACKED_SIZES, GPU_F32)
#define SL__OP(name, modes, where)
#define SL__UPDATE(name, states, modes) CASES(name, UPDATE_SIZES, GPU_F32)
#include "codelets/ops.def"
#undef SL__OP
};
/* clang-format on */

const struct gpu_case *gpu_case_at(int i) {
  return i < (int)(sizeof cases / sizeof *cases) ? &cases[i] : NULL;
}
