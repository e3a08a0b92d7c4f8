/* y = value everywhere. */
#include "codelets/kernels/cuda.h"
#include "codelets/kernels/elementwise.h"

namespace {
struct constant {
  float value;
  __device__ float operator()(int64_t) const { return value; }
};
}  // namespace

SL__CUDA(fill) {
  const struct sl__scalar_args *a = sl::args<sl__scalar_args>(cl_arg);
  SL__BY_TYPE(cl_arg, 0, T, sl::map(cuda, a->count, constant{a->scalar}, sl::out<T>(buffers, 0)));
}
