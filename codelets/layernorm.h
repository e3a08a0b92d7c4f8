/* Layer, group, instance and RMS normalisation: arguments, and what CPU and CUDA compute per value.
 */
#ifndef SL_CODELETS_LAYERNORM_H
#define SL_CODELETS_LAYERNORM_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/random.h" /* SL__HOST_DEVICE */
#include "core/base/simd.h"

/* x is [rows, size]; each row is normalised by its own statistics. Value i of row r has the
 * parameter (r % groups) channels + i / plane, of `groups` times `channels`. */
struct sl__layernorm_args {
  int64_t rows, size;
  int64_t groups, channels, plane; /* channels of a group: size / plane */
  float epsilon;
  int32_t is_plain; /* no parameters */
  int32_t is_rms;   /* the mean is not subtracted, and there is no bias */
};

/* Statistics of a row: mean (RMS: 0), 1 / deviation. */
struct sl__row_stats {
  float mean, inverse;
};

/* squares: the sum of (x - mean)^2. If it overflows, 0 would make the row vanish without a trace:
 * NaN reaches the loss's check. */
SL__HOST_DEVICE SL__INLINE float sl__row_inverse(const struct sl__layernorm_args *a,
                                                 float squares) {
  if (!(squares <= FLT_MAX)) return NAN;
  return 1.0f / sqrtf(squares / (float)a->size + a->epsilon);
}

/* dx = r (g - mean(g) - (x - mean) r^2 mean(g (x - mean))), g = gamma dy, as r g + b (x - mean) +
 * s. */
struct sl__row_slopes {
  float r, b, s;
};

/* sum: of the row's g; product: of its g (x - mean). */
SL__HOST_DEVICE SL__INLINE struct sl__row_slopes sl__row_slopes_of(
    const struct sl__layernorm_args *a, struct sl__row_stats stats, float sum, float product) {
  float r = stats.inverse, n = (float)a->size;
  struct sl__row_slopes v = {r, -r * r * r * product / n, a->is_rms ? 0 : -r * sum / n};
  return v;
}

#endif
