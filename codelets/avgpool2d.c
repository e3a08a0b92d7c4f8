/* Average pooling; padding counts as zeros and in the divisor, PyTorch's default. */
#include <string.h>

#include "codelets/kernels/pool2d.h"
#include "codelets/kernels/sum.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

/* A window may be a whole picture, whose sum in floats would lose digits. */
static double window_sum(const float *x, int32_t pitch, int32_t height, int32_t width) {
  double sum = 0;
  for (int32_t h = 0; h < height; h++, x += pitch)
    if (width >= SL__SUM_PARTS)
      sum += (double)sl__sum_run(x, width);
    else
      for (int32_t w = 0; w < width; w++) sum += (double)x[w];
  return sum;
}

static void forward(const struct sl__pool_args *a, const float *x, float *y) {
  float weight = sl__pool_weight(a);
  for (int32_t p = 0; p < a->planes; p++, x += (int64_t)a->height * a->width)
    for (int32_t oh = 0; oh < a->out_height; oh++)
      for (int32_t ow = 0; ow < a->out_width; ow++) {
        struct sl__pool_window v = sl__pool_window(a, oh, ow);
        *y++ = (float)window_sum(x + v.h0 * a->width + v.w0, a->width, v.h1 - v.h0, v.w1 - v.w0) *
               weight;
      }
}

static void backward(const struct sl__pool_args *a, const float *dy, float *dx, bool add) {
  float weight = sl__pool_weight(a);
  int64_t plane = (int64_t)a->height * a->width;
  for (int32_t p = 0; p < a->planes; p++, dx += plane) {
    if (!add) memset(dx, 0, (size_t)plane * sizeof *dx);
    for (int32_t oh = 0; oh < a->out_height; oh++)
      for (int32_t ow = 0; ow < a->out_width; ow++) {
        struct sl__pool_window v = sl__pool_window(a, oh, ow);
        float part = *dy++ * weight;
        for (int32_t h = v.h0; h < v.h1; h++)
          for (int32_t w = v.w0; w < v.w1; w++) dx[h * a->width + w] += part;
      }
  }
}

SL__KERNEL void sl__avgpool2d_forward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__pool_args *all = sl__args(cl_arg);
  struct sl__work_range range = sl__work_range(cl_arg, all->planes);
  struct sl__pool_args a = sl__pool_part(all, range);
  const float *x = sl__buffer(buffers, 0);
  float *y = sl__buffer(buffers, 1);
  forward(&a, x + range.first * a.height * a.width, y + range.first * a.out_height * a.out_width);
}

SL__KERNEL void sl__avgpool2d_backward_cpu(void *buffers[], void *cl_arg) {
  backward(sl__args(cl_arg), sl__buffer(buffers, 0), sl__buffer(buffers, 1),
           sl__accumulate(cl_arg));
}

/* ---- submission -------------------------------------------------------------------------- */

enum sl_status sl__avgpool2d_forward(struct sl_context *context, const struct sl__launch *l,
                                     struct sl__tensor *x, struct sl__tensor *y,
                                     const struct sl__pool2d *pool) {
  struct sl__pool_args a;
  struct sl__launch launch = *l;
  enum sl_status status = sl__pool_check("avgpool2d_forward", x, y, pool, &a);
  if (status != SL_OK) return status;
  launch.cut = sl__pool_cut(&a);
  return sl__submit(context, &sl__op_avgpool2d_forward, &launch, 2, (struct sl__tensor *[]){x, y},
                    &a, sizeof a, sl__pool_flops(&a), sl__pool_footprint(&a));
}

enum sl_status sl__avgpool2d_backward(struct sl_context *context, const struct sl__launch *l,
                                      struct sl__tensor *dy, struct sl__tensor *dx,
                                      const struct sl__pool2d *pool) {
  struct sl__pool_args a;
  enum sl_status status = sl__pool_check("avgpool2d_backward", dx, dy, pool, &a);
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_avgpool2d_backward, l, 2, (struct sl__tensor *[]){dy, dx}, &a,
                    sizeof a, sl__pool_flops(&a), sl__pool_footprint(&a));
}
