/* Sums of tensors, with a relu behind them or not. */
#include "codelets/add.h"

#include "codelets/kernels/cuda.h"
#include "codelets/kernels/fold_cuda.h"

namespace {

struct sum {
  bool has_relu;
  __device__ float operator()(int64_t, float a, float b) const {
    return has_relu ? sl__activation_value(SL_ACTIVATION_RELU, a + b) : a + b;
  }
};

struct plus {
  __device__ float operator()(float a, float b) const { return a + b; }
};

struct relu_if {
  bool has_relu;
  __device__ float operator()(float sum) const {
    return has_relu ? sl__activation_value(SL_ACTIVATION_RELU, sum) : sum;
  }
};

template <class T>
void forward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__add_args *a = sl::args<sl__add_args>(cl_arg);
  bool has_relu = a->has_relu != 0;
  if (a->terms == 2) /* several values a thread */
    sl::map(cuda, a->count, sum{has_relu}, sl::out<T>(buffers, 2), sl::in<T>(buffers, 0),
            sl::in<T>(buffers, 1));
  else
    sl::fold<T>(cuda, plus(), relu_if{has_relu}, buffers, a->terms + 1, 2, a->count, false);
}

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

SL__CUDA(add) { SL__BY_TYPE(cl_arg, 2, T, forward_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(add_relu_backward) { SL__BY_TYPE(cl_arg, 0, T, backward_task<T>(buffers, cl_arg, cuda)); }
