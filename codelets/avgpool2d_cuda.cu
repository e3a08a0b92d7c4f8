/* Average pooling. A warp sums each large window (usually a whole plane), in double precision. The
 * gradient is gathered: each input adds the contributions of the windows that contain it, in their
 * order. */
#include "codelets/kernels/cuda.h"
#include "codelets/kernels/index_cuda.h"
#include "codelets/kernels/pool2d.h"

namespace {

constexpr int LARGE = 32; /* values of a window from which a warp takes it */

template <class T>
__global__ void forward(sl__pool_args a, sl::planes outputs, int64_t count, float weight,
                        const T *x, T *y) {
  int64_t i = sl::thread_index();
  if (i >= count) return;
  sl::place o = outputs(i);
  struct sl__pool_window v = sl__pool_window(&a, o.h, o.w);
  x += o.plane * a.height * a.width;
  float sum = 0;
  for (int32_t h = v.h0; h < v.h1; h++)
    for (int32_t w = v.w0; w < v.w1; w++) sum += sl::value(x[h * a.width + w]);
  y[i] = sl::narrow<T>(sum * weight);
}

template <class T>
__global__ void forward_by_warp(sl__pool_args a, sl::planes outputs, int64_t count, float weight,
                                const T *x, T *y) {
  int64_t i = sl::thread_index() / 32;
  if (i >= count) return; /* the whole warp */
  sl::place o = outputs(i);
  struct sl__pool_window v = sl__pool_window(&a, o.h, o.w);
  int32_t lane = threadIdx.x % 32, width = v.w1 - v.w0, size = (v.h1 - v.h0) * width;
  x += (o.plane * a.height + v.h0) * a.width + v.w0;
  double sum = 0;
  for (int32_t k = lane; k < size; k += 32) sum += sl::value(x[k / width * a.width + k % width]);
  sum = sl::warp_sum(sum);
  if (lane == 0) y[i] = sl::narrow<T>(static_cast<float>(sum) * weight);
}

template <class T>
__global__ void backward(sl__pool_args a, sl::planes inputs, int64_t count, float weight,
                         const T *dy, T *dx, bool add) {
  int64_t i = sl::thread_index();
  if (i >= count) return;
  sl::place p = inputs(i);
  struct sl__pool_reach rows =
      sl__pool_reach(p.h, a.out_height, a.pool.kernel_h, a.pool.stride_h, a.pool.pad_h);
  struct sl__pool_reach columns =
      sl__pool_reach(p.w, a.out_width, a.pool.kernel_w, a.pool.stride_w, a.pool.pad_w);
  dy += p.plane * a.out_height * a.out_width;
  float sum = add ? sl::value(dx[i]) : 0;
  for (int32_t oh = rows.first; oh <= rows.last; oh++)
    for (int32_t ow = columns.first; ow <= columns.last; ow++)
      sum += sl::value(dy[oh * a.out_width + ow]) * weight;
  dx[i] = sl::narrow<T>(sum);
}

template <class T>
void forward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__pool_args *a = sl::args<sl__pool_args>(cl_arg);
  int64_t count = int64_t{a->planes} * a->out_height * a->out_width;
  sl::planes outputs(a->out_height, a->out_width);
  float weight = sl__pool_weight(a);
  if (a->pool.kernel_h * a->pool.kernel_w >= LARGE)
    SL__LAUNCH((forward_by_warp<T>), sl::blocks(32 * count), sl::THREADS, 0, cuda->stream, *a,
               outputs, count, weight, sl::in<T>(buffers, 0), sl::out<T>(buffers, 1));
  else
    SL__LAUNCH((forward<T>), sl::blocks(count), sl::THREADS, 0, cuda->stream, *a, outputs, count,
               weight, sl::in<T>(buffers, 0), sl::out<T>(buffers, 1));
}

template <class T>
void backward_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__pool_args *a = sl::args<sl__pool_args>(cl_arg);
  int64_t count = int64_t{a->planes} * a->height * a->width;
  SL__LAUNCH((backward<T>), sl::blocks(count), sl::THREADS, 0, cuda->stream, *a,
             sl::planes(a->height, a->width), count, sl__pool_weight(a), sl::in<T>(buffers, 0),
             sl::out<T>(buffers, 1), sl__accumulate(cl_arg));
}

}  // namespace

SL__CUDA(avgpool2d_forward) { SL__BY_TYPE(cl_arg, 0, T, forward_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(avgpool2d_backward) { SL__BY_TYPE(cl_arg, 0, T, backward_task<T>(buffers, cl_arg, cuda)); }
