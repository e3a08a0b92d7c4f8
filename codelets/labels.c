/* Class labels from targets that are floats. */
#include "codelets/labels.h"

#include "codelets/codelets.h"
#include "core/base/error.h"

SL__KERNEL void sl__labels_cpu(void *buffers[], void *cl_arg) {
  const struct sl__labels_args *a = sl__args(cl_arg);
  const float *targets = sl__buffer(buffers, 0);
  int32_t *labels = sl__buffer(buffers, 1);
  for (int64_t n = 0; n < a->rows; n++)
    for (int64_t i = 0; i < a->size; i++)
      labels[n * a->size + i] = sl__label_of(targets[n * a->stride + a->first + i]);
}

enum sl_status sl__labels(struct sl_context *context, const struct sl__launch *l,
                          struct sl__tensor *targets, struct sl__tensor *labels, int64_t first) {
  int64_t rows = labels->shape.dim[0], count = sl_shape_count(&labels->shape);
  struct sl__labels_args a = {.rows = rows,
                              .size = count / rows,
                              .stride = sl_shape_count(&targets->shape) / rows,
                              .first = first};
  if (targets->shape.dim[0] != rows || first < 0 || first + a.size > a.stride)
    return sl__fail(SL_BAD_SHAPE, "labels: %lld from value %lld on do not lie in rows of %lld",
                    (long long)a.size, (long long)first, (long long)a.stride);
  return sl__submit(context, &sl__op_labels, l, 2, (struct sl__tensor *[]){targets, labels}, &a,
                    sizeof a, (double)count, 0);
}
