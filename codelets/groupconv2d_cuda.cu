/* Convolution with groups or dilation, or transposed: cuDNN's (conv_cuda.h), as plain ones. Where
 * it has no suitable algorithm, and for the weights' gradient of bf16, which it would round,
 * kernels of our own: a thread a value, which gathers all of its terms in their order; a block a
 * weight's gradient. The choice depends on the shape alone. */
#include "codelets/groupconv2d.h"

#include "codelets/activation.h"
#include "codelets/kernels/conv_cuda.h"
#include "codelets/kernels/index_cuda.h"

namespace {

using namespace sl::convolution;

template <class T>
__global__ void gather(sl__groupconv_args a, sl::planes outputs, int64_t count, const T *x,
                       const T *weight, const T *bias, T *y, bool add) {
  int64_t i = sl::thread_index();
  if (i >= count) return;
  sl::place o = outputs(i);
  int64_t n = o.plane / a.out_channels, k = o.plane % a.out_channels;
  int64_t channels = a.channels / a.groups, g = k / (a.out_channels / a.groups);
  float sum = bias ? sl::value(bias[k]) : 0;
  x += (n * a.channels + g * channels) * a.height * a.width;
  weight += k * channels * a.kernel_h * a.kernel_w;
  for (int64_t c = 0; c < channels; c++, x += static_cast<int64_t>(a.height) * a.width)
    for (int32_t r = 0; r < a.kernel_h; r++)
      for (int32_t s = 0; s < a.kernel_w; s++, weight++) {
        int32_t h = o.h * a.stride_h - a.pad_h + r * a.dilation_h;
        int32_t w = o.w * a.stride_w - a.pad_w + s * a.dilation_w;
        if (h >= 0 && h < a.height && w >= 0 && w < a.width)
          sum += sl::value(*weight) * sl::value(x[static_cast<int64_t>(h) * a.width + w]);
      }
  sum = sl__activation_value(static_cast<enum sl_activation>(a.activation), sum);
  y[i] = sl::narrow<T>(add ? sl::value(y[i]) + sum : sum);
}

/* The output along an axis whose tap meets this input; -1: none does. */
__device__ int32_t source(int32_t input, int32_t pad, int32_t tap, int32_t stride,
                          int32_t outputs) {
  int32_t place = input + pad - tap;
  if (place < 0 || place % stride) return -1;
  return place / stride < outputs ? place / stride : -1;
}

template <class T>
__global__ void scatter(sl__groupconv_args a, sl::planes inputs, int64_t count, const T *y,
                        const T *weight, const T *bias, T *x, bool add) {
  int64_t i = sl::thread_index();
  if (i >= count) return;
  sl::place p = inputs(i);
  int64_t n = p.plane / a.channels, c = p.plane % a.channels;
  int64_t channels = a.channels / a.groups, outputs = a.out_channels / a.groups;
  int64_t first = c / channels * outputs, taps = static_cast<int64_t>(a.kernel_h) * a.kernel_w;
  float sum = bias ? sl::value(bias[c]) : 0;
  y += (n * a.out_channels + first) * a.out_height * a.out_width;
  weight += (first * channels + c % channels) * taps;
  for (int64_t k = 0; k < outputs; k++) {
    for (int32_t r = 0; r < a.kernel_h; r++) {
      int32_t oh = source(p.h, a.pad_h, r * a.dilation_h, a.stride_h, a.out_height);
      if (oh < 0) continue;
      for (int32_t s = 0; s < a.kernel_w; s++) {
        int32_t ow = source(p.w, a.pad_w, s * a.dilation_w, a.stride_w, a.out_width);
        if (ow >= 0)
          sum += sl::value(weight[r * a.kernel_w + s]) *
                 sl::value(y[static_cast<int64_t>(oh) * a.out_width + ow]);
      }
    }
    y += static_cast<int64_t>(a.out_height) * a.out_width;
    weight += channels * taps;
  }
  sum = sl__activation_value(static_cast<enum sl_activation>(a.activation), sum);
  x[i] = sl::narrow<T>(add ? sl::value(x[i]) + sum : sum);
}

/* Block i: the gradient of weight i. */
template <class T>
__global__ void weight_slopes(sl__groupconv_args a, sl::planes outputs, const T *x, const T *y,
                              float *grad, bool add) {
  int64_t taps = static_cast<int64_t>(a.kernel_h) * a.kernel_w, channels = a.channels / a.groups;
  int64_t tap = blockIdx.x % taps, k = blockIdx.x / taps / channels;
  int64_t c = k / (a.out_channels / a.groups) * channels + blockIdx.x / taps % channels;
  int32_t r = static_cast<int32_t>(tap / a.kernel_w), s = static_cast<int32_t>(tap % a.kernel_w);
  int64_t pixels = static_cast<int64_t>(a.out_height) * a.out_width;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < a.images * pixels; i += blockDim.x) {
    sl::place o = outputs(i);
    int32_t h = o.h * a.stride_h - a.pad_h + r * a.dilation_h;
    int32_t w = o.w * a.stride_w - a.pad_w + s * a.dilation_w;
    if (h < 0 || h >= a.height || w < 0 || w >= a.width) continue;
    sum += sl::value(y[(o.plane * a.out_channels + k) * pixels + i - o.plane * pixels]) *
           sl::value(x[((o.plane * a.channels + c) * a.height + h) * a.width + w]);
  }
  sum = sl::block_sum(sum);
  if (threadIdx.x == 0) grad[blockIdx.x] = add ? grad[blockIdx.x] + sum : sum;
}

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
    int64_t count = a->images * y_size(*a);
    SL__LAUNCH((gather<T>), sl::blocks(count), sl::THREADS, 0, cuda->stream, *a,
               sl::planes(a->out_height, a->out_width), count, x, weight, bias, y, add);
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
    int64_t count = a->images * x_size(*a);
    SL__LAUNCH((scatter<T>), sl::blocks(count), sl::THREADS, 0, cuda->stream, *a,
               sl::planes(a->height, a->width), count, y, weight, bias, x, add);
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
  if (!done)
    SL__LAUNCH((weight_slopes<T>), static_cast<unsigned>(weights), sl::THREADS, 0, cuda->stream, *a,
               sl::planes(a->out_height, a->out_width), x, y, grad, add);
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
