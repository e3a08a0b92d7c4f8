#include "codelets/kernels/conv_bias.h"

SL__SIMD void sl__conv_add_bias(float *y, const float *bias, int64_t channels, int64_t plane) {
  for (int64_t k = 0; k < channels; k++)
    for (int64_t p = 0; p < plane; p++) y[k * plane + p] += bias[k];
}

SL__SIMD void sl__conv_bias_gradient(const float *dy, int64_t images, int64_t channels,
                                     int64_t plane, float *grad, bool add) {
  for (int64_t k = 0; k < channels; k++) {
    float part[SL__BIAS_PARTS] = {0};
    sl__conv_bias_add(dy + k * plane, images, channels * plane, plane, part);
    sl__conv_bias_end(part, grad + k, add);
  }
}
