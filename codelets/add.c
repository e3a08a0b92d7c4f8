/* y = a + b: the end of a residual edge. */
#include "codelets/kernels/elementwise.h"

SL__SIMD static void add(const float *a, const float *b, float *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

SL__KERNEL void sl__add_cpu(void *buffers[], void *cl_arg) {
  const float *a = sl__buffer(buffers, 0), *b = sl__buffer(buffers, 1);
  float *y = sl__buffer(buffers, 2);
  struct sl__work_range s = sl__work_range(cl_arg, *(const int64_t *)sl__args(cl_arg));
  add(a + s.first, b + s.first, y + s.first, s.end - s.first);
}

enum sl_status sl__add(struct sl_context *context, const struct sl__launch *l, struct sl__tensor *a,
                       struct sl__tensor *b, struct sl__tensor *y) {
  int64_t n;
  struct sl__tensor *tensors[] = {a, b, y};
  enum sl_status status = sl__same_count("add", 3, tensors, &n);
  if (status != SL_OK) return status;
  struct sl__launch launch = *l;
  launch.cut = (struct sl__cut){.units = n, .flat = true, .pointwise = true};
  return sl__submit(context, &sl__op_add, &launch, 3, tensors, &n, sizeof n, (double)n, 0);
}
