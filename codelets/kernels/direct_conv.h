/* Direct convolution, without a matrix of windows: sums stay in registers, and neighbouring windows
 * are read in place from the image (Georganas et al., Anatomy of high-performance deep learning
 * convolutions on SIMD architectures, 2018; here a vector holds pixels, so images and weights keep
 * their layouts). It serves where sl__conv_frame_fits. Each output is summed over channel, row and
 * column of its window in this order, whatever the batch. */
#ifndef SL_CODELETS_KERNELS_DIRECT_CONV_H
#define SL_CODELETS_KERNELS_DIRECT_CONV_H

#include <stdbool.h>

#include "codelets/kernels/conv_epilogue.h"
#include "core/runtime/submit.h"

/* Returns the number of floats of scratch memory. */
int64_t sl__direct_conv_scratch(const struct sl__conv_args *a);

/* Returns the number of units between which the work can be divided: the planes of y of all images,
 * or the pixels of a single image in row order. most_lanes: as sl__lanes. */
int64_t sl__direct_conv_units(const struct sl__conv_args *a, bool *planes, int most_lanes);

/* Computes the given units of y [N, K, H', W'] from x [N, C, H, W], weight [K, C, R, S] and bias
 * [K] (NULL for none). */
void sl__direct_conv_forward(const struct sl__conv_args *a, const float *x, const float *weight,
                             const float *bias, const struct sl__conv_epilogue *epilogue, float *y,
                             float *scratch, struct sl__work_range range, int most_lanes);

#endif
