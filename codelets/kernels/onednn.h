/* oneDNN's convolutions as a second implementation. Each function returns false if it cannot serve
 * (a build without oneDNN, a shape that oneDNN refuses); the caller then uses our own code, always
 * the same for a given shape. All data are plain row-major arrays; if oneDNN prefers a blocked
 * layout, the function reorders them inside. Single-threaded. */
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

#endif
