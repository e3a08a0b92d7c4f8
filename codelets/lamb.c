/* LAMB's step, in two operations (lamb.h). */
#include "codelets/lamb.h"

#include <stdlib.h>
#include <string.h>

/* ---- CPU kernels ------------------------------------------------------------------------- */

#define BLOCK 1024 /* elements that fit the first cache, with their state */
#define LANES 16   /* interleaved sums, whatever the vectors' width; BLOCK has whole ones */

struct lanes {
  double param[LANES], direction[LANES];
};

SL__SIMD static void move_block(const struct sl__lamb_rates *begun, float decay,
                                const float *gradient, const float *p, float *mean, float *square,
                                int64_t n, struct lanes *sums) {
  const struct sl__lamb_rates rates = *begun;
  float direction[BLOCK];
  for (int64_t i = 0; i < n; i++) {
    sl__lamb_move_means(&rates, gradient[i], &mean[i], &square[i]);
    direction[i] = sl__lamb_direction(&rates, decay, p[i], mean[i], square[i]);
  }
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++) {
      sums->param[k] += (double)p[i + k] * (double)p[i + k];
      sums->direction[k] += (double)direction[i + k] * (double)direction[i + k];
    }
  for (int k = 0; i < n; i++, k++) {
    sums->param[k] += (double)p[i] * (double)p[i];
    sums->direction[k] += (double)direction[i] * (double)direction[i];
  }
}

static void leave_sums(const struct lanes *sums, float squares[2]) {
  double param = 0, direction = 0;
  for (int k = 0; k < LANES; k++) {
    param += sums->param[k];
    direction += sums->direction[k];
  }
  squares[0] = (float)param;
  squares[1] = (float)direction;
}

SL__KERNEL void sl__lamb_moments_cpu(void *buffers[], void *cl_arg) {
  const struct sl__lamb_args *a = sl__args(cl_arg);
  const struct sl__lamb_rates rates = sl__lamb_begin(&a->u);
  int end = sl__buffer_count(cl_arg) - a->has_norm;
  float factor = sl__clip_factor(a->u.max_norm, a->has_norm ? sl__buffer(buffers, end) : NULL);
  float *mean = sl__buffer(buffers, 0), *square = sl__buffer(buffers, 1);
  const float *param = (const float *)sl__buffer(buffers, 2) + a->param_first;
  float *squares = sl__buffer(buffers, 3), gradient[BLOCK];
  int64_t at = 0;
  for (int k = 0; k < a->parts; k++) {
    struct lanes sums = {{0}, {0}};
    while (at < a->end[k]) {
      int64_t n = a->end[k] - at < BLOCK ? a->end[k] - at : BLOCK;
      sl__sum_gradients(buffers, 4, end, a->gradient_first + at, n, factor, gradient);
      move_block(&rates, a->decay[k], gradient, param + at, mean + at, square + at, n, &sums);
      at += n;
    }
    leave_sums(&sums, squares + 2 * k);
  }
}

SL__SIMD static void step(const struct sl__lamb_rates *begun, float decay, float rate,
                          const float *mean, const float *square, float *p, int64_t n) {
  const struct sl__lamb_rates rates = *begun;
  for (int64_t i = 0; i < n; i++)
    p[i] -= rate * sl__lamb_direction(&rates, decay, p[i], mean[i], square[i]);
}

SL__KERNEL void sl__lamb_cpu(void *buffers[], void *cl_arg) {
  const struct sl__lamb_args *a = sl__args(cl_arg);
  const struct sl__lamb_rates rates = sl__lamb_begin(&a->u);
  float *p = (float *)sl__buffer(buffers, 0) + a->param_first;
  const float *mean = sl__buffer(buffers, 1), *square = sl__buffer(buffers, 2);
  const float *squares = sl__buffer(buffers, 3);
  int64_t at = 0;
  for (int k = 0; k < a->parts; at = a->end[k++])
    step(&rates, a->decay[k], a->u.lr * sl__lamb_trust(squares + 2 * k), mean + at, square + at,
         p + at, a->end[k] - at);
}

/* ---- submission -------------------------------------------------------------------------- */

static void renew(void *args, const struct sl__step_record *step_record) {
  struct sl__lamb_args *a = args;
  sl__update_renew(&a->u, step_record);
}

static enum sl_status make_args(const char *name, const struct sl__tensor *param,
                                const struct sl__tensor *squares, const struct sl__update *update,
                                const struct sl__update_parts *parts, struct sl__lamb_args *a) {
  a->param_first = (int64_t)param->first;
  a->parts = parts->count;
  a->u = *update;
  for (int k = 0; k < parts->count; k++) {
    a->end[k] = parts->end[k];
    a->decay[k] = parts->decays[k] ? update->weight_decay : 0;
  }
  if (update->step < 1)
    return sl__fail(SL_BAD_ARGUMENT, "%s: steps count from 1, not %lld", name,
                    (long long)update->step);
  if (sl_shape_count(&squares->shape) != 2 * parts->count ||
      parts->end[parts->count - 1] != a->count)
    return sl__fail(SL_BAD_SHAPE,
                    "%s: %d parts end at element %lld of %lld and have %lld squares; two each",
                    name, parts->count, (long long)parts->end[parts->count - 1],
                    (long long)a->count, (long long)sl_shape_count(&squares->shape));
  return SL_OK;
}

enum sl_status sl__lamb_moments(struct sl_context *context, const struct sl__launch *l,
                                struct sl__tensor *param, struct sl__tensor *const state[2],
                                int count, struct sl__tensor *const *gradients,
                                struct sl__tensor *norm, const struct sl__update *update,
                                const struct sl__update_parts *parts, struct sl__tensor *squares) {
  struct sl__tensor *several[SL__STACK_BUFFERS], **tensors = several;
  struct sl__launch launch = *l;
  struct sl__lamb_args a = {.has_norm = norm != NULL};
  int n = 0, all = 4 + count + (norm != NULL);
  if (count < 1) return sl__fail(SL_BAD_ARGUMENT, "lamb_moments: no gradient is given");
  if (all > SL__STACK_BUFFERS && !(tensors = sl__alloc((size_t)all, sizeof *tensors, "an update")))
    return SL_NO_MEMORY;
  for (int i = 0; i < 2; i++) tensors[n++] = state[i];
  tensors[n++] = param;
  for (int i = 0; i < count; i++) tensors[n++] = gradients[i];
  enum sl_status status = sl__same_count("lamb_moments", n, tensors, &a.count);
  if (status == SL_OK) status = make_args("lamb_moments", param, squares, update, parts, &a);
  a.gradient_first = (int64_t)gradients[0]->first;
  memmove(tensors + 4, tensors + 3, (size_t)count * sizeof *tensors);
  tensors[3] = squares;
  n++;
  launch.pieces = true;
  launch.renew = renew;
  if (norm) tensors[n++] = norm;
  if (status == SL_OK)
    status = sl__submit(context, &sl__op_lamb_moments, &launch, all, tensors, &a, sizeof a,
                        (double)a.count * (count + 12), 0);
  if (tensors != several) free(tensors);
  return status;
}

enum sl_status sl__lamb(struct sl_context *context, const struct sl__launch *l,
                        struct sl__tensor *param, struct sl__tensor *const state[2],
                        struct sl__tensor *squares, const struct sl__update *update,
                        const struct sl__update_parts *parts) {
  struct sl__tensor *tensors[] = {param, state[0], state[1], squares};
  struct sl__launch launch = *l;
  struct sl__lamb_args a = {0};
  enum sl_status status = sl__same_count("lamb", 3, tensors, &a.count);
  if (status == SL_OK) status = make_args("lamb", param, squares, update, parts, &a);
  if (status != SL_OK) return status;
  launch.pieces = true;
  launch.renew = renew;
  return sl__submit(context, &sl__op_lamb, &launch, 4, tensors, &a, sizeof a, 8.0 * (double)a.count,
                    0);
}
