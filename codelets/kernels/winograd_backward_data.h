/* The gradient of the input of a 5x5 convolution with stride 1, by the adjoint of
 * codelets/kernels/winograd.h (Lavin and Gray, Fast algorithms for convolutional neural networks,
 * 2016): tiles y of 2x2 values of dy become A y A', 36 products by transformed weights are summed
 * over the output channels, and B m B' is added to the 6x6 pixels of a tile's window. That is for
 * images that are larger than their outputs: a convolution of dy with the rotated filters has a
 * tile for each four pixels of the image. Each sum is in an order that does not depend on the
 * batch. Rounding errors of random values are 5 times those of plain sums
 * (codelets/kernels/conv_scatter.h), 8e-7 of the gradient (bench/bench_rounding). An infinite value
 * may make its neighbours no number. */
#ifndef SL_CODELETS_KERNELS_WINOGRAD_BACKWARD_DATA_H
#define SL_CODELETS_KERNELS_WINOGRAD_BACKWARD_DATA_H

#include <stdbool.h>

#include "codelets/kernels/conv.h"

/* Returns true for such a convolution with enough channels that products dominate, few enough that
 * the weights stay in caches, images larger than their outputs, and tiles that fill vectors. */
bool sl__winograd_backward_data_serves(const struct sl__conv_args *a);

/* Returns the number of floats of scratch memory. */
int64_t sl__winograd_backward_data_scratch(const struct sl__conv_args *a);

/* As sl__conv_backward_data, where sl__winograd_backward_data_serves. */
void sl__winograd_backward_data(const struct sl__conv_args *a, const float *dy, const float *weight,
                                float *dx, float *scratch, bool add, int most_lanes);

#endif
