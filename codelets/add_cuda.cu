/* y = a + b, with a relu behind it or not. */
#include "codelets/add.h"

#include "codelets/kernels/cuda.h"

namespace {

struct sum {
  bool has_relu;
  __device__ float operator()(int64_t, float a, float b) const {
    return has_relu ? sl__activation_value(SL_ACTIVATION_RELU, a + b) : a + b;
  }
};

struct slope {
  __device__ float operator()(int64_t, float y, float dy) const {
    return dy * sl__activation_slope(SL_ACTIVATION_RELU, y);
  }
  __device__ float operator()(int64_t i, float y, float dy, float dx) const {
    return dx + (*this)(i, y, dy);
  }
};

template <class T>
void backward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  int64_t n = sl::args<sl__add_args>(cl_arg)->count;
  const T *y = sl::in<T>(buffers, 0), *dy = sl::in<T>(buffers, 1);
  for (int i = 2; i < 4; i++) {
    T *dx = sl::out<T>(buffers, i);
    if (sl__accumulate(cl_arg))
      sl::map(cuda, n, slope(), dx, y, dy, (const T *)dx);
    else
      sl::map(cuda, n, slope(), dx, y, dy);
  }
}

}  // namespace

SL__CUDA(add) {
  const sl__add_args *a = sl::args<sl__add_args>(cl_arg);
  SL__BY_TYPE(cl_arg, 2, T,
              sl::map(cuda, a->count, sum{a->has_relu != 0}, sl::out<T>(buffers, 2),
                      sl::in<T>(buffers, 0), sl::in<T>(buffers, 1)));
}

SL__CUDA(add_relu_backward) { SL__BY_TYPE(cl_arg, 0, T, backward_task<T>(buffers, cl_arg, cuda)); }
