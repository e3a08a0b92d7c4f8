/* Dropout (Srivastava et al., JMLR 2014); no mask is stored: the backward pass draws the same
 * numbers again. */
#include "codelets/dropout.h"

#include "codelets/kernels/bf16_adapter.h"
#include "codelets/kernels/elementwise.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

/* The generator's numbers for the elements of `count` groups of four, side by side: one loop over
 * groups is vector code, and one group's ten rounds are not. */
enum { GROUPS = 16 };

SL__INLINE void draw(const struct sl__dropout_args *a, uint64_t group, const int count,
                     uint32_t bits[4 * GROUPS]) {
  for (int g = 0; g < count; g++) {
    struct sl__random4 r = sl__philox(a->d.seed, a->d.stream, group + (uint64_t)g);
    for (int k = 0; k < 4; k++) bits[4 * g + k] = r.v[k];
  }
}

/* y (+)= dropout of x, for whole groups. */
SL__INLINE void apply_groups(const struct sl__dropout_args *a, const uint32_t *bits, float kept,
                             const float *x, float *y, const int count, const bool add) {
  for (int i = 0; i < 4 * count; i++) {
    float value = sl__dropout_value(bits[i], a->d.rate, kept, x[i]);
    y[i] = add ? y[i] + value : value;
  }
}

/* One call of the generator gives numbers for four neighbours; the first and the last group may be
 * partial. */
SL__INLINE void apply_run(const struct sl__dropout_args *a, uint64_t first, int64_t count,
                          const float *x, float *y, const bool add) {
  uint64_t end = first + (uint64_t)count, group = first >> 2;
  float kept = 1.0f / (1.0f - a->d.rate);
  uint32_t bits[4 * GROUPS];
  while (group << 2 < end) {
    uint64_t at = group << 2;
    if (at >= first && end - at >= 4 * GROUPS) {
      draw(a, group, GROUPS, bits);
      apply_groups(a, bits, kept, x + (at - first), y + (at - first), GROUPS, add);
      group += GROUPS;
      continue;
    }
    draw(a, group, 1, bits);
    for (uint64_t index = at; index < at + 4; index++) {
      if (index < first || index >= end) continue;
      float value = sl__dropout_value(bits[index - at], a->d.rate, kept, x[index - first]);
      y[index - first] = add ? y[index - first] + value : value;
    }
    group++;
  }
}

SL__INLINE void apply(const struct sl__dropout_args *a, const float *x, float *y, const bool add) {
  int64_t run = a->d.run ? a->d.run : a->count;
  uint64_t first = a->d.first;
  for (int64_t at = 0; at < a->count; at += run, first += (uint64_t)a->d.stride)
    apply_run(a, first, run, x + at, y + at, add);
}

SL__SIMD static void overwrite(const struct sl__dropout_args *a, const float *x, float *y) {
  apply(a, x, y, false);
}

SL__SIMD static void add(const struct sl__dropout_args *a, const float *x, float *y) {
  apply(a, x, y, true);
}

SL__KERNEL void sl__dropout_forward_cpu(void *buffers[], void *cl_arg) {
  overwrite(sl__args(cl_arg), sl__buffer(buffers, 0), sl__buffer(buffers, 1));
}

SL__KERNEL void sl__dropout_backward_cpu(void *buffers[], void *cl_arg) {
  (sl__accumulate(cl_arg) ? add : overwrite)(sl__args(cl_arg), sl__buffer(buffers, 0),
                                             sl__buffer(buffers, 1));
}

/* ---- rows of bf16 -------------------------------------------------------------------------- */

/* Runs; or, where there is one only, as many values as four calls of the generator give. */
static struct sl__rowwise rows_of(struct sl__dropout_args *a) {
  const int64_t some = 16;
  int64_t group = a->d.run ? a->d.run : a->count % some ? a->count : some;
  struct sl__rowwise r = sl__all_by_rows(&a->count);
  r.group = group;
  r.first = &a->d.first;
  r.step = (uint64_t)(a->d.run ? a->d.stride : group);
  return r;
}

struct sl__rowwise sl__dropout_forward_rows(void *args) {
  return rows_of(args);
}

struct sl__rowwise sl__dropout_backward_rows(void *args) {
  return rows_of(args);
}

/* ---- submission -------------------------------------------------------------------------- */

static void renew(void *args, const struct sl__step_record *step) {
  struct sl__dropout *d = &((struct sl__dropout_args *)args)->d;
  d->stream ^= d->step ^ (uint64_t)step->number;
  d->step = (uint64_t)step->number;
}

static enum sl_status submit(struct sl_context *context, struct sl__op *op,
                             const struct sl__launch *l, struct sl__tensor *x, struct sl__tensor *y,
                             const struct sl__dropout *dropout) {
  struct sl__dropout_args a = {.d = *dropout};
  struct sl__launch launch = *l;
  struct sl__tensor *tensors[] = {x, y};
  enum sl_status status = sl__same_count(op->codelet.name, 2, tensors, &a.count);
  if (status == SL_OK && !(dropout->rate >= 0 && dropout->rate < 1))
    status = sl__fail(SL_BAD_ARGUMENT, "%s: the rate is %g; it must be from 0 to below 1",
                      op->codelet.name, (double)dropout->rate);
  if (status == SL_OK && dropout->run && a.count % dropout->run)
    status = sl__fail(SL_BAD_SHAPE, "%s: %lld values are no whole runs of %lld", op->codelet.name,
                      (long long)a.count, (long long)dropout->run);
  if (status != SL_OK) return status;
  a.d.stream ^= a.d.step;
  launch.renew = renew;
  return sl__submit(context, op, &launch, 2, tensors, &a, sizeof a, 10.0 * (double)a.count, 0);
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
