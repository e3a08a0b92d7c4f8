/* Upsampling: arguments, and the two inputs of an output along an axis. */
#ifndef SL_CODELETS_UPSAMPLE2D_H
#define SL_CODELETS_UPSAMPLE2D_H

#include <stdint.h>

#include "core/base/random.h" /* SL__HOST_DEVICE */
#include "core/base/simd.h"

/* x [planes, height, width], y [planes, height scale_h, width scale_w] */
struct sl__upsample_args {
  int32_t planes, height, width, scale_h, scale_w, bilinear;
};

/* Output = (1 - weight) input[first] + weight input[second]. */
struct sl__upsample_taps {
  int32_t first, second;
  float weight;
};

/* The centres of the pixels are at halves, as in PyTorch with align_corners=False: output i lies at
 * (i + 1/2) / scale - 1/2, at 0 at least. */
SL__HOST_DEVICE SL__INLINE struct sl__upsample_taps sl__upsample_taps(int32_t i, int32_t scale,
                                                                      int32_t size,
                                                                      int32_t bilinear) {
  struct sl__upsample_taps t = {i / scale, i / scale, 0};
  int32_t twice = 2 * i + 1 - scale; /* the place times 2 scale */
  if (!bilinear || twice <= 0) return t;
  t.first = twice / (2 * scale);
  t.second = t.first + 1 < size ? t.first + 1 : size - 1;
  t.weight = (float)(twice % (2 * scale)) / (float)(2 * scale);
  return t;
}

/* The weight of an input in an output. */
SL__HOST_DEVICE SL__INLINE float sl__upsample_weight(struct sl__upsample_taps t, int32_t input) {
  return (t.first == input ? 1 - t.weight : 0) + (t.second == input ? t.weight : 0);
}

#endif
