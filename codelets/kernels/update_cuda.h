/* Common parts of the CUDA halves of reduce and of the optimizers: sums of many tensors in their
 * order, and the element-wise work on them in the same pass over memory. Included by *_cuda.cu
 * only. */
#ifndef SL_CODELETS_KERNELS_UPDATE_CUDA_H
#define SL_CODELETS_KERNELS_UPDATE_CUDA_H

#include "codelets/kernels/cuda.h"

namespace sl {

constexpr int TERMS =
    64; /* addresses that one launch takes as arguments; more terms need another launch before */

struct terms {
  const float *at[TERMS];
  int count;
};

template <int M>
struct owned {
  float *at[M];
};

/* at[0][p] + at[1][p] + ..., in that order; the loads are independent of the sums. */
template <int N>
__device__ inline pack<float, N> sum_of(const terms &t, int64_t p) {
  pack<float, N> sum = reinterpret_cast<const pack<float, N> *>(t.at[0])[p];
#pragma unroll 4
  for (int k = 1; k < t.count; k++) {
    pack<float, N> x = reinterpret_cast<const pack<float, N> *>(t.at[k])[p];
#pragma unroll
    for (int j = 0; j < N; j++) sum.v[j] += x.v[j];
  }
  return sum;
}

template <int N, int M, class F>
__device__ inline void step_pack(const F &f, float factor, int64_t p, const terms &t,
                                 const owned<M> &own) {
  pack<float, N> x[M];
#pragma unroll
  for (int m = 0; m < M; m++) x[m] = reinterpret_cast<const pack<float, N> *>(own.at[m])[p];
  pack<float, N> g = sum_of<N>(t, p);
#pragma unroll
  for (int j = 0; j < N; j++) {
    float v[M];
#pragma unroll
    for (int m = 0; m < M; m++) v[m] = x[m].v[j];
    f(g.v[j] * factor, v);
#pragma unroll
    for (int m = 0; m < M; m++) x[m].v[j] = v[m];
  }
#pragma unroll
  for (int m = 0; m < M; m++) reinterpret_cast<pack<float, N> *>(own.at[m])[p] = x[m];
}

/* One thread a pack; the thread after the last pack takes the remaining values. */
template <int N, int M, class F>
__global__ void step_packs(F f, int64_t n, terms t, owned<M> own) {
  int64_t packs = n / N, p = thread_index();
  float factor = f.factor();
  if (p < packs)
    step_pack<N, M>(f, factor, p, t, own);
  else if (p == packs)
    for (int64_t i = packs * N; i < n; i++) step_pack<1, M>(f, factor, i, t, own);
}

template <int M, class F>
void step_launch(struct sl__cuda *cuda, const F &f, int64_t n, const terms &t,
                 const owned<M> &own) {
  bool aligned = true;
  for (int k = 0; k < t.count; k++) aligned = aligned && is_aligned(t.at[k]);
  for (int m = 0; m < M; m++) aligned = aligned && is_aligned(own.at[m]);
  if (aligned)
    SL__LAUNCH((step_packs<4, M, F>), blocks(n / 4 + 1), THREADS, 0, cuda->stream, f, n, t, own);
  else
    SL__LAUNCH((step_packs<1, M, F>), blocks(n + 1), THREADS, 0, cuda->stream, f, n, t, own);
}

struct take_sum {
  __device__ float factor() const { return 1; }
  __device__ void operator()(float sum, float *own) const { own[0] = sum; }
};

/* own = f(factor (lead + the buffers first..end-1), own) for n elements from `offset` on (in the
 * buffers from offset + skip on); lead may be NULL. Sums of more than TERMS terms begin in `into`,
 * which has space for n. f: a functor with __device__ members factor() -> float and
 * operator()(float sum, float *own). */
template <int M, class F>
void step(struct sl__cuda *cuda, const F &f, int64_t offset, int64_t skip, int64_t n,
          const float *lead, void *buffers[], int first, int end, owned<M> own, float *into) {
  terms t;
  for (;;) {
    t.count = 0;
    if (lead) t.at[t.count++] = lead;
    while (first < end && t.count < TERMS)
      t.at[t.count++] = in<float>(buffers, first++) + skip + offset;
    if (first == end) break;
    step_launch<1>(cuda, take_sum(), n, t, owned<1>{{into}});
    lead = into;
  }
  for (int m = 0; m < M; m++) own.at[m] += offset;
  step_launch<M>(cuda, f, n, t, own);
}

/* The same for an optimizer: gradients are the buffers from M on, except the norm at the end. Long
 * sums begin in the workspace, one range of elements after the other. */
template <int M, class F>
void update(struct sl__cuda *cuda, const F &f, void *buffers[], int end) {
  constexpr int64_t ROOM = SL__CUDA_WORKSPACE / sizeof(float);
  owned<M> own;
  for (int m = 0; m < M; m++) own.at[m] = out<float>(buffers, m);
  own.at[0] += f.a.param_first;
  int64_t n = f.a.count, part = end - M > TERMS ? ROOM : n;
  for (int64_t offset = 0; offset < n; offset += part)
    step<M>(cuda, f, offset, f.a.gradient_first, n - offset < part ? n - offset : part, nullptr,
            buffers, M, end, own, static_cast<float *>(cuda->workspace));
}

}  // namespace sl

#endif
