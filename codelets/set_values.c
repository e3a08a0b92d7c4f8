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

_Static_assert(SL__ASKS <= SL__SET_VALUES_MOST, "a rank's asks fit into the arguments");

static void renew_asks(void *args, const struct sl__step_record *step) {
  struct set_values_args *a = args;
  memcpy(a->values, step->asks, sizeof step->asks);
}

static enum sl_status submit(struct sl_context *context, const struct sl__launch *l,
                             struct sl__tensor *y, const float *values, bool are_asks) {
  struct sl__launch launch = *l;
  struct set_values_args a = {.count = sl_shape_count(&y->shape)};
  if (a.count > SL__SET_VALUES_MOST)
    return sl__fail(SL_BAD_SHAPE, "set_values: %lld values; at most %d", (long long)a.count,
                    SL__SET_VALUES_MOST);
  memcpy(a.values, values, (size_t)a.count * sizeof *values);
  if (l->place.where != STARPU_CPU) launch.place = (struct sl__place){.where = STARPU_CPU};
  if (are_asks) launch.renew = renew_asks;
  return sl__submit(context, &sl__op_set_values, &launch, 1, &y, &a, sizeof a, 0, 0);
}

enum sl_status sl__set_values(struct sl_context *context, const struct sl__launch *l,
                              struct sl__tensor *y, const float *values) {
  return submit(context, l, y, values, false);
}

enum sl_status sl__set_asks(struct sl_context *context, const struct sl__launch *l,
                            struct sl__tensor *y, const float asks[SL__ASKS]) {
  return submit(context, l, y, asks, true);
}
