/* Convolutions of any kind: cuDNN's (conv_cuda.h), or our own sums (conv_sums_cuda.h) where it has
 * no suitable algorithm, as for the weights' gradient of large images. The shape alone decides.
 * Included by codelets' *_cuda.cu only. */
#ifndef SL_CODELETS_KERNELS_CONVOLVE_CUDA_H
#define SL_CODELETS_KERNELS_CONVOLVE_CUDA_H

#include "codelets/kernels/conv_cuda.h"
#include "codelets/kernels/conv_sums_cuda.h"

namespace sl::convolution {

/* The outputs along an axis that cuDNN expects; those of a transposed convolution may be fewer. */
inline bool is_whole(int32_t size, int32_t out, int32_t kernel, int32_t stride, int32_t pad,
                     int32_t dilation) {
  return out == (size + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
}

template <enum way W>
bool takes(struct sl__cuda *cuda, const sl__groupconv_args &a, bool half, bool tf32) {
  return is_whole(a.height, a.out_height, a.kernel_h, a.stride_h, a.pad_h, a.dilation_h) &&
         is_whole(a.width, a.out_width, a.kernel_w, a.stride_w, a.pad_w, a.dilation_w) &&
         has_plans<W>(cuda, a, half, tf32);
}

inline int64_t x_size(const sl__groupconv_args &a) {
  return int64_t{a.channels} * a.height * a.width;
}
inline int64_t y_size(const sl__groupconv_args &a) {
  return int64_t{a.out_channels} * a.out_height * a.out_width;
}

/* to [images, channels, pixels] += bias, and its activation. */
template <class T>
void finish(struct sl__cuda *cuda, const sl__groupconv_args &a, T *to, int64_t channels,
            int64_t pixels, const T *bias) {
  if (bias || a.activation != SL_ACTIVATION_NONE)
    add_bias(cuda, to, a.images * channels, pixels, pixels, bias, channels,
             static_cast<enum sl_activation>(a.activation));
}

/* y (+)= act(x * weight + bias); bias may be NULL. */
template <class T>
void convolve(struct sl__cuda *cuda, const sl__groupconv_args &a, bool tf32, const T *x,
              const T *weight, const T *bias, T *y, bool add) {
  const float one = 1, beta = add ? 1.0f : 0.0f;
  bool half = sizeof(T) == 2, lacks;
  if (!takes<FORWARD>(cuda, a, half, tf32)) {
    sum_windows(cuda, a, x, weight, bias, y, add);
    return;
  }
  bool fine = each_part<FORWARD>(cuda, a, half, tf32, &lacks, [&](const plan *p, int32_t n) {
    return cudnn.ConvolutionForward(cuda->dnn, &one, p->x, x + n * x_size(a), p->weight, weight,
                                    p->convolution,
                                    static_cast<cudnnConvolutionFwdAlgo_t>(p->algorithm),
                                    cuda->workspace, p->workspace, &beta, p->y, y + n * y_size(a));
  });
  if (fine) finish(cuda, a, y, a.out_channels, int64_t{a.out_height} * a.out_width, bias);
}

/* x (+)= act(the gradient of x by y + bias), a transposed convolution; bias may be NULL. */
template <class T>
void convolve_back(struct sl__cuda *cuda, const sl__groupconv_args &a, bool tf32, const T *y,
                   const T *weight, const T *bias, T *x, bool add) {
  const float one = 1, beta = add ? 1.0f : 0.0f;
  bool half = sizeof(T) == 2, lacks;
  if (!takes<DATA>(cuda, a, half, tf32)) {
    sum_outputs(cuda, a, y, weight, bias, x, add);
    return;
  }
  bool fine = each_part<DATA>(cuda, a, half, tf32, &lacks, [&](const plan *p, int32_t n) {
    return cudnn.ConvolutionBackwardData(
        cuda->dnn, &one, p->weight, weight, p->y, y + n * y_size(a), p->convolution,
        static_cast<cudnnConvolutionBwdDataAlgo_t>(p->algorithm), cuda->workspace, p->workspace,
        &beta, p->x, x + n * x_size(a));
  });
  if (fine) finish(cuda, a, x, a.channels, int64_t{a.height} * a.width, bias);
}

/* grad [weights] (+)=. Returns false if the task has failed. */
inline bool weight_gradient(struct sl__cuda *cuda, const sl__groupconv_args &a, bool tf32,
                            const float *x, const float *y, float *grad, bool add) {
  const float one = 1, zero = 0;
  bool lacks;
  if (!takes<WEIGHT>(cuda, a, false, tf32)) {
    sum_weights(cuda, a, x, y, grad, add);
    return true;
  }
  return each_part<WEIGHT>(cuda, a, false, tf32, &lacks, [&](const plan *p, int32_t n) {
    return cudnn.ConvolutionBackwardFilter(
        cuda->dnn, &one, p->x, x + n * x_size(a), p->y, y + n * y_size(a), p->convolution,
        static_cast<cudnnConvolutionBwdFilterAlgo_t>(p->algorithm), cuda->workspace, p->workspace,
        n || add ? &one : &zero, p->weight, grad);
  });
}

}  // namespace sl::convolution

#endif
