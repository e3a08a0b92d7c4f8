/* Convolution by 3x3 windows, stride 1, one zero around the image: four outputs of a square from a
 * window of 4x4, by 16 products a channel instead of 36 (Winograd's F(2x2, 3x3); Lavin and Gray,
 * Fast algorithms for convolutional neural networks, 2016). Windows of all tiles and weights are
 * transformed, B' d B and G g G'; for each of the 16 places a product of the weights' matrix by the
 * windows' is what remains; A' m A of its results are outputs. Each product is summed over channels
 * in their order, whatever the batch. Sums are a ninth as long as a plain convolution's, and the
 * rounding errors, of values that are random, 0.6 to 0.75 of its errors; an infinite value may make
 * its neighbours no number. */
#ifndef SL_CODELETS_WINOGRAD_H
#define SL_CODELETS_WINOGRAD_H

#include <stdbool.h>
#include <stddef.h>

#include "codelets/finish.h"
#include "core/submit.h"

/* Is it such a convolution, of enough channels that products are most of its work, of not more than
 * caches hold, and of sizes at which tiles fill vectors? The number of images does not matter, lest
 * an image's bits depend on it. */
bool sl__winograd_serves(const struct sl__conv_args *a);

/* Floats of scratch memory that it needs, and of transformed weights. */
int64_t sl__winograd_scratch(const struct sl__conv_args *a, bool is_transformed);
int64_t sl__winograd_weights(const struct sl__conv_args *a);

/* From weight [K, C, 3, 3], of channels [first, end): 16 times [end - first, C], some floats apart,
 * together no more than sl__winograd_weights. */
void sl__winograd_transform(const struct sl__conv_args *a, const float *weight, int64_t first,
                            int64_t end, float *to);

/* As sl__direct_units: planes, or whole rows of a single image. */
int64_t sl__winograd_units(const struct sl__conv_args *a, bool *planes, int most_lanes);

/* As sl__direct_forward. is_transformed: weight is what sl__winograd_transform made of all. */
void sl__winograd_forward(const struct sl__conv_args *a, const float *x, const float *weight,
                          bool is_transformed, const float *bias, const struct sl__after *after,
                          float *y, float *scratch, struct sl__share share, int most_lanes);

#endif
