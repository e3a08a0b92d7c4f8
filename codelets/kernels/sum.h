/* A sum of neighbours in memory, in an order that does not depend on the width of vectors. */
#ifndef SL_CODELETS_KERNELS_SUM_H
#define SL_CODELETS_KERNELS_SUM_H

#include <stdint.h>

#include "core/base/simd.h"

enum { SL__SUM_PARTS = 16 }; /* partial sums */

SL__SIMD static float sl__sum_run(const float *x, int64_t n) {
  float part[SL__SUM_PARTS] = {0};
  int64_t i = 0;
  for (; i + SL__SUM_PARTS <= n; i += SL__SUM_PARTS)
    for (int k = 0; k < SL__SUM_PARTS; k++) part[k] += x[i + k];
  for (int k = 0; i + k < n; k++) part[k] += x[i + k];
  for (int half = SL__SUM_PARTS / 2; half; half /= 2)
    for (int k = 0; k < half; k++) part[k] += part[k + half];
  return part[0];
}

#endif
