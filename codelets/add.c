/* y = a + b: the end of a residual edge, with a relu behind it or not. */
#include "codelets/add.h"

#include "codelets/kernels/elementwise.h"

SL__SIMD static void add(const float *a, const float *b, float *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

SL__SIMD static void add_relu(const float *a, const float *b, float *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = sl__activation_value(SL_ACTIVATION_RELU, a[i] + b[i]);
}

/* Both gradients in one pass over y and dy. */
SL__SIMD static void slopes(const float *y, const float *dy, float *restrict da, float *restrict db,
                            int64_t n) {
  for (int64_t i = 0; i < n; i++)
    da[i] = db[i] = dy[i] * sl__activation_slope(SL_ACTIVATION_RELU, y[i]);
}

SL__SIMD static void add_slopes(const float *y, const float *dy, float *restrict da,
                                float *restrict db, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    float slope = dy[i] * sl__activation_slope(SL_ACTIVATION_RELU, y[i]);
    da[i] += slope;
    db[i] += slope;
  }
}

SL__KERNEL void sl__add_cpu(void *buffers[], void *cl_arg) {
  const struct sl__add_args *args = sl__args(cl_arg);
  const float *a = sl__buffer(buffers, 0), *b = sl__buffer(buffers, 1);
  float *y = sl__buffer(buffers, 2);
  struct sl__work_range s = sl__work_range(cl_arg, args->count);
  (args->has_relu ? add_relu : add)(a + s.first, b + s.first, y + s.first, s.end - s.first);
}

SL__KERNEL void sl__add_relu_backward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__add_args *args = sl__args(cl_arg);
  (sl__accumulate(cl_arg) ? add_slopes : slopes)(sl__buffer(buffers, 0), sl__buffer(buffers, 1),
                                                 sl__buffer(buffers, 2), sl__buffer(buffers, 3),
                                                 args->count);
}

enum sl_status sl__add(struct sl_context *context, const struct sl__launch *l, struct sl__tensor *a,
                       struct sl__tensor *b, struct sl__tensor *y, bool has_relu) {
  struct sl__add_args args = {.has_relu = has_relu};
  struct sl__tensor *tensors[] = {a, b, y};
  enum sl_status status = sl__same_count("add", 3, tensors, &args.count);
  if (status != SL_OK) return status;
  struct sl__launch launch = *l;
  launch.cut = (struct sl__cut){.units = args.count, .flat = true, .pointwise = true};
  return sl__submit(context, &sl__op_add, &launch, 3, tensors, &args, sizeof args,
                    (double)args.count, has_relu);
}

enum sl_status sl__add_relu_backward(struct sl_context *context, const struct sl__launch *l,
                                     struct sl__tensor *y, struct sl__tensor *dy,
                                     struct sl__tensor *da, struct sl__tensor *db) {
  struct sl__add_args args = {.has_relu = true};
  struct sl__tensor *tensors[] = {y, dy, da, db};
  enum sl_status status = sl__same_count("add_relu_backward", 4, tensors, &args.count);
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_add_relu_backward, l, 4, tensors, &args, sizeof args,
                    (double)args.count, 0);
}
