/* Copies of a few floats, for which a call of memcpy would cost more than the copy. */
#ifndef SL_CODELETS_KERNELS_COPY_H
#define SL_CODELETS_KERNELS_COPY_H

#include <stdint.h>
#include <string.h>

#include "core/base/simd.h"

/* Copies in whole vectors; the last vector may overlap the one before. */
SL__INLINE void sl__copy_row(float *restrict to, const float *restrict from, int32_t count) {
  int32_t i = 0;
  for (; i + 16 <= count; i += 16) memcpy(to + i, from + i, 16 * sizeof *to);
  if (count < 16 && i + 8 <= count) {
    memcpy(to, from, 8 * sizeof *to);
    i = 8;
  }
  if (i == count) return;
  if (count >= 16) {
    memcpy(to + count - 16, from + count - 16, 16 * sizeof *to);
  } else if (count >= 4) {
    for (; i + 4 <= count; i += 4) memcpy(to + i, from + i, 4 * sizeof *to);
    memcpy(to + count - 4, from + count - 4, 4 * sizeof *to);
  } else {
    for (; i < count; i++) to[i] = from[i];
  }
}

#endif
