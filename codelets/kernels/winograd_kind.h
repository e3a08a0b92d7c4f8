/* The kinds of Winograd's transforms that the kernels have, by outputs and taps a side. */
#ifndef SL_CODELETS_KERNELS_WINOGRAD_KIND_H
#define SL_CODELETS_KERNELS_WINOGRAD_KIND_H

#include <stdbool.h>
#include <stdint.h>

#include "codelets/kernels/conv.h"

enum kind { TWO_BY_THREE, FOUR_BY_THREE, TWO_BY_FIVE, KINDS };

/* Outputs a side of a tile, taps a side of a window, and values a side of a transformed window. */
SL__INLINE int side_of(const enum kind kind) { return kind == FOUR_BY_THREE ? 4 : 2; }
SL__INLINE int taps_of(const enum kind kind) { return kind == TWO_BY_FIVE ? 5 : 3; }
SL__INLINE int values_of(const enum kind kind) { return side_of(kind) + taps_of(kind) - 1; }
SL__INLINE int places_of(const enum kind kind) { return values_of(kind) * values_of(kind); }

/* The number of an image's tiles. */
static inline int64_t tiles_of(const struct sl__conv_args *a, enum kind kind) {
  int side = side_of(kind);
  return (int64_t)sl__ceil_div(a->out_height, side) * sl__ceil_div(a->out_width, side);
}

/* The transforms that need fewer products, if tiles count in whole groups of `group` tiles: those
 * of 4x4 outputs need 36 for 144, those of 2x2 16 for 36; both count beyond the image. */
static inline enum kind kind_of(const struct sl__conv_args *a, int64_t group) {
  if (a->kernel_h == 5) return TWO_BY_FIVE;
  int64_t fours = (tiles_of(a, FOUR_BY_THREE) + group - 1) / group;
  int64_t twos = (tiles_of(a, TWO_BY_THREE) + group - 1) / group;
  return 36 * fours < 16 * twos ? FOUR_BY_THREE : TWO_BY_THREE;
}

/* The same of a kernel that reads the transformed weights from a core's caches: the larger weights
 * of the larger tiles must stay there. */
static inline enum kind cached_kind_of(const struct sl__conv_args *a, int64_t group) {
  const int64_t most_weights = 1 << 13;
  enum kind kind = kind_of(a, group);
  bool few = (int64_t)a->channels * a->out_channels <= most_weights;
  return few || kind != FOUR_BY_THREE ? kind : TWO_BY_THREE;
}

#endif
