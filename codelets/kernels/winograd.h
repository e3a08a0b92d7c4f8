/* Winograd's convolution with stride 1 (Lavin and Gray, Fast algorithms for convolutional neural
 * networks, 2016). It makes the outputs of a square tile from one window:
 *   F(4x4, 3x3): 16 outputs of 3x3 taps from a window of 6x6, by 36 products a channel, not 144;
 *   F(2x2, 3x3): 4 outputs from a window of 4x4, by 16 products, not 36;
 *   F(2x2, 5x5): 4 outputs of 5x5 taps from a window of 6x6, by 36 products, not 100.
 * Around the image is one zero with 3x3 taps, up to four with 5x5. The windows of all tiles are
 * transformed by B' d B, the weights by G g G'. Each of the 36 or 16 elements of a transformed
 * window then needs a product of the weights' matrix by the windows'. A' m A of the results are the
 * outputs. Each product is summed over channels in their order, whatever the batch. F(4x4, 3x3) has
 * 2 to 3 times the rounding errors of a plain convolution, F(2x2, 3x3), whose sums are a ninth as
 * long, 0.6 to 0.75 times, F(2x2, 5x5) 1.3 to 1.5 times (bench/bench_rounding). The points of the
 * transforms of 6x6 are 0, +-5/8, +-3/2 and infinity. They have about the least error of thirteen
 * pairs tried, half of that of the usual +-1 and +-2 (Barabasz et al., Error analysis and improving
 * the accuracy of Winograd convolution, 2020, for why they matter). An infinite value may make its
 * neighbours no number. */
#ifndef SL_CODELETS_KERNELS_WINOGRAD_H
#define SL_CODELETS_KERNELS_WINOGRAD_H

#include <stdbool.h>
#include <stddef.h>

#include "codelets/kernels/conv_epilogue.h"
#include "core/runtime/submit.h"

/* Returns the taps a side of a convolution whose windows the transforms are for, not dilated: 3,
 * stride 1, one zero around the image; or 5, stride 1, up to four zeros; or 0 for any other. */
static inline int sl__winograd_taps(const struct sl__conv_args *a) {
  if (a->stride_h != 1 || a->stride_w != 1 || a->kernel_h != a->kernel_w) return 0;
  if (a->gap_h || a->gap_w) return 0;
  if (a->kernel_h == 3 && a->pad_h == 1 && a->pad_w == 1) return 3;
  /* the convolution that is another one's gradient may have a negative padding */
  bool is_padded = a->pad_h >= 0 && a->pad_h < 5 && a->pad_w >= 0 && a->pad_w < 5;
  return a->kernel_h == 5 && is_padded ? 5 : 0;
}

/* Returns true for such a convolution with enough channels that products dominate, few enough that
 * the weights stay in caches, and sizes at which tiles fill vectors. The number of images does not
 * matter, because an image's bits must not depend on it. */
bool sl__winograd_serves(const struct sl__conv_args *a);

/* Floats of scratch memory, and of transformed weights. */
int64_t sl__winograd_scratch(const struct sl__conv_args *a, bool is_transformed);
int64_t sl__winograd_weights(const struct sl__conv_args *a);

/* Transforms weight [K, C, R, R], R taps a side, of the channels [first, end), into at most
 * sl__winograd_weights floats: 36 or 16 matrices [end - first, C], padded apart, or where vectors
 * hold channels as winograd_channels.h says. */
void sl__winograd_transform(const struct sl__conv_args *a, const float *weight, int64_t first,
                            int64_t end, float *to);

/* Transforms 5x5 filters: 36 matrices, `pitch` floats apart, of a value a filter. */
void sl__winograd_transform_fives(const float *filters, int64_t count, int64_t pitch, float *to);

/* Returns a number that is another one where the transformed weights lie otherwise. */
int sl__winograd_layout(const struct sl__conv_args *a);

/* Some channels of the outputs of the images [first, last). */
struct sl__winograd_part {
  int64_t first, last;
  struct sl__work_range channels;
};

/* Divides planes of consecutive images with `channels` planes each, of which the first and the last
 * may be partial. Returns the number of parts. */
int sl__winograd_parts(int64_t channels, struct sl__work_range planes,
                       struct sl__winograd_part parts[3]);

/* As sl__direct_conv_units: planes, or whole rows of a single image. */
int64_t sl__winograd_units(const struct sl__conv_args *a, bool *planes, int most_lanes);

/* As sl__direct_conv_forward. is_transformed: weight is the output of sl__winograd_transform for
 * all channels. */
void sl__winograd_forward(const struct sl__conv_args *a, const float *x, const float *weight,
                          bool is_transformed, const float *bias,
                          const struct sl__conv_epilogue *epilogue, float *y, float *scratch,
                          struct sl__work_range range, int most_lanes);

#endif
