/* Softmax and cross-entropy of rows of logits on a GPU, for the operations that have them. Included
 * by *_cuda.cu only. */
#ifndef SL_CODELETS_KERNELS_XENT_CUDA_H
#define SL_CODELETS_KERNELS_XENT_CUDA_H

#include "codelets/activation.h"
#include "codelets/kernels/team_cuda.h"
#include "codelets/softmax_xent.h"
#include <starling/data.h>

namespace sl {

constexpr int64_t XENT_ROOM = 10240; /* values of a row that fit into shared memory */

/* A row, seen by a thread of its team: every size-th value. If shared memory holds it, the values
 * are read from global memory once. */
template <class T, class TEAM, bool KEEP>
struct xent_line {
  const T *from;
  float *plan_cache;
  int32_t classes;

  __device__ float at(int32_t c) const { return KEEP ? plan_cache[c] : value(from[c]); }
  /* Whether this thread of the team reads and writes value c. */
  __device__ bool owns(int32_t c) const { return c % TEAM::size() == TEAM::rank(); }

  __device__ peak largest() const {
    peak p = peak::none();
#pragma unroll 8
    for (int32_t c = TEAM::rank(); c < classes; c += TEAM::size()) {
      float x = value(from[c]);
      if (KEEP) plan_cache[c] = x;
      p.see(x, c);
    }
    p = TEAM::largest(p);
    if (p.at >= classes) p = {NAN, 0}; /* all are NaN: the loss check reports it */
    return p;
  }

  __device__ double exponentials(float most) const {
    double sum = 0;
#pragma unroll 8
    for (int32_t c = TEAM::rank(); c < classes; c += TEAM::size())
      sum += static_cast<double>(sl__exp(at(c) - most));
    return TEAM::sum(sum);
  }

  __device__ void gradient(float most, float factor, int32_t label, float scale, T *out) const {
#pragma unroll 4
    for (int32_t c = TEAM::rank(); c < classes; c += TEAM::size()) {
      float e = sl__exp(at(c) - most) * factor;
      out[c] = narrow<T>(c == label ? e - scale : e);
    }
  }

  /* With label smoothing and class weights (NULL: 1): the loss, on the thread of the label's logit,
   * and the gradient. */
  __device__ double weighted(const sl__xent_args &a, const float *weights, float most, double sum,
                             int32_t label, T *out) const {
    double logit = owns(label) ? static_cast<double>(at(label)) : 0; /* out may replace it */
    sl__xent_parts parts = sl__xent_parts_of(&a, weights, label);
    double log_sum = log(sum) + static_cast<double>(most), all = 0, loss = 0;
    for (int32_t c = TEAM::rank(); c < classes; c += TEAM::size()) {
      double weight = weights ? static_cast<double>(weights[c]) : 1;
      all += weight;
      loss += sl__xent_weighed(weight, log_sum - static_cast<double>(at(c)));
    }
    all = TEAM::sum(all);
    loss = sl__xent_weighed(parts.class_part, TEAM::sum(loss)) +
           sl__xent_weighed(parts.label_part, log_sum - logit);
    if (isnan(log_sum)) loss = log_sum; /* the loss check reports it */
    double factor = (parts.label_part + parts.class_part * all) / sum;
    for (int32_t c = TEAM::rank(); out && c < classes; c += TEAM::size()) {
      double target = parts.class_part * (weights ? static_cast<double>(weights[c]) : 1);
      if (c == label) target += parts.label_part;
      double e = static_cast<double>(sl__exp(at(c) - most));
      out[c] = narrow<T>(static_cast<float>(static_cast<double>(a.scale) * (factor * e - target)));
    }
    return loss;
  }
};

/* dlogits may be NULL, or the logits: each thread replaces values that it alone reads from then on.
 * The sums: losses, right, counted, outside. WEIGHTED: with label smoothing or class weights. */
template <class T, class TEAM, bool KEEP, bool WEIGHTED>
__global__ void __launch_bounds__(1024, 1)
    xent(sl__xent_args a, const T *logits, const int32_t *labels, const float *weights, T *dlogits,
         sums<4> sums) {
  SL__SHARED(float, plan_cache);
  double v[4] = {0, 0, 0, 0};
  for (int64_t n = TEAM::first(); n < a.rows; n += TEAM::count()) {
    xent_line<T, TEAM, KEEP> row = {logits + n * a.classes, plan_cache,
                                    static_cast<int32_t>(a.classes)};
    T *out = dlogits ? dlogits + n * a.classes : nullptr;
    int32_t label = sl__xent_label(&a, labels, n);
    bool mine = TEAM::rank() == 0, has_label = row.owns(label);
    if (label < 0 || label >= row.classes) {
      v[3] += mine && label != SL_IGNORE;
      for (int32_t c = TEAM::rank(); out && c < row.classes; c += TEAM::size())
        out[c] = narrow<T>(0);
      continue;
    }
    peak best = row.largest();
    double logit =
        has_label ? static_cast<double>(value(row.from[label])) : 0; /* out replaces it */
    double sum = row.exponentials(best.value), loss = 0;
    if (WEIGHTED) {
      loss = row.weighted(a, weights, best.value, sum, label, out);
    } else {
      if (has_label) loss = log(sum) - (logit - static_cast<double>(best.value));
      float factor = static_cast<float>(static_cast<double>(a.scale) / sum);
      if (out) row.gradient(best.value, factor, label, a.scale, out);
    }
    v[0] += has_label ? loss : 0;
    v[1] += mine && best.at == label;
    v[2] += mine;
  }
  sums.leave(v);
}

constexpr int HELD_THREADS = 512;

/* A row whose values stay in the registers of a block's threads, in packs of 16 bytes; PACKED only
 * says how they are loaded and stored. */
template <class T, bool PACKED>
struct held_row {
  static constexpr int N = 16 / sizeof(T),
                       PACKS = (XENT_ROOM / N + HELD_THREADS - 1) / HELD_THREADS;
  float v[PACKS][N];
  int packs; /* of the row */

  __device__ static int pack_of(int p) { return p * HELD_THREADS + static_cast<int>(threadIdx.x); }

  __device__ static void store_pack(const pack<T, N> &some, T *to) {
    if constexpr (PACKED)
      *reinterpret_cast<pack<T, N> *>(to) = some;
    else
#pragma unroll
      for (int k = 0; k < N; k++) to[k] = some.v[k];
  }

  __device__ void load(const T *from) {
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
      bool has = pack_of(p) < packs;
      const auto some = load_pack < N, PACKED ? N : 1 > (from + (has ? pack_of(p) : 0) * N);
#pragma unroll
      for (int k = 0; k < N; k++) v[p][k] = has ? value(some.v[k]) : -INFINITY;
    }
  }

  __device__ peak largest() const {
    peak top = peak::none();
#pragma unroll
    for (int p = 0; p < PACKS; p++)
#pragma unroll
      for (int k = 0; k < N; k++) top.see(v[p][k], pack_of(p) * N + k);
    top = block_team::largest(top);
    if (top.at >= packs * N) top = {NAN, 0}; /* all are NaN: the loss check reports it */
    return top;
  }

  /* The values become exponentials; returns their sum. */
  __device__ double exponentials(float most) {
    double sum = 0;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
      if (pack_of(p) >= packs) continue;
      float some = 0;
#pragma unroll
      for (int k = 0; k < N; k++) some += v[p][k] = sl__exp(v[p][k] - most);
      sum += static_cast<double>(some);
    }
    return block_team::sum(sum);
  }

  __device__ void store_gradient(float factor, int32_t label, float scale, T *out) const {
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
      pack<T, N> slopes;
      if (pack_of(p) >= packs) continue;
#pragma unroll
      for (int k = 0; k < N; k++) {
        float e = v[p][k] * factor;
        slopes.v[k] = narrow<T>(pack_of(p) * N + k == label ? e - scale : e);
      }
      store_pack(slopes, out + pack_of(p) * N);
    }
  }
};

/* As xent without weights, for rows of whole packs, at most XENT_ROOM values: a block a row, which
 * is read and written once. */
template <class T, bool PACKED>
__global__ void __launch_bounds__(HELD_THREADS, 2)
    xent_held(sl__xent_args a, const T *logits, const int32_t *labels, T *dlogits, sums<4> sums) {
  constexpr int N = held_row<T, PACKED>::N;
  double loss = 0;
  int32_t right = 0, counted = 0, outside = 0, classes = static_cast<int32_t>(a.classes);
  for (int64_t n = blockIdx.x; n < a.rows; n += gridDim.x) {
    const T *from = logits + n * classes;
    T *out = dlogits ? dlogits + n * classes : nullptr;
    int32_t label = sl__xent_label(&a, labels, n);
    bool mine = threadIdx.x == 0,
         has_label = label / N % HELD_THREADS == static_cast<int>(threadIdx.x);
    if (label < 0 || label >= classes) {
      outside += mine && label != SL_IGNORE;
      for (int32_t c = static_cast<int>(threadIdx.x); out && c < classes; c += HELD_THREADS)
        out[c] = narrow<T>(0);
      continue;
    }
    held_row<T, PACKED> row;
    row.packs = classes / N;
    row.load(from);
    double logit = has_label ? static_cast<double>(value(from[label])) : 0; /* out replaces it */
    const peak best = row.largest();
    double sum = row.exponentials(best.value);
    if (has_label) loss += log(sum) - (logit - static_cast<double>(best.value));
    float factor = static_cast<float>(static_cast<double>(a.scale) / sum);
    if (out) row.store_gradient(factor, label, a.scale, out);
    right += mine && best.at == label;
    counted += mine;
  }
  sums.leave({loss, static_cast<double>(right), static_cast<double>(counted),
              static_cast<double>(outside)});
}

/* The arrays of a launch; weights and dlogits may be NULL. */
template <class T>
struct xent_memory {
  const T *logits;
  const int32_t *labels;
  const float *weights;
  T *dlogits;
  float *stats; /* [4] */
};

template <class T, class TEAM, bool KEEP, bool WEIGHTED>
void xent_launch(const sl__xent_args &a, const xent_memory<T> &m, int threads,
                 struct sl__cuda *cuda) {
  sums<4> s = sums_into<4>(cuda, m.stats);
  unsigned grid = team_grid<TEAM>(a.rows, threads);
  size_t shared = KEEP ? static_cast<size_t>(a.classes) * sizeof(float) : 0;
  SL__LAUNCH((xent<T, TEAM, KEEP, WEIGHTED>), grid, threads, shared, cuda->stream, a, m.logits,
             m.labels, m.weights, m.dlogits, s);
  finish(cuda, s, grid);
}

/* By the sizes only, so that bits do not depend on addresses. */
template <class T>
bool takes_held_rows(const sl__xent_args &a) {
  return a.classes <= XENT_ROOM && a.classes % held_row<T, true>::N == 0;
}

template <class T>
void xent_held_launch(const sl__xent_args &a, const xent_memory<T> &m, struct sl__cuda *cuda) {
  sums<4> s = sums_into<4>(cuda, m.stats);
  unsigned grid = team_grid<block_team>(a.rows, HELD_THREADS);
  if (is_aligned(m.logits) && is_aligned(m.dlogits))
    SL__LAUNCH((xent_held<T, true>), grid, HELD_THREADS, 0, cuda->stream, a, m.logits, m.labels,
               m.dlogits, s);
  else
    SL__LAUNCH((xent_held<T, false>), grid, HELD_THREADS, 0, cuda->stream, a, m.logits, m.labels,
               m.dlogits, s);
  finish(cuda, s, grid);
}

/* Few rows are one block's, so that no launch adds the blocks' sums. */
template <class T, bool WEIGHTED>
void xent_quads(const sl__xent_args &a, const xent_memory<T> &m, struct sl__cuda *cuda) {
  int64_t threads = (a.rows * quad_team::WIDTH + 31) / 32 * 32;
  xent_launch<T, quad_team, false, WEIGHTED>(
      a, m, threads <= 1024 ? static_cast<int>(threads) : THREADS, cuda);
}

template <class T>
void xent_rows(const sl__xent_args &a, const xent_memory<T> &m, struct sl__cuda *cuda) {
  bool weighted = a.weighted || a.smoothing > 0;
  if (weighted && a.classes <= VERY_SHORT_ROW)
    xent_quads<T, true>(a, m, cuda);
  else if (a.classes <= VERY_SHORT_ROW)
    xent_quads<T, false>(a, m, cuda);
  else if (weighted && a.classes <= SHORT_ROW)
    xent_launch<T, warp_team, false, true>(a, m, THREADS, cuda);
  else if (weighted)
    xent_launch<T, block_team, false, true>(a, m, THREADS, cuda);
  else if (a.classes <= SHORT_ROW)
    xent_launch<T, warp_team, false, false>(a, m, THREADS, cuda);
  else if (takes_held_rows<T>(a))
    xent_held_launch(a, m, cuda);
  else if (a.classes <= XENT_ROOM)
    xent_launch<T, block_team, true, false>(a, m, THREADS, cuda);
  else /* few blocks at a time, so that their rows stay in the second-level cache */
    xent_launch<T, block_team, false, false>(a, m, 1024, cuda);
}

}  // namespace sl

#endif
