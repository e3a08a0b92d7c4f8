/* Softmax and cross-entropy in one, with its gradient. */
#include "codelets/kernels/xent_cuda.h"

namespace {

template <class T>
void task(void *buffers[], void *cl_arg, T *dlogits, struct sl__cuda *cuda) {
  const sl__xent_args *a = sl::args<sl__xent_args>(cl_arg);
  const float *weights = a->weighted ? sl::in<float>(buffers, dlogits ? 4 : 3) : nullptr;
  sl::xent_rows<T>(*a,
                   {sl::in<T>(buffers, 0), sl::in<int32_t>(buffers, 1), weights, dlogits,
                    sl::out<float>(buffers, 2)},
                   cuda);
}
}  // namespace

SL__CUDA(softmax_xent) { SL__BY_TYPE(cl_arg, 0, T, task<T>(buffers, cl_arg, nullptr, cuda)); }

SL__CUDA(softmax_xent_gradient) {
  SL__BY_TYPE(cl_arg, 0, T, task<T>(buffers, cl_arg, sl::out<T>(buffers, 3), cuda));
}
