/* Activations as functors of sl::map, with the activation as a constant of the kernel. Included by
 * *_cuda.cu only. */
#ifndef SL_CODELETS_KERNELS_ACTIVATE_CUDA_H
#define SL_CODELETS_KERNELS_ACTIVATE_CUDA_H

#include "codelets/activation.h"
#include "codelets/kernels/cuda.h"

namespace sl {

template <enum sl_activation A>
struct activation_forward {
  __device__ float operator()(int64_t, float x) const { return sl__activation_value(A, x); }
};

/* sl::map of n values with F<activation>. */
template <template <enum sl_activation> class F, class... M>
void map_activation(struct sl__cuda *cuda, int activation, int64_t n, M... m) {
  switch (activation) {
    case SL_ACTIVATION_RELU: map(cuda, n, F<SL_ACTIVATION_RELU>(), m...); break;
    case SL_ACTIVATION_TANH: map(cuda, n, F<SL_ACTIVATION_TANH>(), m...); break;
    case SL_ACTIVATION_SIGMOID: map(cuda, n, F<SL_ACTIVATION_SIGMOID>(), m...); break;
    case SL_ACTIVATION_GELU: map(cuda, n, F<SL_ACTIVATION_GELU>(), m...); break;
    case SL_ACTIVATION_GELU_TANH: map(cuda, n, F<SL_ACTIVATION_GELU_TANH>(), m...); break;
    case SL_ACTIVATION_SILU: map(cuda, n, F<SL_ACTIVATION_SILU>(), m...); break;
    default: map(cuda, n, F<SL_ACTIVATION_NONE>(), m...); break;
  }
}

}  // namespace sl

#endif
