/* Winograd's convolution for images of few tiles: a vector holds channels, not tiles as in
 * codelets/kernels/winograd.c, whose functions call these where that needs clearly fewer products.
 * An image in a frame of zeros has its channels side by side. The transforms, and the order of each
 * sum, are those of that page. */
#ifndef SL_CODELETS_KERNELS_WINOGRAD_CHANNELS_H
#define SL_CODELETS_KERNELS_WINOGRAD_CHANNELS_H

#include <stdbool.h>

#include "codelets/kernels/conv_epilogue.h"
#include "codelets/kernels/winograd_kind.h"
#include "core/runtime/submit.h"

enum { SL__WINOGRAD_FILTERS = 16 }; /* output channels whose transformed weights lie side by side */

/* Returns the products of vectors of 16 output channels that an input channel of an image needs; 0
 * if the convolution is not for this kernel. */
int64_t sl__winograd_channels_products(const struct sl__conv_args *a);

/* The transforms of such a convolution. */
enum kind sl__winograd_channels_kind(const struct sl__conv_args *a);

/* Floats of scratch memory, of the transformed weights, and from one of their matrices to the next
 * for `rows` output channels. */
int64_t sl__winograd_channels_scratch(const struct sl__conv_args *a, bool is_transformed);
int64_t sl__winograd_channels_weights(const struct sl__conv_args *a);
int64_t sl__winograd_channels_place(int64_t rows, int64_t channels);

/* As sl__winograd_forward, which calls it for the convolutions that go by channels; range: planes.
 * A matrix of the transformed weights has runs of 16 output channels, the last one filled with
 * zeros; in a run the 16 values of an input channel lie behind those of the one before. */
void sl__winograd_channels_forward(const struct sl__conv_args *a, const float *x,
                                   const float *weight, bool is_transformed, const float *bias,
                                   const struct sl__conv_epilogue *epilogue, float *y,
                                   float *scratch, struct sl__work_range range, int most_lanes);

#endif
