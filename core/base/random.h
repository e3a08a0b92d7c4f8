/* Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011). A number depends on (seed, stream, index) only, so CPU
 * and GPU, any order and any split of the work give the same numbers. */
#ifndef SL_CORE_BASE_RANDOM_H
#define SL_CORE_BASE_RANDOM_H

#include <stdint.h>

#ifdef __CUDACC__
#define SL__HOST_DEVICE __host__ __device__
#else
#define SL__HOST_DEVICE
#endif

struct sl__random4 {
  uint32_t v[4];
};

/* Ten rounds with key (seed) on counter (stream, index). */
SL__HOST_DEVICE static inline struct sl__random4 sl__philox(uint64_t seed, uint64_t stream,
                                                            uint64_t index) {
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
  uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  struct sl__random4 r = {{c0, c1, c2, c3}};
  return r;
}

/* Uniform in [0, 1) with 24 bits. */
SL__HOST_DEVICE static inline float sl__unit(uint32_t bits) {
  return (float)(bits >> 8) * (1.0f / 16777216.0f);
}

/* The index-th uniform number of a stream. */
SL__HOST_DEVICE static inline float sl__uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  return sl__unit(sl__philox(seed, stream, index >> 2).v[index & 3]);
}

#ifndef __CUDACC__
/* The index-th standard normal number of a stream (Box and Muller, 1958). */
double sl__normal(uint64_t seed, uint64_t stream, uint64_t index);

/* order[0..n-1] becomes a permutation of 0..n-1 (Fisher and Yates). */
void sl__permutation(uint64_t seed, uint64_t stream, uint32_t *order, uint32_t n);
#endif

/* The use of a stream: the high half of its number, so that no two uses share numbers. */
enum sl__random_stream {
  SL__STREAM_INIT = 1,
  SL__STREAM_DROPOUT,
  SL__STREAM_SHUFFLE,
  SL__STREAM_AUGMENT,
  SL__STREAM_DATA,
  SL__STREAM_SAMPLE
};

SL__HOST_DEVICE static inline uint64_t sl__stream(enum sl__random_stream use, uint64_t number) {
  return ((uint64_t)use << 56) ^ number;
}

#endif
