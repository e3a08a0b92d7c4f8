/* Dropout (Srivastava et al., JMLR 2014); no mask is stored: the backward pass draws the same
 * numbers again. */
#include "codelets/dropout.h"

#include "codelets/kernels/elementwise.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

/* One call of the generator gives numbers for four neighbours; the first and the last group may be
 * partial. */
SL__INLINE void apply_run(const struct sl__dropout_args *a, uint64_t first, int64_t count,
                          const float *x, float *y, bool add) {
  uint64_t end = first + (uint64_t)count;
  float kept = 1.0f / (1.0f - a->d.rate);
  for (uint64_t group = first >> 2; group << 2 < end; group++) {
    struct sl__random4 r = sl__philox(a->d.seed, a->d.stream, group);
    for (int k = 0; k < 4; k++) {
      uint64_t index = (group << 2) + (uint64_t)k;
      if (index < first || index >= end) continue;
      float value = sl__dropout_value(r.v[k], a->d.rate, kept, x[index - first]);
      y[index - first] = add ? y[index - first] + value : value;
    }
  }
}

SL__INLINE void apply(const struct sl__dropout_args *a, const float *x, float *y, bool add) {
  int64_t run = a->d.run ? a->d.run : a->count;
  uint64_t first = a->d.first;
  for (int64_t at = 0; at < a->count; at += run, first += (uint64_t)a->d.stride)
    apply_run(a, first, run, x + at, y + at, add);
}

SL__KERNEL void sl__dropout_forward_cpu(void *buffers[], void *cl_arg) {
  apply(sl__args(cl_arg), sl__buffer(buffers, 0), sl__buffer(buffers, 1), false);
}

SL__KERNEL void sl__dropout_backward_cpu(void *buffers[], void *cl_arg) {
  apply(sl__args(cl_arg), sl__buffer(buffers, 0), sl__buffer(buffers, 1), sl__accumulate(cl_arg));
}

/* ---- submission -------------------------------------------------------------------------- */

static enum sl_status submit(struct sl_context *context, struct sl__op *op,
                             const struct sl__launch *l, struct sl__tensor *x, struct sl__tensor *y,
                             const struct sl__dropout *dropout) {
  struct sl__dropout_args a = {.d = *dropout};
  struct sl__tensor *tensors[] = {x, y};
  enum sl_status status = sl__same_count(op->codelet.name, 2, tensors, &a.count);
  if (status == SL_OK && !(dropout->rate >= 0 && dropout->rate < 1))
    status = sl__fail(SL_BAD_ARGUMENT, "%s: the rate is %g; it must be from 0 to below 1",
                      op->codelet.name, (double)dropout->rate);
  if (status == SL_OK && dropout->run && a.count % dropout->run)
    status = sl__fail(SL_BAD_SHAPE, "%s: %lld values are no whole runs of %lld", op->codelet.name,
                      (long long)a.count, (long long)dropout->run);
  if (status != SL_OK) return status;
  return sl__submit(context, op, l, 2, tensors, &a, sizeof a, 10.0 * (double)a.count, 0);
}

enum sl_status sl__dropout_forward(struct sl_context *context, const struct sl__launch *l,
                                   struct sl__tensor *x, struct sl__tensor *y,
                                   const struct sl__dropout *dropout) {
  return submit(context, &sl__op_dropout_forward, l, x, y, dropout);
}

enum sl_status sl__dropout_backward(struct sl_context *context, const struct sl__launch *l,
                                    struct sl__tensor *dy, struct sl__tensor *dx,
                                    const struct sl__dropout *dropout) {
  return submit(context, &sl__op_dropout_backward, l, dy, dx, dropout);
}
