/* Activations as separate operations, and the loops that fused ones call. */
#include "codelets/activation.h"

#include "codelets/codelets.h"
#include "codelets/kernels/bf16_adapter.h"
#include "core/base/error.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

/* One loop an activation: inside, the activation is a constant and the loop vectorises. */
#define SL__EACH_ACTIVATION(LOOP)                                                                  \
  switch (activation) {                                                                            \
    case SL_ACTIVATION_RELU: LOOP(SL_ACTIVATION_RELU) break;                                       \
    case SL_ACTIVATION_TANH: LOOP(SL_ACTIVATION_TANH) break;                                       \
    case SL_ACTIVATION_SIGMOID: LOOP(SL_ACTIVATION_SIGMOID) break;                                 \
    case SL_ACTIVATION_GELU: LOOP(SL_ACTIVATION_GELU) break;                                       \
    case SL_ACTIVATION_GELU_TANH: LOOP(SL_ACTIVATION_GELU_TANH) break;                             \
    case SL_ACTIVATION_SILU: LOOP(SL_ACTIVATION_SILU) break;                                       \
    default: LOOP(SL_ACTIVATION_NONE) break;                                                       \
  }

SL__SIMD void sl__activate(enum sl_activation activation, const float *x, float *y, int64_t n) {
  if (activation == SL_ACTIVATION_NONE && x == y) return;
#define SL__LOOP(a)                                                                                \
  for (int64_t i = 0; i < n; i++) y[i] = sl__activation_value(a, x[i]);
  SL__EACH_ACTIVATION(SL__LOOP)
#undef SL__LOOP
}

enum { BLOCK = 2048 }; /* values that a core's first cache holds as floats */

void sl__activate_bf16(enum sl_activation activation, const uint16_t *x, uint16_t *y, int64_t n) {
  float values[BLOCK];
  if (activation == SL_ACTIVATION_NONE && x == y) return;
  for (int64_t i = 0, count; i < n; i += count) {
    count = n - i < BLOCK ? n - i : BLOCK;
    sl__bf16_widen(x + i, values, count);
    sl__activate(activation, values, values, count);
    sl__bf16_narrow(values, y + i, count);
  }
}

SL__SIMD static void backward(enum sl_activation activation, const float *saved, const float *dy,
                              float *dx, int64_t n) {
#define SL__LOOP(a)                                                                                \
  for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * sl__activation_slope(a, saved[i]);
  SL__EACH_ACTIVATION(SL__LOOP)
#undef SL__LOOP
}

SL__SIMD static void backward_add(enum sl_activation activation, const float *saved,
                                  const float *dy, float *dx, int64_t n) {
#define SL__LOOP(a)                                                                                \
  for (int64_t i = 0; i < n; i++) dx[i] += dy[i] * sl__activation_slope(a, saved[i]);
  SL__EACH_ACTIVATION(SL__LOOP)
#undef SL__LOOP
}

SL__KERNEL void sl__activation_forward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__activation_args *a = sl__args(cl_arg);
  const float *x = sl__buffer(buffers, 0);
  float *y = sl__buffer(buffers, 1);
  struct sl__work_range s = sl__work_range(cl_arg, a->count);
  sl__activate(a->activation, x + s.first, y + s.first, s.end - s.first);
}

SL__KERNEL void sl__activation_backward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__activation_args *a = sl__args(cl_arg);
  (sl__accumulate(cl_arg) ? backward_add : backward)(a->activation, sl__buffer(buffers, 0),
                                                     sl__buffer(buffers, 1), sl__buffer(buffers, 2),
                                                     a->count);
}

SL__KERNEL void sl__activation_backward_inplace_cpu(void *buffers[], void *cl_arg) {
  const struct sl__activation_args *a = sl__args(cl_arg);
  float *dy = sl__buffer(buffers, 1);
  backward(a->activation, sl__buffer(buffers, 0), dy, dy, a->count);
}

/* ---- rows of bf16 ---------------------------------------------------------------------------- */

struct sl__rowwise sl__activation_forward_rows(void *args) {
  return sl__all_by_rows(&((struct sl__activation_args *)args)->count);
}

struct sl__rowwise sl__activation_backward_rows(void *args) {
  return sl__all_by_rows(&((struct sl__activation_args *)args)->count);
}

struct sl__rowwise sl__activation_backward_inplace_rows(void *args) {
  return sl__all_by_rows(&((struct sl__activation_args *)args)->count);
}

/* ---- submission -------------------------------------------------------------------------- */

bool sl__activation_saves_input(enum sl_activation activation) {
  return activation == SL_ACTIVATION_GELU || activation == SL_ACTIVATION_GELU_TANH ||
         activation == SL_ACTIVATION_SILU;
}

static enum sl_status submit(struct sl_context *context, struct sl__op *op,
                             const struct sl__launch *l, int count,
                             struct sl__tensor *const *tensors, enum sl_activation activation) {
  struct sl__activation_args a = {.count = sl_shape_count(&tensors[0]->shape),
                                  .activation = activation};
  for (int i = 1; i < count; i++)
    if (sl_shape_count(&tensors[i]->shape) != a.count)
      return sl__fail(
          SL_BAD_SHAPE, "%s: its tensors have %lld and %lld elements; they must be alike",
          op->codelet.name, (long long)a.count, (long long)sl_shape_count(&tensors[i]->shape));
  return sl__submit(context, op, l, count, tensors, &a, sizeof a, (double)a.count,
                    (uint32_t)activation);
}

enum sl_status sl__activation_forward(struct sl_context *context, const struct sl__launch *l,
                                      struct sl__tensor *x, struct sl__tensor *y,
                                      enum sl_activation activation) {
  struct sl__launch launch = *l;
  launch.cut =
      (struct sl__cut){.units = sl_shape_count(&x->shape), .flat = true, .pointwise = true};
  return submit(context, &sl__op_activation_forward, &launch, 2, (struct sl__tensor *[]){x, y},
                activation);
}

enum sl_status sl__activation_backward(struct sl_context *context, const struct sl__launch *l,
                                       struct sl__tensor *saved, struct sl__tensor *dy,
                                       struct sl__tensor *dx, enum sl_activation activation) {
  return submit(context, &sl__op_activation_backward, l, 3, (struct sl__tensor *[]){saved, dy, dx},
                activation);
}

enum sl_status sl__activation_backward_inplace(struct sl_context *context,
                                               const struct sl__launch *l, struct sl__tensor *saved,
                                               struct sl__tensor *dy,
                                               enum sl_activation activation) {
  return submit(context, &sl__op_activation_backward_inplace, l, 2,
                (struct sl__tensor *[]){saved, dy}, activation);
}
