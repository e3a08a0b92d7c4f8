/* Copies between views of two tensors: slices, concatenations, permutations of axes, broadcasts. */
#ifndef SL_CODELETS_STRIDED_COPY_H
#define SL_CODELETS_STRIDED_COPY_H

#include <starling/base.h>

#include "core/base/simd.h"

/* A view of both tensors: their elements first + sum of i[d] stride[d], 0 <= i[d] < dim[d]. Axes of
 * size 1 are left out, and neighbours are one axis where both sides allow it. */
struct sl__strided {
  int32_t ndim;
  int32_t clears; /* y is 0 outside the view */
  float factor;   /* y (+)= factor x */
  int64_t dim[SL_MAX_DIMS], x_stride[SL_MAX_DIMS], y_stride[SL_MAX_DIMS];
  int64_t x_first, y_first;
  int64_t y_count; /* elements of y */
};

/* Arguments of concatenate: x i is the i-th range along an axis. The size of each x along the axis
 * follows the struct. */
struct sl__concatenate_args {
  int64_t outer, inner; /* products of the dimensions before and after the axis */
  int64_t whole;        /* y's size along the axis */
};
SL__INLINE const int64_t *sl__concatenate_sizes(const struct sl__concatenate_args *a) {
  return (const int64_t *)(a + 1);
}

#endif
