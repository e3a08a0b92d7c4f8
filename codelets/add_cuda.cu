/* y = a + b. */
#include "codelets/kernels/cuda.h"

namespace {
struct sum {
  __device__ float operator()(int64_t, float a, float b) const { return a + b; }
};
}  // namespace

SL__CUDA(add) {
  int64_t n = *sl::args<int64_t>(cl_arg);
  SL__BY_TYPE(cl_arg, 2, T,
              sl::map(cuda, n, sum(), sl::out<T>(buffers, 2), sl::in<T>(buffers, 0),
                      sl::in<T>(buffers, 1)));
}
