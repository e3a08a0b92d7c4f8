/* Gated linear unit with SiLU (Shazeer, arXiv 2002.05202): y = silu(gate) up, of rows that hold F
 * gates, then F values up. Nothing is saved: the backward half computes the sigmoid again. */
#include "codelets/swiglu.h"

#include "codelets/codelets.h"
#include "codelets/kernels/bf16_adapter.h"
#include "core/base/error.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

SL__SIMD static void forward_row(const float *gate, const float *up, float *restrict y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = sl__silu(gate[i]) * up[i];
}

SL__KERNEL void sl__swiglu_forward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__swiglu_args *a = sl__args(cl_arg);
  const float *x = sl__buffer(buffers, 0);
  float *y = sl__buffer(buffers, 1);
  struct sl__work_range range = sl__work_range(cl_arg, a->rows);
  for (int64_t r = range.first; r < range.end; r++) {
    const float *gate = x + 2 * r * a->features;
    forward_row(gate, gate + a->features, y + r * a->features, a->features);
  }
}

SL__SIMD static void backward_row(const float *gate, const float *up, const float *dy,
                                  float *restrict dgate, float *restrict dup, int64_t n, bool add) {
  for (int64_t i = 0; i < n; i++)
    dgate[i] = (add ? dgate[i] : 0) + dy[i] * up[i] * sl__silu_slope(gate[i]);
  for (int64_t i = 0; i < n; i++) dup[i] = (add ? dup[i] : 0) + dy[i] * sl__silu(gate[i]);
}

SL__KERNEL void sl__swiglu_backward_cpu(void *buffers[], void *cl_arg) {
  const struct sl__swiglu_args *a = sl__args(cl_arg);
  const float *x = sl__buffer(buffers, 0), *dy = sl__buffer(buffers, 1);
  float *dx = sl__buffer(buffers, 2);
  int64_t n = a->features;
  for (int64_t r = 0; r < a->rows; r++, x += 2 * n, dx += 2 * n, dy += n)
    backward_row(x, x + n, dy, dx, dx + n, n, sl__accumulate(cl_arg));
}

/* ---- rows of bf16 ------------------------------------------------------------------------ */

struct sl__rowwise sl__swiglu_forward_rows(void *args) {
  return sl__all_by_rows(&((struct sl__swiglu_args *)args)->rows);
}

struct sl__rowwise sl__swiglu_backward_rows(void *args) {
  return sl__all_by_rows(&((struct sl__swiglu_args *)args)->rows);
}

/* ---- submission -------------------------------------------------------------------------- */

static enum sl_status check(const char *name, const struct sl__tensor *x,
                            const struct sl__tensor *y, struct sl__swiglu_args *a) {
  char xt[96], yt[96];
  int64_t features = y->shape.dim[y->shape.ndim - 1];
  *a = (struct sl__swiglu_args){.rows = sl_shape_count(&y->shape) / features, .features = features};
  if (x->shape.dim[x->shape.ndim - 1] == 2 * features &&
      sl_shape_count(&x->shape) == 2 * sl_shape_count(&y->shape))
    return SL_OK;
  return sl__fail(SL_BAD_SHAPE, "%s: x %s and y %s do not fit; x has rows twice as long", name,
                  sl_shape_text(&x->shape, xt, sizeof xt), sl_shape_text(&y->shape, yt, sizeof yt));
}

enum sl_status sl__swiglu_forward(struct sl_context *context, const struct sl__launch *l,
                                  struct sl__tensor *x, struct sl__tensor *y) {
  struct sl__swiglu_args a;
  struct sl__launch launch = *l;
  enum sl_status status = check("swiglu_forward", x, y, &a);
  if (status != SL_OK) return status;
  launch.cut = (struct sl__cut){.units = a.rows, .flat = true};
  return sl__submit(context, &sl__op_swiglu_forward, &launch, 2, (struct sl__tensor *[]){x, y}, &a,
                    sizeof a, 2.0 * (double)a.rows * (double)a.features, 0);
}

enum sl_status sl__swiglu_backward(struct sl_context *context, const struct sl__launch *l,
                                   struct sl__tensor *x, struct sl__tensor *dy,
                                   struct sl__tensor *dx) {
  struct sl__swiglu_args a;
  enum sl_status status = check("swiglu_backward", x, dy, &a);
  if (status == SL_OK && sl_shape_count(&dx->shape) != sl_shape_count(&x->shape))
    status = sl__fail(SL_BAD_SHAPE, "swiglu_backward: dx must have x's shape");
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_swiglu_backward, l, 3, (struct sl__tensor *[]){x, dy, dx}, &a,
                    sizeof a, 6.0 * (double)a.rows * (double)a.features, 0);
}
