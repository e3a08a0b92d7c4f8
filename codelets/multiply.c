/* y (+)= the product of tensors: the outputs of layers, or a gradient and the other factors. */
#include "codelets/kernels/bf16_adapter.h"
#include "codelets/kernels/elementwise.h"

SL__SIMD static void multiply(const float *a, const float *b, float *restrict y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = a[i] * b[i];
}

SL__SIMD static void multiply_add(const float *a, const float *b, float *restrict y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] += a[i] * b[i];
}

/* The product of all factors but the last goes into a block in the cache. */
SL__KERNEL void sl__multiply_cpu(void *buffers[], void *cl_arg) {
  const struct sl__scalar_args *args = sl__args(cl_arg);
  struct sl__work_range range = sl__work_range(cl_arg, args->count);
  int last = sl__buffer_count(cl_arg) - 1;
  float block[2][SL__CACHED];
  for (int64_t i = range.first, n; i < range.end; i += n) {
    n = range.end - i < SL__CACHED ? range.end - i : SL__CACHED;
    const float *product = (const float *)sl__buffer(buffers, 1) + i;
    for (int f = 2; f < last; f++) {
      multiply(product, (const float *)sl__buffer(buffers, f) + i, block[f % 2], n);
      product = block[f % 2];
    }
    (sl__accumulate(cl_arg) ? multiply_add : multiply)(product,
                                                       (const float *)sl__buffer(buffers, last) + i,
                                                       (float *)sl__buffer(buffers, 0) + i, n);
  }
}

struct sl__rowwise sl__multiply_rows(void *args) {
  return sl__all_by_rows(&((struct sl__scalar_args *)args)->count);
}

enum sl_status sl__multiply(struct sl_context *context, const struct sl__launch *l, int count,
                            struct sl__tensor *const *factors, struct sl__tensor *y) {
  struct sl__scalar_args args = {0};
  struct sl__tensor *tensors[count + 1];
  tensors[0] = y;
  for (int f = 0; f < count; f++) tensors[f + 1] = factors[f];
  enum sl_status status = sl__same_count("multiply", count + 1, tensors, &args.count);
  if (status != SL_OK) return status;
  struct sl__launch launch = *l;
  launch.cut = (struct sl__cut){.units = args.count, .flat = true, .pointwise = true};
  return sl__submit(context, &sl__op_multiply, &launch, count + 1, tensors, &args, sizeof args,
                    (double)args.count * (count - 1), 0);
}
