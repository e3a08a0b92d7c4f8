/* Convolution where cuDNN has no suitable algorithm: a thread a value, which adds up all of its
 * terms in their order; a block a weight's gradient. Any shape, groups, dilation and transposition,
 * without a workspace. Included by codelets' *_cuda.cu only. */
#ifndef SL_CODELETS_KERNELS_CONV_SUMS_CUDA_H
#define SL_CODELETS_KERNELS_CONV_SUMS_CUDA_H

#include "codelets/activation.h"
#include "codelets/groupconv2d.h"
#include "codelets/kernels/index_cuda.h"

namespace sl::convolution {

template <class T>
__global__ void gather(sl__groupconv_args a, planes outputs, int64_t count, const T *x,
                       const T *weight, const T *bias, T *y, bool add) {
  int64_t i = thread_index();
  if (i >= count) return;
  place o = outputs(i);
  int64_t n = o.plane / a.out_channels, k = o.plane % a.out_channels;
  int64_t channels = a.channels / a.groups, g = k / (a.out_channels / a.groups);
  float sum = bias ? value(bias[k]) : 0;
  x += (n * a.channels + g * channels) * a.height * a.width;
  weight += k * channels * a.kernel_h * a.kernel_w;
  for (int64_t c = 0; c < channels; c++, x += static_cast<int64_t>(a.height) * a.width)
    for (int32_t r = 0; r < a.kernel_h; r++)
      for (int32_t s = 0; s < a.kernel_w; s++, weight++) {
        int32_t h = o.h * a.stride_h - a.pad_h + r * a.dilation_h;
        int32_t w = o.w * a.stride_w - a.pad_w + s * a.dilation_w;
        if (h >= 0 && h < a.height && w >= 0 && w < a.width)
          sum += value(*weight) * value(x[static_cast<int64_t>(h) * a.width + w]);
      }
  sum = sl__activation_value(static_cast<enum sl_activation>(a.activation), sum);
  y[i] = narrow<T>(add ? value(y[i]) + sum : sum);
}

/* The output along an axis whose tap meets this input; -1: none does. */
__device__ inline int32_t source(int32_t input, int32_t pad, int32_t tap, int32_t stride,
                                 int32_t outputs) {
  int32_t place = input + pad - tap;
  if (place < 0 || place % stride) return -1;
  return place / stride < outputs ? place / stride : -1;
}

template <class T>
__global__ void scatter(sl__groupconv_args a, planes inputs, int64_t count, const T *y,
                        const T *weight, const T *bias, T *x, bool add) {
  int64_t i = thread_index();
  if (i >= count) return;
  place p = inputs(i);
  int64_t n = p.plane / a.channels, c = p.plane % a.channels;
  int64_t channels = a.channels / a.groups, outputs = a.out_channels / a.groups;
  int64_t first = c / channels * outputs, taps = static_cast<int64_t>(a.kernel_h) * a.kernel_w;
  float sum = bias ? value(bias[c]) : 0;
  y += (n * a.out_channels + first) * a.out_height * a.out_width;
  weight += (first * channels + c % channels) * taps;
  for (int64_t k = 0; k < outputs; k++) {
    for (int32_t r = 0; r < a.kernel_h; r++) {
      int32_t oh = source(p.h, a.pad_h, r * a.dilation_h, a.stride_h, a.out_height);
      if (oh < 0) continue;
      for (int32_t s = 0; s < a.kernel_w; s++) {
        int32_t ow = source(p.w, a.pad_w, s * a.dilation_w, a.stride_w, a.out_width);
        if (ow >= 0)
          sum += value(weight[r * a.kernel_w + s]) *
                 value(y[static_cast<int64_t>(oh) * a.out_width + ow]);
      }
    }
    y += static_cast<int64_t>(a.out_height) * a.out_width;
    weight += channels * taps;
  }
  sum = sl__activation_value(static_cast<enum sl_activation>(a.activation), sum);
  x[i] = narrow<T>(add ? value(x[i]) + sum : sum);
}

/* Block i: the gradient of weight i. */
template <class T>
__global__ void weight_slopes(sl__groupconv_args a, planes outputs, const T *x, const T *y,
                              float *grad, bool add) {
  int64_t taps = static_cast<int64_t>(a.kernel_h) * a.kernel_w, channels = a.channels / a.groups;
  int64_t tap = blockIdx.x % taps, k = blockIdx.x / taps / channels;
  int64_t c = k / (a.out_channels / a.groups) * channels + blockIdx.x / taps % channels;
  int32_t r = static_cast<int32_t>(tap / a.kernel_w), s = static_cast<int32_t>(tap % a.kernel_w);
  int64_t pixels = static_cast<int64_t>(a.out_height) * a.out_width;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < a.images * pixels; i += blockDim.x) {
    place o = outputs(i);
    int32_t h = o.h * a.stride_h - a.pad_h + r * a.dilation_h;
    int32_t w = o.w * a.stride_w - a.pad_w + s * a.dilation_w;
    if (h < 0 || h >= a.height || w < 0 || w >= a.width) continue;
    sum += value(y[(o.plane * a.out_channels + k) * pixels + i - o.plane * pixels]) *
           value(x[((o.plane * a.channels + c) * a.height + h) * a.width + w]);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) grad[blockIdx.x] = add ? grad[blockIdx.x] + sum : sum;
}

/* y (+)= act(the sums over x's windows + bias); bias may be NULL. */
template <class T>
void sum_windows(struct sl__cuda *cuda, const sl__groupconv_args &a, const T *x, const T *weight,
                 const T *bias, T *y, bool add) {
  int64_t count = int64_t{a.images} * a.out_channels * a.out_height * a.out_width;
  SL__LAUNCH((gather<T>), blocks(count), THREADS, 0, cuda->stream, a,
             planes(a.out_height, a.out_width), count, x, weight, bias, y, add);
}

/* x (+)= act(the sums over the windows of y that an input is in + bias); bias may be NULL. */
template <class T>
void sum_outputs(struct sl__cuda *cuda, const sl__groupconv_args &a, const T *y, const T *weight,
                 const T *bias, T *x, bool add) {
  int64_t count = int64_t{a.images} * a.channels * a.height * a.width;
  SL__LAUNCH((scatter<T>), blocks(count), THREADS, 0, cuda->stream, a, planes(a.height, a.width),
             count, y, weight, bias, x, add);
}

/* grad [weights] (+)= */
template <class T>
void sum_weights(struct sl__cuda *cuda, const sl__groupconv_args &a, const T *x, const T *y,
                 float *grad, bool add) {
  SL__LAUNCH((weight_slopes<T>), static_cast<unsigned>(sl__groupconv_weights(&a)), THREADS, 0,
             cuda->stream, a, planes(a.out_height, a.out_width), x, y, grad, add);
}

}  // namespace sl::convolution

#endif
