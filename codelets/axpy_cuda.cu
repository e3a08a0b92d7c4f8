/* y (+)= alpha x; a change of type where x and y have different ones. */
#include "codelets/kernels/cuda.h"
#include "codelets/kernels/elementwise.h"

namespace {
struct scale {
  float alpha;
  __device__ float operator()(int64_t, float x) const { return alpha * x; }
};

struct scale_add {
  float alpha;
  __device__ float operator()(int64_t, float x, float y) const { return y + alpha * x; }
};

template <class X, class Y>
void axpy(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const struct sl__scalar_args *a = sl::args<sl__scalar_args>(cl_arg);
  const X *x = sl::in<X>(buffers, 0);
  Y *y = sl::out<Y>(buffers, 1);
  if (sl__accumulate(cl_arg))
    sl::map(cuda, a->count, scale_add{a->scalar}, y, x, (const Y *)y);
  else
    sl::map(cuda, a->count, scale{a->scalar}, y, x);
}
}  // namespace

SL__CUDA(axpy) {
  SL__BY_TYPE(cl_arg, 0, X, SL__BY_TYPE(cl_arg, 1, Y, axpy<X, Y>(buffers, cl_arg, cuda)));
}
