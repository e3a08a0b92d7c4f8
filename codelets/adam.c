/* Adam (Kingma, Ba, arXiv 1412.6980) and AdamW (Loshchilov, Hutter, arXiv 1711.05101), as
 * torch.optim's. */
#include "codelets/kernels/update.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

SL__SIMD SL__KERNEL void sl__adam_cpu(void *buffers[], void *cl_arg) {
  const struct sl__update_args *a = sl__args(cl_arg);
  int end = sl__buffer_count(cl_arg) - a->has_norm;
  float factor = sl__clip_factor(a, a->has_norm ? sl__buffer(buffers, end) : NULL);
  const struct sl__adam_rates s = sl__adam_begin(&a->u);
  float gradient[SL__UPDATE_BLOCK];
  for (int64_t offset = 0; offset < a->count; offset += SL__UPDATE_BLOCK) {
    int64_t n = a->count - offset < SL__UPDATE_BLOCK ? a->count - offset : SL__UPDATE_BLOCK;
    float *p = (float *)sl__buffer(buffers, 0) + a->param_first + offset;
    float *m = (float *)sl__buffer(buffers, 1) + offset,
          *v = (float *)sl__buffer(buffers, 2) + offset;
    sl__sum_gradients(buffers, 3, end, a->gradient_first + offset, n, factor, gradient);
    for (int64_t i = 0; i < n; i++) sl__adam_step(&s, gradient[i], &p[i], &m[i], &v[i]);
  }
}

/* ---- submission -------------------------------------------------------------------------- */

enum sl_status sl__adam(struct sl_context *context, const struct sl__launch *l,
                        struct sl__tensor *param, struct sl__tensor *mean,
                        struct sl__tensor *variance, int count, struct sl__tensor *const *gradients,
                        struct sl__tensor *norm, const struct sl__update *update) {
  if (update->step < 1)
    return sl__fail(SL_BAD_ARGUMENT, "adam: steps count from 1, not %lld", (long long)update->step);
  return sl__submit_update(context, &sl__op_adam, l, 3,
                           (struct sl__tensor *[]){param, mean, variance}, count, gradients, norm,
                           update);
}
