/* 2-D convolution with groups (depthwise included; Howard et al., arXiv 1704.04861), dilation (Yu,
 * Koltun, arXiv 1511.07122), or transposed (Zeiler et al. 2010). The kernels are direct: for each
 * tap a row of pixels times one weight, which vectors take. */
#include "codelets/groupconv2d.h"

#include <string.h>

#include "codelets/activation.h"
#include "codelets/codelets.h"
#include "codelets/kernels/conv.h"
#include "codelets/kernels/conv_bias.h"
#include "codelets/kernels/planes.h"
#include "codelets/kernels/sum.h"
#include "core/base/error.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

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

/* out (+)= the sum of gathered values: y from x. */
SL__KERNEL void sl__groupconv2d_gather_cpu(void *buffers[], void *cl_arg) {
  const struct sl__groupconv_args *a = sl__args(cl_arg);
  const float *x = sl__buffer(buffers, 0), *weight = sl__buffer(buffers, 1);
  float *y = sl__buffer(buffers, 2);
  struct sl__work_range range = sl__work_range(cl_arg, (int64_t)a->images * a->out_channels);
  int64_t plane = (int64_t)a->out_height * a->out_width, taps = a->kernel_h * a->kernel_w;
  int64_t channels = a->channels / a->groups, in_plane = (int64_t)a->height * a->width;
  const float *bias = a->has_bias && !a->transposed ? weight + sl__groupconv_weights(a) : NULL;
  for (int64_t p = range.first; p < range.end; p++) {
    int64_t n = p / a->out_channels, k = p % a->out_channels;
    int64_t g = k / (a->out_channels / a->groups);
    float *to = y + p * plane;
    set_plane(to, plane, bias ? bias[k] : 0, sl__accumulate(cl_arg));
    forward_plane(a, x + (n * a->channels + g * channels) * in_plane, weight + k * channels * taps,
                  to);
    sl__activate(a->activation, to, to, plane);
  }
}

/* out (+)= the sum of scattered values: x from y. */
SL__KERNEL void sl__groupconv2d_scatter_cpu(void *buffers[], void *cl_arg) {
  const struct sl__groupconv_args *a = sl__args(cl_arg);
  const float *y = sl__buffer(buffers, 0), *weight = sl__buffer(buffers, 1);
  float *x = sl__buffer(buffers, 2);
  struct sl__work_range range = sl__work_range(cl_arg, (int64_t)a->images * a->channels);
  int64_t plane = (int64_t)a->height * a->width, taps = a->kernel_h * a->kernel_w;
  int64_t channels = a->channels / a->groups, outputs = a->out_channels / a->groups;
  int64_t out_plane = (int64_t)a->out_height * a->out_width;
  const float *bias = a->has_bias && a->transposed ? weight + sl__groupconv_weights(a) : NULL;
  for (int64_t p = range.first; p < range.end; p++) {
    int64_t n = p / a->channels, c = p % a->channels, g = c / channels;
    float *to = x + p * plane;
    set_plane(to, plane, bias ? bias[c] : 0, sl__accumulate(cl_arg));
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

SL__SIMD static void bias_slopes(const float *dy, int64_t images, int64_t channels, int64_t plane,
                                 float *grad, bool add) {
  for (int64_t k = 0; k < channels; k++) {
    float part[SL__BIAS_PARTS] = {0};
    sl__conv_bias_add(dy + k * plane, images, channels * plane, plane, part);
    sl__conv_bias_end(part, grad + k, add);
  }
}

SL__KERNEL void sl__groupconv2d_backward_weight_cpu(void *buffers[], void *cl_arg) {
  const struct sl__groupconv_args *a = sl__args(cl_arg);
  const float *x = sl__buffer(buffers, 0), *y = sl__buffer(buffers, 1);
  float *grad = sl__buffer(buffers, 2), *bias = grad + sl__groupconv_weights(a);
  int32_t channels = a->channels / a->groups, outputs = a->out_channels / a->groups;
  int64_t plane = (int64_t)a->height * a->width, out_plane = (int64_t)a->out_height * a->out_width;
  bool add = sl__accumulate(cl_arg);
  for (int32_t k = 0; k < a->out_channels; k++)
    for (int32_t c = k / outputs * channels; c < (k / outputs + 1) * channels; c++)
      for (int32_t r = 0; r < a->kernel_h; r++)
        for (int32_t s = 0; s < a->kernel_w; s++, grad++) {
          float slope = weight_slope(a, x + c * plane, y + k * out_plane, r, s);
          *grad = add ? *grad + slope : slope;
        }
  if (!a->has_bias) return;
  if (a->transposed)
    bias_slopes(x, a->images, a->channels, plane, bias, add);
  else
    bias_slopes(y, a->images, a->out_channels, out_plane, bias, add);
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

static enum sl_status submit(struct sl_context *context, struct sl__op *op,
                             const struct sl__launch *l, struct sl__tensor *first,
                             struct sl__tensor *second, struct sl__tensor *out,
                             const struct sl__groupconv_args *a, int64_t planes) {
  struct sl__launch launch = *l;
  double pixels = (double)a->images * a->out_height * a->out_width;
  if (planes) launch.cut = (struct sl__cut){.units = planes, .flat = true};
  return sl__submit(context, op, &launch, 3, (struct sl__tensor *[]){first, second, out}, a,
                    sizeof *a, 2.0 * pixels * (double)sl__groupconv_weights(a),
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
