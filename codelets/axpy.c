/* y (+)= alpha x: copies, scales, accumulates. */
#include "codelets/kernels/bf16_adapter.h"
#include "codelets/kernels/elementwise.h"

SL__SIMD static void scale(float alpha, const float *x, float *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = alpha * x[i];
}

SL__SIMD static void scale_add(float alpha, const float *x, float *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] += alpha * x[i];
}

SL__KERNEL void sl__axpy_cpu(void *buffers[], void *cl_arg) {
  const struct sl__scalar_args *a = sl__args(cl_arg);
  (sl__accumulate(cl_arg) ? scale_add : scale)(a->scalar, sl__buffer(buffers, 0),
                                               sl__buffer(buffers, 1), a->count);
}

struct sl__rowwise sl__axpy_rows(void *args) {
  return sl__all_by_rows(&((struct sl__scalar_args *)args)->count);
}

enum sl_status sl__axpy(struct sl_context *context, const struct sl__launch *l, float alpha,
                        struct sl__tensor *x, struct sl__tensor *y) {
  struct sl__scalar_args a = {.scalar = alpha};
  struct sl__tensor *tensors[] = {x, y};
  enum sl_status status = sl__same_count("axpy", 2, tensors, &a.count);
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_axpy, l, 2, tensors, &a, sizeof a, 2.0 * (double)a.count, 0);
}
