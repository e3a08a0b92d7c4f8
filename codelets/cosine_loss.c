/* The cosine loss: 1 - cos(z, t) of each row. */
#include "codelets/cosine_loss.h"

#include "codelets/codelets.h"
#include "core/base/error.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

SL__INLINE struct sl__cosine sums_of(const float *z, const float *t, int64_t size) {
  struct sl__cosine s = {0, 0, 0, true};
  for (int64_t i = 0; i < size; i++) {
    s.valid &= t[i] == t[i];
    s.zt += (double)z[i] * (double)t[i];
    s.zz += (double)z[i] * (double)z[i];
    s.tt += (double)t[i] * (double)t[i];
  }
  return s;
}

SL__INLINE void run(void *buffers[], const struct sl__cosine_args *a, float *dlogits) {
  const float *logits = sl__buffer(buffers, 0), *targets = sl__buffer(buffers, 1);
  float *stats = sl__buffer(buffers, 2);
  double loss = 0;
  int64_t counted = 0;
  for (int64_t n = 0; n < a->rows; n++) {
    const float *z = logits + n * a->size, *t = targets + sl__cosine_target(a, n);
    float *out = dlogits ? dlogits + n * a->size : NULL;
    const struct sl__cosine s = sums_of(z, t, a->size);
    double by_z, by_t, value = sl__cosine_loss_of(&s, &by_z, &by_t);
    counted += s.valid;
    if (s.valid) loss += value;
    for (int64_t i = 0; out && i < a->size; i++)
      out[i] =
          s.valid ? (float)((double)a->scale * (by_z * (double)z[i] + by_t * (double)t[i])) : 0;
  }
  stats[0] = (float)loss;
  stats[1] = (float)counted;
  stats[2] = (float)counted;
  stats[3] = 0;
}

SL__SIMD SL__KERNEL void sl__cosine_loss_cpu(void *buffers[], void *cl_arg) {
  run(buffers, sl__args(cl_arg), NULL);
}

SL__SIMD SL__KERNEL void sl__cosine_loss_gradient_cpu(void *buffers[], void *cl_arg) {
  run(buffers, sl__args(cl_arg), sl__buffer(buffers, 3));
}

/* ---- submission -------------------------------------------------------------------------- */

static void renew(void *args, const struct sl__step_record *step) {
  struct sl__cosine_args *a = args;
  a->scale = step->scale[a->part];
}

enum sl_status sl__cosine_loss(struct sl_context *context, const struct sl__launch *l,
                               const struct sl__loss_task *t) {
  int64_t lines = t->logits->shape.dim[0];
  struct sl__cosine_args a = {.size = t->logits->shape.dim[t->logits->shape.ndim - 1],
                              .from = t->from,
                              .scale = t->scale,
                              .part = t->part};
  struct sl__launch launch = *l;
  a.rows = sl_shape_count(&t->logits->shape) / a.size;
  a.steps = a.rows / lines;
  a.columns = sl_shape_count(&t->targets->shape) / a.size / lines;
  if (t->targets->shape.dim[0] != lines ||
      t->targets->shape.dim[t->targets->shape.ndim - 1] != a.size || t->from < 0 ||
      t->from + a.steps > a.columns || t->stats->shape.dim[0] != 4 ||
      (t->dlogits && !sl_shape_equal(&t->dlogits->shape, &t->logits->shape)))
    return sl__fail(SL_BAD_SHAPE,
                    "cosine_loss: %lld outputs, but %lld targets (or stats is not "
                    "[4])",
                    (long long)(a.rows * a.size), (long long)sl_shape_count(&t->targets->shape));
  struct sl__op *op = t->dlogits ? &sl__op_cosine_loss_gradient : &sl__op_cosine_loss;
  launch.renew = renew;
  return sl__submit(context, op, &launch, t->dlogits ? 4 : 3,
                    (struct sl__tensor *[]){t->logits, t->targets, t->stats, t->dlogits}, &a,
                    sizeof a, 10.0 * (double)a.rows * (double)a.size, 0);
}
