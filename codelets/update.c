/* Optimizers' steps, one pass over memory: gradients are added, clipped and applied while they are
 * in the cache. Every SL__UPDATE row of ops.def becomes a kernel with its arithmetic of update.h.
 */
#include "codelets/update.h"

#include <stdlib.h>

/* ---- CPU kernels ------------------------------------------------------------------------- */

#define BLOCK 1024 /* elements that fit the first cache, with their state */

/* gradient[0..n-1] = factor (g_0 + g_1 + ...), terms from buffer `first` on, in their order. */
SL__INLINE void sum_gradients(void *buffers[], int first, int end, int64_t offset, int64_t n,
                              float factor, float *gradient) {
  const float *g = (const float *)sl__buffer(buffers, first) + offset;
  for (int64_t i = 0; i < n; i++) gradient[i] = g[i];
  for (int t = first + 1; t < end; t++) {
    g = (const float *)sl__buffer(buffers, t) + offset;
    for (int64_t i = 0; i < n; i++) gradient[i] += g[i];
  }
  for (int64_t i = 0; i < n; i++) gradient[i] *= factor;
}

/* Values of state tensor k from `offset` on; any memory (`none`) where there are fewer states. */
SL__INLINE float *state_at(void *buffers[], int states, int k, int64_t offset, float *none) {
  return k < states ? (float *)sl__buffer(buffers, 1 + k) + offset : none;
}

#define SL__OP(name, modes, where)
#define SL__UPDATE(name, states, modes)                                                            \
  SL__SIMD SL__KERNEL void sl__##name##_cpu(void *buffers[], void *cl_arg) {                       \
    const struct sl__update_args *args = sl__args(cl_arg);                                         \
    int end = sl__buffer_count(cl_arg) - args->has_norm;                                           \
    float factor = sl__clip_factor(args, args->has_norm ? sl__buffer(buffers, end) : NULL);        \
    const struct sl__##name##_rates rates = sl__##name##_begin(&args->u);                          \
    float gradient[BLOCK];                                                                         \
    for (int64_t offset = 0; offset < args->count; offset += BLOCK) {                              \
      int64_t n = args->count - offset < BLOCK ? args->count - offset : BLOCK;                     \
      float *p = (float *)sl__buffer(buffers, 0) + args->param_first + offset;                     \
      float *a = state_at(buffers, states, 0, offset, gradient),                                   \
            *b = state_at(buffers, states, 1, offset, gradient);                                   \
      sum_gradients(buffers, 1 + states, end, args->gradient_first + offset, n, factor, gradient); \
      for (int64_t i = 0; i < n; i++) sl__##name##_step(&rates, gradient[i], &p[i], &a[i], &b[i]); \
    }                                                                                              \
  }
#include "codelets/ops.def"
#undef SL__OP

/* ---- submission -------------------------------------------------------------------------- */

static void renew(void *args, const struct sl__step_record *step) {
  sl__update_renew(args, step);
}

int sl__update_states(const struct sl__op *op) { return (int)strspn(op->modes, "m") - 1; }

enum sl_status sl__update(struct sl_context *context, struct sl__op *op, const struct sl__launch *l,
                          struct sl__tensor *param, struct sl__tensor *const *state, int count,
                          struct sl__tensor *const *gradients, struct sl__tensor *norm,
                          const struct sl__update *update) {
  struct sl__tensor *several[SL__STACK_BUFFERS], **tensors = several;
  struct sl__launch launch = *l;
  struct sl__update_args a = {.param_first = (int64_t)param->first,
                              .gradient_first = count > 0 ? (int64_t)gradients[0]->first : 0,
                              .has_norm = norm != NULL,
                              .u = *update};
  int states = sl__update_states(op), n = 0, all = 1 + states + count + (norm != NULL);
  if (count < 1) return sl__fail(SL_BAD_ARGUMENT, "%s: no gradient is given", op->codelet.name);
  if (update->step < 1)
    return sl__fail(SL_BAD_ARGUMENT, "%s: steps count from 1, not %lld", op->codelet.name,
                    (long long)update->step);
  if (all > SL__STACK_BUFFERS && !(tensors = sl__alloc((size_t)all, sizeof *tensors, "an update")))
    return SL_NO_MEMORY;
  tensors[n++] = param;
  for (int i = 0; i < states; i++) tensors[n++] = state[i];
  for (int i = 0; i < count; i++) tensors[n++] = gradients[i];
  enum sl_status status = sl__same_count(op->codelet.name, n, tensors, &a.count);
  launch.pieces = true;
  launch.renew = renew;
  if (norm) tensors[n++] = norm;
  if (status == SL_OK)
    status = sl__submit(context, op, &launch, all, tensors, &a, sizeof a,
                        (double)a.count * (count + 4), 0);
  if (tensors != several) free(tensors);
  return status;
}
