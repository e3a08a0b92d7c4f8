/* The group of threads that processes a row together: a warp for short rows, part of one for very
 * short ones, else a block. Included by *_cuda.cu only. */
#ifndef SL_CODELETS_KERNELS_TEAM_CUDA_H
#define SL_CODELETS_KERNELS_TEAM_CUDA_H

#include "codelets/kernels/sums_cuda.h"

namespace sl {

constexpr int64_t SHORT_ROW = 1024;    /* maximum number of values for a warp */
constexpr int64_t VERY_SHORT_ROW = 32; /* for a quad */

/* The largest value so far and the index of its first occurrence; NaN is never larger. */
struct peak {
  float value;
  int32_t at;

  __device__ static peak none() { return {-INFINITY, INT32_MAX}; }
  __device__ void see(float x, int32_t i) {
    if (x > value || (x == value && i < at)) {
      value = x;
      at = i;
    }
  }
};

/* Over WIDTH lanes, those in the mask. */
template <int WIDTH>
__device__ inline peak lanes_peak(peak p, unsigned lanes) {
  for (int offset = WIDTH / 2; offset; offset /= 2) {
    float value = __shfl_xor_sync(lanes, p.value, offset);
    int at = __shfl_xor_sync(lanes, p.at, offset);
    p.see(value, at);
  }
  return p;
}

__device__ inline peak warp_peak(peak p) { return lanes_peak<32>(p, 0xffffffffu); }

/* Four lanes. Of a warp's eight quads some may have a row, and others none or one without a label,
 * so a quad exchanges values by itself. */
struct quad_team {
  static constexpr int WIDTH = 4;
  __device__ static int rank() { return static_cast<int>(threadIdx.x) % WIDTH; }
  __device__ static int size() { return WIDTH; }
  __device__ static int64_t first() { return thread_index() / WIDTH; }
  __device__ static int64_t count() { return static_cast<int64_t>(gridDim.x) * blockDim.x / WIDTH; }
  __device__ static unsigned lanes() { return 0xfu << (threadIdx.x % 32 / WIDTH * WIDTH); }
  template <class T>
  __device__ static T sum(T v) {
    for (int offset = WIDTH / 2; offset; offset /= 2) v += __shfl_xor_sync(lanes(), v, offset);
    return v;
  }
  __device__ static peak largest(peak p) { return lanes_peak<WIDTH>(p, lanes()); }
};

struct warp_team {
  static constexpr int WIDTH = 32;
  __device__ static int rank() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int size() { return 32; }
  __device__ static int64_t first() { return thread_index() / 32; }
  __device__ static int64_t count() { return static_cast<int64_t>(gridDim.x) * blockDim.x / 32; }
  template <class T>
  __device__ static T sum(T v) {
    return warp_sum(v);
  }
  __device__ static peak largest(peak p) { return warp_peak(p); }
};

struct block_team {
  static constexpr int WIDTH = 0; /* whatever the block's size is */
  __device__ static int rank() { return static_cast<int>(threadIdx.x); }
  __device__ static int size() { return static_cast<int>(blockDim.x); }
  __device__ static int64_t first() { return blockIdx.x; }
  __device__ static int64_t count() { return gridDim.x; }
  template <class T>
  __device__ static T sum(T v) {
    return block_sum(v);
  }
  __device__ static peak largest(peak p) {
    __shared__ float value[32];
    __shared__ int32_t at[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    p = warp_peak(p);
    __syncthreads(); /* an earlier row may still be read */
    if (lane == 0) value[warp] = p.value;
    if (lane == 0) at[warp] = p.at;
    __syncthreads();
    p = peak::none();
    if (lane < warps) p.see(value[lane], at[lane]);
    return warp_peak(p);
  }
};

/* The grid of blocks of `threads` threads in which each team has one row or several. */
template <class TEAM>
unsigned team_grid(int64_t rows, int threads) {
  int64_t teams = TEAM::WIDTH ? threads / TEAM::WIDTH : 1, grid = (rows + teams - 1) / teams;
  return static_cast<unsigned>(grid < PARTS ? grid : PARTS);
}

}  // namespace sl

#endif
