/* Dropout's arithmetic per element: which are kept depends on (seed, stream, index) only. */
#ifndef SL_CODELETS_DROPOUT_H
#define SL_CODELETS_DROPOUT_H

#include "core/random.h"
#include "core/simd.h"

/* 1 / (1 - rate) where element `index` is kept, else 0. */
SL_HOST_DEVICE SL_INLINE float sl__dropout_factor(float rate, uint64_t seed, uint64_t stream,
                                                  uint64_t index) {
  return sl__uniform(seed, stream, index) < rate ? 0.0f : 1.0f / (1.0f - rate);
}

#endif
