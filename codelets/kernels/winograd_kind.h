/* The kinds of Winograd's transforms that the kernels have, by outputs and taps a side. */
#ifndef SL_CODELETS_KERNELS_WINOGRAD_KIND_H
#define SL_CODELETS_KERNELS_WINOGRAD_KIND_H

#include "core/base/simd.h"

enum kind { TWO_BY_THREE, FOUR_BY_THREE, TWO_BY_FIVE, KINDS };

/* Outputs a side of a tile, taps a side of a window, and values a side of a transformed window. */
SL__INLINE int side_of(const enum kind kind) { return kind == FOUR_BY_THREE ? 4 : 2; }
SL__INLINE int taps_of(const enum kind kind) { return kind == TWO_BY_FIVE ? 5 : 3; }
SL__INLINE int values_of(const enum kind kind) { return side_of(kind) + taps_of(kind) - 1; }
SL__INLINE int places_of(const enum kind kind) { return values_of(kind) * values_of(kind); }

#endif
