/* Causal attention on tensor cores, with an online softmax (Dao, "FlashAttention-2", arXiv
 * 2307.08691). A block has a tile of ROWS queries, 16 a warp, and goes over the keys, COLUMNS at a
 * time, forward and for the queries' gradient; for the gradient of keys and values it has a tile of
 * keys and goes over the queries, the last one first. So each sum has one owner: no atomics, at the
 * cost of two products more than with them. Where there is room for two STAGES of the tiles that a
 * block goes over, one is copied while the other is multiplied. A Core says what kind of numbers
 * the factors are (mma_cuda.h); sums are floats. Included by attention_cuda.cu only. */
#ifndef SL_CODELETS_KERNELS_ATTENTION_TILES_CUDA_H
#define SL_CODELETS_KERNELS_ATTENTION_TILES_CUDA_H

#include "codelets/kernels/attention_cuda.h"
#include "codelets/kernels/mma_cuda.h"

namespace sl::attention {

/* ---- a block's tiles ----------------------------------------------------------------------- */

/* A block has OWN tiles of ROWS rows, then for each stage two of COLUMNS rows, one after the other.
 * Rows have DIMS elements, a head's values with zeros behind them, and are PITCH apart. */
template <class Core, int DIMS_, int ROWS_, int COLUMNS_, int OWN_, int STAGES_>
struct tiling {
  using core = Core;
  using stored = typename Core::stored;
  static constexpr int DIMS = DIMS_, ROWS = ROWS_, COLUMNS = COLUMNS_, OWN = OWN_;
  static constexpr int STAGES = STAGES_, THREADS = 2 * ROWS;
  static constexpr int PITCH = DIMS + Core::PAD, DEPTH = Core::DEPTH;
  static constexpr int PARTS = DIMS / 8,
                       BLOCKS = COLUMNS / 8; /* C fragments: of values, of pairs */
  /* Do the own queries stay in registers, 16 of a thread a tile? (Keys have no room there.) */
  static constexpr bool HELD = sizeof(stored) * DIMS <= 128;
  static constexpr int AT_ONCE = HELD ? 3 : 2; /* blocks whose registers a multiprocessor has */
  static constexpr size_t BYTES = (OWN * ROWS + STAGES * 2 * COLUMNS) * PITCH * sizeof(stored);
  static_assert(BYTES + STAGES * 16 * COLUMNS <= 99 << 10); /* what architecture 8.6 has */
  /* a gradient passes through the tiles' memory as floats */
  static_assert(OWN == 1 || ROWS * (DIMS + 1) * sizeof(float) <= BYTES);

  /* Tile `which` of a stage. */
  __device__ static stored *others(stored *memory, int stage, int which) {
    return memory + (OWN * ROWS + (2 * stage + which) * COLUMNS) * PITCH;
  }
};

/* The block's row of the batch, head (of queries, or of keys) and first row; the thread's row among
 * the block's is row and row + 8, its columns in each group of 8 are column and column + 1. The
 * tiles with the most work come first: the last of queries, the first of keys. */
struct position {
  int64_t n, head, first;
  int row, column;

  __device__ position(int64_t heads, int64_t tiles, int rows, bool last_first) {
    int64_t lines = gridDim.x / tiles, line = blockIdx.x % lines, tile = blockIdx.x / lines;
    first = (last_first ? tiles - 1 - tile : tile) * rows;
    head = line % heads;
    n = line / heads;
    row = static_cast<int>(threadIdx.x) / 32 * 16 + lane_row();
    column = 2 * lane_column();
  }
};

/* Values d to d + 8 of a row; zeros beyond the head's, and all of them if the row is not valid. */
template <class S, class V>
__device__ void take_eight(const V *row, bool valid, int d, int dims, bool aligned,
                           typename S::stored *to) {
  float v[8] = {};
  if (valid) read_eight(row + d, dims - d, aligned, v);
  S::core::store(v, to);
}

/* The same where a tile keeps the row's bits, from aligned ones. */
template <class S, class V>
__device__ void copy_eight(const V *row, bool valid, int d, int dims, typename S::stored *to) {
  constexpr int COPIES = static_cast<int>(8 * sizeof(V) / 16);
  bool all = valid && d < dims;
#pragma unroll
  for (int i = 0; i < COPIES; i++)
    copy_16(reinterpret_cast<uint4 *>(to) + i, reinterpret_cast<const uint4 *>(row + d) + i, all);
}

/* Fills a tile of ROWS rows; row_of(r): row r's values, which count if is_valid(r); they can be
 * read in any case. */
template <class S, int ROWS, class V, class F, class G>
__device__ void take_tile(const job &w, const rows<V> &from, typename S::stored *to, F row_of,
                          G is_valid) {
  constexpr int EIGHTS = S::DIMS / 8, AT_ONCE = S::THREADS / EIGHTS;
  static_assert(ROWS % AT_ONCE == 0);
  int r = static_cast<int>(threadIdx.x) / EIGHTS, d = static_cast<int>(threadIdx.x) % EIGHTS * 8;
  to += r * S::PITCH + d;
  if constexpr (S::core::template KEEPS<V>)
    if (from.aligned) {
#pragma unroll
      for (int i = 0; i < ROWS; i += AT_ONCE)
        copy_eight<S>(row_of(r + i), is_valid(r + i), d, w.a.dims, to + i * S::PITCH);
      return;
    }
#pragma unroll
  for (int i = 0; i < ROWS; i += AT_ONCE)
    take_eight<S>(row_of(r + i), is_valid(r + i), d, w.a.dims, from.aligned, to + i * S::PITCH);
}

/* A tile of a head's time steps first to first + ROWS, with zeros from step `end` on. */
template <class S, int ROWS, class V>
__device__ void take_steps(const job &w, const rows<V> &from, const position &at, int64_t head,
                           int64_t first, int64_t end, typename S::stored *to) {
  const V *start = from.of(w, at.n, first, head);
  int left = static_cast<int>(end - first < ROWS ? end - first : ROWS);
  take_tile<S, ROWS>(
      w, from, to, [&](int r) { return start + (r < left ? r : 0) * from.step; },
      [&](int r) { return r < left; });
}

/* The number of tiles of keys that the block's queries read, and tile i of keys and of values. */
template <class S>
__device__ int key_tiles(const job &w, const position &at) {
  int64_t end = at.first + S::ROWS < w.a.steps ? at.first + S::ROWS : w.a.steps;
  return static_cast<int>((w.a.o.position + end + S::COLUMNS - 1) / S::COLUMNS);
}
template <class S, class T, class Key>
__device__ void take_keys(const job &w, const factors<T, Key> &f, const position &at, int i,
                          typename S::stored *tile, int stage) {
#pragma unroll
  for (int which = 0; which < 2; which++)
    take_steps<S, S::COLUMNS>(w, f.kv[which], at, at.head / group_of(w), i * S::COLUMNS, keys_of(w),
                              S::others(tile, stage, which));
}

/* Calls take(i, stage) for tiles 0 to count - 1, after load(i, stage) has filled the stage; begin()
 * runs before, with the own tiles filled. */
template <class S, class Load, class Begin, class Take>
__device__ void each_tile(int count, Load load, Begin begin, Take take) {
  if (S::STAGES > 1) load(0, 0);
  await_copies();
  __syncthreads();
  begin();
  for (int i = 0; i < count; i++) {
    if (S::STAGES == 1) {
      __syncthreads();
      load(i, 0);
    }
    await_copies();
    __syncthreads();
    if (S::STAGES > 1 && i + 1 < count) load(i + 1, (i + 1) % S::STAGES);
    take(i, i % S::STAGES);
  }
}

/* ---- products ------------------------------------------------------------------------------ */

/* The warp's 16 rows of a tile of the block's own, as A. HELD: they stay in registers. */
template <class S, bool HELD>
struct own_rows {
  const typename S::stored *tile;
  fragment_a held[HELD ? S::DIMS / S::DEPTH : 1];

  __device__ void hold() {
    if constexpr (HELD)
#pragma unroll
      for (int k = 0; k < S::DIMS; k += S::DEPTH)
        held[k / S::DEPTH] = S::core::load_a(tile + k, S::PITCH);
  }
  __device__ fragment_a part(int k) const {
    if constexpr (HELD)
      return held[k / S::DEPTH];
    else
      return S::core::load_a(tile + k, S::PITCH);
  }
};

/* c = the warp's 16 rows of a times the rows of b, over their DIMS elements */
template <class S, bool HELD>
__device__ void multiply_rows(fragment_c (&c)[S::BLOCKS], const own_rows<S, HELD> &a,
                              const typename S::stored *b) {
#pragma unroll
  for (int j = 0; j < S::BLOCKS; j++) c[j] = {{0, 0, 0, 0}};
#pragma unroll
  for (int k = 0; k < S::DIMS; k += S::DEPTH) {
    const fragment_a rows = a.part(k);
#pragma unroll
    for (int j = 0; j < S::BLOCKS; j += 2) {
      fragment_b two[2];
      S::core::load_two(two, b + j * 8 * S::PITCH + k, S::PITCH);
      S::core::add_product(c[j], rows, two[0]);
      S::core::add_product(c[j + 1], rows, two[1]);
    }
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
    for (int j = 0; j < S::PARTS; j += 2) {
      fragment_b two[2];
      S::core::load_two_turned(two, b + k * S::PITCH + j * 8, S::PITCH);
      S::core::add_product(c[j], rows, two[0]);
      S::core::add_product(c[j + 1], rows, two[1]);
    }
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

constexpr float LOG2_E = 1.44269504088896341f;

/* ---- forward ------------------------------------------------------------------------------- */

/* Rows row and row + 8 of a tile of queries: the softmax over the keys so far. Products of queries
 * and keys, exact in bf16, become scores by `scale`, which is positive. */
template <class S>
struct softmax {
  float scale;
  float most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}; /* sum: of this lane's keys */
  fragment_c o[S::PARTS] = {};

  /* s: the products of a tile of keys, which become weights. */
  __device__ void take(fragment_c (&s)[S::BLOCKS]) {
    const float unit = scale * LOG2_E;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float top = -INFINITY;
#pragma unroll
      for (int j = 0; j < S::BLOCKS; j++)
        top = larger(larger(top, s[j].v[2 * half]), s[j].v[2 * half + 1]);
      top = larger(most[half], row_largest(top));
      float rest = power_of_two((most[half] - top) * unit), base = top * unit;
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
          s[j].v[e] = power_of_two(s[j].v[e] * unit - base);
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

/* Keys behind a query get the product -infinity. */
template <class S>
__device__ void hide_later(fragment_c (&s)[S::BLOCKS], int64_t query, int64_t key) {
  int before = static_cast<int>(query - key);
#pragma unroll
  for (int j = 0; j < S::BLOCKS; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (j * 8 + e % 2 > before + e / 2 * 8) s[j].v[e] = -INFINITY;
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

/* The block's rows of y, and the logarithms of the softmax's sums. */
template <class S, class T>
__device__ void finish_rows(const job &w, const position &at, const softmax<S> &soft, T *y,
                            float *lse) {
  bool in_pairs = w.a.dims % 2 == 0 && reinterpret_cast<uintptr_t>(y) % sizeof(pack<T, 2>) == 0;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float sum = row_sum(soft.sum[half]);
    int64_t step = at.first + at.row + 8 * half;
    if (step >= w.a.steps) continue;
    T *to = y + place_in_y(w, at.n, step, at.head) + at.column;
#pragma unroll
    for (int j = 0; j < S::PARTS; j++) {
      const pack<T, 2> two = {narrow<T>(soft.o[j].v[2 * half] / sum),
                              narrow<T>(soft.o[j].v[2 * half + 1] / sum)};
      int left = w.a.dims - j * 8 - at.column;
      if (in_pairs && left > 0)
        *reinterpret_cast<pack<T, 2> *>(to + j * 8) = two;
      else
        for (int e = 0; e < 2; e++)
          if (e < left) to[j * 8 + e] = two.v[e];
    }
    if (!lane_column())
      lse[place_in_lse(w, at.n, step, at.head)] = soft.most[half] * w.a.scale + logf(sum);
  }
}

template <class S, class T, class Key>
__global__ void __launch_bounds__(S::THREADS, S::AT_ONCE)
    forward_tiles(job w, factors<T, Key> f, int tiles, T *y, float *lse) {
  SL__SHARED(uint4, memory);
  auto *tile = reinterpret_cast<typename S::stored *>(memory);
  const position at(w.a.heads, tiles, S::ROWS, true);
  int64_t query = w.a.o.position + at.first + at.row;
  int warp = at.row - lane_row();
  softmax<S> soft{w.a.scale};
  own_rows<S, S::HELD> q{tile + warp * S::PITCH, {}};
  take_steps<S, S::ROWS>(w, f.q, at, at.head, at.first, w.a.steps, tile);
  each_tile<S>(
      key_tiles<S>(w, at), [&](int i, int stage) { take_keys<S>(w, f, at, i, tile, stage); },
      [&] { q.hold(); },
      [&](int i, int stage) {
        fragment_c s[S::BLOCKS];
        int64_t first = i * S::COLUMNS;
        if (!warp_reads(w, at, first)) return;
        multiply_rows<S>(s, q, S::others(tile, stage, 0));
        if (first + S::COLUMNS > w.a.o.position + at.first + warp)
          hide_later<S>(s, query, first + at.column);
        soft.take(s);
        if (w.a.o.dropout.rate > 0) drop<S>(w, s, at, query, first + at.column);
        add_pairs<S>(soft.o, s, S::others(tile, stage, 1));
      });
  finish_rows<S>(w, at, soft, y, lse);
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

/* A query's logarithm of the softmax's sum, and <o, do>. */
struct query_norm {
  float lse, delta;
};

/* ds, so far the slopes of the weights, become those of the products: of the queries row and
 * row + 8, with s the products. */
template <class S, bool DROPS>
__device__ void query_slopes(const job &w, const position &at, const query_norm (&norm)[2],
                             int64_t query, int64_t key, const fragment_c (&s)[S::BLOCKS],
                             fragment_c (&ds)[S::BLOCKS]) {
  const float unit = w.a.scale * LOG2_E;
  int before = static_cast<int>(query - key);
#pragma unroll
  for (int j = 0; j < S::BLOCKS; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int half = e / 2, column = j * 8 + e % 2;
      float weight = power_of_two(s[j].v[e] * unit - norm[half].lse * LOG2_E), slope = ds[j].v[e];
      if (DROPS) slope *= factor(w, at.n, at.head, query + 8 * half, key + column);
      slope = weight * (slope - norm[half].delta) * w.a.scale;
      ds[j].v[e] = column <= before + 8 * half ? slope : 0;
    }
}

template <class S, class T, class Key>
__global__ void __launch_bounds__(S::THREADS)
    backward_queries_tiles(job w, factors<T, Key> f, int tiles, const float *lse, T *dx) {
  SL__SHARED(uint4, memory);
  auto *tile = reinterpret_cast<typename S::stored *>(memory);
  const position at(w.a.heads, tiles, S::ROWS, true);
  int64_t query = w.a.o.position + at.first + at.row;
  int warp = at.row - lane_row();
  own_rows<S, S::HELD> q{tile + warp * S::PITCH, {}}, o{tile + (S::ROWS + warp) * S::PITCH, {}};
  fragment_c dq[S::PARTS] = {};
  query_norm norm[2] = {};
  for (int half = 0; half < 2; half++) {
    int64_t step = at.first + at.row + 8 * half;
    if (step >= w.a.steps) continue;
    int64_t place = place_in_lse(w, at.n, step, at.head);
    norm[half] = {lse[place], w.delta[place]};
  }
  take_steps<S, S::ROWS>(w, f.q, at, at.head, at.first, w.a.steps, tile);
  take_steps<S, S::ROWS>(w, f.dy, at, at.head, at.first, w.a.steps, tile + S::ROWS * S::PITCH);
  each_tile<S>(
      key_tiles<S>(w, at), [&](int i, int stage) { take_keys<S>(w, f, at, i, tile, stage); },
      [&] {
        q.hold();
        o.hold();
      },
      [&](int i, int stage) {
        fragment_c s[S::BLOCKS], ds[S::BLOCKS];
        int64_t first = i * S::COLUMNS, key = first + at.column;
        if (!warp_reads(w, at, first)) return;
        multiply_rows<S>(s, q, S::others(tile, stage, 0));
        multiply_rows<S>(ds, o, S::others(tile, stage, 1));
        if (w.a.o.dropout.rate > 0)
          query_slopes<S, true>(w, at, norm, query, key, s, ds);
        else
          query_slopes<S, false>(w, at, norm, query, key, s, ds);
        add_pairs<S>(dq, ds, S::others(tile, stage, 0));
      });
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

/* A row of the queries that a tile of keys goes over: row m is of time step m / group and head
 * m % group of the group. */
struct alignas(16) query_row {
  query_norm norm;
  int32_t step, head; /* step -1: there is none */
};

__device__ inline void take_query_row(const job &w, const position &at, int m, int from,
                                      const float *lse, query_row *row) {
  int group = static_cast<int>(group_of(w)), valid = m < from ? from : m;
  int step = valid / group, head = static_cast<int>(at.head) * group + valid % group;
  int64_t place = place_in_lse(w, at.n, step, head);
  row->step = m < from ? -1 : step;
  row->head = head;
  copy_4(&row->norm.lse, lse + place);
  copy_4(&row->norm.delta, w.delta + place);
}

/* p, the products, become weights of the values; ds, the slopes of the weights, those of the
 * products. step: of the key in the first of the lane's rows. WHOLE: all queries of the tile read
 * all keys. */
template <class S, bool DROPS, bool WHOLE>
__device__ void key_slopes(const job &w, const position &at, const query_row *queries, int step,
                           fragment_c (&p)[S::BLOCKS], fragment_c (&ds)[S::BLOCKS]) {
  const float unit = w.a.scale * LOG2_E;
#pragma unroll
  for (int j = 0; j < S::BLOCKS; j++)
#pragma unroll
    for (int column = 0; column < 2; column++) {
      const query_row row = queries[j * 8 + at.column + column];
      float base = row.norm.lse * LOG2_E;
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float &product = p[j].v[2 * half + column], &slope = ds[j].v[2 * half + column];
        bool reads = WHOLE || (row.step >= 0 && step + 8 * half <= row.step);
        float weight = reads ? power_of_two(product * unit - base) : 0;
        float f = DROPS && reads ? factor(w, at.n, row.head, w.a.o.position + row.step,
                                          w.a.o.position + step + 8 * half)
                                 : 1;
        slope = reads ? weight * (f * slope - row.norm.delta) * w.a.scale : 0;
        product = weight * f;
      }
    }
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

/* The rows of queries and of slopes that lie in one tile with query_row's. */
template <class S, class T>
__device__ void take_queries(const job &w, const rows<T> &source, const position &at, int first,
                             int from, typename S::stored *to) {
  int group = static_cast<int>(group_of(w));
  const T *start = source.of(w, at.n, 0, at.head * group);
  auto row_of = [&](int r) {
    int m = first + r < from ? from : first + r;
    return group == 1 ? start + m * source.step
                      : start + m / group * source.step + m % group * w.a.dims;
  };
  take_tile<S, S::COLUMNS>(w, source, to, row_of, [&](int r) { return first + r >= from; });
}

template <class S, class T, class Key>
__global__ void __launch_bounds__(S::THREADS, S::AT_ONCE)
    backward_keys_tiles(job w, factors<T, Key> f, int tiles, const float *lse, T *dx,
                        float *dstate) {
  SL__SHARED(uint4, memory);
  auto *tile = reinterpret_cast<typename S::stored *>(memory);
  auto *queries = reinterpret_cast<query_row *>(S::others(tile, S::STAGES, 0));
  const position at(w.a.kv_heads, tiles, S::ROWS, false);
  int group = static_cast<int>(group_of(w)), count = static_cast<int>(w.a.steps) * group;
  int from = static_cast<int>(at.first > w.a.o.position ? at.first - w.a.o.position : 0) * group;
  int warp = at.row - lane_row();
  int step = static_cast<int>(at.first + at.row - w.a.o.position); /* of the lane's first key */
  own_rows<S, false> k{tile + warp * S::PITCH, {}}, v{tile + (S::ROWS + warp) * S::PITCH, {}};
  fragment_c dk[S::PARTS], dv[S::PARTS];
  load_gradient<S>(w, at, dstate, 0, dk);
  load_gradient<S>(w, at, dstate, 1, dv);
#pragma unroll
  for (int which = 0; which < 2; which++)
    take_steps<S, S::ROWS>(w, f.kv[which], at, at.head, at.first, keys_of(w),
                           tile + which * S::ROWS * S::PITCH);
  each_tile<S>((count - from + S::COLUMNS - 1) / S::COLUMNS,
               [&](int i, int stage) {
                 int first = count - (i + 1) * S::COLUMNS;
#pragma unroll
                 for (int which = 0; which < 2; which++)
                   take_queries<S, T>(w, which ? f.dy : f.q, at, first, from,
                                      S::others(tile, stage, which));
                 for (int r = static_cast<int>(threadIdx.x); r < S::COLUMNS; r += S::THREADS)
                   take_query_row(w, at, first + r, from, lse, queries + stage * S::COLUMNS + r);
               },
               [] {},
               [&](int i, int stage) {
                 fragment_c p[S::BLOCKS], ds[S::BLOCKS];
                 const query_row *rows = queries + stage * S::COLUMNS;
                 int first = count - (i + 1) * S::COLUMNS;
                 bool whole = first >= from && step - lane_row() + 15 <= rows[0].step;
                 /* the last query of these is the latest */
                 if (rows[S::COLUMNS - 1].step < step - lane_row()) return;
                 multiply_rows<S>(p, k, S::others(tile, stage, 0));
                 multiply_rows<S>(ds, v, S::others(tile, stage, 1));
                 if (w.a.o.dropout.rate > 0)
                   key_slopes<S, true, false>(w, at, rows, step, p, ds);
                 else if (whole)
                   key_slopes<S, false, true>(w, at, rows, step, p, ds);
                 else
                   key_slopes<S, false, false>(w, at, rows, step, p, ds);
                 add_pairs<S>(dv, p, S::others(tile, stage, 1));
                 add_pairs<S>(dk, ds, S::others(tile, stage, 0));
               });
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
