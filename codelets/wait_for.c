/* Tasks that wait for others whose results they do not read. */
#include "codelets/codelets.h"

SL__KERNEL void sl__wait_for_cpu(void *buffers[], void *cl_arg) {
  (void)buffers;
  (void)cl_arg;
}

enum sl_status sl__wait_for(struct sl_context *context, const struct sl__launch *l, int count,
                            struct sl__tensor *const *tensors) {
  if (count < 2) return SL_OK;
  return sl__submit(context, &sl__op_wait_for, l, count, tensors, NULL, 0, 0, 0);
}
