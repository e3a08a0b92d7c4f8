/* Convolution with groups, dilation, or transposed: arguments. */
#ifndef SL_CODELETS_GROUPCONV2D_H
#define SL_CODELETS_GROUPCONV2D_H

#include <stdint.h>

/* Computes on a CPU. */
enum sl__groupconv_method {
  SL__GROUPCONV_MATRIX, /* for each image and group a matrix product */
  SL__GROUPCONV_PLAIN   /* each group as a convolution of its own, by the kernels of conv2d.c */
};

/* A convolution of x [images, channels, height, width] to y [images, out_channels, out_height,
 * out_width] with weight [out_channels, channels / groups, kernel_h, kernel_w]. A transposed
 * convolution goes from y to x, and its bias is x's. */
struct sl__groupconv_args {
  int32_t images, channels, height, width;
  int32_t out_channels, out_height, out_width;
  int32_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int32_t groups, has_bias, activation, transposed;
  int32_t method, implementation; /* of the product, or of the plain convolution (choice.h) */
};

static inline int64_t sl__groupconv_weights(const struct sl__groupconv_args *a) {
  return (int64_t)a->out_channels * (a->channels / a->groups) * a->kernel_h * a->kernel_w;
}

#endif
