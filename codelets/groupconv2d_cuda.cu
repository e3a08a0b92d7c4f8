/* Convolution with groups or dilation, or transposed, as plain ones (convolve_cuda.h). The weights'
 * gradient of bf16, which cuDNN would round, is summed by kernels of our own. */
#include "codelets/groupconv2d.h"

#include "codelets/kernels/convolve_cuda.h"

namespace {

using namespace sl::convolution;

/* Block k: the sum of channel k's planes. */
template <class T>
__global__ void bias_slopes(int64_t images, int64_t channels, int64_t plane, const T *dy,
                            float *grad, bool add) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < images * plane; i += blockDim.x)
    sum += sl::value(dy[(i / plane * channels + blockIdx.x) * plane + i % plane]);
  sum = sl::block_sum(sum);
  if (threadIdx.x == 0) grad[blockIdx.x] = add ? grad[blockIdx.x] + sum : sum;
}

/* ---- tasks ---- */

template <class T>
void gather_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__groupconv_args *a = sl::args<sl__groupconv_args>(cl_arg);
  const T *weight = sl::in<T>(buffers, 1);
  const T *bias = a->has_bias && !a->transposed ? weight + sl__groupconv_weights(a) : nullptr;
  convolve(cuda, *a, sl__tf32(cl_arg), sl::in<T>(buffers, 0), weight, bias, sl::out<T>(buffers, 2),
           sl__accumulate(cl_arg));
}

template <class T>
void scatter_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__groupconv_args *a = sl::args<sl__groupconv_args>(cl_arg);
  const T *weight = sl::in<T>(buffers, 1);
  const T *bias = a->has_bias && a->transposed ? weight + sl__groupconv_weights(a) : nullptr;
  convolve_back(cuda, *a, sl__tf32(cl_arg), sl::in<T>(buffers, 0), weight, bias,
                sl::out<T>(buffers, 2), sl__accumulate(cl_arg));
}

template <class T>
void weight_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__groupconv_args *a = sl::args<sl__groupconv_args>(cl_arg);
  const T *x = sl::in<T>(buffers, 0), *y = sl::in<T>(buffers, 1);
  float *grad = sl::out<float>(buffers, 2);
  bool add = sl__accumulate(cl_arg);
  int64_t weights = sl__groupconv_weights(a);
  if constexpr (sizeof(T) == 4)
    weight_gradient(cuda, *a, sl__tf32(cl_arg), x, y, grad, add);
  else
    sum_weights(cuda, *a, x, y, grad, add);
  if (!a->has_bias) return;
  int64_t channels = a->transposed ? a->channels : a->out_channels;
  int64_t plane =
      a->transposed ? int64_t{a->height} * a->width : int64_t{a->out_height} * a->out_width;
  SL__LAUNCH((bias_slopes<T>), static_cast<unsigned>(channels), sl::THREADS, 0, cuda->stream,
             int64_t{a->images}, channels, plane, a->transposed ? x : y, grad + weights, add);
}

}  // namespace

SL__CUDA(groupconv2d_gather) { SL__BY_TYPE(cl_arg, 0, T, gather_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(groupconv2d_scatter) { SL__BY_TYPE(cl_arg, 0, T, scatter_task<T>(buffers, cl_arg, cuda)); }

SL__CUDA(groupconv2d_backward_weight) {
  SL__BY_TYPE(cl_arg, 0, T, weight_task<T>(buffers, cl_arg, cuda));
}
