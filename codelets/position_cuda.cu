/* Learned positions on a GPU. A thread adds up a value of the gradient, row after row of the batch:
 * the CPU's order. */
#include "codelets/position.h"

#include "codelets/kernels/cuda.h"

namespace {

template <class T>
struct plus_table {
  const T *table;
  int64_t values; /* of a sample */
  __device__ float operator()(int64_t i, float x) const { return x + sl::value(table[i % values]); }
};

template <class T>
struct column_sum {
  const T *dy;
  int64_t rows, values, from;
  __device__ float operator()(int64_t i) const { return (*this)(i, 0); }
  __device__ float operator()(int64_t i, float sum) const {
    int64_t at = i - from;
    if (at < 0 || at >= values) return sum;
    for (int64_t n = 0; n < rows; n++) sum += sl::value(dy[n * values + at]);
    return sum;
  }
};

template <class T>
void forward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__position_args *a = sl::args<sl__position_args>(cl_arg);
  int64_t values = a->steps * a->features;
  plus_table<T> f = {sl::in<T>(buffers, 1) + a->first * a->features, values};
  sl::map(cuda, a->rows * values, f, sl::out<T>(buffers, 2), sl::in<T>(buffers, 0));
}

template <class T>
void weight_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__position_args *a = sl::args<sl__position_args>(cl_arg);
  int64_t values = a->steps * a->features, from = a->first * a->features;
  column_sum<T> f = {sl::in<T>(buffers, 0), a->rows, values, 0};
  float *grad = sl::out<float>(buffers, 1);
  if (sl__accumulate(cl_arg)) {
    sl::map(cuda, values, f, grad + from, static_cast<const float *>(grad + from));
    return;
  }
  f.from = from;
  sl::map(cuda, a->length * a->features, f, grad);
}

}  // namespace

SL__CUDA(position_forward) { SL__BY_TYPE(cl_arg, 0, T, forward_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(position_backward_weight) {
  SL__BY_TYPE(cl_arg, 0, T, weight_task<T>(buffers, cl_arg, cuda));
}
