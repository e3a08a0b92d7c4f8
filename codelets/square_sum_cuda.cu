/* sum [1] = the sum of x's squares, in double precision and in a fixed order. */
#include "codelets/kernels/sums_cuda.h"
#include "codelets/reduce.h"

SL__CUDA(square_sum) {
  const sl__reduce_args *a = sl::args<sl__reduce_args>(cl_arg);
  sl::square_sum(cuda, sl::in<float>(buffers, 0) + a->first, nullptr, a->count, a->count,
                 sl::out<float>(buffers, 1));
}
