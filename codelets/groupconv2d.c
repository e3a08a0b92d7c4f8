/* 2-D convolution with groups (depthwise included; Howard et al., arXiv 1704.04861), dilation (Yu,
 * Koltun, arXiv 1511.07122), or transposed (Zeiler et al. 2010). A transposed one without groups
 * and dilation is the gradient of a plain convolution, whose kernels serve. Groups of few channels,
 * as of depthwise ones, go tap by tap: a row of pixels times one weight. Others are matrix
 * products. */
#include "codelets/groupconv2d.h"

#include <string.h>

#include "codelets/activation.h"
#include "codelets/codelets.h"
#include "codelets/kernels/choice.h"
#include "codelets/kernels/conv.h"
#include "codelets/kernels/conv_backward_data.h"
#include "codelets/kernels/conv_backward_weight.h"
#include "codelets/kernels/conv_bias.h"
#include "codelets/kernels/conv_frame.h"
#include "codelets/kernels/conv_matrix.h"
#include "codelets/kernels/direct_conv.h"
#include "codelets/kernels/gemm.h"
#include "codelets/kernels/planes.h"
#include "codelets/kernels/sum.h"
#include "codelets/kernels/winograd.h"
#include "codelets/kernels/winograd_backward_weight.h"
#include "core/base/error.h"

/* ---- sizes --------------------------------------------------------------------------------- */

static int64_t x_plane(const struct sl__groupconv_args *a) { return (int64_t)a->height * a->width; }
static int64_t y_plane(const struct sl__groupconv_args *a) {
  return (int64_t)a->out_height * a->out_width;
}

/* The plain convolution, without its bias. */
static struct sl__conv_args plain_of(const struct sl__groupconv_args *a) {
  return (struct sl__conv_args){.images = a->images,
                                .channels = a->channels,
                                .height = a->height,
                                .width = a->width,
                                .out_channels = a->out_channels,
                                .out_height = a->out_height,
                                .out_width = a->out_width,
                                .kernel_h = a->kernel_h,
                                .kernel_w = a->kernel_w,
                                .stride_h = a->stride_h,
                                .stride_w = a->stride_w,
                                .pad_h = a->pad_h,
                                .pad_w = a->pad_w,
                                .implementation = a->implementation};
}

/* The windows of a group's channels. */
static struct sl__conv_windows windows_of(const struct sl__groupconv_args *a) {
  return (struct sl__conv_windows){a->channels / a->groups,
                                   a->height,
                                   a->width,
                                   a->out_height,
                                   a->out_width,
                                   a->kernel_h,
                                   a->kernel_w,
                                   a->stride_h,
                                   a->stride_w,
                                   a->pad_h,
                                   a->pad_w,
                                   a->dilation_h,
                                   a->dilation_w};
}

/* ---- CPU kernels: by rows ------------------------------------------------------------------ */

/* A tap (r, s) of an output row: the row of x that it meets, and the range of columns. */
struct tap {
  int64_t x;          /* index of the first column's value in x's plane */
  int32_t first, end; /* columns of y; empty if the row lies in the padding */
};

SL__INLINE struct tap tap_of(const struct sl__groupconv_args *a, int32_t oh, int32_t r, int32_t s) {
  int32_t h = oh * a->stride_h - a->pad_h + r * a->dilation_h;
  struct tap t = {0, 0, 0};
  if (h < 0 || h >= a->height) return t;
  sl__conv_inside(a->width, a->out_width, a->stride_w, s * a->dilation_w, a->pad_w, &t.first,
                  &t.end);
  t.x = (int64_t)h * a->width + t.first * a->stride_w - a->pad_w + s * a->dilation_w;
  return t;
}

/* y += weight x, x at every stride-th place. */
SL__INLINE void gather(float weight, const float *x, int32_t stride, float *restrict y, int32_t n) {
  if (stride == 1)
    for (int32_t i = 0; i < n; i++) y[i] += weight * x[i];
  else
    for (int32_t i = 0; i < n; i++) y[i] += weight * x[(int64_t)i * stride];
}

SL__INLINE void scatter(float weight, const float *y, int32_t stride, float *restrict x,
                        int32_t n) {
  if (stride == 1)
    for (int32_t i = 0; i < n; i++) x[i] += weight * y[i];
  else
    for (int32_t i = 0; i < n; i++) x[(int64_t)i * stride] += weight * y[i];
}

SL__INLINE void set(float *y, int64_t n, float value, bool add) {
  for (int64_t i = 0; i < n; i++) y[i] = add ? y[i] + value : value;
}

/* Plane k of y from an image's planes of its group. */
SL__SIMD static void forward_plane(const struct sl__groupconv_args *a, const float *x,
                                   const float *weight, float *y) {
  int32_t channels = a->channels / a->groups;
  for (int32_t oh = 0; oh < a->out_height; oh++, y += a->out_width) {
    const float *w = weight, *plane = x;
    for (int32_t c = 0; c < channels; c++, plane += (int64_t)a->height * a->width)
      for (int32_t r = 0; r < a->kernel_h; r++)
        for (int32_t s = 0; s < a->kernel_w; s++, w++) {
          struct tap t = tap_of(a, oh, r, s);
          if (t.end > t.first) gather(*w, plane + t.x, a->stride_w, y + t.first, t.end - t.first);
        }
  }
}

/* x's plane from one plane of y. */
SL__SIMD static void backward_plane(const struct sl__groupconv_args *a, const float *y,
                                    const float *weight, float *x) {
  for (int32_t oh = 0; oh < a->out_height; oh++, y += a->out_width) {
    const float *w = weight;
    for (int32_t r = 0; r < a->kernel_h; r++)
      for (int32_t s = 0; s < a->kernel_w; s++, w++) {
        struct tap t = tap_of(a, oh, r, s);
        if (t.end > t.first) scatter(*w, y + t.first, a->stride_w, x + t.x, t.end - t.first);
      }
  }
}

SL__SIMD static void set_plane(float *y, int64_t n, float value, bool add) {
  set(y, n, value, add);
}

/* The bias of the outputs, or NULL. back: y is the layer's input. */
static const float *bias_of(const struct sl__groupconv_args *a, const float *weight, bool back) {
  return a->has_bias && !a->transposed == !back ? weight + sl__groupconv_weights(a) : NULL;
}

static void gather_by_rows(const struct sl__groupconv_args *a, const float *x, const float *weight,
                           float *y, struct sl__work_range range, bool add) {
  int64_t plane = y_plane(a), taps = a->kernel_h * a->kernel_w;
  int64_t channels = a->channels / a->groups, in_plane = x_plane(a);
  const float *bias = bias_of(a, weight, false);
  for (int64_t p = range.first; p < range.end; p++) {
    int64_t n = p / a->out_channels, k = p % a->out_channels;
    int64_t g = k / (a->out_channels / a->groups);
    float *to = y + p * plane;
    set_plane(to, plane, bias ? bias[k] : 0, add);
    forward_plane(a, x + (n * a->channels + g * channels) * in_plane, weight + k * channels * taps,
                  to);
    sl__activate(a->activation, to, to, plane);
  }
}

static void scatter_by_rows(const struct sl__groupconv_args *a, const float *y, const float *weight,
                            float *x, struct sl__work_range range, bool add) {
  int64_t plane = x_plane(a), taps = a->kernel_h * a->kernel_w;
  int64_t channels = a->channels / a->groups, outputs = a->out_channels / a->groups;
  int64_t out_plane = y_plane(a);
  const float *bias = bias_of(a, weight, true);
  for (int64_t p = range.first; p < range.end; p++) {
    int64_t n = p / a->channels, c = p % a->channels, g = c / channels;
    float *to = x + p * plane;
    set_plane(to, plane, bias ? bias[c] : 0, add);
    for (int64_t k = g * outputs; k < (g + 1) * outputs; k++)
      backward_plane(a, y + (n * a->out_channels + k) * out_plane,
                     weight + (k * channels + c % channels) * taps, to);
    sl__activate(a->activation, to, to, plane);
  }
}

enum { PARTS = SL__SUM_PARTS }; /* one order of summation for all widths of vectors */

/* part += y x along a row. */
SL__INLINE void add_products(const float *y, const float *x, int32_t stride, int32_t n,
                             float part[PARTS]) {
  int32_t i = 0;
  for (; i + PARTS <= n; i += PARTS)
    for (int32_t k = 0; k < PARTS; k++) part[k] += y[i + k] * x[(int64_t)(i + k) * stride];
  for (int32_t k = 0; i + k < n; k++) part[k] += y[i + k] * x[(int64_t)(i + k) * stride];
}

/* The gradient of the weight of tap (r, s) from planes of all images. */
SL__SIMD static float weight_slope(const struct sl__groupconv_args *a, const float *x,
                                   const float *y, int32_t r, int32_t s) {
  float part[PARTS] = {0};
  for (int32_t n = 0; n < a->images; n++) {
    for (int32_t oh = 0; oh < a->out_height; oh++) {
      struct tap t = tap_of(a, oh, r, s);
      const float *row = y + (int64_t)oh * a->out_width + t.first;
      if (t.end <= t.first) continue;
      if (a->stride_w == 1)
        add_products(row, x + t.x, 1, t.end - t.first, part);
      else
        add_products(row, x + t.x, a->stride_w, t.end - t.first, part);
    }
    x += (int64_t)a->channels * a->height * a->width;
    y += (int64_t)a->out_channels * a->out_height * a->out_width;
  }
  return sl__sum_parts(part);
}

static void weights_by_rows(const struct sl__groupconv_args *a, const float *x, const float *y,
                            float *grad, bool add) {
  int32_t channels = a->channels / a->groups, outputs = a->out_channels / a->groups;
  for (int32_t k = 0; k < a->out_channels; k++)
    for (int32_t c = k / outputs * channels; c < (k / outputs + 1) * channels; c++)
      for (int32_t r = 0; r < a->kernel_h; r++)
        for (int32_t s = 0; s < a->kernel_w; s++, grad++) {
          float slope = weight_slope(a, x + c * x_plane(a), y + k * y_plane(a), r, s);
          *grad = add ? *grad + slope : slope;
        }
}

/* ---- CPU kernels: by products -------------------------------------------------------------- */

/* Adds the biases of `channels` planes, and activates them. */
static void finish(const struct sl__groupconv_args *a, float *y, int64_t channels, int64_t plane,
                   const float *bias) {
  if (bias) sl__conv_add_bias(y, bias, channels, plane);
  sl__activate(a->activation, y, y, channels * plane);
}

/* A group of an image. */
struct piece {
  int64_t group, x, y, weight; /* places of the first values */
};

static struct piece piece_of(const struct sl__groupconv_args *a, int64_t unit) {
  int64_t n = unit / a->groups, g = unit % a->groups;
  return (struct piece){.group = g,
                        .x = (n * a->channels + g * (a->channels / a->groups)) * x_plane(a),
                        .y = (n * a->out_channels + g * (a->out_channels / a->groups)) * y_plane(a),
                        .weight = g * (sl__groupconv_weights(a) / a->groups)};
}

static void gather_by_products(const struct sl__groupconv_args *a, const float *x,
                               const float *weight, float *y, float *scratch,
                               struct sl__work_range range, bool add) {
  const struct sl__conv_windows w = windows_of(a);
  int64_t outputs = a->out_channels / a->groups;
  const float *bias = bias_of(a, weight, false);
  for (int64_t u = range.first; u < range.end; u++) {
    struct piece p = piece_of(a, u);
    sl__conv_matrix_forward(sl__gemm_of(a->implementation), &w, outputs, x + p.x, weight + p.weight,
                            y + p.y, scratch, add);
    finish(a, y + p.y, outputs, y_plane(a), bias ? bias + p.group * outputs : NULL);
  }
}

static void scatter_by_products(const struct sl__groupconv_args *a, const float *y,
                                const float *weight, float *x, float *scratch,
                                struct sl__work_range range, bool add) {
  const struct sl__conv_windows w = windows_of(a);
  int64_t channels = a->channels / a->groups, outputs = a->out_channels / a->groups;
  const float *bias = bias_of(a, weight, true);
  for (int64_t u = range.first; u < range.end; u++) {
    struct piece p = piece_of(a, u);
    sl__conv_matrix_backward_data(sl__gemm_of(a->implementation), &w, outputs, y + p.y,
                                  weight + p.weight, x + p.x, scratch, add);
    finish(a, x + p.x, channels, x_plane(a), bias ? bias + p.group * channels : NULL);
  }
}

static void weights_by_products(const struct sl__groupconv_args *a, const float *x, const float *y,
                                float *grad, float *scratch, bool add) {
  const struct sl__conv_windows w = windows_of(a);
  for (int64_t u = 0; u < (int64_t)a->images * a->groups; u++) {
    struct piece p = piece_of(a, u);
    sl__conv_matrix_backward_weight(sl__gemm_of(a->implementation), &w, a->out_channels / a->groups,
                                    x + p.x, y + p.y, grad + p.weight, scratch,
                                    add || u >= a->groups);
  }
}

/* ---- CPU kernels: as plain convolutions ---------------------------------------------------- */

static void gather_plain(const struct sl__groupconv_args *a, const float *x, const float *weight,
                         float *y, float *scratch) {
  static const struct sl__conv_epilogue nothing;
  const struct sl__conv_args p = plain_of(a);
  const float *bias = bias_of(a, weight, false);
  bool planes, by_tiles = p.implementation == SL__WINOGRAD;
  struct sl__work_range all = {
      0, by_tiles ? sl__winograd_units(&p, &planes, 0) : sl__direct_conv_units(&p, &planes, 0)};
  if (by_tiles)
    sl__winograd_forward(&p, x, weight, false, bias, &nothing, y, scratch, all, 0);
  else
    sl__direct_conv_forward(&p, x, weight, bias, &nothing, y, scratch, all, 0);
}

static void scatter_plain(const struct sl__groupconv_args *a, const float *y, const float *weight,
                          float *x, float *scratch, struct sl__work_range images, bool add) {
  struct sl__conv_args p = plain_of(a);
  const float *bias = bias_of(a, weight, true);
  float *to = x + images.first * sl__conv_x_size(&p);
  p.images = (int32_t)(images.end - images.first);
  if (!p.images) return;
  sl__conv_backward_data(&p, y + images.first * sl__conv_y_size(&p), weight, to, scratch, add, 0);
  for (int32_t n = 0; n < p.images; n++)
    finish(a, to + n * sl__conv_x_size(&p), a->channels, x_plane(a), bias);
}

static void weights_plain(const struct sl__groupconv_args *a, const float *x, const float *y,
                          float *grad, float *scratch, bool add) {
  const struct sl__conv_args p = plain_of(a);
  if (p.implementation == SL__WINOGRAD)
    sl__winograd_backward_weight(&p, x, y, grad, scratch, add, 0);
  else
    sl__conv_backward_weight(&p, x, y, grad, NULL, scratch, add, 0);
}

/* ---- CPU kernels --------------------------------------------------------------------------- */

/* Units of work of the outputs. */
static int64_t units_of(const struct sl__groupconv_args *a, int64_t planes) {
  return a->method == SL__GROUPCONV_ROWS     ? planes
         : a->method == SL__GROUPCONV_MATRIX ? (int64_t)a->images * a->groups
                                             : a->images;
}

/* out (+)= the sum of gathered values: y from x. */
SL__KERNEL void sl__groupconv2d_gather_cpu(void *buffers[], void *cl_arg) {
  const struct sl__groupconv_args *a = sl__args(cl_arg);
  const float *x = sl__buffer(buffers, 0), *weight = sl__buffer(buffers, 1);
  float *y = sl__buffer(buffers, 2), *scratch = sl__buffer(buffers, 3);
  bool add = sl__accumulate(cl_arg);
  struct sl__work_range range =
      sl__work_range(cl_arg, units_of(a, (int64_t)a->images * a->out_channels));
  if (a->method == SL__GROUPCONV_ROWS)
    gather_by_rows(a, x, weight, y, range, add);
  else if (a->method == SL__GROUPCONV_MATRIX)
    gather_by_products(a, x, weight, y, scratch, range, add);
  else
    gather_plain(a, x, weight, y, scratch);
}

/* out (+)= the sum of scattered values: x from y. */
SL__KERNEL void sl__groupconv2d_scatter_cpu(void *buffers[], void *cl_arg) {
  const struct sl__groupconv_args *a = sl__args(cl_arg);
  const float *y = sl__buffer(buffers, 0), *weight = sl__buffer(buffers, 1);
  float *x = sl__buffer(buffers, 2), *scratch = sl__buffer(buffers, 3);
  bool add = sl__accumulate(cl_arg);
  struct sl__work_range range =
      sl__work_range(cl_arg, units_of(a, (int64_t)a->images * a->channels));
  if (a->method == SL__GROUPCONV_ROWS)
    scatter_by_rows(a, y, weight, x, range, add);
  else if (a->method == SL__GROUPCONV_MATRIX)
    scatter_by_products(a, y, weight, x, scratch, range, add);
  else
    scatter_plain(a, y, weight, x, scratch, range, add);
}

SL__KERNEL void sl__groupconv2d_backward_weight_cpu(void *buffers[], void *cl_arg) {
  const struct sl__groupconv_args *a = sl__args(cl_arg);
  const float *x = sl__buffer(buffers, 0), *y = sl__buffer(buffers, 1);
  float *grad = sl__buffer(buffers, 2), *bias = grad + sl__groupconv_weights(a);
  float *scratch = sl__buffer(buffers, 3);
  bool add = sl__accumulate(cl_arg);
  if (a->method == SL__GROUPCONV_ROWS)
    weights_by_rows(a, x, y, grad, add);
  else if (a->method == SL__GROUPCONV_MATRIX)
    weights_by_products(a, x, y, grad, scratch, add);
  else
    weights_plain(a, x, y, grad, scratch, add);
  if (!a->has_bias) return;
  if (a->transposed)
    sl__conv_bias_gradient(x, a->images, a->channels, x_plane(a), bias, add);
  else
    sl__conv_bias_gradient(y, a->images, a->out_channels, y_plane(a), bias, add);
}

/* ---- submission -------------------------------------------------------------------------- */

/* The output's padding of a transposed convolution may have room for more than y has. */
static bool fits_axis(int64_t size, int64_t out, int kernel, int stride, int pad, int dilation,
                      bool transposed) {
  int64_t room = size + 2 * (int64_t)pad - (int64_t)dilation * (kernel - 1) - 1;
  if (kernel < 1 || stride < 1 || pad < 0 || dilation < 1 || room < 0) return false;
  return transposed ? out <= room / stride + 1 : out == room / stride + 1;
}

/* x, y: as in the arguments. */
static enum sl_status check(const char *name, const struct sl__tensor *x,
                            const struct sl__tensor *param, const struct sl__tensor *y,
                            const struct sl__groupconv2d *o, struct sl__groupconv_args *a) {
  char xt[96], yt[96];
  const struct sl__conv2d *c = &o->conv;
  int64_t xd[4], yd[4];
  bool fits = sl__planes_of(&x->shape, xd);
  fits &= sl__planes_of(&y->shape, yd);
  *a = (struct sl__groupconv_args){.images = (int32_t)xd[0],
                                   .channels = (int32_t)xd[1],
                                   .height = (int32_t)xd[2],
                                   .width = (int32_t)xd[3],
                                   .out_channels = (int32_t)yd[1],
                                   .out_height = (int32_t)yd[2],
                                   .out_width = (int32_t)yd[3],
                                   .kernel_h = c->kernel_h,
                                   .kernel_w = c->kernel_w,
                                   .stride_h = c->stride_h,
                                   .stride_w = c->stride_w,
                                   .pad_h = c->pad_h,
                                   .pad_w = c->pad_w,
                                   .dilation_h = o->dilation_h,
                                   .dilation_w = o->dilation_w,
                                   .groups = o->groups,
                                   .has_bias = c->has_bias,
                                   .transposed = o->transposed};
  int64_t biases = !c->has_bias ? 0 : o->transposed ? xd[1] : yd[1];
  if (fits && xd[0] == yd[0] && o->groups > 0 && xd[1] % o->groups == 0 && yd[1] % o->groups == 0 &&
      (o->transposed ? xd[1] : yd[1]) == c->channels &&
      fits_axis(xd[2], yd[2], c->kernel_h, c->stride_h, c->pad_h, o->dilation_h, o->transposed) &&
      fits_axis(xd[3], yd[3], c->kernel_w, c->stride_w, c->pad_w, o->dilation_w, o->transposed) &&
      sl_shape_count(&param->shape) == sl__groupconv_weights(a) + biases)
    return SL_OK;
  return sl__fail(
      SL_BAD_SHAPE,
      "%s: x %s, y %s and %lld parameters do not fit %d channels in %d groups of %dx%d, "
      "stride %dx%d, padding %dx%d, dilation %dx%d",
      name, sl_shape_text(&x->shape, xt, sizeof xt), sl_shape_text(&y->shape, yt, sizeof yt),
      (long long)sl_shape_count(&param->shape), c->channels, o->groups, c->kernel_h, c->kernel_w,
      c->stride_h, c->stride_w, c->pad_h, c->pad_w, o->dilation_h, o->dilation_w);
}

/* ---- the choice of a method ---- */

/* Sums of fewer products, or for fewer outputs, are not worth a matrix. */
enum { LEAST_OUTPUTS = 2, LEAST_TAPS = 8 };

static bool is_plain(const struct sl__groupconv_args *a) {
  return a->groups == 1 && a->dilation_h == 1 && a->dilation_w == 1 &&
         a->out_height == (a->height + 2 * a->pad_h - a->kernel_h) / a->stride_h + 1 &&
         a->out_width == (a->width + 2 * a->pad_w - a->kernel_w) / a->stride_w + 1;
}

/* The plain convolution's kernels for an operation: whether they serve, whether Winograd's do, and
 * their scratch memory. */
struct plain_kernels {
  bool serve, by_tiles;
  int64_t (*scratch)(const struct sl__conv_args *a);
};

static int64_t forward_scratch(const struct sl__conv_args *a) {
  return a->implementation == SL__WINOGRAD ? sl__winograd_scratch(a, false)
                                           : sl__direct_conv_scratch(a);
}

static int64_t weight_scratch(const struct sl__conv_args *a) {
  return a->implementation == SL__WINOGRAD ? sl__winograd_backward_weight_scratch(a)
                                           : sl__conv_backward_weight_scratch(a);
}

static struct plain_kernels kernels_of(const struct sl__op *op, const struct sl__conv_args *p) {
  if (op == &sl__op_groupconv2d_gather) {
    bool serve = sl__conv_frame_fits(p);
    return (struct plain_kernels){serve, serve && sl__winograd_serves(p), forward_scratch};
  }
  if (op == &sl__op_groupconv2d_scatter) {
    bool fit = sl__conv_backward_data_fits(p);
    bool by_tiles = fit && sl__conv_backward_data_winograd_serves(p);
    return (struct plain_kernels){by_tiles || (fit && sl__conv_backward_data_pays(p)), by_tiles,
                                  sl__conv_backward_data_scratch};
  }
  bool by_tiles = sl__winograd_backward_weight_serves(p);
  bool direct = sl__conv_backward_weight_serves(p) && sl__conv_backward_weight_pays(p);
  return (struct plain_kernels){by_tiles || direct, by_tiles, weight_scratch};
}

/* A part of the work, such as one image, rearranges all weights of a plain convolution. */
static bool has_more_weights(const struct sl__groupconv_args *a) {
  return sl__groupconv_weights(a) > a->channels * x_plane(a) + a->out_channels * y_plane(a);
}

/* A forward kernel overwrites its outputs, and has no part of its work for each core. Returns the
 * floats of scratch memory. */
static int64_t choose(struct sl_context *context, const struct sl__op *op,
                      const struct sl__launch *l, bool is_cut, struct sl__groupconv_args *a) {
  const struct sl__conv_windows w = windows_of(a);
  int forced = context->forced_implementation - 1;
  bool overwrites = op == &sl__op_groupconv2d_gather;
  bool may = forced < 0 || forced == SL__DIRECT_CONV || forced == SL__WINOGRAD;
  if (may && is_plain(a) && !(overwrites && (l->accumulate || is_cut)) &&
      !(is_cut && has_more_weights(a))) {
    struct sl__conv_args p = plain_of(a);
    const struct plain_kernels kernels = kernels_of(op, &p);
    p.implementation = a->implementation = kernels.by_tiles ? SL__WINOGRAD : SL__DIRECT_CONV;
    if (kernels.serve) {
      a->method = SL__GROUPCONV_PLAIN;
      return kernels.scratch(&p);
    }
  }
  a->implementation = sl__product_choice(context);
  if (a->out_channels / a->groups < LEAST_OUTPUTS || sl__conv_matrix_rows(&w) < LEAST_TAPS)
    return 1;
  a->method = SL__GROUPCONV_MATRIX;
  return sl__conv_matrix_scratch(&w);
}

/* planes: of the outputs, if the work may be cut; else 0. */
static enum sl_status submit(struct sl_context *context, struct sl__op *op,
                             const struct sl__launch *l, struct sl__tensor *first,
                             struct sl__tensor *second, struct sl__tensor *out,
                             struct sl__groupconv_args *a, int64_t planes) {
  struct sl__launch launch = *l;
  struct sl__tensor *scratch;
  double pixels = (double)a->images * a->out_height * a->out_width;
  bool on_gpu = l->place.where == STARPU_CUDA;
  int64_t room = on_gpu ? 1 : choose(context, op, l, planes > 0, a);
  enum sl_status status = sl__scratch(context, (size_t)room * sizeof(float), &scratch);
  if (status != SL_OK) return status;
  if (planes)
    launch.cut = (struct sl__cut){
        .units = units_of(a, planes), .flat = true, .scratch = (size_t)room * sizeof(float)};
  return sl__submit(context, op, &launch, 4, (struct sl__tensor *[]){first, second, out, scratch},
                    a, sizeof *a, 2.0 * pixels * (double)sl__groupconv_weights(a),
                    starpu_hash_crc32c_be_n(a, sizeof *a, 0));
}

/* The layer's output from its input. */
enum sl_status sl__groupconv2d_forward(struct sl_context *context, const struct sl__launch *l,
                                       struct sl__tensor *x, struct sl__tensor *param,
                                       struct sl__tensor *y, const struct sl__groupconv2d *conv) {
  struct sl__groupconv_args a;
  bool back = conv->transposed;
  enum sl_status status = check("groupconv2d_forward", back ? y : x, param, back ? x : y, conv, &a);
  if (status != SL_OK) return status;
  a.activation = conv->conv.activation;
  return submit(context, back ? &sl__op_groupconv2d_scatter : &sl__op_groupconv2d_gather, l, x,
                param, y, &a, y->shape.dim[0] * y->shape.dim[1]);
}

enum sl_status sl__groupconv2d_backward_data(struct sl_context *context, const struct sl__launch *l,
                                             struct sl__tensor *dy, struct sl__tensor *param,
                                             struct sl__tensor *dx,
                                             const struct sl__groupconv2d *conv) {
  struct sl__groupconv_args a;
  bool back = conv->transposed;
  enum sl_status status =
      check("groupconv2d_backward_data", back ? dy : dx, param, back ? dx : dy, conv, &a);
  if (status != SL_OK) return status;
  a.has_bias = 0; /* it belongs to the output */
  return submit(context, back ? &sl__op_groupconv2d_gather : &sl__op_groupconv2d_scatter, l, dy,
                param, dx, &a, 0);
}

enum sl_status sl__groupconv2d_backward_weight(struct sl_context *context,
                                               const struct sl__launch *l, struct sl__tensor *x,
                                               struct sl__tensor *dy, struct sl__tensor *grad,
                                               const struct sl__groupconv2d *conv) {
  struct sl__groupconv_args a;
  struct sl__tensor *wide = conv->transposed ? dy : x, *narrow = conv->transposed ? x : dy;
  enum sl_status status = check("groupconv2d_backward_weight", wide, grad, narrow, conv, &a);
  if (status != SL_OK) return status;
  return submit(context, &sl__op_groupconv2d_backward_weight, l, wide, narrow, grad, &a, 0);
}
