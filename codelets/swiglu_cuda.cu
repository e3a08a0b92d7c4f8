/* Gated linear unit with SiLU: a thread a value of y. */
#include "codelets/swiglu.h"

#include "codelets/kernels/cuda.h"

namespace {

template <class T>
__global__ void forward(sl__swiglu_args a, const T *x, T *y) {
  int64_t i = sl::thread_index();
  if (i >= a.rows * a.features) return;
  const T *gate = x + i + i / a.features * a.features;
  y[i] = sl::narrow<T>(sl__silu(sl::value(gate[0])) * sl::value(gate[a.features]));
}

template <class T>
__global__ void backward(sl__swiglu_args a, const T *x, const T *dy, T *dx, bool add) {
  int64_t i = sl::thread_index();
  if (i >= a.rows * a.features) return;
  int64_t at = i + i / a.features * a.features;
  float gate = sl::value(x[at]), up = sl::value(x[at + a.features]), slope = sl::value(dy[i]);
  T *dgate = dx + at, *dup = dgate + a.features;
  *dgate = sl::narrow<T>((add ? sl::value(*dgate) : 0) + slope * up * sl__silu_slope(gate));
  *dup = sl::narrow<T>((add ? sl::value(*dup) : 0) + slope * sl__silu(gate));
}

}  // namespace

SL__CUDA(swiglu_forward) {
  sl__swiglu_args a = *sl::args<sl__swiglu_args>(cl_arg);
  SL__BY_TYPE(cl_arg, 0, T,
              SL__LAUNCH((forward<T>), sl::blocks(a.rows * a.features), sl::THREADS, 0,
                         cuda->stream, a, sl::in<T>(buffers, 0), sl::out<T>(buffers, 1)));
}

SL__CUDA(swiglu_backward) {
  sl__swiglu_args a = *sl::args<sl__swiglu_args>(cl_arg);
  SL__BY_TYPE(cl_arg, 0, T,
              SL__LAUNCH((backward<T>), sl::blocks(a.rows * a.features), sl::THREADS, 0,
                         cuda->stream, a, sl::in<T>(buffers, 0), sl::in<T>(buffers, 1),
                         sl::out<T>(buffers, 2), sl__accumulate(cl_arg)));
}
