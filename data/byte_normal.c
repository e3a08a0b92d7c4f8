#include "data/byte_normal.h"

#include <string.h>

/* Without the instruction a fused product is a call of a function. */
static bool has_fused_products(void) {
#if defined(__aarch64__) || defined(__FMA__)
  return true;
#elif SL__SIMD_CLONES
  return __builtin_cpu_supports("x86-64-v3");
#else
  return false;
#endif
}

/* The bits, not the values: a zero keeps its sign. */
static SL__SIMD bool are_exact(struct sl__byte_normal n) {
  float product[256], division[256];
  for (uint32_t byte = 0; byte < 256; byte++) {
    product[byte] = sl__by_product(byte, n);
    division[byte] = sl__by_division((uint8_t)byte, n);
  }
  return memcmp(product, division, sizeof product) == 0;
}

bool sl__products_are_exact(struct sl__byte_normal normal) {
  return has_fused_products() && are_exact(normal);
}

static SL__SIMD void multiply(const uint8_t *restrict bytes, size_t count, struct sl__byte_normal n,
                              float *restrict to) {
  for (size_t i = 0; i < count; i++) to[i] = sl__by_product(bytes[i], n);
}

void sl__bytes_multiply(const uint8_t *bytes, size_t count, struct sl__byte_normal normal,
                        float *to) {
  multiply(bytes, count, normal, to);
}
