/* The gradient of the weights of the convolutions of codelets/kernels/winograd.h, by Winograd's
 * F(3x3, 4x4), F(3x3, 2x2) and F(5x5, 2x2): the adjoint of that page's algorithm, with its
 * transforms (Lavin and Gray, Fast algorithms for convolutional neural networks, 2016). A tile has
 * a window d and a gradient y. The gradient u of the transformed weights is the sum over tiles of
 * A y A' times B' d B: for each of the 36 or 16 elements a product of the matrices [K, tiles] and
 * [tiles, C]. G' u G is the gradient of the weights. Sums go over tiles and images in their order.
 * Rounding errors of random values are 5 to 8 times those of plain sums
 * (codelets/kernels/conv_backward_weight.h), up to 1e-6 of the gradient; with tiles of 2x2 outputs
 * of 3x3 taps 2.6 times (bench/bench_rounding). NaN in x reaches all weights of its channel. */
#ifndef SL_CODELETS_KERNELS_WINOGRAD_BACKWARD_WEIGHT_H
#define SL_CODELETS_KERNELS_WINOGRAD_BACKWARD_WEIGHT_H

#include <stdbool.h>

#include "codelets/kernels/conv.h"

/* Returns true for such a convolution with enough channels for vectors, few enough that the sums
 * stay in a core's caches. */
bool sl__winograd_backward_weight_serves(const struct sl__conv_args *a);

/* Returns the number of floats of scratch memory. */
int64_t sl__winograd_backward_weight_scratch(const struct sl__conv_args *a);

/* As sl__conv_backward_weight, but without the bias, where sl__winograd_backward_weight_serves. */
void sl__winograd_backward_weight(const struct sl__conv_args *a, const float *x, const float *dy,
                                  float *grad, float *scratch, bool add, int most_lanes);

#endif
