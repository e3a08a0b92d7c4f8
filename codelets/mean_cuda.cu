/* The mean over axes. A warp sums the terms of an output where they are neighbours in memory; else
 * a thread does, and the outputs of its neighbours are neighbours. Sums are in double precision:
 * many terms may be nearly alike. */
#include "codelets/mean.h"

#include "codelets/kernels/cuda.h"
#include "codelets/kernels/index_cuda.h"

namespace {

struct axes {
  int count;
  sl::divider by[SL_MAX_DIMS];
  int64_t stride[SL_MAX_DIMS];

  axes(int n, const int64_t *dims, const int64_t *strides) : count(n) {
    for (int d = 0; d < n; d++) {
      by[d] = sl::divider(dims[d]);
      stride[d] = strides[d];
    }
  }
  /* The place in x of the i-th index. */
  __device__ int64_t operator()(int64_t i) const {
    int64_t place = 0;
    for (int d = count - 1; d >= 0; d--) {
      int64_t next = by[d](i);
      place += (i - next * by[d].by) * stride[d];
      i = next;
    }
    return place;
  }
};

template <class T>
__global__ void by_thread(axes kept, axes reduced, int64_t outputs, int64_t terms, const T *x,
                          T *y) {
  int64_t i = sl::thread_index();
  if (i >= outputs) return;
  double sum = 0;
  x += kept(i);
  for (int64_t k = 0; k < terms; k++) sum += sl::value(x[reduced(k)]);
  y[i] = sl::narrow<T>(static_cast<float>(sum) * (1.0f / static_cast<float>(terms)));
}

template <class T>
__global__ void by_warp(axes kept, axes reduced, int64_t outputs, int64_t terms, const T *x, T *y) {
  int64_t i = sl::thread_index() / 32;
  int lane = threadIdx.x % 32;
  if (i >= outputs) return; /* the whole warp */
  double sum = 0;
  x += kept(i);
  for (int64_t k = lane; k < terms; k += 32) sum += sl::value(x[reduced(k)]);
  sum = sl::warp_sum(sum);
  if (lane == 0) y[i] = sl::narrow<T>(static_cast<float>(sum) * (1.0f / static_cast<float>(terms)));
}

template <class T>
void mean_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__mean_args *a = sl::args<sl__mean_args>(cl_arg);
  axes kept(a->kept, a->kept_dim, a->kept_stride);
  axes reduced(a->reduced, a->reduced_dim, a->reduced_stride);
  const T *x = sl::in<T>(buffers, 0);
  T *y = sl::out<T>(buffers, 1);
  if (a->reduced_stride[a->reduced - 1] == 1 && a->terms >= 32)
    SL__LAUNCH((by_warp<T>), sl::blocks(32 * a->outputs), sl::THREADS, 0, cuda->stream, kept,
               reduced, a->outputs, a->terms, x, y);
  else
    SL__LAUNCH((by_thread<T>), sl::blocks(a->outputs), sl::THREADS, 0, cuda->stream, kept, reduced,
               a->outputs, a->terms, x, y);
}

}  // namespace

SL__CUDA(mean) { SL__BY_TYPE(cl_arg, 0, T, mean_task<T>(buffers, cl_arg, cuda)); }
