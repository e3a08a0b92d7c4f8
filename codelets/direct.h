/* Convolution without a matrix: sums stay in registers while they grow, and neighbouring windows
 * are read as they lie in the image (Georganas et al., Anatomy of high-performance deep learning
 * convolutions on SIMD architectures, 2018; here with pixels across a vector, so that images and
 * weights keep their layouts). Each output is summed over channel, row and column of its window, in
 * this order, whatever the batch. */
#ifndef SL_CODELETS_DIRECT_H
#define SL_CODELETS_DIRECT_H

#include <stdbool.h>

#include "codelets/conv2d.h"
#include "core/submit.h"

/* Are its offsets within 32 bits? */
bool sl__direct_fits(const struct sl__conv_args *a);

/* Floats of scratch memory that it needs. */
int64_t sl__direct_scratch(const struct sl__conv_args *a);

/* y [N, K, H', W'] of x [N, C, H, W], weight [K, C, R, S] and bias [K] (NULL: none), no activation:
 * these of its N K planes. most_lanes: as sl__lanes. */
void sl__direct_forward(const struct sl__conv_args *a, const float *x, const float *weight,
                        const float *bias, float *y, float *scratch, struct sl__share planes,
                        int most_lanes);

/* The same of one image in two steps, each of which several threads may share, on one and the same
 * scratch memory: its channels are made ready, and, when all are, its planes come of them. */
void sl__direct_frame(const struct sl__conv_args *a, const float *x, float *scratch,
                      struct sl__share channels, int most_lanes);
void sl__direct_planes(const struct sl__conv_args *a, const float *weight, const float *bias,
                       float *y, float *scratch, struct sl__share planes, int most_lanes);

#endif
