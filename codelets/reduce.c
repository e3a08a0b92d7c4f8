/* sum (+)= terms[0] + terms[1] + ..., element by element, in that order. */
#include <stdlib.h>

#include "codelets/kernels/elementwise.h"
#include "codelets/reduce.h"

SL__SIMD static void copy(const float *x, float *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = x[i];
}

SL__SIMD static void add(const float *x, float *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

/* In blocks that stay in the first-level cache, so that memory is read once and written once. */
SL__KERNEL void sl__reduce_cpu(void *buffers[], void *cl_arg) {
  const struct sl__reduce_args *a = sl__args(cl_arg);
  int64_t n = a->count, block = 2048;
  int terms = sl__buffer_count(cl_arg) - 1;
  float *sum = sl__buffer(buffers, 0);
  for (int64_t first = 0; first < n; first += block) {
    int64_t length = n - first < block ? n - first : block;
    for (int t = 0; t < terms; t++) {
      const float *term = (const float *)sl__buffer(buffers, t + 1) + a->first + first;
      (t || sl__accumulate(cl_arg) ? add : copy)(term, sum + first, length);
    }
  }
}

enum sl_status sl__reduce(struct sl_context *context, const struct sl__launch *l,
                          struct sl__tensor *sum, int count, struct sl__tensor *const *terms) {
  struct sl__tensor *several[SL__STACK_BUFFERS], **tensors = several;
  struct sl__reduce_args a = {0};
  struct sl__launch launch = *l;
  if (count < 1)
    return sl__fail(SL_BAD_ARGUMENT, "reduce: at least one term is needed, not %d", count);
  if (count + 1 > SL__STACK_BUFFERS &&
      !(tensors = sl__alloc((size_t)count + 1, sizeof *tensors, "a reduction")))
    return SL_NO_MEMORY;
  tensors[0] = sum;
  for (int i = 0; i < count; i++) tensors[i + 1] = terms[i];
  enum sl_status status = sl__same_count("reduce", count + 1, tensors, &a.count);
  a.first = (int64_t)terms[0]->first;
  launch.pieces = !sum->is_piece;
  if (status == SL_OK)
    status = sl__submit(context, &sl__op_reduce, &launch, count + 1, tensors, &a, sizeof a,
                        (double)a.count * count, (uint32_t)count);
  if (tensors != several) free(tensors);
  return status;
}
