/* sum [1] = the sum of x's squares, in double precision and in a fixed order. */
#include "codelets/kernels/elementwise.h"
#include "codelets/reduce.h"

/* Sixteen interleaved sums, whatever the vectors' width. */
SL__SIMD static double square_sum(const float *x, int64_t n) {
  double part[16] = {0}, sum = 0;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int k = 0; k < 16; k++) part[k] += (double)x[i + k] * (double)x[i + k];
  for (int k = 0; i < n; i++, k++) part[k] += (double)x[i] * (double)x[i];
  for (int k = 0; k < 16; k++) sum += part[k];
  return sum;
}

SL__KERNEL void sl__square_sum_cpu(void *buffers[], void *cl_arg) {
  const struct sl__reduce_args *a = sl__args(cl_arg);
  const float *x = (const float *)sl__buffer(buffers, 0) + a->first;
  *(float *)sl__buffer(buffers, 1) = (float)square_sum(x, a->count);
}

enum sl_status sl__square_sum(struct sl_context *context, const struct sl__launch *l,
                              struct sl__tensor *x, struct sl__tensor *sum) {
  const struct sl__reduce_args a = {.count = sl_shape_count(&x->shape), .first = (int64_t)x->first};
  struct sl__launch launch = *l;
  if (sl_shape_count(&sum->shape) != 1)
    return sl__fail(SL_BAD_SHAPE, "square_sum: the result has %lld elements; it must have 1",
                    (long long)sl_shape_count(&sum->shape));
  launch.pieces = true;
  return sl__submit(context, &sl__op_square_sum, &launch, 2, (struct sl__tensor *[]){x, sum}, &a,
                    sizeof a, 2.0 * (double)a.count, 0);
}
