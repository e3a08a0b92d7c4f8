/* sum [1] = the sum of x's squares, in double precision and in a fixed order. */
#include "codelets/kernels/sums_cuda.h"

SL__CUDA(square_sum) {
  int64_t n = *sl::args<int64_t>(cl_arg);
  sl::square_sum(cuda, sl::in<float>(buffers, 0), nullptr, n, n, sl::out<float>(buffers, 1));
}
