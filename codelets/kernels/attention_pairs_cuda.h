/* Causal attention in tiles of TILE queries by TILE keys, a thread a pair of a tile: for heads of
 * any size on GPUs of any architecture. A block has a tile of queries and goes over the keys,
 * forward and for the queries' gradient; for the gradient of keys and values it has a tile of keys
 * and goes over the queries. So each sum has one owner: no atomics. Included by attention_cuda.cu
 * only. */
#ifndef SL_CODELETS_KERNELS_ATTENTION_PAIRS_CUDA_H
#define SL_CODELETS_KERNELS_ATTENTION_PAIRS_CUDA_H

#include "codelets/activation.h"
#include "codelets/kernels/attention_cuda.h"

namespace sl::attention::pairs {

constexpr int TILE = 8;

/* ---- tiles --------------------------------------------------------------------------------- */

/* The block's part of the work, and the thread's row and column in a tile. */
struct place {
  int64_t n, head, first; /* head of queries, or of keys; first row of the tile */
  int r, lane;

  __device__ place(int64_t heads, int64_t tiles) {
    int64_t block = blockIdx.x;
    first = block % tiles * TILE;
    head = block / tiles % heads;
    n = block / tiles / heads;
    r = static_cast<int>(threadIdx.x) / TILE;
    lane = static_cast<int>(threadIdx.x) % TILE;
  }
};

/* A tile of keys or values of shared memory, rows dims + 1 apart; zeros beyond the last key. */
__device__ inline void load_keys(const job &w, const place &b, int64_t kv, int64_t first, int which,
                                 float *to) {
  int64_t key = first + b.r;
  const float *from = w.cache + place_in_cache(w, b.n, key, which, kv);
  for (int d = b.lane; d < w.a.dims; d += TILE)
    to[b.r * (w.a.dims + 1) + d] = key < keys_of(w) ? from[d] : 0;
}

/* Row r of a tile: the query of a head at time step t, turned and scaled; zeros beyond the steps.
 */
template <class T>
__device__ void load_query(const job &w, const place &b, int64_t t, int64_t head, const T *x,
                           float *to) {
  for (int d = b.lane; d < w.a.dims; d += TILE)
    to[b.r * (w.a.dims + 1) + d] =
        t >= 0 && t < w.a.steps ? turned(w, t, x + place_in_x(w, b.n, t, head), d, 1) * w.a.scale
                                : 0;
}
template <class T>
__device__ void load_slope(const job &w, const place &b, int64_t t, int64_t head, const T *dy,
                           float *to) {
  for (int d = b.lane; d < w.a.dims; d += TILE)
    to[b.r * (w.a.dims + 1) + d] =
        t >= 0 && t < w.a.steps ? value(dy[place_in_y(w, b.n, t, head) + d]) : 0;
}

__device__ inline float dot(const job &w, const float *a, const float *b) {
  float sum = 0;
  for (int d = 0; d < w.a.dims; d++) sum += a[d] * b[d];
  return sum;
}

/* ---- forward ------------------------------------------------------------------------------- */

template <class T>
__global__ void __launch_bounds__(TILE *TILE, 16)
    forward(job w, int64_t tiles, const T *x, T *y, float *lse) {
  SL__SHARED(float, memory);
  const place b(w.a.heads, tiles);
  int dims = w.a.dims, pitch = dims + 1;
  float *q = memory, *kv = q + TILE * pitch, *p = kv + TILE * pitch + b.r * (TILE + 1);
  int64_t t = b.first + b.r, query = w.a.o.position + t, group = b.head / group_of(w);
  int64_t last = w.a.o.position + (b.first + TILE < w.a.steps ? b.first + TILE : w.a.steps) - 1;
  float o[SL__ATTENTION_MOST_DIMS / TILE] = {0}, most = -INFINITY, sum = 0;
  load_query(w, b, t, b.head, x, q);
  for (int64_t first = 0; first <= last; first += TILE) {
    int64_t key = first + b.lane;
    bool reads = key <= query && key < keys_of(w);
    __syncthreads();
    load_keys(w, b, group, first, 0, kv);
    __syncthreads();
    float s = reads ? dot(w, q + b.r * pitch, kv + b.lane * pitch) : -INFINITY;
    p[b.lane] = s;
    __syncthreads();
    float top = most, total = 0;
    for (int k = 0; k < TILE; k++) top = p[k] > top ? p[k] : top;
    float e = reads ? sl__exp(s - top) : 0, rest = sl__exp(most - top);
    __syncthreads();
    p[b.lane] = e;
    load_keys(w, b, group, first, 1, kv);
    __syncthreads();
    for (int k = 0; k < TILE; k++) total += p[k];
    if (w.a.o.dropout.rate > 0) {
      __syncthreads();
      p[b.lane] = e * factor(w, b.n, b.head, query, key);
      __syncthreads();
    }
    for (int d = b.lane, i = 0; d < dims; d += TILE, i++) {
      o[i] *= rest;
      for (int k = 0; k < TILE; k++) o[i] += p[k] * kv[k * pitch + d];
    }
    sum = sum * rest + total;
    most = top;
  }
  if (t >= w.a.steps) return;
  for (int d = b.lane, i = 0; d < dims; d += TILE, i++)
    y[place_in_y(w, b.n, t, b.head) + d] = narrow<T>(o[i] / sum);
  if (!b.lane) lse[place_in_lse(w, b.n, t, b.head)] = most + logf(sum);
}

/* ---- backward ------------------------------------------------------------------------------ */

template <class T>
__global__ void __launch_bounds__(TILE *TILE, 16)
    backward_queries(job w, int64_t tiles, const T *x, const float *lse, const T *dy, T *dx) {
  SL__SHARED(float, memory);
  const place b(w.a.heads, tiles);
  int dims = w.a.dims, pitch = dims + 1;
  float *q = memory, *o = q + TILE * pitch, *kv = o + TILE * pitch,
        *ds = kv + TILE * pitch + b.r * (TILE + 1);
  int64_t t = b.first + b.r, query = w.a.o.position + t, group = b.head / group_of(w);
  int64_t last = w.a.o.position + (b.first + TILE < w.a.steps ? b.first + TILE : w.a.steps) - 1;
  bool is_query = t < w.a.steps;
  int64_t at = place_in_lse(w, b.n, is_query ? t : 0, b.head);
  float dq[SL__ATTENTION_MOST_DIMS / TILE] = {0};
  load_query(w, b, t, b.head, x, q);
  load_slope(w, b, t, b.head, dy, o);
  for (int64_t first = 0; first <= last; first += TILE) {
    int64_t key = first + b.lane;
    bool reads = is_query && key <= query;
    __syncthreads();
    load_keys(w, b, group, first, 1, kv);
    __syncthreads();
    float dp = dot(w, o + b.r * pitch, kv + b.lane * pitch);
    __syncthreads();
    load_keys(w, b, group, first, 0, kv);
    __syncthreads();
    float p = reads ? sl__exp(dot(w, q + b.r * pitch, kv + b.lane * pitch) - lse[at]) : 0;
    ds[b.lane] = reads ? p * (factor(w, b.n, b.head, query, key) * dp - w.delta[at]) : 0;
    __syncthreads();
    for (int d = b.lane, i = 0; d < dims; d += TILE, i++)
      for (int k = 0; k < TILE; k++) dq[i] += ds[k] * kv[k * pitch + d];
  }
  for (int d = b.lane, i = 0; d < dims; d += TILE, i++) q[b.r * pitch + d] = dq[i] * w.a.scale;
  __syncthreads();
  for (int d = b.lane; is_query && d < dims; d += TILE)
    write(w, dx + place_in_x(w, b.n, t, b.head) + d, turned(w, t, q + b.r * pitch, d, -1));
}

/* A query's row m is of time step m / group and head m % group of the group; the last one comes
 * first, as with chunks. */
template <class T>
__global__ void __launch_bounds__(TILE *TILE, 16)
    backward_keys(job w, int64_t tiles, const T *x, const float *lse, const T *dy, T *dx,
                  float *dstate) {
  SL__SHARED(float, memory);
  const place b(w.a.kv_heads, tiles);
  int dims = w.a.dims, pitch = dims + 1;
  float *k = memory, *v = k + TILE * pitch, *q = v + TILE * pitch, *o = q + TILE * pitch,
        *p = o + TILE * pitch, *ds = p + TILE * (TILE + 1);
  int64_t group = group_of(w), mine = b.first + b.r, t = mine - w.a.o.position;
  int64_t from = b.first > w.a.o.position ? (b.first - w.a.o.position) * group : 0;
  float dk[SL__ATTENTION_MOST_DIMS / TILE] = {0}, dv[SL__ATTENTION_MOST_DIMS / TILE] = {0};
  load_keys(w, b, b.head, b.first, 0, k);
  load_keys(w, b, b.head, b.first, 1, v);
  for (int d = b.lane, i = 0; dstate && mine < keys_of(w) && d < dims; d += TILE, i++) {
    dk[i] = dstate[place_in_cache(w, b.n, mine, 0, b.head) + d];
    dv[i] = dstate[place_in_cache(w, b.n, mine, 1, b.head) + d];
  }
  for (int64_t end = w.a.steps * group; end > from; end -= TILE) {
    int64_t m = end - TILE + b.r, step = m < from ? -1 : m / group;
    int64_t head = b.head * group + (m < from ? 0 : m % group), query = w.a.o.position + step;
    int64_t key = b.first + b.lane, at = place_in_lse(w, b.n, step < 0 ? 0 : step, head);
    bool reads = step >= 0 && key <= query;
    __syncthreads();
    load_query(w, b, step, head, x, q);
    load_slope(w, b, step, head, dy, o);
    __syncthreads();
    float e = reads ? sl__exp(dot(w, q + b.r * pitch, k + b.lane * pitch) - lse[at]) : 0;
    float f = reads ? factor(w, b.n, head, query, key) : 0;
    float dp = dot(w, o + b.r * pitch, v + b.lane * pitch);
    p[b.r * (TILE + 1) + b.lane] = e * f;
    ds[b.r * (TILE + 1) + b.lane] = reads ? e * (f * dp - w.delta[at]) : 0;
    __syncthreads();
    for (int d = b.lane, i = 0; d < dims; d += TILE, i++)
#pragma unroll 4
      for (int r = TILE - 1; r >= 0; r--) {
        dk[i] += ds[r * (TILE + 1) + b.r] * q[r * pitch + d];
        dv[i] += p[r * (TILE + 1) + b.r] * o[r * pitch + d];
      }
  }
  __syncthreads();
  for (int d = b.lane, i = 0; d < dims; d += TILE, i++) q[b.r * pitch + d] = dk[i];
  __syncthreads();
  if (mine >= keys_of(w)) return;
  for (int d = b.lane, i = 0; d < dims; d += TILE, i++) {
    if (t < 0) {
      dstate[place_in_cache(w, b.n, mine, 0, b.head) + d] = dk[i];
      dstate[place_in_cache(w, b.n, mine, 1, b.head) + d] = dv[i];
      continue;
    }
    T *key = dx + place_in_x(w, b.n, t, w.a.heads + b.head);
    write(w, key + d, turned(w, t, q + b.r * pitch, d, -1));
    write(w, key + w.a.kv_heads * dims + d, dv[i]);
  }
}

}  // namespace sl::attention::pairs

#endif
