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

static inline void sl__update_renew(struct sl__update *u, const struct sl__step_record *step) {
  u->lr = u->lr_factor > 0 ? step->lr * u->lr_factor : step->lr;
  u->step = step->number + 1;
}

#ifndef __cplusplus
/* gradient[0..n-1] = factor (g_0 + g_1 + ...), terms from buffer `first` on, in their order. */
SL__INLINE void sl__sum_gradients(void *buffers[], int first, int end, int64_t offset, int64_t n,
                                  float factor, float *gradient) {
  const float *g = (const float *)sl__buffer(buffers, first) + offset;
  for (int64_t i = 0; i < n; i++) gradient[i] = g[i];
  for (int t = first + 1; t < end; t++) {
    g = (const float *)sl__buffer(buffers, t) + offset;
    for (int64_t i = 0; i < n; i++) gradient[i] += g[i];
  }
  for (int64_t i = 0; i < n; i++) gradient[i] *= factor;
}
#endif

/* The factor that clips gradients: 1, or max_norm / norm if the norm (given squared) is larger.
 * Without a norm: 1. Gradients whose norm is infinite have no factor: NaN ends the training by the
 * next loss, where 0 would keep it from learning unnoticed. */
SL__HOST_DEVICE SL__INLINE float sl__clip_factor(float max_norm, const float *norm_square) {
  if (!norm_square) return 1;
  float norm = sqrtf(*norm_square);
  if (isinf(norm)) return NAN;
  return norm > max_norm ? max_norm / norm : 1;
}

#endif
