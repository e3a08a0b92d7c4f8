/* Losses that are means over single values: squared, absolute, Huber, binary cross-entropy; the
 * arithmetic is loss.h's. */
#include "codelets/loss.h"

#include "codelets/codelets.h"
#include "core/base/error.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

/* Sums run over a fixed number of lanes: the order is the same for every vector width. */
enum { LANES = 16, STRIP = 32 * LANES };

struct sums {
  double lane[LANES];
  int64_t rows, counted, outside;
};

/* Value i goes to lane i modulo LANES. */
SL__INLINE void add_to_lanes(const float *restrict value, int64_t n, double *restrict lane) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int l = 0; l < LANES; l++) lane[l] += (double)value[i + l];
  for (int l = 0; i + l < n; l++) lane[l] += (double)value[i + l];
}

/* Some values of a line; NaN targets count nowhere. Without branches, so that vectors take them. */
SL__INLINE int64_t strip(const struct sl__loss_args *a, enum sl_loss_kind kind, int64_t n,
                         const float *restrict z, const float *restrict target, float *restrict out,
                         struct sums *sums) {
  const float scale = a->scale, delta = a->delta;
  int32_t counted = 0, outside = 0;
  float value[STRIP];
  for (int64_t i = 0; i < n; i++) {
    float t = target[i], v = sl__loss_value(kind, delta, z[i], t);
    value[i] = t == t ? v : 0;
    counted += t == t;
  }
  add_to_lanes(value, n, sums->lane);
  for (int64_t i = 0; i < n && kind == SL_LOSS_BCE; i++)
    outside += target[i] == target[i] && sl__loss_outside(kind, target[i]);
  for (int64_t i = 0; i < n && out; i++) {
    float slope = scale * sl__loss_slope(kind, delta, z[i], target[i]);
    out[i] = target[i] == target[i] ? slope : 0;
  }
  sums->outside += outside;
  return counted;
}

/* One line of the output. */
SL__INLINE void line(const struct sl__loss_args *a, enum sl_loss_kind kind, const float *restrict z,
                     const float *restrict target, float *restrict out, struct sums *sums) {
  int64_t counted = 0;
  for (int64_t first = 0; first < a->size; first += STRIP) {
    int64_t n = a->size - first < STRIP ? a->size - first : STRIP;
    counted += strip(a, kind, n, z + first, target + first, out ? out + first : NULL, sums);
  }
  sums->rows += counted > 0;
  sums->counted += counted;
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
