/* Causal attention on tensor cores, with an online softmax (Dao, "FlashAttention-2", arXiv
 * 2307.08691). A block has a tile of ROWS queries, 16 a warp, and goes over the keys, COLUMNS at a
 * time, forward and for the queries' gradient; for the gradient of keys and values it has a tile of
 * keys and goes over the queries, the last one first. So each sum has one owner: no atomics, at the
 * cost of two products more than with them. A Core says what kind of numbers the factors are
 * (mma_cuda.h); sums are floats. Included by attention_cuda.cu only. */
#ifndef SL_CODELETS_KERNELS_ATTENTION_TILES_CUDA_H
#define SL_CODELETS_KERNELS_ATTENTION_TILES_CUDA_H

#include "codelets/kernels/attention_cuda.h"
#include "codelets/kernels/mma_cuda.h"

namespace sl::attention {

/* ---- a block's tiles ----------------------------------------------------------------------- */

/* A block has OWN tiles of ROWS rows, and two of COLUMNS rows, one after the other. Rows have DIMS
 * elements, a head's values with zeros behind them, and are PITCH apart. */
template <class Core, int DIMS_, int ROWS_, int COLUMNS_, int OWN>
struct tiling {
  using core = Core;
  using stored = typename Core::stored;
  static constexpr int DIMS = DIMS_, ROWS = ROWS_, COLUMNS = COLUMNS_, THREADS = 2 * ROWS;
  static constexpr int PITCH = DIMS + Core::PAD, DEPTH = Core::DEPTH;
  static constexpr int PARTS = DIMS / 8,
                       BLOCKS = COLUMNS / 8; /* C fragments: of values, of pairs */
  static constexpr size_t BYTES = (OWN * ROWS + 2 * COLUMNS) * PITCH * sizeof(stored);
  static_assert(BYTES + 16 * COLUMNS <= 48 << 10); /* with four words a row of the others */
  /* a gradient passes through the tiles' memory as floats */
  static_assert(OWN == 1 || ROWS * (DIMS + 1) * sizeof(float) <= BYTES);
};

/* The block's row of the batch, head (of queries, or of keys) and first row; the thread's row among
 * the block's is row and row + 8, its columns in each group of 8 are column and column + 1. */
struct position {
  int64_t n, head, first;
  int row, column;

  __device__ position(int64_t heads, int64_t tiles, int rows) {
    int64_t block = blockIdx.x;
    first = block % tiles * rows;
    head = block / tiles % heads;
    n = block / tiles / heads;
    row = static_cast<int>(threadIdx.x) / 32 * 16 + lane_row();
    column = 2 * lane_column();
  }
};

/* A row's values d to d + 8; zeros beyond the head's. */
template <class T>
__device__ void fetch(const job &w, const T *row, int d, bool aligned, float (&v)[8]) {
  if (aligned && d + 8 <= w.a.dims) {
    const auto eight = *reinterpret_cast<const pack<T, 8> *>(row + d);
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = value(eight.v[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; i++) v[i] = d + i < w.a.dims ? value(row[d + i]) : 0;
}
__device__ inline bool is_in_eights(const job &w, const void *p) {
  return w.a.dims % 8 == 0 && reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

/* Calls f(row, d) for the thread's part of a tile, eight values each. */
template <class S, class F>
__device__ void each_eight(int rows, F f) {
  constexpr int EIGHTS = S::DIMS / 8;
  for (int i = static_cast<int>(threadIdx.x); i < rows * EIGHTS; i += S::THREADS)
    f(i / EIGHTS, i % EIGHTS * 8);
}

/* Rows `first` to first + rows of the cache's keys (which: 0) or values (1); zeros beyond the last
 * key. */
template <class S>
__device__ void load_keys(const job &w, int64_t n, int64_t kv, int64_t first, int rows, int which,
                          typename S::stored *to) {
  const float *from = w.cache + place_in_cache(w, n, first, which, kv);
  int64_t pitch = sl__attention_state(&w.a), left = keys_of(w) - first;
  bool aligned = is_in_eights(w, w.cache);
  each_eight<S>(rows, [&](int r, int d) {
    float v[8] = {};
    if (r < left) fetch(w, from + r * pitch, d, aligned, v);
    S::core::store(v, to + r * S::PITCH + d);
  });
}

/* A query's values d to d + 8, turned, and their slopes, of time step t; zeros if there is no such
 * step. */
template <class S, class T>
__device__ void load_query(const job &w, int64_t n, int64_t t, int64_t head, int d, const T *x,
                           bool aligned, typename S::stored *to) {
  float v[8] = {};
  if (t >= 0 && t < w.a.steps) {
    const T *row = x + place_in_x(w, n, t, head);
    if (d < w.a.o.rope_dims)
      for (int i = 0; i < 8; i++) v[i] = d + i < w.a.dims ? turned(w, t, row, d + i, 1) : 0;
    else
      fetch(w, row, d, aligned, v);
  }
  S::core::store(v, to);
}
template <class S, class T>
__device__ void load_slope(const job &w, int64_t n, int64_t t, int64_t head, int d, const T *dy,
                           bool aligned, typename S::stored *to) {
  float v[8] = {};
  if (t >= 0 && t < w.a.steps) fetch(w, dy + place_in_y(w, n, t, head), d, aligned, v);
  S::core::store(v, to);
}

/* ---- products ------------------------------------------------------------------------------ */

/* c = the warp's 16 rows of a times the rows of b, over their DIMS elements */
template <class S>
__device__ void multiply_rows(fragment_c (&c)[S::BLOCKS], const typename S::stored *a,
                              const typename S::stored *b) {
#pragma unroll
  for (int j = 0; j < S::BLOCKS; j++) c[j] = {{0, 0, 0, 0}};
#pragma unroll
  for (int k = 0; k < S::DIMS; k += S::DEPTH) {
    const fragment_a rows = S::core::load_a(a + k, S::PITCH);
#pragma unroll
    for (int j = 0; j < S::BLOCKS; j++)
      S::core::add_product(c[j], rows, S::core::load_b(b + j * 8 * S::PITCH + k, S::PITCH));
  }
}

/* c += the pairs [16, COLUMNS] times b [COLUMNS, DIMS] */
template <class S>
__device__ void add_pairs(fragment_c (&c)[S::PARTS], const fragment_c (&pairs)[S::BLOCKS],
                          const typename S::stored *b) {
#pragma unroll
  for (int k = 0; k < S::COLUMNS; k += S::DEPTH) {
    const fragment_a rows = S::core::a_of(pairs + k / 8);
#pragma unroll
    for (int j = 0; j < S::PARTS; j++)
      S::core::add_product(c[j], rows, S::core::load_turned(b + k * S::PITCH + j * 8, S::PITCH));
  }
}

/* Over the four lanes of a row. */
__device__ inline float row_sum(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}
__device__ inline float larger(float a, float b) { return b > a ? b : a; }
__device__ inline float row_largest(float v) {
  v = larger(v, __shfl_xor_sync(0xffffffffu, v, 1));
  return larger(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

__device__ inline float exponential(float x) { return exp2f(x * 1.44269504088896341f); }

/* ---- forward ------------------------------------------------------------------------------- */

/* Rows row and row + 8 of a tile of queries: the softmax over the keys so far. */
template <class S>
struct softmax {
  float most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}; /* sum: of this lane's keys */
  fragment_c o[S::PARTS] = {};

  /* s: the scores of a tile of keys, which become weights. */
  __device__ void take(fragment_c (&s)[S::BLOCKS]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float top = -INFINITY;
#pragma unroll
      for (int j = 0; j < S::BLOCKS; j++)
        top = larger(larger(top, s[j].v[2 * half]), s[j].v[2 * half + 1]);
      top = larger(most[half], row_largest(top));
      float rest = exponential(most[half] - top);
      most[half] = top;
      sum[half] *= rest;
#pragma unroll
      for (int j = 0; j < S::PARTS; j++) {
        o[j].v[2 * half] *= rest;
        o[j].v[2 * half + 1] *= rest;
      }
#pragma unroll
      for (int j = 0; j < S::BLOCKS; j++)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++) {
          s[j].v[e] = exponential(s[j].v[e] - top);
          sum[half] += s[j].v[e];
        }
    }
  }
};

/* Does one of the warp's queries read a key from `first` on? If not, the bits are the same without
 * the work. */
__device__ inline bool warp_reads(const job &w, const position &at, int64_t first) {
  int64_t earliest = at.first + at.row - lane_row();
  return earliest < w.a.steps && first < w.a.o.position + earliest + 16;
}

/* Products of queries and keys become scores; bf16 products are exact until here. */
template <class S>
__device__ void scale(const job &w, fragment_c (&s)[S::BLOCKS]) {
#pragma unroll
  for (int j = 0; j < S::BLOCKS; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) s[j].v[e] *= w.a.scale;
}

/* Keys behind a query get the score -infinity. */
template <class S>
__device__ void hide_later(fragment_c (&s)[S::BLOCKS], int64_t query, int64_t key) {
#pragma unroll
  for (int j = 0; j < S::BLOCKS; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (key + j * 8 + e % 2 > query + e / 2 * 8) s[j].v[e] = -INFINITY;
}

template <class S>
__device__ void drop(const job &w, fragment_c (&s)[S::BLOCKS], const position &at, int64_t query,
                     int64_t key) {
#pragma unroll
  for (int j = 0; j < S::BLOCKS; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      s[j].v[e] *= factor(w, at.n, at.head, query + e / 2 * 8, key + j * 8 + e % 2);
}

template <class S, class T>
__global__ void __launch_bounds__(S::THREADS)
    forward_tiles(job w, int64_t tiles, const T *x, T *y, float *lse) {
  SL__SHARED(uint4, memory);
  auto *q = reinterpret_cast<typename S::stored *>(memory);
  auto *k = q + S::ROWS * S::PITCH, *v = k + S::COLUMNS * S::PITCH;
  const position at(w.a.heads, tiles, S::ROWS);
  int64_t t = at.first + at.row, query = w.a.o.position + t, kv = at.head / group_of(w);
  int64_t end = at.first + S::ROWS < w.a.steps ? at.first + S::ROWS : w.a.steps;
  softmax<S> soft;
  each_eight<S>(S::ROWS, [&](int r, int d) {
    load_query<S>(w, at.n, at.first + r, at.head, d, x, is_in_eights(w, x), q + r * S::PITCH + d);
  });
  for (int64_t first = 0; first < w.a.o.position + end; first += S::COLUMNS) {
    fragment_c s[S::BLOCKS];
    __syncthreads();
    load_keys<S>(w, at.n, kv, first, S::COLUMNS, 0, k);
    load_keys<S>(w, at.n, kv, first, S::COLUMNS, 1, v);
    __syncthreads();
    if (!warp_reads(w, at, first)) continue;
    multiply_rows<S>(s, q + (at.row - lane_row()) * S::PITCH, k);
    scale<S>(w, s);
    if (first + S::COLUMNS > w.a.o.position + at.first) hide_later<S>(s, query, first + at.column);
    soft.take(s);
    if (w.a.o.dropout.rate > 0) drop<S>(w, s, at, query, first + at.column);
    add_pairs<S>(soft.o, s, v);
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float sum = row_sum(soft.sum[half]);
    int64_t step = t + 8 * half;
    if (step >= w.a.steps) continue;
    T *to = y + place_in_y(w, at.n, step, at.head);
#pragma unroll
    for (int j = 0; j < S::PARTS; j++)
#pragma unroll
      for (int e = 0; e < 2; e++)
        if (j * 8 + at.column + e < w.a.dims)
          to[j * 8 + at.column + e] = narrow<T>(soft.o[j].v[2 * half + e] / sum);
    if (!lane_column()) lse[place_in_lse(w, at.n, step, at.head)] = soft.most[half] + logf(sum);
  }
}

/* ---- backward ------------------------------------------------------------------------------ */

/* A tile of results as floats, rows DIMS + 1 apart: a turned gradient takes two of a row. */
template <class S>
__device__ void spread(const fragment_c (&c)[S::PARTS], const position &at, float *to) {
#pragma unroll
  for (int j = 0; j < S::PARTS; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      to[(at.row + e / 2 * 8) * (S::DIMS + 1) + j * 8 + at.column + e % 2] = c[j].v[e];
}

template <class S, class T>
__global__ void __launch_bounds__(S::THREADS)
    backward_queries_tiles(job w, int64_t tiles, const T *x, const float *lse, const T *dy, T *dx) {
  SL__SHARED(uint4, memory);
  auto *q = reinterpret_cast<typename S::stored *>(memory);
  auto *o = q + S::ROWS * S::PITCH, *k = o + S::ROWS * S::PITCH, *v = k + S::COLUMNS * S::PITCH;
  const position at(w.a.heads, tiles, S::ROWS);
  int64_t query = w.a.o.position + at.first + at.row, kv = at.head / group_of(w);
  int64_t end = at.first + S::ROWS < w.a.steps ? at.first + S::ROWS : w.a.steps;
  int warp = at.row - lane_row();
  fragment_c dq[S::PARTS] = {};
  float norm[2] = {}, delta[2] = {};
  for (int half = 0; half < 2; half++) {
    int64_t step = at.first + at.row + 8 * half;
    if (step >= w.a.steps) continue;
    norm[half] = lse[place_in_lse(w, at.n, step, at.head)];
    delta[half] = w.delta[place_in_lse(w, at.n, step, at.head)];
  }
  each_eight<S>(S::ROWS, [&](int r, int d) {
    load_query<S>(w, at.n, at.first + r, at.head, d, x, is_in_eights(w, x), q + r * S::PITCH + d);
    load_slope<S>(w, at.n, at.first + r, at.head, d, dy, is_in_eights(w, dy), o + r * S::PITCH + d);
  });
  for (int64_t first = 0; first < w.a.o.position + end; first += S::COLUMNS) {
    fragment_c s[S::BLOCKS], ds[S::BLOCKS];
    __syncthreads();
    load_keys<S>(w, at.n, kv, first, S::COLUMNS, 0, k);
    load_keys<S>(w, at.n, kv, first, S::COLUMNS, 1, v);
    __syncthreads();
    if (!warp_reads(w, at, first)) continue;
    multiply_rows<S>(s, q + warp * S::PITCH, k);
    multiply_rows<S>(ds, o + warp * S::PITCH, v);
#pragma unroll
    for (int j = 0; j < S::BLOCKS; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        int half = e / 2;
        int64_t key = first + j * 8 + at.column + e % 2, mine = query + 8 * half;
        float p = exponential(s[j].v[e] * w.a.scale - norm[half]);
        float dp = factor(w, at.n, at.head, mine, key) * ds[j].v[e];
        ds[j].v[e] = key <= mine ? p * (dp - delta[half]) * w.a.scale : 0;
      }
    add_pairs<S>(dq, ds, k);
  }
  float *result = reinterpret_cast<float *>(memory);
  __syncthreads();
  spread<S>(dq, at, result);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < S::ROWS * S::DIMS; i += S::THREADS) {
    int64_t r = i / S::DIMS, d = i % S::DIMS, t = at.first + r;
    if (t < w.a.steps && d < w.a.dims)
      write(w, dx + place_in_x(w, at.n, t, at.head) + d,
            turned(w, t, result + r * (S::DIMS + 1), d, -1));
  }
}

/* A row of the queries that a tile of keys goes over. */
struct query_row {
  int32_t step, head; /* step -1: there is none */
  float norm, delta;
};

/* Row m of the queries of a group: of time step m / group and head m % group of the group. */
__device__ inline query_row query_row_of(const job &w, const position &at, int64_t m, int64_t from,
                                         const float *lse) {
  int64_t group = group_of(w), step = m < from ? 0 : m / group;
  int64_t head = at.head * group + (m < from ? 0 : m % group);
  int64_t place = place_in_lse(w, at.n, step, head);
  return {static_cast<int32_t>(m < from ? -1 : step), static_cast<int32_t>(head), lse[place],
          w.delta[place]};
}

/* The gradients of keys and values that another chunk's queries have left, and where they go. */
template <class S>
__device__ float *gradient_of(const job &w, const position &at, float *dstate, int e, int which) {
  int64_t key = at.first + at.row + e / 2 * 8;
  if (!dstate || key >= keys_of(w)) return nullptr;
  return dstate + place_in_cache(w, at.n, key, which, at.head) + at.column + e % 2;
}
template <class S>
__device__ void load_gradient(const job &w, const position &at, float *dstate, int which,
                              fragment_c (&c)[S::PARTS]) {
#pragma unroll
  for (int e = 0; e < 4; e++) {
    const float *from = gradient_of<S>(w, at, dstate, e, which);
#pragma unroll
    for (int j = 0; j < S::PARTS; j++)
      c[j].v[e] = from && j * 8 + at.column + e % 2 < w.a.dims ? from[j * 8] : 0;
  }
}

/* A tile of keys' gradients (which: 0), or values', as spread() left them: to dstate for keys of
 * earlier chunks, else to dx. */
template <class S, class T>
__device__ void store_gradient(const job &w, const position &at, int which, const float *result,
                               T *dx, float *dstate) {
  for (int i = static_cast<int>(threadIdx.x); i < S::ROWS * S::DIMS; i += S::THREADS) {
    int64_t r = i / S::DIMS, d = i % S::DIMS, key = at.first + r, t = key - w.a.o.position;
    const float *row = result + r * (S::DIMS + 1);
    if (key >= keys_of(w) || d >= w.a.dims) continue;
    if (t < 0)
      dstate[place_in_cache(w, at.n, key, which, at.head) + d] = row[d];
    else
      write(w, dx + place_in_x(w, at.n, t, w.a.heads + which * w.a.kv_heads + at.head) + d,
            which ? row[d] : turned(w, t, row, d, -1));
  }
}

template <class S, class T>
__global__ void __launch_bounds__(S::THREADS)
    backward_keys_tiles(job w, int64_t tiles, const T *x, const float *lse, const T *dy, T *dx,
                        float *dstate) {
  SL__SHARED(uint4, memory);
  auto *k = reinterpret_cast<typename S::stored *>(memory);
  auto *v = k + S::ROWS * S::PITCH, *q = v + S::ROWS * S::PITCH, *o = q + S::COLUMNS * S::PITCH;
  auto *queries = reinterpret_cast<query_row *>(o + S::COLUMNS * S::PITCH);
  const position at(w.a.kv_heads, tiles, S::ROWS);
  int64_t group = group_of(w), mine = at.first + at.row;
  int64_t from = at.first > w.a.o.position ? (at.first - w.a.o.position) * group : 0;
  int warp = at.row - lane_row();
  fragment_c dk[S::PARTS], dv[S::PARTS];
  load_gradient<S>(w, at, dstate, 0, dk);
  load_gradient<S>(w, at, dstate, 1, dv);
  load_keys<S>(w, at.n, at.head, at.first, S::ROWS, 0, k);
  load_keys<S>(w, at.n, at.head, at.first, S::ROWS, 1, v);
  for (int64_t end = w.a.steps * group; end > from; end -= S::COLUMNS) {
    fragment_c p[S::BLOCKS], ds[S::BLOCKS];
    __syncthreads();
    for (int r = static_cast<int>(threadIdx.x); r < S::COLUMNS; r += S::THREADS)
      queries[r] = query_row_of(w, at, end - S::COLUMNS + r, from, lse);
    __syncthreads();
    each_eight<S>(S::COLUMNS, [&](int r, int d) {
      int64_t t = queries[r].step, head = queries[r].head;
      load_query<S>(w, at.n, t, head, d, x, is_in_eights(w, x), q + r * S::PITCH + d);
      load_slope<S>(w, at.n, t, head, d, dy, is_in_eights(w, dy), o + r * S::PITCH + d);
    });
    __syncthreads();
    /* the last query of these is the latest */
    if (w.a.o.position + queries[S::COLUMNS - 1].step < at.first + warp) continue;
    multiply_rows<S>(p, k + warp * S::PITCH, q);
    multiply_rows<S>(ds, v + warp * S::PITCH, o);
#pragma unroll
    for (int j = 0; j < S::BLOCKS; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const query_row row = queries[j * 8 + at.column + e % 2];
        int64_t query = w.a.o.position + row.step, key = mine + e / 2 * 8;
        bool reads = row.step >= 0 && key <= query;
        float weight = reads ? exponential(p[j].v[e] * w.a.scale - row.norm) : 0;
        float f = reads ? factor(w, at.n, row.head, query, key) : 0;
        p[j].v[e] = weight * f;
        ds[j].v[e] = reads ? weight * (f * ds[j].v[e] - row.delta) * w.a.scale : 0;
      }
    add_pairs<S>(dv, p, o);
    add_pairs<S>(dk, ds, q);
  }
  float *result = reinterpret_cast<float *>(memory);
  __syncthreads();
  spread<S>(dk, at, result);
  __syncthreads();
  store_gradient<S>(w, at, 0, result, dx, dstate);
  __syncthreads();
  spread<S>(dv, at, result);
  __syncthreads();
  store_gradient<S>(w, at, 1, result, dx, dstate);
}

}  // namespace sl::attention

#endif
