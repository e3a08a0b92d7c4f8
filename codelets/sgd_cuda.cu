/* Stochastic gradient descent, one pass over memory; the arithmetic is update.h's. */
#include "codelets/kernels/update_cuda.h"

#include "codelets/kernels/update.h"

namespace {
struct plain {
  sl__update_args a;
  const float *norm; /* squared, on the device */
  __device__ float factor() const { return sl__clip_factor(&a, norm); }
  __device__ void operator()(float g, float *own) const { sl__sgd_step(&a.u, g, &own[0]); }
};

struct momentum : plain {
  __device__ void operator()(float g, float *own) const {
    sl__momentum_step(&a.u, g, &own[0], &own[1]);
  }
};

template <int M, class F>
void descend(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__update_args *a = sl::args<sl__update_args>(cl_arg);
  int end = sl__buffer_count(cl_arg) - a->has_norm;
  F f;
  f.a = *a;
  f.norm = a->has_norm ? sl::in<float>(buffers, end) : nullptr;
  sl::update<M>(cuda, f, buffers, end);
}
}  // namespace

SL__CUDA(sgd) { descend<1, plain>(buffers, cl_arg, cuda); }

SL__CUDA(sgd_momentum) { descend<2, momentum>(buffers, cl_arg, cuda); }
