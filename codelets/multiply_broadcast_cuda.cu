/* A product of tensors that broadcast, and its sums over the axes that y lacks: a thread a value of
 * y, which adds its terms in order. */
#include "codelets/multiply_broadcast.h"

#include "codelets/kernels/cuda.h"
#include "codelets/kernels/elementwise.h"
#include "codelets/kernels/fold_cuda.h"
#include "codelets/kernels/index_cuda.h"

namespace {

/* Some of the axes, with each factor's strides along them. */
struct axes {
  int count = 0;
  int64_t values = 1;
  sl::divider by[SL_MAX_DIMS];
  sl::list<int64_t> stride[SL_MAX_DIMS];

  /* The place of the i-th index in factor f. */
  __device__ int64_t place(int64_t i, int f) const {
    int64_t at = 0;
    for (int d = count - 1; d >= 0; d--) {
      int64_t next = by[d](i);
      at += (i - next * by[d].by) * stride[d][f];
      i = next;
    }
    return at;
  }
};

template <class T>
__global__ void multiply(axes kept, axes summed, sl::operands<T> x, const T *old, T *y) {
  int64_t i = sl::thread_index();
  if (i >= kept.values) return;
  float sum = 0;
  for (int f = 0; f < x.count && f < sl::SHORT_LIST; f++) x.at.first[f] += kept.place(i, f);
  for (int64_t k = 0; k < summed.values; k++) {
    float product = sl::value(x.at[0][summed.place(k, 0)]);
    for (int f = 1; f < x.count; f++) {
      int64_t first = f < sl::SHORT_LIST ? 0 : kept.place(i, f);
      product *= sl::value(x.at[f][first + summed.place(k, f)]);
    }
    sum += product;
  }
  y[i] = sl::narrow<T>(old ? sl::value(old[i]) + sum : sum);
}

/* The axes that y has, or lacks. */
axes axes_of(struct sl__cuda *cuda, const sl__multiply_broadcast_args *a, bool lacking, int factors,
             char **memory) {
  axes some;
  for (int d = 0; d < a->ndim; d++) {
    if ((*sl__broadcast_lacks(a) >> d & 1) != lacking) continue;
    some.by[some.count] = sl::divider(a->dim[d]);
    some.values *= a->dim[d];
    some.stride[some.count++] = sl::list_of<int64_t>(cuda, factors, memory, [&](int f) {
      int64_t stride[SL_MAX_DIMS] = {};
      sl__broadcast_strides(a, f + 1, stride);
      return stride[d];
    });
  }
  return some;
}

template <class T>
void multiply_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__multiply_broadcast_args *a = sl::args<sl__multiply_broadcast_args>(cl_arg);
  char *memory = static_cast<char *>(cuda->workspace);
  T *y = sl::out<T>(buffers, 0);
  sl::operands<T> x(cuda, buffers, sl__buffer_count(cl_arg), 0, &memory);
  axes kept = axes_of(cuda, a, false, x.count, &memory);
  axes summed = axes_of(cuda, a, true, x.count, &memory);
  SL__LAUNCH((multiply<T>), sl::blocks(kept.values), sl::THREADS, 0, cuda->stream, kept, summed, x,
             sl__accumulate(cl_arg) ? static_cast<const T *>(y) : nullptr, y);
}

}  // namespace

SL__CUDA(multiply_broadcast) { SL__BY_TYPE(cl_arg, 0, T, multiply_task<T>(buffers, cl_arg, cuda)); }
