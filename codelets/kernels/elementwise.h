/* For operations on tensors of equal size: the size check, and a sum in a fixed order. */
#ifndef SL_CODELETS_KERNELS_ELEMENTWISE_H
#define SL_CODELETS_KERNELS_ELEMENTWISE_H

#include <stdint.h>

#include "core/base/simd.h"

/* Arguments of axpy (alpha) and fill (the value). */
struct sl__scalar_args {
  int64_t count;
  float scalar;
};

#ifndef __cplusplus /* the CUDA files need neither the checks nor the submission */
#include "codelets/codelets.h"
#include "core/base/error.h"

/* Returns the common number of elements in *count, or SL_BAD_SHAPE. */
static inline enum sl_status sl__same_count(const char *name, int count,
                                            struct sl__tensor *const *tensors, int64_t *elements) {
  *elements = sl_shape_count(&tensors[0]->shape);
  for (int i = 1; i < count; i++)
    if (sl_shape_count(&tensors[i]->shape) != *elements)
      return sl__fail(SL_BAD_SHAPE,
                      "%s: its tensors have %lld and %lld elements; they must be alike", name,
                      (long long)*elements, (long long)sl_shape_count(&tensors[i]->shape));
  return SL_OK;
}

/* Size of the on-stack array of handles for a task with a variable number of buffers. */
#define SL__STACK_BUFFERS 16

/* Floats of a block that stays in a core's cache while several tensors are added to it. */
enum { SL__CACHED = 2048 };

#endif
#endif
