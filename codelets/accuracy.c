/* Counts the labels that are among the largest logits of their rows. */
#include "codelets/accuracy.h"

#include <starling/data.h>

#include "codelets/kernels/elementwise.h"

/* The label's rank: number of logits that are larger, or equal and before it. */
static int64_t rank_of(const float *row, int64_t classes, int64_t label) {
  int64_t rank = 0;
  for (int64_t c = 0; c < classes; c++)
    rank += row[c] > row[label] || (row[c] == row[label] && c < label);
  return rank;
}

SL__KERNEL void sl__accuracy_cpu(void *buffers[], void *cl_arg) {
  const struct sl__accuracy_args *a = sl__args(cl_arg);
  const float *logits = sl__buffer(buffers, 0);
  const int32_t *labels = sl__buffer(buffers, 1);
  float *count = sl__buffer(buffers, 2);
  int64_t right = 0, counted = 0;
  for (int64_t n = 0; n < a->rows; n++) {
    if (labels[n] < 0 || labels[n] >= a->classes) continue;
    right += rank_of(logits + n * a->classes, a->classes, labels[n]) < a->top;
    counted++;
  }
  count[0] = (float)right;
  count[1] = (float)counted;
}

enum sl_status sl__accuracy(struct sl_context *context, const struct sl__launch *l,
                            struct sl__tensor *logits, struct sl__tensor *labels,
                            struct sl__tensor *count, int top) {
  struct sl__accuracy_args a = {.classes = logits->shape.dim[logits->shape.ndim - 1], .top = top};
  a.rows = sl_shape_count(&logits->shape) / a.classes;
  if (sl_shape_count(&labels->shape) != a.rows || count->shape.dim[0] != 2)
    return sl__fail(SL_BAD_SHAPE,
                    "accuracy: %lld rows of logits, but %lld labels (or count is not [2])",
                    (long long)a.rows, (long long)sl_shape_count(&labels->shape));
  if (top < 1) return sl__fail(SL_BAD_ARGUMENT, "accuracy: top is %d; it must be at least 1", top);
  return sl__submit(context, &sl__op_accuracy, l, 3, (struct sl__tensor *[]){logits, labels, count},
                    &a, sizeof a, (double)a.rows * (double)a.classes, 0);
}
