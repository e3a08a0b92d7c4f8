/* Arguments of an optimizer's update, and how it clips gradients: shared by the updates of whole
 * tensors (update.c) and of single rows (rows.c), on CPUs and GPUs. */
#ifndef SL_CODELETS_KERNELS_UPDATE_H
#define SL_CODELETS_KERNELS_UPDATE_H

#include <math.h>

#include "codelets/codelets.h"
#include "codelets/dense.h"
#include "codelets/kernels/elementwise.h"
#include "core/base/random.h" /* SL__HOST_DEVICE */

struct sl__update_args {
  int64_t count;
  int64_t param_first, gradient_first; /* the first element in its tensor */
  int32_t has_norm;
  /* 0: the gradients are inputs. Else the inputs are this number of pairs (x, dy) of a dense layer,
   * and count elements from product_first on of its gradient are computed (on CPUs). */
  int32_t products;
  int64_t product_first;
  struct sl__dense_args product;
  struct sl__update u;
};

static inline void sl__update_renew(struct sl__update_args *a, const struct sl__step_record *step) {
  a->u.lr = a->u.lr_factor > 0 ? step->lr * a->u.lr_factor : step->lr;
  a->u.step = step->number + 1;
}

/* The factor that clips gradients: 1, or max_norm / norm if the norm (given squared) is larger.
 * Without a norm: 1. */
SL__HOST_DEVICE SL__INLINE float sl__clip_factor(float max_norm, const float *norm_square) {
  if (!norm_square) return 1;
  float norm = sqrtf(*norm_square);
  return norm > max_norm ? max_norm / norm : 1;
}

#endif
