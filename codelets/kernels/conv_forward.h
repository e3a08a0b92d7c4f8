/* A whole plain convolution by whichever of our kernels a->implementation names, SL__OWN or
 * SL__WINOGRAD: for operations that are made of plain convolutions. conv2d.c, which divides its
 * work and fuses the operations behind it, calls the kernels itself. */
#ifndef SL_CODELETS_KERNELS_CONV_FORWARD_H
#define SL_CODELETS_KERNELS_CONV_FORWARD_H

#include "codelets/kernels/conv.h"

/* Returns the number of floats of scratch memory. */
int64_t sl__conv_forward_scratch(const struct sl__conv_args *a);

/* Computes y [N, K, H', W'] from x [N, C, H, W], weight [K, C, R, S] and bias [K] (NULL for none),
 * activated. most_lanes: as sl__lanes. */
void sl__conv_forward(const struct sl__conv_args *a, const float *x, const float *weight,
                      const float *bias, float *y, float *scratch, int most_lanes);

#endif
