/* Losses that are means over single values: squared, absolute, Huber, binary cross-entropy; the
 * arithmetic is loss.h's. */
#include "codelets/loss.h"

#include "codelets/codelets.h"
#include "core/base/error.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

/* Sums run over a fixed number of lanes: the order is the same for every vector width. */
enum { LANES = 16 };

struct sums {
  double lane[LANES];
  int64_t rows, counted, outside;
};

/* One line of the output, at most LANES values further at a time. NaN targets count nowhere. */
SL__INLINE void line(const struct sl__loss_args *a, enum sl_loss_kind kind, const float *restrict z,
                     const float *restrict target, float *restrict out, struct sums *sums) {
  int64_t counted = 0, outside = 0;
  for (int64_t first = 0; first < a->size; first += LANES) {
    int64_t n = a->size - first < LANES ? a->size - first : LANES;
    for (int64_t l = 0; l < n; l++) {
      float zi = z[first + l], t = target[first + l];
      bool valid = t == t;
      float value = sl__loss_value(kind, a->delta, zi, t);
      sums->lane[l] += valid ? (double)value : 0;
      counted += valid;
      outside += valid && sl__loss_outside(kind, t);
      if (out) out[first + l] = valid ? a->scale * sl__loss_slope(kind, a->delta, zi, t) : 0;
    }
  }
  sums->rows += counted > 0;
  sums->counted += counted;
  sums->outside += outside;
}

SL__INLINE void lines(const struct sl__loss_args *a, enum sl_loss_kind kind, void *buffers[],
                      float *dlogits) {
  const float *z = sl__buffer(buffers, 0), *targets = sl__buffer(buffers, 1);
  float *stats = sl__buffer(buffers, 2);
  struct sums sums = {{0}, 0, 0, 0};
  double loss = 0;
  for (int64_t n = 0; n < a->lines; n++)
    line(a, kind, z + n * a->size, targets + n * a->stride + a->first,
         dlogits ? dlogits + n * a->size : NULL, &sums);
  for (int l = 0; l < LANES; l++) loss += sums.lane[l];
  stats[0] = (float)loss;
  stats[1] = a->first ? 0 : (float)sums.rows;
  stats[2] = (float)sums.counted;
  stats[3] = (float)sums.outside;
}

/* The kind as a constant of each loop. */
SL__INLINE void run(void *buffers[], void *cl_arg, float *dlogits) {
  const struct sl__loss_args *a = sl__args(cl_arg);
  switch (a->kind) {
    case SL_LOSS_MAE: lines(a, SL_LOSS_MAE, buffers, dlogits); break;
    case SL_LOSS_HUBER: lines(a, SL_LOSS_HUBER, buffers, dlogits); break;
    case SL_LOSS_BCE: lines(a, SL_LOSS_BCE, buffers, dlogits); break;
    default: lines(a, SL_LOSS_MSE, buffers, dlogits); break;
  }
}

SL__SIMD SL__KERNEL void sl__elementwise_loss_cpu(void *buffers[], void *cl_arg) {
  run(buffers, cl_arg, NULL);
}

SL__SIMD SL__KERNEL void sl__elementwise_loss_gradient_cpu(void *buffers[], void *cl_arg) {
  run(buffers, cl_arg, sl__buffer(buffers, 3));
}

/* ---- submission -------------------------------------------------------------------------- */

static void renew(void *args, const struct sl__step_record *step) {
  struct sl__loss_args *a = args;
  a->scale = step->scale[a->part];
}

enum sl_status sl__elementwise_loss(struct sl_context *context, const struct sl__launch *l,
                                    const struct sl__loss_task *t, enum sl_loss_kind kind,
                                    float delta) {
  int64_t lines = t->logits->shape.dim[0], size = sl_shape_count(&t->logits->shape) / lines;
  struct sl__loss_args a = {.lines = lines,
                            .size = size,
                            .stride = sl_shape_count(&t->targets->shape) / lines,
                            .first = t->from * (size / t->logits->shape.dim[1]),
                            .kind = kind,
                            .part = t->part,
                            .delta = delta,
                            .scale = t->scale};
  struct sl__launch launch = *l;
  if (t->targets->shape.dim[0] != lines || t->from < 0 || a.first + size > a.stride ||
      t->stats->shape.dim[0] != 4 ||
      (t->dlogits && !sl_shape_equal(&t->dlogits->shape, &t->logits->shape)))
    return sl__fail(SL_BAD_SHAPE, "loss: %lld outputs, but %lld targets (or stats is not [4])",
                    (long long)(lines * size), (long long)sl_shape_count(&t->targets->shape));
  struct sl__op *op = t->dlogits ? &sl__op_elementwise_loss_gradient : &sl__op_elementwise_loss;
  launch.renew = renew;
  return sl__submit(context, op, &launch, t->dlogits ? 4 : 3,
                    (struct sl__tensor *[]){t->logits, t->targets, t->stats, t->dlogits}, &a,
                    sizeof a, 10.0 * (double)lines * (double)size, 0);
}
