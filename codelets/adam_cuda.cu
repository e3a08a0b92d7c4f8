/* Adam and AdamW, one pass over memory; the arithmetic is update.h's. */
#include "codelets/kernels/update_cuda.h"

#include "codelets/kernels/update.h"

namespace {
struct adam {
  sl__update_args a;
  sl__adam_rates s;
  const float *norm; /* squared, on the device */
  __device__ float factor() const { return sl__clip_factor(&a, norm); }
  __device__ void operator()(float g, float *own) const {
    sl__adam_step(&s, g, &own[0], &own[1], &own[2]);
  }
};
}  // namespace

SL__CUDA(adam) {
  const sl__update_args *a = sl::args<sl__update_args>(cl_arg);
  int end = sl__buffer_count(cl_arg) - a->has_norm;
  adam f = {*a, sl__adam_begin(&a->u), a->has_norm ? sl::in<float>(buffers, end) : nullptr};
  sl::update<3>(cuda, f, buffers, end);
}
