/* The shapes that convolution and pooling take: planes, or rows as planes of one row. */
#ifndef SL_CODELETS_KERNELS_PLANES_H
#define SL_CODELETS_KERNELS_PLANES_H

#include <stdbool.h>

#include <starling/base.h>

/* Dimensions [N, C, H, W] of a tensor, or [N, C, 1, L] of one with shape [N, C, L]. Returns false
 * for any other. */
static inline bool sl__planes_of(const struct sl_shape *shape, int64_t dim[4]) {
  bool is_row = shape->ndim == 3;
  dim[0] = shape->dim[0];
  dim[1] = shape->dim[1];
  dim[2] = is_row ? 1 : shape->dim[2];
  dim[3] = is_row ? shape->dim[2] : shape->dim[3];
  return is_row || shape->ndim == 4;
}

#endif
