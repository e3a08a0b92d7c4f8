/* Stochastic gradient descent with momentum, as torch.optim.SGD (dampening 0). One pass over
 * memory: gradients are added, clipped and applied while they are in the cache. */
#include "codelets/kernels/update.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

SL__INLINE void step(void *buffers[], void *cl_arg, bool momentum) {
  const struct sl__update_args *a = sl__args(cl_arg);
  int first = momentum ? 2 : 1, end = sl__buffer_count(cl_arg) - a->has_norm;
  float factor = sl__clip_factor(a, a->has_norm ? sl__buffer(buffers, end) : NULL);
  const struct sl__update u = a->u;
  float gradient[SL__UPDATE_BLOCK];
  for (int64_t offset = 0; offset < a->count; offset += SL__UPDATE_BLOCK) {
    int64_t n = a->count - offset < SL__UPDATE_BLOCK ? a->count - offset : SL__UPDATE_BLOCK;
    float *p = (float *)sl__buffer(buffers, 0) + a->param_first + offset;
    sl__sum_gradients(buffers, first, end, a->gradient_first + offset, n, factor, gradient);
    float *v = momentum ? (float *)sl__buffer(buffers, 1) + offset : NULL;
    if (momentum)
      for (int64_t i = 0; i < n; i++) sl__momentum_step(&u, gradient[i], &p[i], &v[i]);
    else
      for (int64_t i = 0; i < n; i++) sl__sgd_step(&u, gradient[i], &p[i]);
  }
}

SL__SIMD SL__KERNEL void sl__sgd_cpu(void *buffers[], void *cl_arg) {
  step(buffers, cl_arg, false);
}

SL__SIMD SL__KERNEL void sl__sgd_momentum_cpu(void *buffers[], void *cl_arg) {
  step(buffers, cl_arg, true);
}

/* ---- submission -------------------------------------------------------------------------- */

enum sl_status sl__sgd(struct sl_context *context, const struct sl__launch *l,
                       struct sl__tensor *param, struct sl__tensor *velocity, int count,
                       struct sl__tensor *const *gradients, struct sl__tensor *norm,
                       const struct sl__update *update) {
  struct sl__tensor *own[] = {param, velocity};
  struct sl__op *op = velocity ? &sl__op_sgd_momentum : &sl__op_sgd;
  return sl__submit_update(context, op, l, velocity ? 2 : 1, own, count, gradients, norm, update);
}
