/* The cosine loss of a row: what CPU and CUDA compute of its sums. */
#ifndef SL_CODELETS_COSINE_LOSS_H
#define SL_CODELETS_COSINE_LOSS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/random.h" /* SL__HOST_DEVICE */
#include "core/base/simd.h"

struct sl__cosine_args {
  int64_t rows, size;
  int64_t steps, columns, from; /* row n's targets: line n / steps, position from + n % steps */
  float scale;
  int32_t part; /* of the loss */
};

/* A row's sums of z t, z z, t t over its values; valid: no target is NaN. */
struct sl__cosine {
  double zt, zz, tt;
  bool valid;
};

SL__HOST_DEVICE SL__INLINE int64_t sl__cosine_target(const struct sl__cosine_args *a, int64_t n) {
  return (n / a->steps * a->columns + a->from + n % a->steps) * a->size;
}

/* The loss 1 - cos(z, t), and its gradient as a->scale (by_z z + by_t t). A norm below 1e-8 counts
 * as 1e-8, as in torch.nn.functional.cosine_similarity. */
SL__HOST_DEVICE SL__INLINE double sl__cosine_loss_of(const struct sl__cosine *s, double *by_z,
                                                     double *by_t) {
  const double least = 1e-8;
  double z = sqrt(s->zz), t = sqrt(s->tt);
  double norm_z = z < least ? least : z, norm_t = t < least ? least : t;
  double cosine = s->zt / (norm_z * norm_t);
  *by_t = -1 / (norm_z * norm_t);
  *by_z = z < least ? 0 : cosine / s->zz;
  return 1 - cosine;
}

#endif
