/* Class labels from targets that are floats: what CPU and CUDA have in common. */
#ifndef SL_CODELETS_LABELS_H
#define SL_CODELETS_LABELS_H

#include <stdint.h>

#include "core/base/random.h" /* SL__HOST_DEVICE */
#include "core/base/simd.h"

#include <starling/data.h>

struct sl__labels_args {
  int64_t rows, size;    /* labels */
  int64_t stride, first; /* label i of row n is target n stride + first + i */
};

/* A label of no classes: the loss counts it as one outside. */
#define SL__LABEL_OUTSIDE (-2)

SL__HOST_DEVICE SL__INLINE int32_t sl__label_of(float target) {
  if (target != target) return SL_IGNORE;
  if (!(target >= 0 && target < (float)SL_MAX_CLASSES)) return SL__LABEL_OUTSIDE;
  int32_t label = (int32_t)target;
  return (float)label == target ? label : SL__LABEL_OUTSIDE;
}

#endif
