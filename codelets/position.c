/* Learned positions: y[n, t] = x[n, t] + table[first + t]. */
#include "codelets/position.h"

#include <string.h>

#include "codelets/codelets.h"
#include "codelets/kernels/bf16_adapter.h"
#include "core/base/error.h"
#include "core/base/simd.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

SL__SIMD static void sum(const float *a, const float *b, float *restrict y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

SL__SIMD static void add(const float *x, float *restrict y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

SL__KERNEL void sl__position_forward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__position_args *a = sl__args(cl_arg);
  const float *x = sl__buffer(buffers, 0), *table = sl__buffer(buffers, 1);
  float *y = sl__buffer(buffers, 2);
  struct sl__work_range range = sl__work_range(cl_arg, a->rows * a->steps);
  for (int64_t r = range.first; r < range.end; r++)
    sum(x + r * a->features, table + (a->first + r % a->steps) * a->features, y + r * a->features,
        a->features);
}

/* Row after row of the batch: a fixed order. */
SL__KERNEL void sl__position_backward_weight_cpu(void *buffers[], void *cl_arg) {
  const struct sl__position_args *a = sl__args(cl_arg);
  const float *dy = sl__buffer(buffers, 0);
  float *grad = sl__buffer(buffers, 1);
  int64_t values = a->steps * a->features;
  if (!sl__accumulate(cl_arg)) memset(grad, 0, (size_t)(a->length * a->features) * sizeof *grad);
  for (int64_t n = 0; n < a->rows; n++) add(dy + n * values, grad + a->first * a->features, values);
}

/* ---- rows of bf16 ------------------------------------------------------------------------ */

struct sl__rowwise sl__position_forward_rows(void *args) {
  struct sl__position_args *a = args;
  return (struct sl__rowwise){.rows = &a->rows, .buffers = 1 << 0 | 1 << 2};
}

struct sl__rowwise sl__position_backward_weight_rows(void *args) {
  struct sl__position_args *a = args;
  return (struct sl__rowwise){.rows = &a->rows, .buffers = 1 << 0, .sums = true};
}

/* ---- submission -------------------------------------------------------------------------- */

/* x [N, T, C] */
static enum sl_status check(const char *name, const struct sl__tensor *x,
                            const struct sl__tensor *table, int64_t first,
                            struct sl__position_args *a) {
  char text[96];
  int64_t count = sl_shape_count(&table->shape);
  if (x->shape.ndim != 3 || count % x->shape.dim[2])
    return sl__fail(SL_BAD_SHAPE, "%s: x %s does not fit a table of %lld values", name,
                    sl_shape_text(&x->shape, text, sizeof text), (long long)count);
  *a = (struct sl__position_args){.rows = x->shape.dim[0],
                                  .steps = x->shape.dim[1],
                                  .features = x->shape.dim[2],
                                  .length = count / x->shape.dim[2],
                                  .first = first};
  if (first >= 0 && first + a->steps <= a->length) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT, "%s: time steps %lld to %lld, but the table has %lld", name,
                  (long long)first, (long long)(first + a->steps - 1), (long long)a->length);
}

enum sl_status sl__position_forward(struct sl_context *context, const struct sl__launch *l,
                                    struct sl__tensor *x, struct sl__tensor *table,
                                    struct sl__tensor *y, int64_t first) {
  struct sl__position_args a;
  struct sl__launch launch = *l;
  enum sl_status status = check("position_forward", x, table, first, &a);
  if (status == SL_OK && !sl_shape_equal(&x->shape, &y->shape))
    status = sl__fail(SL_BAD_SHAPE, "position_forward: y must have x's shape");
  if (status != SL_OK) return status;
  launch.cut = (struct sl__cut){.units = a.rows * a.steps, .flat = true};
  return sl__submit(context, &sl__op_position_forward, &launch, 3,
                    (struct sl__tensor *[]){x, table, y}, &a, sizeof a,
                    (double)sl_shape_count(&x->shape), 0);
}

enum sl_status sl__position_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                            struct sl__tensor *dy, struct sl__tensor *grad,
                                            int64_t first) {
  struct sl__position_args a;
  enum sl_status status = check("position_backward_weight", dy, grad, first, &a);
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_position_backward_weight, l, 2,
                    (struct sl__tensor *[]){dy, grad}, &a, sizeof a,
                    (double)sl_shape_count(&dy->shape), 0);
}
