/* y[i] = f(f(x0[i], x1[i]), x2[i]), ... of several tensors of one type, in that order, with one
 * rounding at the end. Included by *_cuda.cu only. */
#ifndef SL_CODELETS_KERNELS_FOLD_CUDA_H
#define SL_CODELETS_KERNELS_FOLD_CUDA_H

#include "codelets/kernels/cuda.h"

namespace sl {

template <class T>
struct operands {
  const T *at[SL__BF16_MASK_BITS];
  int count = 0;
};

/* end: a functor with a __device__ operator()(float folded) -> float. old: added to the result; or
 * NULL. */
template <class F, class End, class T>
__global__ void fold_kernel(F f, End end, operands<T> x, int64_t n, const T *old, T *y) {
  int64_t i = thread_index();
  if (i >= n) return;
  float v = value(x.at[0][i]);
  for (int k = 1; k < x.count; k++) v = f(v, value(x.at[k][i]));
  v = end(v);
  y[i] = narrow<T>(old ? value(old[i]) + v : v);
}

template <class F, class End, class T>
void fold(struct sl__cuda *cuda, F f, End end, const operands<T> &x, int64_t n, const T *old,
          T *y) {
  SL__LAUNCH((fold_kernel<F, End, T>), blocks(n), THREADS, 0, cuda->stream, f, end, x, n, old, y);
}

}  // namespace sl

#endif
