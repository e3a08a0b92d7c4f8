/* What the kernels of softmax and cross-entropy have in common, on CPUs and GPUs, alone and with
 * the layer before (codelets/linear_xent.c). */
#ifndef SL_CODELETS_SOFTMAX_XENT_H
#define SL_CODELETS_SOFTMAX_XENT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/random.h" /* SL__HOST_DEVICE */
#include "core/base/simd.h"

struct sl__xent_args {
  int64_t rows, classes;
  int64_t columns, from, steps; /* row n's label is in line n / steps, column from + n % steps */
  int64_t first;                /* number of the first of the rows */
  float scale, smoothing;
  int32_t weighted; /* class weights are the last buffer */
  int32_t part;     /* of the loss */
};

SL__HOST_DEVICE SL__INLINE int32_t sl__xent_label(const struct sl__xent_args *a,
                                                  const int32_t *labels, int64_t n) {
  n += a->first;
  return labels[n / a->steps * a->columns + a->from + n % a->steps];
}

/* What label smoothing and class weights make of a row (torch.nn.CrossEntropyLoss): the loss is
 * label_part (-log p of the label) + class_part (sum over the classes of their weight times -log
 * p).
 */
struct sl__xent_parts {
  double label_part, class_part;
};

SL__HOST_DEVICE SL__INLINE struct sl__xent_parts sl__xent_parts_of(const struct sl__xent_args *a,
                                                                   const float *weights,
                                                                   int32_t label) {
  double smoothing = (double)a->smoothing;
  struct sl__xent_parts parts = {(1 - smoothing) * (weights ? (double)weights[label] : 1),
                                 smoothing / (double)a->classes};
  return parts;
}

/* weight times loss; 0 where weight is 0, since a masked class's loss is infinite. */
SL__HOST_DEVICE SL__INLINE double sl__xent_weighed(double weight, double loss) {
  return weight > 0 ? weight * loss : 0;
}

/* The sums over a task's rows, before the rounding to stats. */
struct sl__xent_sums {
  double loss;
  int64_t right, counted, outside;
};

/* On a CPU: adds the losses of a->rows rows of logits to sums. With spare, room for one row, the
 * logits become their gradient. weights: of the classes, or NULL. */
void sl__xent_rows(const struct sl__xent_args *a, float *logits, const int32_t *labels,
                   const float *weights, float *spare, struct sl__xent_sums *sums);

/* Writes a task's stats (struct sl__loss_task). */
void sl__xent_stats(const struct sl__xent_sums *sums, float *stats);

#endif
