/* oneDNN's convolutions as a second implementation, and its products of bf16 matrices. Each
 * function returns false if it cannot serve (a build without oneDNN, a shape that oneDNN refuses);
 * the caller then uses our own code, always the same for a given shape. All data are plain
 * row-major arrays; if oneDNN prefers a blocked layout, the function reorders them inside.
 * Single-threaded. */
#ifndef SL_CODELETS_KERNELS_ONEDNN_H
#define SL_CODELETS_KERNELS_ONEDNN_H

#include <stdbool.h>
#include <stdint.h>

/* True in a build with oneDNN. */
bool sl__onednn_available(void);

/* x [images, channels, height, width], y [images, out_channels, out_height, out_width] */
struct sl__onednn_window {
  int32_t images, channels, height, width, out_channels, out_height, out_width;
  int32_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
};

/* bias and its gradient may be NULL. */
bool sl__onednn_conv2d_forward(const struct sl__onednn_window *w, const float *x,
                               const float *weight, const float *bias, float *y);
bool sl__onednn_conv2d_backward_data(const struct sl__onednn_window *w, const float *dy,
                                     const float *weight, float *dx);
bool sl__onednn_conv2d_backward_weight(const struct sl__onednn_window *w, const float *x,
                                       const float *dy, float *grad, float *bias_grad);

/* A product that fails in spite of its plan is a failed task. y [m, n] (+)= op(a) op(b) + bias, all
 * dense and row-major; op(a) is [m, k], op(b) [k, n]. a, b and bias (of a row of y; NULL: none) are
 * bf16, sums f32; y is bf16, or f32 if wide. */
struct sl__onednn_product {
  int64_t m, n, k;
  bool transpose_a, transpose_b, wide, add;
};
bool sl__onednn_product(const struct sl__onednn_product *p, const uint16_t *a, const uint16_t *b,
                        const uint16_t *bias, void *y);

/* Has the processor instructions for products of bf16 (AVX512_BF16, AMX), and this build oneDNN? */
bool sl__onednn_has_bf16(void);

#endif
