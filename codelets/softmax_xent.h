/* Common arguments of the CPU and CUDA kernels of softmax and cross-entropy. */
#ifndef SL_CODELETS_SOFTMAX_XENT_H
#define SL_CODELETS_SOFTMAX_XENT_H

#include <stdint.h>

#include "core/base/random.h" /* SL__HOST_DEVICE */
#include "core/base/simd.h"

struct sl__xent_args {
  int64_t rows, classes;
  int64_t columns, from, steps; /* row n's label is in line n / steps, column from + n % steps */
  float scale, smoothing;
  int32_t weighted; /* class weights are the last buffer */
  int32_t part;     /* of the loss */
};

SL__HOST_DEVICE SL__INLINE int32_t sl__xent_label(const struct sl__xent_args *a,
                                                  const int32_t *labels, int64_t n) {
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

#endif
