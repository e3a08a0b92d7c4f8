/* The gradient of a convolution's weights, without a matrix of windows: sums of a tile of output
 * channels by taps stay in registers over the pixels of some images, and the images' pixels are
 * read in place from a frame of zeros (codelets/kernels/conv_frame.h). A vector holds neighbouring
 * pixels; its sums are added up behind each group of images, in a fixed order that depends on the
 * shape and the processor's vectors only. */
#ifndef SL_CODELETS_KERNELS_CONV_BACKWARD_WEIGHT_H
#define SL_CODELETS_KERNELS_CONV_BACKWARD_WEIGHT_H

#include <stdbool.h>

#include "codelets/kernels/conv.h"

/* Returns true if all offsets fit into 32 bits, and outputs fill the narrowest vector. */
bool sl__conv_backward_weight_serves(const struct sl__conv_args *a);

/* Returns true if it takes less time than a product with a matrix of windows (conv_matrix.h), whose
 * making many outputs share. */
static inline bool sl__conv_backward_weight_pays(const struct sl__conv_args *a) {
  return a->out_channels < 128;
}

/* Returns the number of floats of scratch memory. */
int64_t sl__conv_backward_weight_scratch(const struct sl__conv_args *a);

/* Computes grad [K, C, R, S] and, if a->has_bias, bias [K] from x [N, C, H, W] and
 * dy [N, K, H', W'], or adds to them, where sl__conv_backward_weight_serves. most_lanes: as
 * sl__lanes. */
void sl__conv_backward_weight(const struct sl__conv_args *a, const float *x, const float *dy,
                              float *grad, float *bias, float *scratch, bool add, int most_lanes);

#endif
