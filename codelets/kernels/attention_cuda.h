/* What the CUDA kernels of attention share: where values lie, the rotation of queries and keys,
 * dropout. Included by attention_pairs_cuda.h and attention_tiles_cuda.h only. */
#ifndef SL_CODELETS_KERNELS_ATTENTION_CUDA_H
#define SL_CODELETS_KERNELS_ATTENTION_CUDA_H

#include "codelets/attention.h"
#include "codelets/dropout.h"
#include "codelets/kernels/cuda.h"

namespace sl::attention {

/* The arguments of all kernels of a task. cache [rows, context, 2, kv_heads, dims]: the state, or
 * scratch memory of the same layout. turned: scratch memory for turned queries and keys, of x's
 * type. */
struct job {
  sl__attention_args a;
  int64_t context;
  float *turns, *turned, *cache, *delta;
  bool add;
};

/* Values of time steps: those of step s and head h of the batch's row n lie at
 * at + n row + s step + h dims. */
template <class V>
struct rows {
  const V *at;
  int64_t row, step;
  bool aligned; /* eight values at a multiple of 16 bytes */

  __device__ const V *of(const job &w, int64_t n, int64_t s, int64_t head) const {
    return at + n * row + s * step + head * w.a.dims;
  }
};

/* What products read: turned queries, the slopes of y, turned keys and values. */
template <class T, class Key>
struct factors {
  rows<T> q, dy;
  rows<Key> kv[2];
};

__device__ inline int64_t group_of(const job &w) { return w.a.heads / w.a.kv_heads; }
__device__ inline int64_t keys_of(const job &w) { return w.a.o.position + w.a.steps; }

/* Row n's keys (which: 0) or values (1) of a step, from its head on. */
__device__ inline int64_t place_in_cache(const job &w, int64_t n, int64_t position, int which,
                                         int64_t kv) {
  return (n * w.context + position) * sl__attention_state(&w.a) +
         (which * w.a.kv_heads + kv) * w.a.dims;
}
__device__ inline int64_t place_in_x(const job &w, int64_t n, int64_t t, int64_t head) {
  return (n * w.a.steps + t) * sl__attention_in(&w.a) + head * w.a.dims;
}
__device__ inline int64_t place_in_y(const job &w, int64_t n, int64_t t, int64_t head) {
  return (n * w.a.steps + t) * sl__attention_out(&w.a) + head * w.a.dims;
}
__device__ inline int64_t place_in_lse(const job &w, int64_t n, int64_t t, int64_t head) {
  return (n * w.a.steps + t) * w.a.heads + head;
}

/* Eight values of a row that has `left` more; zeros behind them. */
template <class V>
__device__ void read_eight(const V *from, int left, bool aligned, float (&v)[8]) {
  if (aligned && left >= 8) {
    const auto eight = *reinterpret_cast<const pack<V, 8> *>(from);
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = value(eight.v[i]);
  } else {
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = i < left ? value(from[i]) : 0;
  }
}

/* Value d of a head of time step t, turned; direction -1: back. */
template <class T>
__device__ float turned(const job &w, int64_t t, const T *x, int64_t d, float direction) {
  int64_t half = w.a.o.rope_dims / 2;
  if (d >= 2 * half) return sl::value(x[d]);
  const float *turns = w.turns + t * 2 * half;
  int64_t i = d < half ? d : d - half;
  float c = turns[i], s = direction * turns[half + i];
  float first = sl::value(x[i]), second = sl::value(x[half + i]);
  return d < half ? first * c - second * s : second * c + first * s;
}

__device__ inline float factor(const job &w, int64_t n, int64_t head, int64_t query, int64_t key) {
  const sl__dropout &d = w.a.o.dropout;
  if (!(d.rate > 0)) return 1;
  return sl__dropout_factor(d.rate, d.seed, d.stream,
                            sl__attention_draw(&w.a, n, head, query) + static_cast<uint64_t>(key));
}

template <class T>
__device__ void write(const job &w, T *dx, float value) {
  *dx = sl::narrow<T>(w.add ? sl::value(*dx) + value : value);
}

}  // namespace sl::attention

#endif
