/* FNV-1a (Fowler, Noll, Vo): hashes for tables, and names as numbers. */
#ifndef SL_CORE_BASE_HASH_H
#define SL_CORE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define SL__FNV1A_BEGIN UINT64_C(0xcbf29ce484222325)

/* One byte, or a whole number as if it were one. */
static inline uint64_t sl__fnv1a_step(uint64_t hash, uint64_t value) {
  return (hash ^ value) * UINT64_C(0x100000001b3);
}

static inline uint64_t sl__fnv1a(const void *data, size_t bytes) {
  const uint8_t *byte = (const uint8_t *)data;
  uint64_t hash = SL__FNV1A_BEGIN;
  for (size_t i = 0; i < bytes; i++) hash = sl__fnv1a_step(hash, byte[i]);
  return hash;
}

/* A layer's random numbers belong to its name, not to its place in the model. Folded to 56 bits:
 * sl__stream needs the others for the use. */
static inline uint64_t sl__hash_name(const char *name) {
  uint64_t hash = SL__FNV1A_BEGIN;
  for (; *name; name++) hash = sl__fnv1a_step(hash, (uint8_t)*name);
  return (hash ^ hash >> 56) & (((uint64_t)1 << 56) - 1);
}

#endif
