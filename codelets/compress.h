/* Gradient compression: what CPU and CUDA compute per value. No branches, so that it vectorises. */
#ifndef SL_CODELETS_COMPRESS_H
#define SL_CODELETS_COMPRESS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/base/half.h"

/* Arguments of the operations in compress.c. */
struct sl__compress_args {
  int64_t count;
  int32_t method; /* enum sl__compression */
  float threshold;
};

/* All bits or none: a selection without a branch. */
SL__HOST_DEVICE SL__INLINE uint32_t sl__mask(bool choice) { return 0u - (uint32_t)choice; }

/* ---- two bits: 11 is +t, 10 is -t, 00 is 0; 01 says that the value was not finite ---- */

#define SL__2BIT_VALUES 16 /* in a word */

/* The lower bit of value k's two bits: MXNet puts the first of four values into a byte's highest
 * bits, the first byte first. */
#define SL__2BIT_LOW(k) (1u << 2 * ((k) ^ 3))

/* The code of r in its place in the word; low: the lower bit of that place. */
SL__HOST_DEVICE SL__INLINE uint32_t sl__2bit_code(float r, float t, uint32_t low) {
  float size = fabsf(r);
  uint32_t finite = sl__mask(size < INFINITY), sent = sl__mask(size >= t) & finite;
  return (sent & 2 * low) | (((sent & sl__mask(r > 0)) | ~finite) & low);
}

SL__HOST_DEVICE SL__INLINE float sl__2bit_value(uint32_t word, float t, uint32_t low) {
  uint32_t sent = sl__mask((word & 2 * low) != 0), up = sl__mask((word & low) != 0);
  uint32_t value = sl__float_bits(t) | (~up & 0x80000000u);
  return sl__bits_float((sent & value) | (~sent & up & sl__float_bits(NAN)));
}

/* The rest of r after its code's value is sent. If r is not finite it stays as it is, and the next
 * step sends NaN again. */
SL__HOST_DEVICE SL__INLINE float sl__2bit_rest(float r, float t) {
  float size = fabsf(r);
  uint32_t sign = sl__float_bits(r) & 0x80000000u;
  uint32_t sent = sl__mask(size >= t) & (sl__float_bits(t) | sign);
  return r - sl__bits_float(sent);
}

/* ---- one bit: 1 is the mean of the values >= 0, 0 the mean of those below ---- */

#define SL__1BIT_VALUES 32 /* in a word */
#define SL__1BIT_FRONT 2   /* words before the bits: the means, upper then lower, as floats */

struct sl__1bit_means {
  float upper, lower;
};

/* The bit of value k: a byte's highest bit first, as above. */
#define SL__1BIT_PLACE(k) (1u << ((k) ^ 7))

/* up: all bits for the upper mean, none for the lower one. */
SL__HOST_DEVICE SL__INLINE float sl__1bit_value(uint32_t up, struct sl__1bit_means m) {
  return sl__bits_float((up & sl__float_bits(m.upper)) | (~up & sl__float_bits(m.lower)));
}

/* From the sums of the values >= 0 and of all others, the latter with every NaN. Doubles hold any
 * sum of floats, so a sum that is not finite had a value that was not: then the whole shard is NaN.
 */
SL__HOST_DEVICE SL__INLINE struct sl__1bit_means sl__1bit_means(double above, double below,
                                                                int64_t count_above,
                                                                int64_t count) {
  int64_t count_below = count - count_above;
  struct sl__1bit_means m = {
      .upper = count_above ? (float)(above / (double)count_above) : 0.0f,
      .lower = count_below ? (float)(below / (double)count_below) : 0.0f,
  };
  if (!(fabs(above) + fabs(below) < (double)INFINITY)) m.upper = m.lower = NAN;
  return m;
}

#endif
