/* Plane, row and column of a thread's element; for *_cuda.cu only. */
#ifndef SL_CODELETS_KERNELS_INDEX_CUDA_H
#define SL_CODELETS_KERNELS_INDEX_CUDA_H

#include "codelets/kernels/cuda.h"

namespace sl {

/* n / by without a division, for n below 2^31 (Granlund and Montgomery, "Division by invariant
 * integers using multiplication", 1994). An integer division takes a GPU about 20 instructions: as
 * many as a memory-bound kernel may spend on a value. */
struct divider {
  int64_t by = 1;
  uint32_t factor = 1;
  int shift = 0;

  divider() = default;
  explicit divider(int64_t divisor) : by(divisor) {
    if (by > INT32_MAX) return;
    while (int64_t{1} << shift < by) shift++;
    factor = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - by)) / by + 1);
  }
  __host__ __device__ int64_t operator()(int64_t n) const {
    if (n > INT32_MAX) return n / by;
    if (by > INT32_MAX) return 0;
    uint32_t small = static_cast<uint32_t>(n);
    uint32_t high = static_cast<uint32_t>(static_cast<uint64_t>(small) * factor >> 32);
    return (high + small) >> shift;
  }
};

/* Elements of consecutive planes [height, width]. */
struct place {
  int64_t plane;
  int32_t h, w;
};

struct planes {
  divider area, row;

  planes(int32_t height, int32_t width) : area(int64_t{height} * width), row(width) {}
  __device__ place operator()(int64_t i) const {
    int64_t plane = area(i), rest = i - plane * area.by, h = row(rest);
    return {plane, static_cast<int32_t>(h), static_cast<int32_t>(rest - h * row.by)};
  }
};

/* For rows of `width` elements (or packs): a block is as wide as a row if that is less than
 * THREADS, and then takes several rows. */
inline dim3 row_block(int64_t width) {
  unsigned x = 1;
  while (x < THREADS && x < width) x *= 2;
  return dim3(x, THREADS / x);
}

}  // namespace sl

#endif
