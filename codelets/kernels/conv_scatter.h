/* The gradient of a convolution's input, tap by tap: the products of a few taps' weights by dy [K,
 * H' W'] stay in the first-level cache and are added to the pixels of dx that the taps meet. That
 * needs no product for pixels beyond dy, as a convolution with the rotated filters does, and no
 * matrix of windows. Each value is a sum over the window's columns, then rows, each of them over
 * k. */
#ifndef SL_CODELETS_KERNELS_CONV_SCATTER_H
#define SL_CODELETS_KERNELS_CONV_SCATTER_H

#include <stdbool.h>

#include "codelets/kernels/conv.h"

/* It does not serve dilated convolutions. Returns true if it needs clearly fewer products than
 * convolutions with the rotated filters, and outputs fill the narrowest vector. */
bool sl__conv_scatter_pays(const struct sl__conv_args *a);

/* Returns the number of floats of scratch memory. */
int64_t sl__conv_scatter_scratch(const struct sl__conv_args *a);

/* Computes dx [N, C, H, W] from dy [N, K, H', W'] and weight [K, C, R, S], or adds it to dx.
 * most_lanes: as sl__lanes. */
void sl__conv_scatter(const struct sl__conv_args *a, const float *dy, const float *weight,
                      float *dx, float *scratch, bool add, int most_lanes);

#endif
