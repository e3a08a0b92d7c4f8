/* A convolution as a matrix product (im2col; Chellapilla, Puri, Simard 2006): the windows of an
 * image become the columns of a matrix, whose rows are the taps. */
#ifndef SL_CODELETS_KERNELS_CONV_MATRIX_H
#define SL_CODELETS_KERNELS_CONV_MATRIX_H

#include <stdbool.h>
#include <stdint.h>

/* The windows of an image [channels, height, width]; padding is of zeros. */
struct sl__conv_windows {
  int32_t channels, height, width, out_height, out_width;
  int32_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
};

/* Rows and columns of the matrix. */
static inline int64_t sl__conv_matrix_rows(const struct sl__conv_windows *w) {
  return (int64_t)w->channels * w->kernel_h * w->kernel_w;
}
static inline int64_t sl__conv_matrix_columns(const struct sl__conv_windows *w) {
  return (int64_t)w->out_height * w->out_width;
}

/* Is the matrix the image itself? So it is with windows of one pixel. */
static inline bool sl__conv_matrix_is_image(const struct sl__conv_windows *w) {
  return w->kernel_h == 1 && w->kernel_w == 1 && w->stride_h == 1 && w->stride_w == 1 &&
         !w->pad_h && !w->pad_w && w->out_height == w->height && w->out_width == w->width;
}

/* The windows of `rows` rows of outputs from `first` on. */
static inline struct sl__conv_windows sl__conv_rows(const struct sl__conv_windows *w, int32_t first,
                                                    int32_t rows) {
  struct sl__conv_windows part = *w;
  part.out_height = rows;
  part.pad_h -= first * w->stride_h;
  return part;
}

/* The matrix, in `room` unless it is the image. */
const float *sl__conv_matrix(const struct sl__conv_windows *w, const float *image, float *room);

/* Adds the matrix back into the image (col2im), tap after tap: a fixed order. */
void sl__conv_matrix_add(const struct sl__conv_windows *w, const float *matrix, float *image);

#endif
