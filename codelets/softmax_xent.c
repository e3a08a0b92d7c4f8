/* Softmax and cross-entropy in one, with its gradient. */
#include "codelets/softmax_xent.h"

#include <math.h>

#include "codelets/activation.h"
#include <starling/data.h>

#include "codelets/codelets.h"
#include "core/base/error.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

/* Sums and maxima run over a fixed number of lanes: the loops vectorise, and the order is the same
 * for every vector width. */
enum { LANES = 16 };

/* Index of a row's largest logit, the first of equals; NaN is never larger. Blocks of several
 * vectors, whose maxima do not wait for each other, and of which one has the place. */
SL__INLINE int64_t largest(const float *row, int64_t classes) {
  enum { BLOCK = 8 * LANES };
  float lane[BLOCK], most = -INFINITY;
  int64_t whole = classes / BLOCK * BLOCK, at = 0;
  for (int l = 0; l < BLOCK; l++) lane[l] = -INFINITY;
  for (int64_t c = 0; c < whole; c += BLOCK)
    for (int l = 0; l < BLOCK; l++) lane[l] = row[c + l] > lane[l] ? row[c + l] : lane[l];
  for (int l = 0; l < BLOCK; l++) most = lane[l] > most ? lane[l] : most;
  for (int64_t c = whole; c < classes; c++) most = row[c] > most ? row[c] : most;
  for (int found = 0; at < whole; at += BLOCK) {
    for (int l = 0; l < BLOCK; l++) found |= row[at + l] == most;
    if (found) break;
  }
  while (at < classes && row[at] != most) at++;
  return at < classes ? at : 0; /* all are NaN: the loss check reports it */
}

/* Writes e^(row - most) to e (which may be NULL); returns their sum. */
SL__INLINE double exponentials(const float *restrict row, int64_t classes, float most,
                               float *restrict e) {
  double lane[LANES] = {0}, sum = 0;
  int64_t whole = classes / LANES * LANES;
  for (int64_t c = 0; c < whole; c += LANES)
    for (int l = 0; l < LANES; l++) {
      float value = sl__exp(row[c + l] - most);
      if (e) e[c + l] = value;
      lane[l] += (double)value;
    }
  for (int64_t c = whole; c < classes; c++) {
    float value = sl__exp(row[c] - most);
    if (e) e[c] = value;
    sum += (double)value;
  }
  for (int l = 0; l < LANES; l++) sum += lane[l];
  return sum;
}

SL__INLINE void xent(const struct sl__xent_args *a, const float *logits, const int32_t *labels,
                     float *stats, float *dlogits) {
  double loss = 0;
  int64_t right = 0, counted = 0, outside = 0;
  for (int64_t n = 0; n < a->rows; n++) {
    const float *row = logits + n * a->classes;
    float *out = dlogits ? dlogits + n * a->classes : NULL;
    int32_t label = sl__xent_label(a, labels, n);
    if (label < 0 || label >= a->classes) {
      outside += label != SL_IGNORE;
      for (int64_t c = 0; out && c < a->classes; c++) out[c] = 0;
      continue;
    }
    int64_t best = largest(row, a->classes);
    double sum = exponentials(row, a->classes, row[best], out);
    loss += log(sum) - ((double)row[label] - (double)row[best]);
    right += best == label;
    counted++;
    if (!out) continue;
    float factor = (float)((double)a->scale / sum);
    for (int64_t c = 0; c < a->classes; c++) out[c] *= factor;
    out[label] -= a->scale;
  }
  stats[0] = (float)loss;
  stats[1] = (float)right;
  stats[2] = (float)counted;
  stats[3] = (float)outside;
}

SL__SIMD SL__KERNEL void sl__softmax_xent_cpu(void *buffers[], void *cl_arg) {
  xent(sl__args(cl_arg), sl__buffer(buffers, 0), sl__buffer(buffers, 1), sl__buffer(buffers, 2),
       NULL);
}

SL__SIMD SL__KERNEL void sl__softmax_xent_gradient_cpu(void *buffers[], void *cl_arg) {
  xent(sl__args(cl_arg), sl__buffer(buffers, 0), sl__buffer(buffers, 1), sl__buffer(buffers, 2),
       sl__buffer(buffers, 3));
}

/* ---- submission -------------------------------------------------------------------------- */

static void renew(void *args, const struct sl__step_record *step) {
  struct sl__xent_args *a = args;
  a->scale = step->scale;
}

enum sl_status sl__softmax_xent(struct sl_context *context, const struct sl__launch *l,
                                struct sl__tensor *logits, struct sl__tensor *labels,
                                struct sl__tensor *stats, struct sl__tensor *dlogits, float scale,
                                int64_t from) {
  int64_t lines = logits->shape.dim[0];
  struct sl__launch launch = *l;
  struct sl__xent_args a = {
      .classes = logits->shape.dim[logits->shape.ndim - 1], .from = from, .scale = scale};
  a.rows = sl_shape_count(&logits->shape) / a.classes;
  a.steps = a.rows / lines;
  a.columns = sl_shape_count(&labels->shape) / lines;
  if (labels->shape.dim[0] != lines || from < 0 || from + a.steps > a.columns ||
      stats->shape.dim[0] != 4 || (dlogits && !sl_shape_equal(&dlogits->shape, &logits->shape)))
    return sl__fail(SL_BAD_SHAPE,
                    "softmax_xent: %lld rows of logits, but %lld labels (or stats is not [4])",
                    (long long)a.rows, (long long)sl_shape_count(&labels->shape));
  struct sl__op *op = dlogits ? &sl__op_softmax_xent_gradient : &sl__op_softmax_xent;
  launch.renew = renew;
  return sl__submit(context, op, &launch, dlogits ? 4 : 3,
                    (struct sl__tensor *[]){logits, labels, stats, dlogits}, &a, sizeof a,
                    10.0 * (double)a.rows * (double)a.classes, 0);
}
