/* What the optimizers' updates share: the sum of the replicas' gradients, clipped, block by block
 * in the cache; the arithmetic per element, which CPU and CUDA have in common. */
#ifndef SL_CODELETS_KERNELS_UPDATE_H
#define SL_CODELETS_KERNELS_UPDATE_H

#include <math.h>
#include <stdlib.h>

#include "codelets/codelets.h"
#include "codelets/kernels/elementwise.h"
#include "core/base/random.h" /* SL__HOST_DEVICE */

#define SL__UPDATE_BLOCK 1024

struct sl__update_args {
  int64_t count;
  int64_t param_first, gradient_first; /* elements of their tensors before those */
  int32_t has_norm;
  struct sl__update u;
};

/* The factor by which gradients shrink: 1, or max_norm / norm where the norm (given squared) is
 * larger. */
SL__HOST_DEVICE SL__INLINE float sl__clip_factor(const struct sl__update_args *a,
                                                 const float *norm_square) {
  if (!a->has_norm) return 1;
  float norm = sqrtf(*norm_square);
  return norm > a->u.max_norm ? a->u.max_norm / norm : 1;
}

SL__HOST_DEVICE SL__INLINE void sl__sgd_step(const struct sl__update *u, float gradient, float *p) {
  *p -= u->lr * (gradient + u->weight_decay * *p);
}

SL__HOST_DEVICE SL__INLINE void sl__momentum_step(const struct sl__update *u, float gradient,
                                                  float *p, float *v) {
  float ahead = u->nesterov ? 1.0f : 0.0f, behind = u->nesterov ? u->momentum : 1.0f;
  float g = gradient + u->weight_decay * *p;
  *v = u->momentum * *v + g;
  *p -= u->lr * (ahead * g + behind * *v);
}

/* What Adam's step is for all elements. */
struct sl__adam_rates {
  float b1, b2, coupled, keep, rate, scale, epsilon;
};

static inline struct sl__adam_rates sl__adam_begin(const struct sl__update *u) {
  struct sl__adam_rates s;
  s.b1 = u->beta1;
  s.b2 = u->beta2;
  s.coupled = u->decoupled ? 0 : u->weight_decay;
  s.keep = u->decoupled ? 1 - u->lr * u->weight_decay : 1;
  /* the moments start at 0: both are divided by how much of them has come in so far */
  s.rate = (float)((double)u->lr / (1 - pow((double)u->beta1, (double)u->step)));
  s.scale = (float)(1 / sqrt(1 - pow((double)u->beta2, (double)u->step)));
  s.epsilon = u->epsilon;
  return s;
}

SL__HOST_DEVICE SL__INLINE void sl__adam_step(const struct sl__adam_rates *s, float gradient,
                                              float *p, float *m, float *v) {
  float g = gradient + s->coupled * *p;
  *m = s->b1 * *m + (1 - s->b1) * g;
  *v = s->b2 * *v + (1 - s->b2) * g * g;
  *p = s->keep * *p - s->rate * *m / (sqrtf(*v) * s->scale + s->epsilon);
}

#ifndef __cplusplus /* the CUDA halves have sums of their own, and no part in submission */
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

/* Submits op with the buffers own[0..own_count-1], the gradients, and the norm where there is one.
 */
static inline enum sl_status sl__submit_update(struct sl_context *context, struct sl__op *op,
                                               const struct sl__launch *l, int own_count,
                                               struct sl__tensor *const *own, int count,
                                               struct sl__tensor *const *gradients,
                                               struct sl__tensor *norm,
                                               const struct sl__update *update) {
  struct sl__tensor *few[SL__SKINNY_GEMM], **tensors = few;
  struct sl__launch launch = *l;
  struct sl__update_args a = {.param_first = (int64_t)own[0]->first,
                              .gradient_first = count > 0 ? (int64_t)gradients[0]->first : 0,
                              .has_norm = norm != NULL,
                              .u = *update};
  int n = 0, all = own_count + count + (norm != NULL);
  if (count < 1) return sl__fail(SL_BAD_ARGUMENT, "%s: no gradient is given", op->codelet.name);
  if (all > SL__SKINNY_GEMM && !(tensors = sl__alloc((size_t)all, sizeof *tensors, "an update")))
    return SL_NO_MEMORY;
  for (int i = 0; i < own_count; i++) tensors[n++] = own[i];
  for (int i = 0; i < count; i++) tensors[n++] = gradients[i];
  enum sl_status status = sl__same_count(op->codelet.name, n, tensors, &a.count);
  launch.pieces = true;
  if (norm) tensors[n++] = norm;
  if (status == SL_OK)
    status = sl__submit(context, op, &launch, all, tensors, &a, sizeof a,
                        (double)a.count * (count + 4), 0);
  if (tensors != few) free(tensors);
  return status;
}
#endif

#endif
