/* y = value everywhere. */
#include "codelets/kernels/elementwise.h"

SL__KERNEL void sl__fill_cpu(void *buffers[], void *cl_arg) {
  const struct sl__scalar_args *a = sl__args(cl_arg);
  float *y = sl__buffer(buffers, 0);
  for (int64_t i = 0; i < a->count; i++) y[i] = a->scalar;
}

enum sl_status sl__fill(struct sl_context *context, const struct sl__launch *l,
                        struct sl__tensor *y, float value) {
  struct sl__scalar_args a = {.count = sl_shape_count(&y->shape), .scalar = value};
  return sl__submit(context, &sl__op_fill, l, 1, &y, &a, sizeof a, 0, 0);
}
