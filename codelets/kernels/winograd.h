/* Convolution by 3x3 windows, stride 1, one zero around the image: sixteen outputs of a square
 * from a window of 6x6, by 36 products a channel instead of 144, or four from one of 4x4, by 16
 * instead of 36 (Winograd's F(4x4, 3x3) and F(2x2, 3x3); Lavin and Gray, Fast algorithms for
 * convolutional neural networks, 2016). Windows of all tiles and weights are transformed, B' d B
 * and G g G'; for each of the 36 or 16 places a product of the weights' matrix by the windows' is
 * what remains; A' m A of its results are outputs. Each product is summed over channels in their
 * order, whatever the batch.
 * Rounding errors of random values, of 16 to 64 channels, are 2 to 3 times a plain convolution's
 * with the large tiles, 0.6 to 0.75 times with the small ones, whose sums are a ninth as long. The
 * points of the large tiles' transforms, 0, +-5/8, +-3/2 and infinity, have about the least error
 * of ten pairs tried, half of that of the usual +-1 and +-2 (Barabasz et al., Error analysis and
 * improving the accuracy of Winograd convolution, 2020, for why they matter). An infinite value
 * may make its neighbours no number. */
#ifndef SL_CODELETS_KERNELS_WINOGRAD_H
#define SL_CODELETS_KERNELS_WINOGRAD_H

#include <stdbool.h>
#include <stddef.h>

#include "codelets/kernels/conv_epilogue.h"
#include "core/runtime/submit.h"

/* Is it such a convolution, of enough channels that products are most of its work, of not more than
 * caches hold, and of sizes at which tiles fill vectors? The number of images does not matter, lest
 * an image's bits depend on it. */
bool sl__winograd_serves(const struct sl__conv_args *a);

/* Floats of scratch memory that it needs, and of transformed weights. */
int64_t sl__winograd_scratch(const struct sl__conv_args *a, bool is_transformed);
int64_t sl__winograd_weights(const struct sl__conv_args *a);

/* From weight [K, C, 3, 3], of channels [first, end): 36 or 16 times [end - first, C], some floats
 * apart, together no more than sl__winograd_weights. */
void sl__winograd_transform(const struct sl__conv_args *a, const float *weight, int64_t first,
                            int64_t end, float *to);

/* As sl__direct_conv_units: planes, or whole rows of a single image. */
int64_t sl__winograd_units(const struct sl__conv_args *a, bool *planes, int most_lanes);

/* As sl__direct_conv_forward. is_transformed: weight is what sl__winograd_transform made of all. */
void sl__winograd_forward(const struct sl__conv_args *a, const float *x, const float *weight,
                          bool is_transformed, const float *bias,
                          const struct sl__conv_epilogue *after, float *y, float *scratch,
                          struct sl__work_range share, int most_lanes);

#endif
