/* Common parts of max and average pooling: sizes, the window of an output, the outputs whose
 * windows contain an input, the shape check. */
#ifndef SL_CODELETS_KERNELS_POOL2D_H
#define SL_CODELETS_KERNELS_POOL2D_H

#include "codelets/codelets.h"
#include "core/base/random.h" /* SL__HOST_DEVICE */
#include "core/base/simd.h"

/* A plane with its padding, and so a window, has below 2^31 values: sl__window_output (nn/layers)
 * refuses others. */
struct sl__pool_args {
  int32_t planes, height, width, out_height, out_width; /* planes: N x C */
  struct sl__pool2d pool;
};

/* The part of the window of output (oh, ow) inside the plane: rows [h0, h1), columns [w0, w1). */
struct sl__pool_window {
  int32_t h0, h1, w0, w1;
};

SL__HOST_DEVICE SL__INLINE struct sl__pool_window sl__pool_window(const struct sl__pool_args *a,
                                                                  int32_t oh, int32_t ow) {
  int32_t h = oh * a->pool.stride_h - a->pool.pad_h, w = ow * a->pool.stride_w - a->pool.pad_w;
  struct sl__pool_window v = {h, h + a->pool.kernel_h, w, w + a->pool.kernel_w};
  if (v.h0 < 0) v.h0 = 0;
  if (v.w0 < 0) v.w0 = 0;
  if (v.h1 > a->height) v.h1 = a->height;
  if (v.w1 > a->width) v.w1 = a->width;
  return v;
}

/* The outputs along one axis whose windows contain input i: [first, last], empty if last < first.
 */
struct sl__pool_reach {
  int32_t first, last;
};

SL__HOST_DEVICE SL__INLINE struct sl__pool_reach sl__pool_reach(int32_t i, int32_t outputs,
                                                                int32_t kernel, int32_t stride,
                                                                int32_t pad) {
  int32_t before = i + pad - kernel; /* end of the last window that does not reach i */
  struct sl__pool_reach r = {before < 0 ? 0 : before / stride + 1, (i + pad) / stride};
  if (r.last > outputs - 1) r.last = outputs - 1;
  return r;
}

/* Returns true if a later value of a window replaces the maximum: of equal values the first stays,
 * and NaN wins, as in PyTorch. */
SL__HOST_DEVICE SL__INLINE bool sl__pool_wins(float value, float best) {
  return value > best || value != value;
}

/* Weight of each value in an average; padding counts in the divisor. */
SL__HOST_DEVICE SL__INLINE float sl__pool_weight(const struct sl__pool_args *a) {
  return 1.0f / (float)(a->pool.kernel_h * a->pool.kernel_w);
}

/* Adjacent 2x2 windows, by far the most frequent case. */
SL__HOST_DEVICE SL__INLINE bool sl__pool_is_2x2(const struct sl__pool2d *p) {
  return p->kernel_h == 2 && p->kernel_w == 2 && p->stride_h == 2 && p->stride_w == 2 &&
         !p->pad_h && !p->pad_w;
}

#ifndef __cplusplus /* the CUDA files need neither the checks nor the submission */
#include "codelets/kernels/planes.h"
#include "core/base/error.h"

/* Fills in the args, or fails with a message that names the sizes. */
static inline enum sl_status sl__pool_check(const char *name, const struct sl__tensor *x,
                                            const struct sl__tensor *y, const struct sl__pool2d *p,
                                            struct sl__pool_args *a) {
  char xt[96], yt[96];
  int64_t xd[4], yd[4];
  if (sl__planes_of(&x->shape, xd) && sl__planes_of(&y->shape, yd) && p->stride_h > 0 &&
      p->stride_w > 0 && p->pad_h >= 0 && p->pad_w >= 0 && p->pad_h < p->kernel_h &&
      p->pad_w < p->kernel_w) {
    int64_t h = xd[2] + 2 * p->pad_h - p->kernel_h, w = xd[3] + 2 * p->pad_w - p->kernel_w;
    *a = (struct sl__pool_args){(int32_t)(xd[0] * xd[1]), (int32_t)xd[2], (int32_t)xd[3],
                                (int32_t)yd[2],           (int32_t)yd[3], *p};
    if (h >= 0 && w >= 0 && yd[0] == xd[0] && yd[1] == xd[1] && yd[2] == h / p->stride_h + 1 &&
        yd[3] == w / p->stride_w + 1)
      return SL_OK;
  }
  return sl__fail(
      SL_BAD_SHAPE, "%s: x %s and y %s do not fit windows of %dx%d, stride %dx%d, padding %dx%d",
      name, sl_shape_text(&x->shape, xt, sizeof xt), sl_shape_text(&y->shape, yt, sizeof yt),
      p->kernel_h, p->kernel_w, p->stride_h, p->stride_w, p->pad_h, p->pad_w);
}

/* The args for the planes [first, end) only. */
static inline struct sl__pool_args sl__pool_part(const struct sl__pool_args *a,
                                                 struct sl__work_range range) {
  struct sl__pool_args part = *a;
  part.planes = (int32_t)(range.end - range.first);
  return part;
}

static inline struct sl__cut sl__pool_cut(const struct sl__pool_args *a) {
  return (struct sl__cut){.units = a->planes, .flat = true};
}

static inline double sl__pool_flops(const struct sl__pool_args *a) {
  return (double)a->planes * a->out_height * a->out_width * a->pool.kernel_h * a->pool.kernel_w;
}

static inline uint32_t sl__pool_footprint(const struct sl__pool_args *a) {
  return starpu_hash_crc32c_be_n(&a->pool, sizeof a->pool, 0);
}

#endif
#endif
