/* A convolution's bias, and its gradient: each channel's sum over all images, in sixteen
 * interleaved parts. So the order does not depend on the width of the processor's vectors, nor on
 * how many images come at a time. */
#ifndef SL_CODELETS_KERNELS_CONV_BIAS_H
#define SL_CODELETS_KERNELS_CONV_BIAS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/base/simd.h"

enum { SL__BIAS_PARTS = 16 };

/* Adds planes of one channel, `apart` floats from image to image, to its parts. */
SL__INLINE void sl__conv_bias_add(const float *dy, int64_t images, int64_t apart, int64_t plane,
                                  float part[SL__BIAS_PARTS]) {
  float sum[SL__BIAS_PARTS]; /* in a register, as nothing else can point to it */
  memcpy(sum, part, sizeof sum);
  for (int64_t n = 0; n < images; n++) {
    const float *row = dy + n * apart;
    int64_t p = 0;
    for (; p + SL__BIAS_PARTS <= plane; p += SL__BIAS_PARTS)
      for (int i = 0; i < SL__BIAS_PARTS; i++) sum[i] += row[p + i];
    for (int i = 0; p < plane; p++, i++) sum[i] += row[p];
  }
  memcpy(part, sum, sizeof sum);
}

/* add: to the old value of grad. */
SL__INLINE void sl__conv_bias_end(const float part[SL__BIAS_PARTS], float *grad, bool add) {
  float sum = 0;
  for (int i = 0; i < SL__BIAS_PARTS; i++) sum += part[i];
  *grad = add ? *grad + sum : sum;
}

/* y [channels, plane] += bias [channels] */
void sl__conv_add_bias(float *y, const float *bias, int64_t channels, int64_t plane);

/* grad [channels] from dy [images, channels, plane]. */
void sl__conv_bias_gradient(const float *dy, int64_t images, int64_t channels, int64_t plane,
                            float *grad, bool add);

#endif
