/* A convolution as a matrix product (im2col; Chellapilla, Puri, Simard 2006): the windows of an
 * image become the columns of a matrix, whose rows are the taps. A matrix that would not stay in a
 * core's cache is made in strips of rows of outputs, one after the other. Small planes of several
 * images share a matrix: else each image would read all weights. Both depend on the shape alone. */
#ifndef SL_CODELETS_KERNELS_CONV_MATRIX_H
#define SL_CODELETS_KERNELS_CONV_MATRIX_H

#include <stdbool.h>
#include <stdint.h>

#include "codelets/kernels/gemm.h"

/* The windows of an image [channels, height, width]; padding is of zeros. */
struct sl__conv_windows {
  int32_t channels, height, width, out_height, out_width;
  int32_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
};

/* Rows of the matrix. */
static inline int64_t sl__conv_matrix_rows(const struct sl__conv_windows *w) {
  return (int64_t)w->channels * w->kernel_h * w->kernel_w;
}

/* Images, and the floats from an image of x to the next, and of y. */
struct sl__conv_images {
  int64_t count, x, y;
};

/* Floats of scratch memory for at most this number of images. */
int64_t sl__conv_matrix_scratch(const struct sl__conv_windows *w, int64_t outputs, int64_t images);

/* The products of images x [channels, height, width] and y [outputs, out_height, out_width] with
 * weight and grad [outputs, taps]; a gradient is the sum over all of them. add: to the result's old
 * values. */
void sl__conv_matrix_forward(enum sl__gemm who, const struct sl__conv_windows *w, int64_t outputs,
                             const struct sl__conv_images *images, const float *x,
                             const float *weight, float *y, float *scratch, bool add);
void sl__conv_matrix_backward_data(enum sl__gemm who, const struct sl__conv_windows *w,
                                   int64_t outputs, const struct sl__conv_images *images,
                                   const float *dy, const float *weight, float *dx, float *scratch,
                                   bool add);
void sl__conv_matrix_backward_weight(enum sl__gemm who, const struct sl__conv_windows *w,
                                     int64_t outputs, const struct sl__conv_images *images,
                                     const float *x, const float *dy, float *grad, float *scratch,
                                     bool add);

#endif
