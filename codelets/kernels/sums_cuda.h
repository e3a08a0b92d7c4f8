/* Sums over a launch's blocks, in a fixed order: each block writes its own sum to the workspace,
 * and a second launch of one block adds them. Included by *_cuda.cu only. */
#ifndef SL_CODELETS_KERNELS_SUMS_CUDA_H
#define SL_CODELETS_KERNELS_SUMS_CUDA_H

#include "codelets/kernels/cuda.h"

namespace sl {

constexpr int64_t PARTS = 4096; /* maximum number of blocks whose sums are added */

/* Adds each of v over the block, which consists of whole warps; thread 0 has the sums. At most once
 * in a kernel. All K at once: each is a chain of shuffles, whose latencies overlap so. */
template <int K>
__device__ inline void block_sums(double (&v)[K]) {
  __shared__ double part[K][32];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
#pragma unroll
  for (int k = 0; k < K; k++) v[k] = warp_sum(v[k]);
#pragma unroll
  for (int k = 0; k < K; k++)
    if (lane == 0) part[k][warp] = v[k];
  __syncthreads();
  if (warp) return;
#pragma unroll
  for (int k = 0; k < K; k++) v[k] = warp_sum(lane < warps ? part[k][lane] : 0.0);
}

/* A launch's K results; with one block they are complete at once. */
template <int K>
struct sums {
  double *part; /* [blocks, K] */
  float *result;

  /* All threads of the block call it with their own partial sums v. */
  __device__ void leave(const double (&v)[K]) const {
    double sum[K];
#pragma unroll
    for (int k = 0; k < K; k++) sum[k] = v[k];
    block_sums(sum);
    if (threadIdx.x) return;
#pragma unroll
    for (int k = 0; k < K; k++)
      if (gridDim.x == 1)
        result[k] = static_cast<float>(sum[k]);
      else
        part[static_cast<int64_t>(blockIdx.x) * K + k] = sum[k];
  }
};

template <int K>
__global__ void add_parts(const double *part, int count, float *result) {
  double sum[K] = {};
#pragma unroll 4
  for (int i = threadIdx.x; i < count; i += blockDim.x)
#pragma unroll
    for (int k = 0; k < K; k++) sum[k] += part[i * K + k];
  block_sums(sum);
  if (threadIdx.x) return;
#pragma unroll
  for (int k = 0; k < K; k++) result[k] = static_cast<float>(sum[k]);
}

template <int K>
sums<K> sums_into(struct sl__cuda *cuda, float *result) {
  return {static_cast<double *>(cuda->workspace), result};
}

/* After a launch of `blocks` blocks, at most PARTS. */
template <int K>
void finish(struct sl__cuda *cuda, const sums<K> &s, unsigned grid) {
  if (grid > 1)
    SL__LAUNCH((add_parts<K>), 1, THREADS, 0, cuda->stream, static_cast<const double *>(s.part),
               static_cast<int>(grid), s.result);
}

/* Returns the sum of v over the threads before this one; total: over the whole block, which
 * consists of whole warps. */
__device__ inline int32_t sum_before(int32_t v, int32_t *total) {
  __shared__ int32_t part[32];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  int32_t sum = v;
  for (int offset = 1; offset < 32; offset *= 2) {
    int32_t below = __shfl_up_sync(0xffffffffu, sum, offset);
    if (lane >= offset) sum += below;
  }
  __syncthreads(); /* an earlier call may still read part */
  if (lane == 31) part[warp] = sum;
  __syncthreads();
  int32_t before = sum - v;
  *total = 0;
  for (int w = 0; w < warps; w++) {
    before += w < warp ? part[w] : 0;
    *total += part[w];
  }
  return before;
}

/* ---- squares -------------------------------------------------------------------------------- */

/* PACKED only says how four values are loaded: each thread has the same values in the same order
 * either way, since a shard's alignment may differ from run to run. */
template <bool PACKED>
__device__ inline double squares(const float *x, int64_t n) {
  constexpr int N = 4;
  int64_t packs = n / N, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  double sum = 0;
#pragma unroll 4
  for (int64_t p = thread_index(); p < packs; p += step) {
    const auto v = load_pack < N, PACKED ? N : 1 > (x + p * N);
#pragma unroll
    for (int k = 0; k < N; k++) sum += static_cast<double>(v.v[k]) * static_cast<double>(v.v[k]);
  }
  for (int64_t i = packs * N + thread_index(); i < n; i += step)
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

/* Over n values; if count is given, over count[0] rows of n. */
template <bool PACKED>
__global__ void square_parts(const float *x, const int32_t *count, int64_t n, sums<1> s) {
  double sum[1] = {squares<PACKED>(x, count ? count[0] * n : n)};
  s.leave(sum);
}

/* most: upper bound of the number of values. */
inline void square_sum(struct sl__cuda *cuda, const float *x, const int32_t *count, int64_t n,
                       int64_t most, float *result) {
  sums<1> s = sums_into<1>(cuda, result);
  int64_t wanted = blocks(most, 16 * THREADS); /* a few packs a thread */
  unsigned grid = static_cast<unsigned>(wanted < 1024 ? wanted : 1024);
  if (is_aligned(x))
    SL__LAUNCH((square_parts<true>), grid, THREADS, 0, cuda->stream, x, count, n, s);
  else
    SL__LAUNCH((square_parts<false>), grid, THREADS, 0, cuda->stream, x, count, n, s);
  finish(cuda, s, grid);
}

}  // namespace sl

#endif
