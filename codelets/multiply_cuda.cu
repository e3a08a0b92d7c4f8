/* y (+)= the product of tensors. */
#include "codelets/kernels/cuda.h"
#include "codelets/kernels/elementwise.h"
#include "codelets/kernels/fold_cuda.h"

namespace {

struct times {
  __device__ float operator()(float a, float b) const { return a * b; }
};

struct as_it_is {
  __device__ float operator()(float product) const { return product; }
};

template <class T>
void multiply(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  sl::fold<T>(cuda, times(), as_it_is(), buffers, sl__buffer_count(cl_arg), 0,
              sl::args<sl__scalar_args>(cl_arg)->count, sl__accumulate(cl_arg));
}

}  // namespace

SL__CUDA(multiply) { SL__BY_TYPE(cl_arg, 0, T, multiply<T>(buffers, cl_arg, cuda)); }
