/* Common arguments of the CPU and CUDA kernels of softmax and cross-entropy. */
#ifndef SL_CODELETS_SOFTMAX_XENT_H
#define SL_CODELETS_SOFTMAX_XENT_H

#include <stdint.h>

#include "core/base/random.h" /* SL__HOST_DEVICE */
#include "core/base/simd.h"

struct sl__xent_args {
  int64_t rows, classes;
  int64_t columns, from, steps; /* row n's label is in line n / steps, column from + n % steps */
  float scale;
};

SL__HOST_DEVICE SL__INLINE int32_t sl__xent_label(const struct sl__xent_args *a,
                                                  const int32_t *labels, int64_t n) {
  return labels[n / a->steps * a->columns + a->from + n % a->steps];
}

#endif
