/* Elementwise losses: value and gradient per element, which CPU and CUDA have in common. */
#ifndef SL_CODELETS_LOSS_H
#define SL_CODELETS_LOSS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "codelets/activation.h"
#include <starling/nn.h>

struct sl__loss_args {
  int64_t lines, size;   /* output values: lines x size */
  int64_t stride, first; /* of the targets: value i of line n is n stride + first + i */
  int32_t kind, part;    /* part: of the loss */
  float delta, scale;
};

/* The loss of an output z with target t. */
SL__HOST_DEVICE SL__INLINE float sl__loss_value(enum sl_loss_kind kind, float delta, float z,
                                                float t) {
  float d = z - t, size = fabsf(d);
  switch (kind) {
    case SL_LOSS_MAE: return size;
    case SL_LOSS_HUBER: return size <= delta ? 0.5f * d * d : delta * (size - 0.5f * delta);
    /* log(1 + e^-|z|) does not overflow */
    case SL_LOSS_BCE: return (z > 0 ? z : 0) - z * t + log1pf(sl__exp(-fabsf(z)));
    default: return d * d;
  }
}

/* Its derivative by z. */
SL__HOST_DEVICE SL__INLINE float sl__loss_slope(enum sl_loss_kind kind, float delta, float z,
                                                float t) {
  float d = z - t, sign = d > 0 ? 1.0f : d < 0 ? -1.0f : 0.0f;
  switch (kind) {
    case SL_LOSS_MAE: return sign;
    case SL_LOSS_HUBER: return fabsf(d) <= delta ? d : delta * sign;
    case SL_LOSS_BCE: return sl__sigmoid(z) - t;
    default: return 2.0f * d;
  }
}

/* Is the target outside the loss's domain? */
SL__HOST_DEVICE SL__INLINE bool sl__loss_outside(enum sl_loss_kind kind, float t) {
  return kind == SL_LOSS_BCE && !(t >= 0 && t <= 1);
}

#endif
