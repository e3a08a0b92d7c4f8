/* Convolution without a matrix: sums stay in registers while they grow, and neighbouring windows
 * are read as they lie in the image (Georganas et al., Anatomy of high-performance deep learning
 * convolutions on SIMD architectures, 2018; here with pixels across a vector, so that images and
 * weights keep their layouts). Each output is summed over channel, row and column of its window, in
 * this order, whatever the batch. */
#ifndef SL_CODELETS_KERNELS_DIRECT_CONV_H
#define SL_CODELETS_KERNELS_DIRECT_CONV_H

#include <stdbool.h>

#include "codelets/kernels/conv_epilogue.h"
#include "core/runtime/submit.h"

/* Are its offsets within 32 bits? */
bool sl__direct_conv_fits(const struct sl__conv_args *a);

/* Floats of scratch memory that it needs. */
int64_t sl__direct_conv_scratch(const struct sl__conv_args *a);

/* Units that its work can be cut between: the planes of y, all images' one after the other, or
 * pixels of a single image, in the order of its rows. most_lanes: as sl__lanes. */
int64_t sl__direct_conv_units(const struct sl__conv_args *a, bool *planes, int most_lanes);

/* y [N, K, H', W'] of x [N, C, H, W], weight [K, C, R, S] and bias [K] (NULL: none): these of its
 * units. */
void sl__direct_conv_forward(const struct sl__conv_args *a, const float *x, const float *weight,
                             const float *bias, const struct sl__conv_epilogue *after, float *y,
                             float *scratch, struct sl__work_range share, int most_lanes);

#endif
