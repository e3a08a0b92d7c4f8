/* A product of tensors that broadcast, and its sums over axes: arguments. */
#ifndef SL_CODELETS_MULTIPLY_BROADCAST_H
#define SL_CODELETS_MULTIPLY_BROADCAST_H

#include <starling/base.h>

#include "core/base/simd.h"

/* The axes that y or a factor has, in order; neighbours that the same tensors have are one axis.
 * Behind the struct: the axes, as bits, that y does not have, then those of each factor. */
struct sl__multiply_broadcast_args {
  int64_t ndim;
  int64_t dim[SL_MAX_DIMS];
};
SL__INLINE const uint32_t *sl__broadcast_lacks(const struct sl__multiply_broadcast_args *a) {
  return (const uint32_t *)(a + 1);
}

/* The strides of tensor t along the axes; 0 where it has none. */
SL__INLINE void sl__broadcast_strides(const struct sl__multiply_broadcast_args *a, int t,
                                      int64_t stride[SL_MAX_DIMS]) {
  int64_t values = 1;
  for (int64_t d = a->ndim - 1; d >= 0; d--) {
    bool lacks = sl__broadcast_lacks(a)[t] >> d & 1;
    stride[d] = lacks ? 0 : values;
    if (!lacks) values *= a->dim[d];
  }
}

#endif
