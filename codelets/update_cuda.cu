/* Optimizers' steps, one pass over memory; the arithmetic is update.h's. */
#include "codelets/kernels/update_cuda.h"

#include "codelets/update.h"

#define SL__OP(name, modes, where)
#define SL__UPDATE(name, states, modes)                                                            \
  namespace {                                                                                      \
  struct name##_functor {                                                                          \
    sl__update_args a;                                                                             \
    sl__##name##_rates rates;                                                                      \
    const float *norm; /* squared, on the device */                                                \
    __device__ float factor() const { return sl__clip_factor(&a, norm); }                          \
    __device__ void operator()(float g, float *own) const {                                        \
      sl__##name##_step(&rates, g, own, own + (states > 0 ? 1 : 0), own + (states > 1 ? 2 : 0));   \
    }                                                                                              \
  };                                                                                               \
  }                                                                                                \
  SL__CUDA(name) {                                                                                 \
    const sl__update_args *a = sl::args<sl__update_args>(cl_arg);                                  \
    int end = sl__buffer_count(cl_arg) - a->has_norm;                                              \
    name##_functor f = {*a, sl__##name##_begin(&a->u),                                             \
                        a->has_norm ? sl::in<float>(buffers, end) : nullptr};                      \
    sl::update<1 + states>(cuda, f, buffers, end);                                                 \
  }
#include "codelets/ops.def"
#undef SL__OP
