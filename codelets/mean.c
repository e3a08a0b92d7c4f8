/* The mean over axes; its gradient is a broadcast (strided_copy.c). */
#include "codelets/mean.h"

#include "codelets/kernels/elementwise.h"
#include "codelets/kernels/sum.h"

enum { COLUMNS = 256 }; /* of which sums are made at a time */

/* ---- CPU kernels ------------------------------------------------------------------------- */

SL__SIMD static void add_run(const float *x, float *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

/* Adds the partial sums to the sums; they begin again. */
SL__SIMD static void close_parts(float *part, double *sum, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    sum[i] += (double)part[i];
    part[i] = 0;
  }
}

SL__SIMD static void scale_run(float factor, float *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] *= factor;
}

/* Goes to the next index of the first `axes` axes, as an odometer counts. Returns false after the
 * last one. */
static bool next(int axes, const int64_t *dim, const int64_t *stride, int64_t *at,
                 const float **x) {
  for (int d = axes - 1; d >= 0; d--) {
    *x += stride[d];
    if (++at[d] < dim[d]) return true;
    *x -= dim[d] * stride[d];
    at[d] = 0;
  }
  return false;
}

/* One value of y: sums of runs, or, where x has strides, of values. */
static float sum_at(const struct sl__mean_args *a, const float *x) {
  int last = a->reduced - 1;
  int64_t at[SL_MAX_DIMS] = {0};
  double sum = 0;
  do {
    sum += (double)sl__sum_run(x, a->reduced_dim[last]);
  } while (next(last, a->reduced_dim, a->reduced_stride, at, &x));
  return (float)sum;
}

/* A piece of y, of at most COLUMNS values, along the last axis that stays. Terms are added up in
 * floats a few at a time, as in codelets/kernels/sum.h. */
static void sums_along(const struct sl__mean_args *a, const float *x, float *y, int64_t n) {
  float part[COLUMNS];
  double sum[COLUMNS];
  int64_t at[SL_MAX_DIMS] = {0};
  bool more = true;
  for (int64_t i = 0; i < n; i++) part[i] = 0, sum[i] = 0;
  while (more) {
    for (int k = 0; more && k < SL__SUM_RUN / SL__SUM_PARTS; k++) {
      add_run(x, part, n);
      more = next(a->reduced, a->reduced_dim, a->reduced_stride, at, &x);
    }
    close_parts(part, sum, n);
  }
  for (int64_t i = 0; i < n; i++) y[i] = (float)sum[i];
}

SL__KERNEL void sl__mean_cpu(void *buffers[], void *cl_arg) {
  const struct sl__mean_args *a = sl__args(cl_arg);
  const float *x = sl__buffer(buffers, 0);
  float *y = sl__buffer(buffers, 1);
  int64_t at[SL_MAX_DIMS] = {0};
  bool is_along = a->reduced_stride[a->reduced - 1] > 1;
  int64_t run = is_along ? a->kept_dim[a->kept - 1] : 1;
  do {
    for (int64_t c = 0; is_along && c < run; c += COLUMNS)
      sums_along(a, x + c, y + c, run - c < COLUMNS ? run - c : COLUMNS);
    if (!is_along) *y = sum_at(a, x);
    y += run;
  } while (next(a->kept - is_along, a->kept_dim, a->kept_stride, at, &x));
  scale_run(1.0f / (float)a->terms, (float *)sl__buffer(buffers, 1), a->outputs);
}

/* ---- submission -------------------------------------------------------------------------- */

static void add_axis(int32_t *axes, int64_t *dims, int64_t *strides, int64_t dim, int64_t stride) {
  int last = *axes - 1;
  if (last >= 0 && strides[last] == dim * stride) {
    dims[last] *= dim;
    strides[last] = stride;
    return;
  }
  dims[*axes] = dim;
  strides[(*axes)++] = stride;
}

enum sl_status sl__mean(struct sl_context *context, const struct sl__launch *l,
                        struct sl__tensor *x, struct sl__tensor *y, uint32_t axes) {
  struct sl__mean_args a = {.outputs = 1, .terms = 1};
  int64_t stride = sl_shape_count(&x->shape);
  char xt[96], yt[96];
  for (int d = 0; d < x->shape.ndim; d++) {
    int64_t dim = x->shape.dim[d];
    stride /= dim;
    if (dim == 1) continue;
    bool reduces = axes >> d & 1;
    if (reduces)
      add_axis(&a.reduced, a.reduced_dim, a.reduced_stride, dim, stride);
    else
      add_axis(&a.kept, a.kept_dim, a.kept_stride, dim, stride);
    *(reduces ? &a.terms : &a.outputs) *= dim;
  }
  if (sl_shape_count(&y->shape) != a.outputs)
    return sl__fail(SL_BAD_SHAPE, "mean: x %s and y %s do not fit",
                    sl_shape_text(&x->shape, xt, sizeof xt),
                    sl_shape_text(&y->shape, yt, sizeof yt));
  if (!a.reduced) return sl__axpy(context, l, 1.0f, x, y);
  return sl__submit(context, &sl__op_mean, l, 2, (struct sl__tensor *[]){x, y}, &a, sizeof a,
                    (double)sl_shape_count(&x->shape), starpu_hash_crc32c_be_n(&a, sizeof a, 0));
}
