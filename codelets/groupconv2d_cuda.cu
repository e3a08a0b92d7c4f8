/* Convolution with groups or dilation, or transposed: cuDNN's (conv_cuda.h), as plain ones. Where
 * it has no suitable algorithm, and for the weights' gradient of bf16, which it would round,
 * kernels of our own (conv_sums_cuda.h). The choice depends on the shape alone. */
#include "codelets/groupconv2d.h"

#include "codelets/kernels/conv_cuda.h"
#include "codelets/kernels/conv_sums_cuda.h"

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

/* ---- cuDNN ---- */

/* The outputs along an axis that cuDNN expects; those of a transposed convolution may be fewer. */
bool is_whole(int32_t size, int32_t out, int32_t kernel, int32_t stride, int32_t pad,
              int32_t dilation) {
  return out == (size + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
}

template <enum way W>
bool takes(struct sl__cuda *cuda, const sl__groupconv_args &a, bool half, bool tf32) {
  return is_whole(a.height, a.out_height, a.kernel_h, a.stride_h, a.pad_h, a.dilation_h) &&
         is_whole(a.width, a.out_width, a.kernel_w, a.stride_w, a.pad_w, a.dilation_w) &&
         has_plans<W>(cuda, a, half, tf32);
}

int64_t x_size(const sl__groupconv_args &a) { return int64_t{a.channels} * a.height * a.width; }
int64_t y_size(const sl__groupconv_args &a) {
  return int64_t{a.out_channels} * a.out_height * a.out_width;
}

/* to [images, channels, pixels] += bias, and its activation. */
template <class T>
void finish(struct sl__cuda *cuda, const sl__groupconv_args &a, T *to, int64_t channels,
            int64_t pixels, const T *bias) {
  if (bias || a.activation != SL_ACTIVATION_NONE)
    sl::add_bias(cuda, to, a.images * channels, pixels, pixels, bias, channels,
                 static_cast<enum sl_activation>(a.activation));
}

template <class T>
void gather_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__groupconv_args *a = sl::args<sl__groupconv_args>(cl_arg);
  const T *x = sl::in<T>(buffers, 0), *weight = sl::in<T>(buffers, 1);
  const T *bias = a->has_bias && !a->transposed ? weight + sl__groupconv_weights(a) : nullptr;
  T *y = sl::out<T>(buffers, 2);
  bool half = sizeof(T) == 2, tf32 = sl__tf32(cl_arg), lacks, add = sl__accumulate(cl_arg);
  const float one = 1, beta = add ? 1.0f : 0.0f;
  if (!takes<FORWARD>(cuda, *a, half, tf32)) {
    sum_windows(cuda, *a, x, weight, bias, y, add);
    return;
  }
  bool fine = each_part<FORWARD>(cuda, *a, half, tf32, &lacks, [&](const plan *p, int32_t n) {
    return sl::cudnn.ConvolutionForward(
        cuda->dnn, &one, p->x, x + n * x_size(*a), p->weight, weight, p->convolution,
        static_cast<cudnnConvolutionFwdAlgo_t>(p->algorithm), cuda->workspace, p->workspace, &beta,
        p->y, y + n * y_size(*a));
  });
  if (fine) finish(cuda, *a, y, a->out_channels, int64_t{a->out_height} * a->out_width, bias);
}

template <class T>
void scatter_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__groupconv_args *a = sl::args<sl__groupconv_args>(cl_arg);
  const T *y = sl::in<T>(buffers, 0), *weight = sl::in<T>(buffers, 1);
  const T *bias = a->has_bias && a->transposed ? weight + sl__groupconv_weights(a) : nullptr;
  T *x = sl::out<T>(buffers, 2);
  bool half = sizeof(T) == 2, tf32 = sl__tf32(cl_arg), lacks, add = sl__accumulate(cl_arg);
  const float one = 1, beta = add ? 1.0f : 0.0f;
  if (!takes<DATA>(cuda, *a, half, tf32)) {
    sum_outputs(cuda, *a, y, weight, bias, x, add);
    return;
  }
  bool fine = each_part<DATA>(cuda, *a, half, tf32, &lacks, [&](const plan *p, int32_t n) {
    return sl::cudnn.ConvolutionBackwardData(
        cuda->dnn, &one, p->weight, weight, p->y, y + n * y_size(*a), p->convolution,
        static_cast<cudnnConvolutionBwdDataAlgo_t>(p->algorithm), cuda->workspace, p->workspace,
        &beta, p->x, x + n * x_size(*a));
  });
  if (fine) finish(cuda, *a, x, a->channels, int64_t{a->height} * a->width, bias);
}

/* Returns false if cuDNN is not for these. */
bool library_weight_slopes(struct sl__cuda *cuda, const sl__groupconv_args &a, bool tf32,
                           const float *x, const float *y, float *grad, bool add) {
  const float one = 1, zero = 0;
  bool lacks;
  if (!takes<WEIGHT>(cuda, a, false, tf32)) return false;
  each_part<WEIGHT>(cuda, a, false, tf32, &lacks, [&](const plan *p, int32_t n) {
    return sl::cudnn.ConvolutionBackwardFilter(
        cuda->dnn, &one, p->x, x + n * x_size(a), p->y, y + n * y_size(a), p->convolution,
        static_cast<cudnnConvolutionBwdFilterAlgo_t>(p->algorithm), cuda->workspace, p->workspace,
        n || add ? &one : &zero, p->weight, grad);
  });
  return true;
}

template <class T>
void weight_task(void *buffers[], void *cl_arg, struct sl__cuda *cuda) {
  const sl__groupconv_args *a = sl::args<sl__groupconv_args>(cl_arg);
  const T *x = sl::in<T>(buffers, 0), *y = sl::in<T>(buffers, 1);
  float *grad = sl::out<float>(buffers, 2);
  bool add = sl__accumulate(cl_arg), done = false;
  int64_t weights = sl__groupconv_weights(a);
  if constexpr (sizeof(T) == 4)
    done = library_weight_slopes(cuda, *a, sl__tf32(cl_arg), x, y, grad, add);
  if (!done) sum_weights(cuda, *a, x, y, grad, add);
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
