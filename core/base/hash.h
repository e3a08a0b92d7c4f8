/* Names as numbers: a layer's random numbers belong to its name, not to its place in the model. */
#ifndef SL_CORE_BASE_HASH_H
#define SL_CORE_BASE_HASH_H

#include <stdint.h>

/* 56 bits: what sl__stream leaves free above the use. FNV-1a (Fowler, Noll, Vo), folded. */
static inline uint64_t sl__hash_name(const char *name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *name; name++) hash = (hash ^ (uint8_t)*name) * 0x100000001b3u;
  return (hash ^ hash >> 56) & (((uint64_t)1 << 56) - 1);
}

#endif
