/* Activations as operations of their own; the arithmetic is activation.h's. */
#include "codelets/kernels/activate_cuda.h"

namespace {
template <enum sl_activation A>
struct backward {
  __device__ float operator()(int64_t, float saved, float dy) const {
    return dy * sl__activation_slope(A, saved);
  }
  __device__ float operator()(int64_t, float saved, float dy, float dx) const {
    return dx + dy * sl__activation_slope(A, saved);
  }
};

template <template <enum sl_activation> class F, class... M>
void each(const void *cl_arg, struct sl__cuda *cuda, M... m) {
  const struct sl__activation_args *a = sl::args<sl__activation_args>(cl_arg);
  sl::map_activation<F>(cuda, a->activation, a->count, m...);
}
}  // namespace

SL__CUDA(activation_forward) {
  SL__BY_TYPE(
      cl_arg, 0, T,
      each<sl::activation_forward>(cl_arg, cuda, sl::out<T>(buffers, 1), sl::in<T>(buffers, 0)));
}

template <class T>
static void backward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const T *saved = sl::in<T>(buffers, 0), *dy = sl::in<T>(buffers, 1);
  T *dx = sl::out<T>(buffers, 2);
  if (sl__accumulate(cl_arg))
    each<backward>(cl_arg, cuda, dx, saved, dy, (const T *)dx);
  else
    each<backward>(cl_arg, cuda, dx, saved, dy);
}

SL__CUDA(activation_backward) {
  SL__BY_TYPE(cl_arg, 0, T, backward_task<T>(buffers, cl_arg, cuda));
}

SL__CUDA(activation_backward_inplace) {
  SL__BY_TYPE(cl_arg, 0, T,
              each<backward>(cl_arg, cuda, sl::out<T>(buffers, 1), sl::in<T>(buffers, 0),
                             sl::in<T>(buffers, 1)));
}
