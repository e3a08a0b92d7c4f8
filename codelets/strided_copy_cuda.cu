/* Copies between views of two tensors, a thread an element. */
#include "codelets/strided_copy.h"

#include "codelets/kernels/cuda.h"
#include "codelets/kernels/index_cuda.h"

namespace {

struct view {
  sl__strided a;
  sl::divider by[SL_MAX_DIMS]; /* the sizes of the axes */
  int64_t count = 1;

  explicit view(const sl__strided &args) : a(args) {
    for (int d = 0; d < a.ndim; d++) {
      by[d] = sl::divider(a.dim[d]);
      count *= a.dim[d];
    }
  }
};

template <class T>
__global__ void copy(view v, const T *x, T *y, bool add) {
  int64_t rest = sl::thread_index(), from = v.a.x_first, to = v.a.y_first;
  if (rest >= v.count) return;
  for (int d = v.a.ndim - 1; d >= 0; d--) {
    int64_t next = v.by[d](rest), at = rest - next * v.a.dim[d];
    from += at * v.a.x_stride[d];
    to += at * v.a.y_stride[d];
    rest = next;
  }
  float value = v.a.factor * sl::value(x[from]);
  y[to] = sl::narrow<T>(add ? sl::value(y[to]) + value : value);
}

template <class T>
void copy_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  view v(*sl::args<sl__strided>(cl_arg));
  T *y = sl::out<T>(buffers, 1);
  bool add = sl__accumulate(cl_arg);
  if (v.a.clears && !add)
    sl::succeeded(
        cudaMemsetAsync(y, 0, static_cast<size_t>(v.a.y_count) * sizeof *y, cuda->stream));
  SL__LAUNCH((copy<T>), sl::blocks(v.count), sl::THREADS, 0, cuda->stream, v, sl::in<T>(buffers, 0),
             y, add);
}

/* x [outer, run] into y [outer, row]. */
template <class T>
__global__ void copy_range(sl::divider by, int64_t count, int64_t row, const T *x, T *y) {
  int64_t i = sl::thread_index();
  if (i >= count) return;
  int64_t o = by(i);
  y[o * row + (i - o * by.by)] = x[i];
}

template <class T>
void concatenate_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__concatenate_args *a = sl::args<sl__concatenate_args>(cl_arg);
  T *y = sl::out<T>(buffers, 0);
  for (int i = 1; i < sl__buffer_count(cl_arg); i++) {
    int64_t run = sl__concatenate_sizes(a)[i - 1] * a->inner, count = a->outer * run;
    SL__LAUNCH((copy_range<T>), sl::blocks(count), sl::THREADS, 0, cuda->stream, sl::divider(run),
               count, a->whole * a->inner, sl::in<T>(buffers, i), y);
    y += run;
  }
}

}  // namespace

SL__CUDA(strided_copy) { SL__BY_TYPE(cl_arg, 0, T, copy_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(concatenate) { SL__BY_TYPE(cl_arg, 0, T, concatenate_task<T>(buffers, cl_arg, cuda)); }
