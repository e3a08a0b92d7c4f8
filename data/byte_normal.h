/* Bytes as normalised floats: (byte / 255 - mean) / deviation. By products that takes a fraction of
 * the time of divisions, and of a table of the 256 results, whose loads are no vector code.
 * starling-predict is built with these functions, too: they call nothing of the library. */
#ifndef SL_DATA_BYTE_NORMAL_H
#define SL_DATA_BYTE_NORMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/simd.h"

struct sl__byte_normal {
  float mean, deviation;
  float high, low; /* high + low: 1 / deviation, with twice a float's bits */
};

SL__INLINE struct sl__byte_normal sl__byte_normal(float mean, float deviation) {
  double inverse = 1 / (double)deviation;
  float high = (float)inverse;
  return (struct sl__byte_normal){mean, deviation, high, (float)(inverse - (double)high)};
}

SL__INLINE float sl__by_division(uint8_t byte, struct sl__byte_normal n) {
  return ((float)byte / 255.0f - n.mean) / n.deviation;
}

/* The rounded quotient, of two products, in a fifth of a division's time. */
SL__INLINE float sl__quotient(float x, float high, float low) {
  return __builtin_fmaf(x, high, x * low);
}

SL__INLINE float sl__by_product(uint32_t byte, struct sl__byte_normal n) {
  const float high = 1 / 255.0f, low = (float)(1 / 255.0 - (double)high);
  return sl__quotient(sl__quotient((float)(int32_t)byte, high, low) - n.mean, n.high, n.low);
}

/* Do products give the bits of the divisions for all bytes, and in vector code? Where a result is
 * subnormal, or a deviation is extreme, a quotient's last bit may differ. */
bool sl__products_are_exact(struct sl__byte_normal normal);

/* to[i] = sl__by_product(bytes[i]) */
void sl__bytes_multiply(const uint8_t *bytes, size_t count, struct sl__byte_normal normal,
                        float *to);

#endif
