/* Average pooling; padding counts as zeros and in the divisor, PyTorch's default. */
#include <string.h>

#include "codelets/pool2d.h"

/* ---- CPU kernels --------------------------------------------------------------------------------- */

SL_KERNEL void avgpool2d_forward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__pool_args *a = sl__args(cl_arg);
  const float *x = sl__buffer(buffers, 0);
  float *y = sl__buffer(buffers, 1), share = 1.0f / (float)(a->pool.kernel_h * a->pool.kernel_w);
  for (int32_t p = 0; p < a->planes; p++, x += (int64_t)a->height * a->width)
    for (int32_t oh = 0; oh < a->out_height; oh++)
      for (int32_t ow = 0; ow < a->out_width; ow++) {
        struct sl__pool_window v = sl__pool_window(a, oh, ow);
        float sum = 0;
        for (int32_t h = v.h0; h < v.h1; h++)
          for (int32_t w = v.w0; w < v.w1; w++) sum += x[h * a->width + w];
        *y++ = sum * share;
      }
}

SL_KERNEL void avgpool2d_backward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__pool_args *a = sl__args(cl_arg);
  const float *dy = sl__buffer(buffers, 0);
  float *dx = sl__buffer(buffers, 1), share = 1.0f / (float)(a->pool.kernel_h * a->pool.kernel_w);
  int64_t plane = (int64_t)a->height * a->width;
  for (int32_t p = 0; p < a->planes; p++, dx += plane) {
    if (!sl__accumulate(cl_arg)) memset(dx, 0, (size_t)plane * sizeof *dx);
    for (int32_t oh = 0; oh < a->out_height; oh++)
      for (int32_t ow = 0; ow < a->out_width; ow++) {
        struct sl__pool_window v = sl__pool_window(a, oh, ow);
        float part = *dy++ * share;
        for (int32_t h = v.h0; h < v.h1; h++)
          for (int32_t w = v.w0; w < v.w1; w++) dx[h * a->width + w] += part;
      }
  }
}

/* ---- submission ---------------------------------------------------------------------------------- */

enum sl_status sl__avgpool2d_forward(struct sl_context *context, const struct sl__launch *l,
                                     struct sl_tensor *x, struct sl_tensor *y,
                                     const struct sl__pool2d *pool) {
  struct sl__pool_args a;
  enum sl_status status = sl__pool_check("avgpool2d_forward", x, y, pool, &a);
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_avgpool2d_forward, l, 2, (struct sl_tensor *[]){x, y}, &a, sizeof a,
                    sl__pool_flops(&a), sl__pool_footprint(&a));
}

enum sl_status sl__avgpool2d_backward(struct sl_context *context, const struct sl__launch *l,
                                      struct sl_tensor *dy, struct sl_tensor *dx,
                                      const struct sl__pool2d *pool) {
  struct sl__pool_args a;
  enum sl_status status = sl__pool_check("avgpool2d_backward", dx, dy, pool, &a);
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_avgpool2d_backward, l, 2, (struct sl_tensor *[]){dy, dx}, &a, sizeof a,
                    sl__pool_flops(&a), sl__pool_footprint(&a));
}
