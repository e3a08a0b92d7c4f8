/* The gradient of a convolution's input, by the kernels of the forward pass. With stride 1 it is a
 * convolution of dy with the rotated filters, input and output channels exchanged. With a stride,
 * the pixels of dx of one remainder (row modulo stride, column modulo stride) are a convolution of
 * stride 1 with those taps that meet them (Dumoulin and Visin, A guide to convolution arithmetic
 * for deep learning, 2016). Where dx has many more pixels than dy, most of these products would be
 * by zeros: it goes tap by tap there (codelets/kernels/conv_scatter.h), or tile by tile
 * (winograd_backward_data.h), but for dilated ones. The order of a sum does not depend on the
 * batch. */
#ifndef SL_CODELETS_KERNELS_CONV_BACKWARD_DATA_H
#define SL_CODELETS_KERNELS_CONV_BACKWARD_DATA_H

#include <stdbool.h>

#include "codelets/kernels/conv.h"

/* Returns true if direct convolution, or Winograd's, can compute dx. The arguments are those of the
 * forward pass. A dilated convolution with a stride is left to matrices. */
bool sl__conv_backward_data_fits(const struct sl__conv_args *a);
bool sl__conv_backward_data_winograd_serves(const struct sl__conv_args *a);

/* Returns true if they take less time than a product with a matrix of windows (conv_matrix.h). Of
 * one pixel the windows need no matrix, or a small one; few pixels of dy wait for many weights, and
 * with a stride do not fill the kernels' vectors, nor few channels of dx their tiles. */
bool sl__conv_backward_data_pays(const struct sl__conv_args *a);

/* Returns the number of floats of scratch memory, for a->implementation: SL__OWN or
 * SL__WINOGRAD. */
int64_t sl__conv_backward_data_scratch(const struct sl__conv_args *a);

/* Computes dx [N, C, H, W] from dy [N, K, H', W'] and weight [K, C, R, S], or adds it to dx.
 * most_lanes: as sl__lanes. */
void sl__conv_backward_data(const struct sl__conv_args *a, const float *dy, const float *weight,
                            float *dx, float *scratch, bool add, int most_lanes);

#endif
