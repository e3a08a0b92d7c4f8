/* Optimizers' steps, one pass over memory; the arithmetic is update.h's. */
#include "codelets/kernels/update_cuda.h"

#include "codelets/update.h"

/* norm: squared, on the device; NULL: gradients are not clipped. */
#define SL__OP(name, modes, where)
#define SL__UPDATE(name, states, modes)                                                            \
  namespace {                                                                                      \
  struct name##_functor {                                                                          \
    sl__##name##_rates rates;                                                                      \
    float max_norm;                                                                                \
    const float *norm;                                                                             \
    name##_functor(const struct sl__update &u, const float *square)                                \
        : rates(sl__##name##_begin(&u)), max_norm(u.max_norm), norm(square) {}                     \
    bool operator==(const name##_functor &f) const {                                               \
      return !memcmp(&rates, &f.rates, sizeof rates) && max_norm == f.max_norm && norm == f.norm;  \
    }                                                                                              \
    __device__ float factor() const { return sl__clip_factor(max_norm, norm); }                    \
    __device__ void operator()(float g, float *own) const {                                        \
      sl__##name##_step(&rates, g, own, own + (states > 0 ? 1 : 0), own + (states > 1 ? 2 : 0));   \
    }                                                                                              \
  };                                                                                               \
  }                                                                                                \
  SL__CUDA_MANY(name) { sl::update<1 + states, name##_functor>(cuda, count, buffers, cl_args); }
#include "codelets/ops.def"
#undef SL__OP
