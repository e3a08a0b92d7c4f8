/* Floats of 16 bits, IEEE binary16 and bfloat16, both rounded to nearest, ties to even; for CPU and
 * CUDA. No branches, so that it vectorises. */
#ifndef SL_CORE_BASE_HALF_H
#define SL_CORE_BASE_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/base/random.h" /* SL__HOST_DEVICE */
#include "core/base/simd.h"

SL__HOST_DEVICE SL__INLINE uint32_t sl__float_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

SL__HOST_DEVICE SL__INLINE float sl__bits_float(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

SL__HOST_DEVICE SL__INLINE uint16_t sl__fp16_code(float x) {
  uint32_t bits = sl__float_bits(x), size = bits & 0x7fffffffu;
  /* exponents' biases are 127 and 15; of 13 lost bits the half goes up, less one where even */
  uint32_t normal = (size - (112u << 23) + 0xfffu + (size >> 13 & 1)) >> 13;
  /* below 2^-14 in steps of 2^-24, which is what the addition of 1/2 rounds to */
  uint32_t small = sl__float_bits(sl__bits_float(size) + 0.5f) - sl__float_bits(0.5f);
  uint32_t large = size > 0x7f800000u ? 0x7e00u : 0x7c00u; /* NaN or, from 2^16 on, infinity */
  uint32_t code = size < 0x38800000u ? small : normal;
  code = size >= 0x47800000u ? large : code;
  return (uint16_t)(code | (bits >> 16 & 0x8000u));
}

SL__HOST_DEVICE SL__INLINE float sl__fp16_value(uint16_t code) {
  uint32_t size = code & 0x7fffu;
  uint32_t normal = (size << 13) + (112u << 23);
  uint32_t large = size << 13 | 0x7f800000u;
  uint32_t small = sl__float_bits((float)(int32_t)size * 0x1p-24f);
  uint32_t bits = size < 0x400u ? small : normal;
  bits = size >= 0x7c00u ? large : bits;
  return sl__bits_float(bits | (uint32_t)(code & 0x8000u) << 16);
}

SL__HOST_DEVICE SL__INLINE uint16_t sl__bf16_code(float x) {
  uint32_t bits = sl__float_bits(x);
  uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  uint32_t quiet = bits >> 16 | 0x40u; /* a NaN whose upper bits are all 0 would become infinity */
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

SL__HOST_DEVICE SL__INLINE float sl__bf16_value(uint16_t code) {
  return sl__bits_float((uint32_t)code << 16);
}

#endif
