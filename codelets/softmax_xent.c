/* Softmax and cross-entropy in one, with its gradient. */
#include "codelets/softmax_xent.h"

#include <math.h>
#include <string.h>

#include "codelets/activation.h"
#include <starling/data.h>

#include "codelets/codelets.h"
#include "codelets/kernels/bf16_adapter.h"
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

enum { EXP_BLOCK = 8 * LANES };

/* Half of the lanes, as a vector: the compiler would keep an array of sums in memory. */
typedef double half_lanes __attribute__((vector_size(LANES / 2 * sizeof(double)), may_alias));

/* Adds values [count], a multiple of LANES up to EXP_BLOCK, to the lanes. */
SL__INLINE void add_to_lanes(const float *value, int64_t count, double lane[LANES]) {
  _Alignas(64) double wide[EXP_BLOCK];
  half_lanes low, high;
  for (int64_t i = 0; i < count; i++) wide[i] = (double)value[i];
  memcpy(&low, lane, sizeof low);
  memcpy(&high, lane + LANES / 2, sizeof high);
  for (int64_t i = 0; i < count; i += LANES) {
    low += *(const half_lanes *)(wide + i);
    high += *(const half_lanes *)(wide + i + LANES / 2);
  }
  memcpy(lane, &low, sizeof low);
  memcpy(lane + LANES / 2, &high, sizeof high);
}

/* Writes e^(row - most) to e (which may be NULL); returns their sum. */
SL__INLINE double exponentials(const float *row, int64_t classes, float most, float *e) {
  double lane[LANES] = {0}, sum = 0;
  int64_t whole = classes / LANES * LANES;
  for (int64_t c = 0; c < whole; c += EXP_BLOCK) {
    _Alignas(64) float unused[EXP_BLOCK];
    float *value = e ? e + c : unused;
    int64_t count = whole - c < EXP_BLOCK ? whole - c : EXP_BLOCK;
    for (int64_t i = 0; i < count; i++) value[i] = sl__exp_bounded(row[c + i] - most);
    add_to_lanes(value, count, lane);
  }
  for (int64_t c = whole; c < classes; c++) {
    float value = sl__exp_bounded(row[c] - most);
    if (e) e[c] = value;
    sum += (double)value;
  }
  for (int l = 0; l < LANES; l++) sum += lane[l];
  return sum;
}

/* The loss of a row, and its gradient in out, which may be the row or e. e: [classes] exponentials,
 * or NULL for no gradient. */
SL__INLINE double plain_row(const struct sl__xent_args *a, const float *row, int32_t label,
                            double most, double sum, const float *e, float *out) {
  double loss = log(sum) - ((double)row[label] - most);
  float factor = (float)((double)a->scale / sum);
  if (!e) return loss;
  for (int64_t c = 0; c < a->classes; c++) out[c] = e[c] * factor;
  out[label] -= a->scale;
  return loss;
}

/* The same with label smoothing and class weights (NULL: 1). */
SL__INLINE double weighted_row(const struct sl__xent_args *a, const float *row, int32_t label,
                               const float *weights, double most, double sum, const float *e,
                               float *out) {
  const struct sl__xent_parts parts = sl__xent_parts_of(a, weights, label);
  double log_sum = log(sum) + most, all = 0, loss = 0;
  for (int64_t c = 0; c < a->classes; c++) {
    double weight = weights ? (double)weights[c] : 1;
    all += weight;
    loss += sl__xent_weighed(weight, log_sum - (double)row[c]);
  }
  loss = sl__xent_weighed(parts.label_part, log_sum - (double)row[label]) +
         sl__xent_weighed(parts.class_part, loss);
  if (isnan(log_sum)) loss = log_sum; /* the loss check reports it */
  if (!e) return loss;
  double factor = (parts.label_part + parts.class_part * all) / sum;
  for (int64_t c = 0; c < a->classes; c++) {
    double target = parts.class_part * (weights ? (double)weights[c] : 1);
    if (c == label) target += parts.label_part;
    out[c] = (float)((double)a->scale * (factor * (double)e[c] - target));
  }
  return loss;
}

/* One row; out: its gradient, or NULL; e: room for a row, which may be out. weighted: a constant;
 * else there is neither smoothing nor weights. */
SL__INLINE void one_row(const struct sl__xent_args *a, const float *row, int32_t label, float *e,
                        float *out, bool weighted, const float *weights,
                        struct sl__xent_sums *sums) {
  if (label < 0 || label >= a->classes) {
    sums->outside += label != SL_IGNORE;
    for (int64_t c = 0; out && c < a->classes; c++) out[c] = 0;
    return;
  }
  int64_t best = largest(row, a->classes);
  double most = (double)row[best], sum = exponentials(row, a->classes, row[best], e);
  sums->loss += weighted ? weighted_row(a, row, label, weights, most, sum, e, out)
                         : plain_row(a, row, label, most, sum, e, out);
  sums->right += best == label;
  sums->counted++;
}

SL__INLINE void each_row(const struct sl__xent_args *a, const float *logits, const int32_t *labels,
                         float *stats, float *dlogits, bool weighted, const float *weights) {
  struct sl__xent_sums sums = {0};
  for (int64_t n = 0; n < a->rows; n++) {
    float *out = dlogits ? dlogits + n * a->classes : NULL;
    one_row(a, logits + n * a->classes, sl__xent_label(a, labels, n), out, out, weighted, weights,
            &sums);
  }
  sl__xent_stats(&sums, stats);
}

/* The exponentials of a row are made aside, since they and its logits are needed at once. */
SL__INLINE void rows_in_place(const struct sl__xent_args *a, float *logits, const int32_t *labels,
                              bool weighted, const float *weights, float *spare,
                              struct sl__xent_sums *sums) {
  for (int64_t n = 0; n < a->rows; n++) {
    float *row = logits + n * a->classes;
    one_row(a, row, sl__xent_label(a, labels, n), spare, spare ? row : NULL, weighted, weights,
            sums);
  }
}

/* No part of the clones by vector width: those that fuse a product and a sum have other bits. */
static void weighted_xent(const struct sl__xent_args *a, const float *logits, const int32_t *labels,
                          float *stats, float *dlogits, const float *weights) {
  each_row(a, logits, labels, stats, dlogits, true, weights);
}

static void weighted_rows(const struct sl__xent_args *a, float *logits, const int32_t *labels,
                          const float *weights, float *spare, struct sl__xent_sums *sums) {
  rows_in_place(a, logits, labels, true, weights, spare, sums);
}

SL__SIMD static void plain_rows(const struct sl__xent_args *a, float *logits, const int32_t *labels,
                                float *spare, struct sl__xent_sums *sums) {
  rows_in_place(a, logits, labels, false, NULL, spare, sums);
}

void sl__xent_rows(const struct sl__xent_args *a, float *logits, const int32_t *labels,
                   const float *weights, float *spare, struct sl__xent_sums *sums) {
  if (a->weighted || a->smoothing > 0)
    weighted_rows(a, logits, labels, weights, spare, sums);
  else
    plain_rows(a, logits, labels, spare, sums);
}

void sl__xent_stats(const struct sl__xent_sums *sums, float *stats) {
  stats[0] = (float)sums->loss;
  stats[1] = (float)sums->right;
  stats[2] = (float)sums->counted;
  stats[3] = (float)sums->outside;
}

SL__INLINE void run(void *buffers[], void *cl_arg, float *dlogits) {
  const struct sl__xent_args *a = sl__args(cl_arg);
  const float *logits = sl__buffer(buffers, 0);
  const int32_t *labels = sl__buffer(buffers, 1);
  float *stats = sl__buffer(buffers, 2);
  if (a->weighted || a->smoothing > 0)
    weighted_xent(a, logits, labels, stats, dlogits,
                  a->weighted ? sl__buffer(buffers, dlogits ? 4 : 3) : NULL);
  else
    each_row(a, logits, labels, stats, dlogits, false, NULL);
}

SL__SIMD SL__KERNEL void sl__softmax_xent_cpu(void *buffers[], void *cl_arg) {
  run(buffers, cl_arg, NULL);
}

SL__SIMD SL__KERNEL void sl__softmax_xent_gradient_cpu(void *buffers[], void *cl_arg) {
  run(buffers, cl_arg, sl__buffer(buffers, 3));
}

/* Some rows at a time: their logits as floats become their gradients. */
static bool run_bf16(void *buffers[], void *cl_arg, uint16_t *dlogits) {
  const struct sl__xent_args *a = sl__args(cl_arg);
  const uint16_t *logits = sl__buffer(buffers, 0);
  const float *weights = a->weighted ? sl__buffer(buffers, dlogits ? 4 : 3) : NULL;
  struct sl__xent_args part = *a;
  struct sl__xent_sums sums = {0};
  int64_t most = 1 + sl__bf16_strip() / 2 / a->classes;
  float *spare = sl__bf16_room((most + 1) * a->classes), *rows = spare ? spare + a->classes : NULL;
  for (int64_t n = 0; spare && n < a->rows; n += part.rows) {
    part.first = a->first + n;
    part.rows = a->rows - n < most ? a->rows - n : most;
    sl__bf16_widen(logits + n * a->classes, rows, part.rows * a->classes);
    sl__xent_rows(&part, rows, sl__buffer(buffers, 1), weights, dlogits ? spare : NULL, &sums);
    if (dlogits) sl__bf16_narrow(rows, dlogits + n * a->classes, part.rows * a->classes);
  }
  sl__xent_stats(&sums, sl__buffer(buffers, 2));
  return true;
}

bool sl__softmax_xent_bf16(void *buffers[], void *cl_arg) {
  return run_bf16(buffers, cl_arg, NULL);
}

bool sl__softmax_xent_gradient_bf16(void *buffers[], void *cl_arg) {
  return run_bf16(buffers, cl_arg, sl__buffer(buffers, 3));
}

/* ---- submission -------------------------------------------------------------------------- */

static void renew(void *args, const struct sl__step_record *step) {
  struct sl__xent_args *a = args;
  a->scale = step->scale[a->part];
}

enum sl_status sl__softmax_xent(struct sl_context *context, const struct sl__launch *l,
                                const struct sl__loss_task *t, float smoothing,
                                struct sl__tensor *class_weights) {
  int64_t lines = t->logits->shape.dim[0];
  struct sl__launch launch = *l;
  struct sl__xent_args a = {.classes = t->logits->shape.dim[t->logits->shape.ndim - 1],
                            .from = t->from,
                            .scale = t->scale,
                            .smoothing = smoothing,
                            .weighted = class_weights != NULL,
                            .part = t->part};
  a.rows = sl_shape_count(&t->logits->shape) / a.classes;
  a.steps = a.rows / lines;
  a.columns = sl_shape_count(&t->targets->shape) / lines;
  if (t->targets->shape.dim[0] != lines || t->from < 0 || t->from + a.steps > a.columns ||
      t->stats->shape.dim[0] != 4 ||
      (t->dlogits && !sl_shape_equal(&t->dlogits->shape, &t->logits->shape)) ||
      (class_weights && sl_shape_count(&class_weights->shape) != a.classes))
    return sl__fail(SL_BAD_SHAPE,
                    "softmax_xent: %lld rows of logits, but %lld labels (or stats is not [4])",
                    (long long)a.rows, (long long)sl_shape_count(&t->targets->shape));
  struct sl__op *op = t->dlogits ? &sl__op_softmax_xent_gradient : &sl__op_softmax_xent;
  struct sl__tensor *tensors[5] = {t->logits, t->targets, t->stats, t->dlogits};
  int count = t->dlogits ? 4 : 3;
  if (class_weights) tensors[count++] = class_weights;
  launch.renew = renew;
  return sl__submit(context, op, &launch, count, tensors, &a, sizeof a,
                    10.0 * (double)a.rows * (double)a.classes, 0);
}
