/* Softmax and cross-entropy in one, with its gradient. */
#include <math.h>

#include "codelets/activation.h"
#include <starling/data.h>

#include "codelets/codelets.h"
#include "core/error.h"

struct xent_args {
  int64_t rows, classes;
  float scale;
};

/* ---- CPU kernels ------------------------------------------------------------------------- */

/* A row's largest logit and where it is; NaN is never larger, so a row of NaN gives NaN below. */
SL_INLINE int64_t largest(const float *row, int64_t classes) {
  int64_t best = 0;
  for (int64_t c = 1; c < classes; c++)
    if (row[c] > row[best]) best = c;
  return best;
}

/* Softmax of one row into p (which may be NULL), the logarithm of its denominator returned. */
SL_INLINE double row_softmax(const float *row, int64_t classes, float most, float *p) {
  double sum = 0;
  for (int64_t c = 0; c < classes; c++) {
    float e = sl__exp(row[c] - most);
    if (p) p[c] = e;
    sum += (double)e;
  }
  if (p)
    for (int64_t c = 0; c < classes; c++) p[c] = (float)((double)p[c] / sum);
  return log(sum);
}

SL_INLINE void xent(const struct xent_args *a, const float *logits, const int32_t *labels,
                    float *stats, float *dlogits) {
  double loss = 0;
  int64_t right = 0, counted = 0, outside = 0;
  for (int64_t n = 0; n < a->rows; n++) {
    const float *row = logits + n * a->classes;
    float *out = dlogits ? dlogits + n * a->classes : NULL;
    int32_t label = labels[n];
    if (label < 0 || label >= a->classes) {
      outside += label != SL_IGNORE;
      for (int64_t c = 0; out && c < a->classes; c++) out[c] = 0;
      continue;
    }
    int64_t best = largest(row, a->classes);
    loss += row_softmax(row, a->classes, row[best], out) - ((double)row[label] - (double)row[best]);
    right += best == label;
    counted++;
    if (!out) continue;
    out[label] -= 1;
    for (int64_t c = 0; c < a->classes; c++) out[c] *= a->scale;
  }
  stats[0] = (float)loss;
  stats[1] = (float)right;
  stats[2] = (float)counted;
  stats[3] = (float)outside;
}

SL_SIMD SL_KERNEL void softmax_xent_cpu(void *buffers[], void *cl_arg) {
  xent(sl__args(cl_arg), sl__buffer(buffers, 0), sl__buffer(buffers, 1), sl__buffer(buffers, 2),
       NULL);
}

SL_SIMD SL_KERNEL void softmax_xent_gradient_cpu(void *buffers[], void *cl_arg) {
  xent(sl__args(cl_arg), sl__buffer(buffers, 0), sl__buffer(buffers, 1), sl__buffer(buffers, 2),
       sl__buffer(buffers, 3));
}

/* ---- submission -------------------------------------------------------------------------- */

enum sl_status sl__softmax_xent(struct sl_context *context, const struct sl__launch *l,
                                struct sl_tensor *logits, struct sl_tensor *labels,
                                struct sl_tensor *stats, struct sl_tensor *dlogits, float scale) {
  struct xent_args a = {.classes = logits->shape.dim[logits->shape.ndim - 1], .scale = scale};
  a.rows = sl_shape_count(&logits->shape) / a.classes;
  if (sl_shape_count(&labels->shape) != a.rows || stats->shape.dim[0] != 4 ||
      (dlogits && !sl_shape_equal(&dlogits->shape, &logits->shape)))
    return sl_fail(SL_BAD_SHAPE,
                   "softmax_xent: %lld rows of logits, but %lld labels (or stats is not [4])",
                   (long long)a.rows, (long long)sl_shape_count(&labels->shape));
  struct sl__op *op = dlogits ? &sl__op_softmax_xent_gradient : &sl__op_softmax_xent;
  return sl__submit(context, op, l, dlogits ? 4 : 3,
                    (struct sl_tensor *[]){logits, labels, stats, dlogits}, &a, sizeof a,
                    10.0 * (double)a.rows * (double)a.classes, 0);
}
