/* y [n] = values, n at most SL__SET_VALUES_MOST: a few numbers for a later task or another rank. */
#include <string.h>

#include "codelets/kernels/elementwise.h"

struct set_values_args {
  int64_t count;
  float values[SL__SET_VALUES_MOST];
};

SL__KERNEL void sl__set_values_cpu(void *buffers[], void *cl_arg) {
  const struct set_values_args *a = sl__args(cl_arg);
  memcpy(sl__buffer(buffers, 0), a->values, (size_t)a->count * sizeof *a->values);
}

enum sl_status sl__set_values(struct sl_context *context, const struct sl__launch *l,
                              struct sl__tensor *y, const float *values) {
  struct sl__launch launch = *l;
  struct set_values_args a = {.count = sl_shape_count(&y->shape)};
  if (a.count > SL__SET_VALUES_MOST)
    return sl__fail(SL_BAD_SHAPE, "set_values: %lld values; at most %d", (long long)a.count,
                    SL__SET_VALUES_MOST);
  memcpy(a.values, values, (size_t)a.count * sizeof *values);
  if (l->place.where != STARPU_CPU) launch.place = (struct sl__place){.where = STARPU_CPU};
  return sl__submit(context, &sl__op_set_values, &launch, 1, &y, &a, sizeof a, 0, 0);
}
