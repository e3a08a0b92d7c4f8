/* Adam (Kingma, Ba, arXiv 1412.6980) and AdamW (Loshchilov, Hutter, arXiv 1711.05101), as
 * torch.optim's. */
#include "codelets/update.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

SL_SIMD SL_KERNEL void sl__adam_cpu(void *buffers[], void *cl_arg) {
  const struct sl__update_args *a = sl__args(cl_arg);
  int end = sl__buffer_count(cl_arg) - a->has_norm;
  float factor = sl__clip_factor(a, a->has_norm ? sl__buffer(buffers, end) : NULL);
  float gradient[SL_UPDATE_BLOCK], b1 = a->u.beta1, b2 = a->u.beta2;
  float coupled = a->u.decoupled ? 0 : a->u.weight_decay;
  float keep = a->u.decoupled ? 1 - a->u.lr * a->u.weight_decay : 1;
  /* the moments start at 0: both are divided by how much of them has come in so far */
  float rate = (float)((double)a->u.lr / (1 - pow((double)b1, (double)a->u.step)));
  float scale = (float)(1 / sqrt(1 - pow((double)b2, (double)a->u.step)));
  for (int64_t offset = 0; offset < a->count; offset += SL_UPDATE_BLOCK) {
    int64_t n = a->count - offset < SL_UPDATE_BLOCK ? a->count - offset : SL_UPDATE_BLOCK;
    float *p = (float *)sl__buffer(buffers, 0) + offset;
    float *m = (float *)sl__buffer(buffers, 1) + offset,
          *v = (float *)sl__buffer(buffers, 2) + offset;
    sl__sum_gradients(buffers, 3, end, offset, n, factor, gradient);
    for (int64_t i = 0; i < n; i++) {
      float g = gradient[i] + coupled * p[i];
      m[i] = b1 * m[i] + (1 - b1) * g;
      v[i] = b2 * v[i] + (1 - b2) * g * g;
      p[i] = keep * p[i] - rate * m[i] / (sqrtf(v[i]) * scale + a->u.epsilon);
    }
  }
}

/* ---- submission -------------------------------------------------------------------------- */

enum sl_status sl__adam(struct sl_context *context, const struct sl__launch *l,
                        struct sl_tensor *param, struct sl_tensor *mean, struct sl_tensor *variance,
                        int count, struct sl_tensor *const *gradients, struct sl_tensor *norm,
                        const struct sl__update *update) {
  if (update->step < 1)
    return sl_fail(SL_BAD_ARGUMENT, "adam: steps count from 1, not %lld", (long long)update->step);
  return sl__submit_update(context, &sl__op_adam, l, 3,
                           (struct sl_tensor *[]){param, mean, variance}, count, gradients, norm,
                           update);
}
