/* The random numbers of a generated sample, one after another. They come from Philox by (seed, kind
 * of data, set, sample): sample i does not depend on other samples. */
#ifndef SL_DATA_SOURCE_H
#define SL_DATA_SOURCE_H

#include <stdbool.h>

#include "core/base/random.h"

enum sl__source_kind {
  SL__SOURCE_DIGITS,
  SL__SOURCE_GRAMMAR,
  SL__SOURCE_SHAPES,
  SL__SOURCE_FRIEDMAN,
  SL__SOURCE_SPLIT
};

struct sl__source {
  uint64_t seed, stream, next;
};

static inline struct sl__source sl__source(enum sl__source_kind kind, uint64_t seed, bool train,
                                           int64_t i) {
  uint64_t set = 2 * (uint64_t)kind + (uint64_t)train;
  return (struct sl__source){seed, sl__stream(SL__STREAM_DATA, set << 48 | (uint64_t)i), 0};
}

static inline float sl__between(struct sl__source *random, float low, float high) {
  return low + (high - low) * sl__uniform(random->seed, random->stream, random->next++);
}

static inline float sl__clamp(float value, float low, float high) {
  return value < low ? low : value > high ? high : value;
}

/* Nearly normal, with mean 0: the sum of a random number's four bytes. */
#define SL__BELL_DEVIATION 148.0f
static inline int sl__bell(uint32_t bits) {
  return (int)((bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) + (bits >> 24)) - 510;
}

#endif
