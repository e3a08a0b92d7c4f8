/* Sums of tensors: the end of a residual edge, with a relu behind it or not. */
#include "codelets/add.h"

#include "codelets/kernels/bf16_adapter.h"
#include "codelets/kernels/elementwise.h"

SL__SIMD static void add(const float *a, const float *b, float *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

SL__SIMD static void add_relu(const float *a, const float *b, float *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = sl__activation_value(SL_ACTIVATION_RELU, a[i] + b[i]);
}

/* y += x, and then the relu, if x is the last term. */
SL__SIMD static void add_term(const float *x, float *y, int64_t n, bool has_relu) {
  for (int64_t i = 0; i < n; i++) y[i] += x[i];
  if (!has_relu) return;
  for (int64_t i = 0; i < n; i++) y[i] = sl__activation_value(SL_ACTIVATION_RELU, y[i]);
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
  for (int64_t i = s.first, n; i < s.end; i += n) { /* blocks that a cache holds */
    n = args->terms == 2 || s.end - i < SL__CACHED ? s.end - i : SL__CACHED;
    (args->has_relu && args->terms == 2 ? add_relu : add)(a + i, b + i, y + i, n);
    for (int t = 2; t < args->terms; t++)
      add_term((const float *)sl__buffer(buffers, t + 1) + i, y + i, n,
               args->has_relu && t == args->terms - 1);
  }
}

SL__KERNEL void sl__add_relu_backward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__add_args *args = sl__args(cl_arg);
  const float *y = sl__buffer(buffers, 0), *dy = sl__buffer(buffers, 1);
  float *da = sl__buffer(buffers, 2), *db = sl__buffer(buffers, 3);
  struct sl__work_range s = sl__work_range(cl_arg, args->count);
  (sl__accumulate(cl_arg) ? add_slopes : slopes)(y + s.first, dy + s.first, da + s.first,
                                                 db + s.first, s.end - s.first);
}

struct sl__rowwise sl__add_rows(void *args) {
  return sl__all_by_rows(&((struct sl__add_args *)args)->count);
}

struct sl__rowwise sl__add_relu_backward_rows(void *args) {
  return sl__all_by_rows(&((struct sl__add_args *)args)->count);
}

enum sl_status sl__add_terms(struct sl_context *context, const struct sl__launch *l, int count,
                             struct sl__tensor *const *terms, struct sl__tensor *y, bool has_relu) {
  struct sl__add_args args = {.has_relu = has_relu, .terms = count};
  struct sl__tensor *tensors[count + 1];
  tensors[0] = terms[0];
  tensors[1] = terms[1];
  tensors[2] = y;
  for (int t = 2; t < count; t++) tensors[t + 1] = terms[t];
  enum sl_status status = sl__same_count("add", count + 1, tensors, &args.count);
  if (status != SL_OK) return status;
  struct sl__launch launch = *l;
  launch.cut =
      (struct sl__cut){.units = args.count, .flat = true, .pointwise = true, .in_place = 3};
  return sl__submit(context, &sl__op_add, &launch, count + 1, tensors, &args, sizeof args,
                    (double)args.count * (count - 1), has_relu);
}

enum sl_status sl__add(struct sl_context *context, const struct sl__launch *l, struct sl__tensor *a,
                       struct sl__tensor *b, struct sl__tensor *y, bool has_relu) {
  return sl__add_terms(context, l, 2, (struct sl__tensor *[]){a, b}, y, has_relu);
}

enum sl_status sl__add_relu_backward(struct sl_context *context, const struct sl__launch *l,
                                     struct sl__tensor *y, struct sl__tensor *dy,
                                     struct sl__tensor *da, struct sl__tensor *db) {
  struct sl__add_args args = {.has_relu = true};
  struct sl__tensor *tensors[] = {y, dy, da, db};
  enum sl_status status = sl__same_count("add_relu_backward", 4, tensors, &args.count);
  if (status != SL_OK) return status;
  struct sl__launch launch = *l;
  launch.cut = (struct sl__cut){.units = args.count, .flat = true, .pointwise = true};
  return sl__submit(context, &sl__op_add_relu_backward, &launch, 4, tensors, &args, sizeof args,
                    (double)args.count, 0);
}
