/* Batch normalisation: arguments, and what CPU and CUDA compute per channel and per value. */
#ifndef SL_CODELETS_BATCHNORM_H
#define SL_CODELETS_BATCHNORM_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "codelets/activation.h"

/* x [rows, channels, plane] */
struct sl__norm_args {
  int32_t rows, channels, plane;
  int32_t has_relu; /* y = relu of the normalised values; dy is the gradient of this y */
  float epsilon, momentum;
  double values;
};

/* 1 / the deviation. */
SL__HOST_DEVICE SL__INLINE double sl__norm_inverse(double variance, float epsilon) {
  return 1 / sqrt(variance + (double)epsilon);
}

/* The contribution to gamma's gradient. */
SL__HOST_DEVICE SL__INLINE float sl__norm_scale(float gamma, float variance, float epsilon) {
  return (float)((double)gamma * sl__norm_inverse((double)variance, epsilon));
}

/* y. The mean is subtracted first: a large mean would cost digits. */
SL__HOST_DEVICE SL__INLINE float sl__norm_value(float x, float mean, float scale, float shift) {
  return scale * (x - mean) + shift;
}

/* The gradient before a relu. The output is computed again: that costs less than to read it. */
SL__HOST_DEVICE SL__INLINE float sl__norm_before_relu(float x, float dy, float mean, float scale,
                                                      float shift) {
  return dy * sl__activation_slope(SL_ACTIVATION_RELU, sl__norm_value(x, mean, scale, shift));
}

/* dx = gamma r (dy - mean(dy) - xhat mean(dy xhat)), xhat = (x - mean) r, as k dy + b (x - mean) +
 * s. */
struct sl__norm_slopes {
  float k, b, s;
};

/* sum: of the channel's dy; product: of its dy (x - mean). */
SL__HOST_DEVICE SL__INLINE struct sl__norm_slopes sl__norm_slopes_of(double gamma, double r,
                                                                     double sum, double product,
                                                                     double count) {
  double k = gamma * r, b = -k * r * r * product / count, s = -k * sum / count;
  struct sl__norm_slopes slopes = {(float)k, (float)b, (float)s};
  return slopes;
}

SL__HOST_DEVICE SL__INLINE float sl__norm_slope(float x, float dy, float mean,
                                                struct sl__norm_slopes v) {
  return v.k * dy + (v.b * (x - mean) + v.s);
}

/* Channel c of the parameters' gradient [2C] from what is saved [4C]. */
SL__HOST_DEVICE SL__INLINE void sl__norm_weight_slopes(const struct sl__norm_args *a,
                                                       const float *saved, float *grad, int64_t c,
                                                       bool add) {
  float gamma = saved[3 * a->channels + c] * saved[a->channels + c];
  float beta = saved[2 * a->channels + c];
  grad[c] = add ? grad[c] + gamma : gamma;
  grad[a->channels + c] = add ? grad[a->channels + c] + beta : beta;
}

/* Adds the statistics of a step to the running ones: channel c of saved and running. */
SL__HOST_DEVICE SL__INLINE void sl__norm_run(const struct sl__norm_args *a, const float *saved,
                                             float *running, int64_t c) {
  float m = a->momentum;
  double unbiased = a->values > 1 ? a->values / (a->values - 1) : 1;
  double r = (double)saved[a->channels + c], variance = 1 / (r * r) - (double)a->epsilon;
  if (variance < 0) variance = 0; /* 1 / r^2 is rounded */
  float v = (float)(variance * unbiased);
  running[c] = (1 - m) * running[c] + m * saved[c];
  running[a->channels + c] = (1 - m) * running[a->channels + c] + m * v;
}

/* Saves the running statistics of channel c as if they were the batch's. With sums of 0 the slopes
 * are those of fixed statistics. */
SL__HOST_DEVICE SL__INLINE void sl__norm_take_running(const struct sl__norm_args *a,
                                                      const float *running, float *saved,
                                                      int64_t c) {
  saved[c] = running[c];
  saved[a->channels + c] = (float)sl__norm_inverse((double)running[a->channels + c], a->epsilon);
  saved[2 * a->channels + c] = saved[3 * a->channels + c] = 0;
}

#endif
