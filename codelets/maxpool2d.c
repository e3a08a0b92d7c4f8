/* Max pooling; index remembers where in the plane each maximum was (the first of equals), for the
 * gradient. */
#include <string.h>

#include "codelets/pool2d.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

/* One row of 2x2 windows side by side, written so that it vectorises: pairs first, one condition a
 * select, and NaN (which wins, as in PyTorch) apart. */
SL_INLINE void row_2x2(const float *restrict top, const float *restrict low, int32_t at,
                       int32_t width, int32_t count, float *restrict y, int32_t *restrict index) {
  for (int32_t ow = 0; ow < count; ow++) {
    float a = top[2 * ow], b = top[2 * ow + 1], c = low[2 * ow], d = low[2 * ow + 1];
    int32_t upper = at + 2 * ow, lower = upper + width;
    upper = b > a ? upper + 1 : upper;
    lower = d > c ? lower + 1 : lower;
    float above = b > a ? b : a, below = d > c ? d : c;
    float best = below > above ? below : above;
    index[ow] = below > above ? lower : upper;
    best = a != a ? a : best;
    best = b != b ? b : best;
    best = c != c ? c : best;
    y[ow] = d != d ? d : best;
  }
}

SL_SIMD static void forward_2x2(const struct sl__pool_args *a, const float *x, float *y,
                                int32_t *index) {
  int32_t width = a->width, count = a->out_width, rows = a->out_height;
  for (int32_t p = 0; p < a->planes; p++, x += (int64_t)a->height * width)
    for (int32_t oh = 0; oh < rows; oh++, y += count, index += count) {
      const float *top = x + (int64_t)2 * oh * width;
      row_2x2(top, top + width, 2 * oh * width, width, count, y, index);
    }
}

static void forward_any(const struct sl__pool_args *a, const float *x, float *y, int32_t *index) {
  for (int32_t p = 0; p < a->planes; p++, x += (int64_t)a->height * a->width)
    for (int32_t oh = 0; oh < a->out_height; oh++)
      for (int32_t ow = 0; ow < a->out_width; ow++) {
        struct sl__pool_window v = sl__pool_window(a, oh, ow);
        int32_t best = v.h0 * a->width + v.w0;
        for (int32_t h = v.h0; h < v.h1; h++)
          for (int32_t w = v.w0; w < v.w1; w++)
            if (sl__pool_wins(x[h * a->width + w], x[best])) best = h * a->width + w;
        *y++ = x[best];
        *index++ = best;
      }
}

SL_KERNEL void sl__maxpool2d_forward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__pool_args *a = sl__args(cl_arg);
  (sl__pool_is_2x2(&a->pool) ? forward_2x2 : forward_any)(
      a, sl__buffer(buffers, 0), sl__buffer(buffers, 1), sl__buffer(buffers, 2));
}

SL_KERNEL void sl__maxpool2d_backward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__pool_args *a = sl__args(cl_arg);
  const float *dy = sl__buffer(buffers, 0);
  const int32_t *index = sl__buffer(buffers, 1);
  float *dx = sl__buffer(buffers, 2);
  int64_t plane = (int64_t)a->height * a->width, out = (int64_t)a->out_height * a->out_width;
  for (int32_t p = 0; p < a->planes; p++, dx += plane, dy += out, index += out) {
    if (!sl__accumulate(cl_arg)) memset(dx, 0, (size_t)plane * sizeof *dx);
    for (int64_t i = 0; i < out; i++) dx[index[i]] += dy[i];
  }
}

/* ---- submission -------------------------------------------------------------------------- */

enum sl_status sl__maxpool2d_forward(struct sl_context *context, const struct sl__launch *l,
                                     struct sl_tensor *x, struct sl_tensor *y,
                                     struct sl_tensor *index, const struct sl__pool2d *pool) {
  struct sl__pool_args a;
  enum sl_status status = sl__pool_check("maxpool2d_forward", x, y, pool, &a);
  if (status == SL_OK && !sl_shape_equal(&index->shape, &y->shape))
    status = sl_fail(SL_BAD_SHAPE, "maxpool2d_forward: index must have y's shape");
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_maxpool2d_forward, l, 3, (struct sl_tensor *[]){x, y, index},
                    &a, sizeof a, sl__pool_flops(&a), sl__pool_footprint(&a));
}

enum sl_status sl__maxpool2d_backward(struct sl_context *context, const struct sl__launch *l,
                                      struct sl_tensor *dy, struct sl_tensor *index,
                                      struct sl_tensor *dx, const struct sl__pool2d *pool) {
  struct sl__pool_args a;
  enum sl_status status = sl__pool_check("maxpool2d_backward", dx, dy, pool, &a);
  if (status == SL_OK && !sl_shape_equal(&index->shape, &dy->shape))
    status = sl_fail(SL_BAD_SHAPE, "maxpool2d_backward: index must have dy's shape");
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_maxpool2d_backward, l, 3,
                    (struct sl_tensor *[]){dy, index, dx}, &a, sizeof a, sl__pool_flops(&a),
                    sl__pool_footprint(&a));
}
