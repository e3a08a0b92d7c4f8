#include "data/element.h"

#include <string.h>

#include "core/base/half.h"

bool sl__element_exists(const struct sl__element *e) {
  if (e->size != 1 && e->size != 2 && e->size != 4 && e->size != 8) return false;
  switch (e->kind) {
    case 'f': return e->size > 1;
    case 'i':
    case 'u': return true;
    default: return e->kind == 'b' && e->size == 1;
  }
}

static uint64_t bits_of(const struct sl__element *e, const uint8_t *from) {
  uint64_t bits = 0;
  for (int k = 0; k < e->size; k++) bits = bits << 8 | from[e->big_endian ? k : e->size - 1 - k];
  return bits;
}

/* The lowest 8 size bits with their sign. */
static int64_t extend_sign(uint64_t bits, int size) {
  int unused = 64 - 8 * size;
  return (int64_t)(bits << unused) >> unused;
}

static float float_of(const struct sl__element *e, const uint8_t *from) {
  uint64_t bits = bits_of(e, from);
  double wide;
  if (e->kind == 'i') return (float)extend_sign(bits, e->size);
  if (e->kind == 'u') return (float)bits;
  if (e->kind == 'b') return bits ? 1.0f : 0.0f;
  if (e->size == 2) return sl__fp16_value((uint16_t)bits);
  if (e->size == 4) return sl__bits_float((uint32_t)bits);
  memcpy(&wide, &bits, sizeof wide);
  return (float)wide;
}

bool sl__element_is_float(const struct sl__element *e) {
  static const uint16_t one = 1;
  bool big_machine = *(const uint8_t *)&one == 0;
  return e->kind == 'f' && e->size == 4 && e->big_endian == big_machine;
}

void sl__elements_to_floats(const struct sl__element *e, const uint8_t *from, size_t count,
                            float *to) {
  if (sl__element_is_float(e))
    memcpy(to, from, count * sizeof *to);
  else if (e->kind == 'u' && e->size == 1)
    for (size_t i = 0; i < count; i++) to[i] = (float)from[i];
  else
    for (size_t i = 0; i < count; i++) to[i] = float_of(e, from + i * (size_t)e->size);
}

int64_t sl__element_whole(const struct sl__element *e, const uint8_t *from) {
  uint64_t bits = bits_of(e, from);
  if (e->kind == 'i') return extend_sign(bits, e->size);
  if (e->kind == 'b') return bits != 0;
  return bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
}
