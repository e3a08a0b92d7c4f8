/* Task arguments and sizes that the convolution's forward and backward kernels share. */
#ifndef SL_CODELETS_KERNELS_CONV_H
#define SL_CODELETS_KERNELS_CONV_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/simd.h"

struct sl__conv_args {
  int32_t images, channels, height, width;     /* of x: N, C, H, W */
  int32_t out_channels, out_height, out_width; /* of y: K, H', W' */
  int32_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
  int32_t has_bias, activation;
  int32_t implementation; /* on a CPU */
  int32_t norm, residual; /* of absorbed calls (fused normalisation, sum), before their activation;
                             see conv2d.c */
  float epsilon;
  int32_t gap_h, gap_w; /* pixels between neighbouring taps of the window: dilation - 1; conv2d.c
                           has none */
};

/* Rows and columns of an image's matrix of windows, and elements of one image of x and of y. */
static inline int64_t sl__conv_taps(const struct sl__conv_args *a) {
  return (int64_t)a->channels * a->kernel_h * a->kernel_w;
}
static inline int64_t sl__conv_pixels(const struct sl__conv_args *a) {
  return (int64_t)a->out_height * a->out_width;
}
static inline int64_t sl__conv_x_size(const struct sl__conv_args *a) {
  return (int64_t)a->channels * a->height * a->width;
}
static inline int64_t sl__conv_y_size(const struct sl__conv_args *a) {
  return (int64_t)a->out_channels * sl__conv_pixels(a);
}

/* Rows, and columns, from the window's first tap to its last. */
static inline int64_t sl__conv_span_h(const struct sl__conv_args *a) {
  return (a->kernel_h - 1) * ((int64_t)a->gap_h + 1);
}
static inline int64_t sl__conv_span_w(const struct sl__conv_args *a) {
  return (a->kernel_w - 1) * ((int64_t)a->gap_w + 1);
}

/* More weights than a core's second cache holds, and few pixels: an image by itself waits for the
 * weights, and a product of several images (conv_matrix.h) takes less time. */
static inline bool sl__conv_waits_for_weights(const struct sl__conv_args *a, int64_t few_pixels) {
  return sl__conv_pixels(a) <= few_pixels && a->out_channels * sl__conv_taps(a) >= 1 << 19;
}

static inline int32_t sl__ceil_div(int32_t a, int32_t b) { return a / b + (a % b != 0); }

/* Along one axis, the outputs [*first, *end) whose tap meets one of `size` values: output i meets
 * value i stride + tap - pad. */
SL__INLINE void sl__conv_inside(int32_t size, int32_t outputs, int32_t stride, int32_t tap,
                                int32_t pad, int32_t *first, int32_t *end) {
  int32_t before = pad - tap, last = size - 1 + before;
  *first = before > 0 ? sl__ceil_div(before, stride) : 0;
  *end = last < 0 ? 0 : last / stride + 1;
  if (*end > outputs) *end = outputs;
}

/* Number of images whose x and dy a GPU converts from bf16 for cuDNN at a time (conv2d_cuda.cu):
 * those that fit into 32 MiB of scratch memory, at least one. */
static inline int64_t sl__conv_bf16_adapted(const struct sl__conv_args *a) {
  int64_t image = sl__conv_x_size(a) + sl__conv_y_size(a), most = ((int64_t)8 << 20) / image;
  return most < 1 ? 1 : most < a->images ? most : a->images;
}

#endif
