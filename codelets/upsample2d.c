/* Upsampling of planes by whole factors: nearest, and bilinear as PyTorch's align_corners=False. */
#include "codelets/upsample2d.h"

#include <string.h>

#include "codelets/codelets.h"
#include "codelets/kernels/planes.h"
#include "core/base/error.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

/* An output row between two input rows. Outputs of one phase (ow % scale) have one weight. */
SL__SIMD static void forward_row(const struct sl__upsample_args *a, const float *top,
                                 const float *bottom, float weight, float *y) {
  int32_t s = a->scale_w, last = a->width - 1;
  for (int32_t phase = 0; phase < s; phase++) {
    struct sl__upsample_taps t = sl__upsample_taps(s + phase, s, 3, a->bilinear);
    int32_t shift = t.first - 1; /* -1 or 0 */
    for (int32_t q = 0; q <= last; q++) {
      int32_t first = q + shift < 0 ? 0 : q + shift, second = q + shift + 1;
      if (second > last) second = last;
      float left = (1 - weight) * top[first] + weight * bottom[first];
      float right = (1 - weight) * top[second] + weight * bottom[second];
      y[q * s + phase] = (1 - t.weight) * left + t.weight * right;
    }
  }
}

SL__SIMD static void repeat_row(const float *x, float *y, int32_t width, int32_t scale) {
  for (int32_t phase = 0; phase < scale; phase++)
    for (int32_t q = 0; q < width; q++) y[q * scale + phase] = x[q];
}

static void forward_plane(const struct sl__upsample_args *a, const float *x, float *y) {
  int64_t row = (int64_t)a->width * a->scale_w;
  for (int32_t oh = 0; oh < a->height * a->scale_h; oh++, y += row) {
    struct sl__upsample_taps t = sl__upsample_taps(oh, a->scale_h, a->height, a->bilinear);
    if (a->bilinear)
      forward_row(a, x + (int64_t)t.first * a->width, x + (int64_t)t.second * a->width, t.weight,
                  y);
    else if (oh % a->scale_h)
      memcpy(y, y - row, (size_t)row * sizeof *y);
    else
      repeat_row(x + (int64_t)t.first * a->width, y, a->width, a->scale_w);
  }
}

SL__KERNEL void sl__upsample2d_forward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__upsample_args *a = sl__args(cl_arg);
  struct sl__work_range range = sl__work_range(cl_arg, a->planes);
  int64_t plane = (int64_t)a->height * a->width, out = plane * a->scale_h * a->scale_w;
  const float *x = sl__buffer(buffers, 0);
  float *y = sl__buffer(buffers, 1);
  for (int64_t p = range.first; p < range.end; p++) forward_plane(a, x + p * plane, y + p * out);
}

/* dx of one row += factor times the sums of dy along it. */
SL__SIMD static void add_row(const struct sl__upsample_args *a, const float *dy, float factor,
                             float *dx) {
  int32_t s = a->scale_w;
  for (int32_t phase = 0; phase < s; phase++) {
    struct sl__upsample_taps t = sl__upsample_taps(s + phase, s, 3, a->bilinear);
    int32_t shift = t.first - 1, last = a->width - 1;
    float left = factor * (1 - t.weight), right = factor * t.weight;
    for (int32_t q = 0; q <= last; q++) {
      int32_t first = q + shift < 0 ? 0 : q + shift;
      dx[first] += left * dy[q * s + phase];
    }
    for (int32_t q = 0; a->bilinear && q <= last; q++) {
      int32_t second = q + shift + 1 > last ? last : q + shift + 1;
      dx[second] += right * dy[q * s + phase];
    }
  }
}

SL__KERNEL void sl__upsample2d_backward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__upsample_args *a = sl__args(cl_arg);
  int64_t plane = (int64_t)a->height * a->width, row = (int64_t)a->width * a->scale_w;
  const float *dy = sl__buffer(buffers, 0);
  float *dx = sl__buffer(buffers, 1);
  if (!sl__accumulate(cl_arg)) memset(dx, 0, (size_t)(a->planes * plane) * sizeof *dx);
  for (int32_t p = 0; p < a->planes; p++, dx += plane)
    for (int32_t oh = 0; oh < a->height * a->scale_h; oh++, dy += row) {
      struct sl__upsample_taps t = sl__upsample_taps(oh, a->scale_h, a->height, a->bilinear);
      add_row(a, dy, 1 - t.weight, dx + (int64_t)t.first * a->width);
      if (t.weight > 0) add_row(a, dy, t.weight, dx + (int64_t)t.second * a->width);
    }
}

/* ---- submission -------------------------------------------------------------------------- */

static enum sl_status check(const char *name, const struct sl__tensor *x,
                            const struct sl__tensor *y, const struct sl__upsample2d *o,
                            struct sl__upsample_args *a) {
  char xt[96], yt[96];
  int64_t xd[4], yd[4];
  if (sl__planes_of(&x->shape, xd) && sl__planes_of(&y->shape, yd) && o->scale_h > 0 &&
      o->scale_w > 0 && yd[0] == xd[0] && yd[1] == xd[1] && yd[2] == xd[2] * o->scale_h &&
      yd[3] == xd[3] * o->scale_w && yd[2] < INT32_MAX / 2 && yd[3] < INT32_MAX / 2) {
    *a = (struct sl__upsample_args){.planes = (int32_t)(xd[0] * xd[1]),
                                    .height = (int32_t)xd[2],
                                    .width = (int32_t)xd[3],
                                    .scale_h = o->scale_h,
                                    .scale_w = o->scale_w,
                                    .bilinear = o->bilinear};
    return SL_OK;
  }
  return sl__fail(SL_BAD_SHAPE, "%s: x %s and y %s do not fit a scale of %dx%d", name,
                  sl_shape_text(&x->shape, xt, sizeof xt), sl_shape_text(&y->shape, yt, sizeof yt),
                  o->scale_h, o->scale_w);
}

static double flops_of(const struct sl__tensor *y) {
  return 4.0 * (double)sl_shape_count(&y->shape);
}

enum sl_status sl__upsample2d_forward(struct sl_context *context, const struct sl__launch *l,
                                      struct sl__tensor *x, struct sl__tensor *y,
                                      const struct sl__upsample2d *options) {
  struct sl__upsample_args a;
  struct sl__launch launch = *l;
  enum sl_status status = check("upsample2d_forward", x, y, options, &a);
  if (status != SL_OK) return status;
  launch.cut = (struct sl__cut){.units = a.planes, .flat = true};
  return sl__submit(context, &sl__op_upsample2d_forward, &launch, 2, (struct sl__tensor *[]){x, y},
                    &a, sizeof a, flops_of(y), (uint32_t)a.bilinear);
}

enum sl_status sl__upsample2d_backward(struct sl_context *context, const struct sl__launch *l,
                                       struct sl__tensor *dy, struct sl__tensor *dx,
                                       const struct sl__upsample2d *options) {
  struct sl__upsample_args a;
  enum sl_status status = check("upsample2d_backward", dx, dy, options, &a);
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_upsample2d_backward, l, 2, (struct sl__tensor *[]){dy, dx}, &a,
                    sizeof a, flops_of(dy), (uint32_t)a.bilinear);
}
