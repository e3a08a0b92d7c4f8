/* Dropout's arithmetic per element: whether an element is kept depends on (seed, stream, index)
 * only. */
#ifndef SL_CODELETS_DROPOUT_H
#define SL_CODELETS_DROPOUT_H

#include "codelets/codelets.h"
#include "core/base/random.h"
#include "core/base/simd.h"

/* 1 / (1 - rate) where element `index` is kept, else 0. */
SL__HOST_DEVICE SL__INLINE float sl__dropout_factor(float rate, uint64_t seed, uint64_t stream,
                                                    uint64_t index) {
  return sl__uniform(seed, stream, index) < rate ? 0.0f : 1.0f / (1.0f - rate);
}

/* x kept or dropped by an element's bits; kept: 1 / (1 - rate). */
SL__HOST_DEVICE SL__INLINE float sl__dropout_value(uint32_t bits, float rate, float kept, float x) {
  return sl__unit(bits) < rate ? 0.0f : x * kept;
}

/* Arguments of dropout.c's operations. */
struct sl__dropout_args {
  int64_t count;
  struct sl__dropout d;
};

#endif
