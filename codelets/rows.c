/* Row-sparse gradients: only those rows of a table [V, D] that a batch touched. rows [1 + capacity]
 * (i32) holds their count, then their numbers in the order of first touch; values [capacity, D]
 * holds the rows themselves. No row occurs twice. */
#include "codelets/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- CPU kernels ------------------------------------------------------------------------- */

SL__KERNEL void sl__rows_reduce_cpu(void *buffers[], void *cl_arg) {
  const struct sl__rows_args *a = sl__args(cl_arg);
  struct sl__rows sum = sl__rows_begin(a, sl__buffer(buffers, 0), sl__buffer(buffers, 1),
                                       sl__buffer(buffers, 2), false);
  for (int t = 3; t + 1 < sl__buffer_count(cl_arg); t += 2) {
    const int32_t *rows = sl__buffer(buffers, t);
    const float *values = sl__buffer(buffers, t + 1);
    for (int32_t k = 0; k < rows[0]; k++) sl__rows_add(&sum, rows[1 + k], values + k * a->width);
  }
  sl__rows_end(&sum);
}

SL__KERNEL void sl__rows_square_cpu(void *buffers[], void *cl_arg) {
  const struct sl__rows_args *a = sl__args(cl_arg);
  const int32_t *rows = sl__buffer(buffers, 0);
  const float *values = sl__buffer(buffers, 1);
  double part[16] = {0}, sum = 0;
  int64_t n = rows[0] * a->width;
  for (int64_t i = 0; i < n; i++) part[i % 16] += (double)values[i] * (double)values[i];
  for (int k = 0; k < 16; k++) sum += part[k];
  *(float *)sl__buffer(buffers, 2) = (float)sum;
}

SL__KERNEL void sl__rows_dense_cpu(void *buffers[], void *cl_arg) {
  const struct sl__rows_args *a = sl__args(cl_arg);
  const int32_t *rows = sl__buffer(buffers, 0);
  const float *values = sl__buffer(buffers, 1);
  float *dense = sl__buffer(buffers, 2);
  memset(dense, 0, (size_t)(a->table * a->width) * sizeof *dense);
  for (int32_t k = 0; k < rows[0]; k++)
    memcpy(dense + rows[1 + k] * a->width, values + k * a->width, (size_t)a->width * sizeof *dense);
}

SL__SIMD static void descend(float *p, const float *g, int64_t n, float rate) {
  for (int64_t i = 0; i < n; i++) p[i] -= rate * g[i];
}

/* The parts of the touched rows that lie in the shard. */
SL__KERNEL void sl__rows_sgd_cpu(void *buffers[], void *cl_arg) {
  const struct sl__rows_sgd_args *a = sl__args(cl_arg);
  float *p = (float *)sl__buffer(buffers, 0) + a->update.param_first;
  const int32_t *rows = sl__buffer(buffers, 1);
  const float *values = sl__buffer(buffers, 2);
  const float *norm = a->update.has_norm ? sl__buffer(buffers, 3) : NULL;
  float rate = a->update.u.lr * sl__clip_factor(a->update.u.max_norm, norm);
  for (int32_t k = 0; k < rows[0]; k++) {
    int64_t begin = rows[1 + k] * a->rows.width, end = begin + a->rows.width, skip = 0;
    if (begin < a->first) skip = a->first - begin;
    if (end > a->first + a->count) end = a->first + a->count;
    if (begin + skip < end)
      descend(p + begin + skip - a->first, values + k * a->rows.width + skip, end - begin - skip,
              rate);
  }
}

/* ---- submission -------------------------------------------------------------------------- */

enum sl_status sl__rows_check(const char *name, const struct sl__tensor *rows,
                              const struct sl__tensor *values, int64_t table,
                              struct sl__rows_args *a) {
  int64_t capacity = rows->shape.dim[0] - 1;
  *a = (struct sl__rows_args){.capacity = capacity, .table = table};
  if (rows->type == SL_I32 && rows->shape.ndim == 1 && values->shape.ndim == 2 && capacity >= 1 &&
      values->shape.dim[0] == capacity) {
    a->width = values->shape.dim[1];
    return SL_OK;
  }
  return sl__fail(SL_BAD_SHAPE, "%s: %lld row numbers (i32) and values of %lld rows do not fit",
                  name, (long long)capacity, (long long)values->shape.dim[0]);
}

enum sl_status sl__rows_reduce(struct sl_context *context, const struct sl__launch *l,
                               struct sl__tensor *rows, struct sl__tensor *values, int count,
                               struct sl__tensor *const *term_rows,
                               struct sl__tensor *const *term_values, int64_t table) {
  struct sl__rows_args a, term;
  struct sl__tensor *scratch, **tensors;
  enum sl_status status = sl__rows_check("rows_reduce", rows, values, table, &a);
  if (status == SL_OK) status = sl__scratch(context, (size_t)table * sizeof(int32_t), &scratch);
  for (int t = 0; t < count && status == SL_OK; t++) {
    status = sl__rows_check("rows_reduce", term_rows[t], term_values[t], table, &term);
    if (status == SL_OK && term.width != a.width)
      status = sl__fail(SL_BAD_SHAPE, "rows_reduce: rows of %lld and %lld values",
                        (long long)term.width, (long long)a.width);
  }
  if (status != SL_OK) return status;
  tensors = sl__alloc(3 + 2 * (size_t)count, sizeof *tensors, "a reduction");
  if (!tensors) return SL_NO_MEMORY;
  tensors[0] = rows;
  tensors[1] = values;
  tensors[2] = scratch;
  for (int t = 0; t < count; t++) {
    tensors[3 + 2 * t] = term_rows[t];
    tensors[4 + 2 * t] = term_values[t];
  }
  status = sl__submit(context, &sl__op_rows_reduce, l, 3 + 2 * count, tensors, &a, sizeof a,
                      (double)(a.capacity * a.width), 0);
  free(tensors);
  return status;
}

enum sl_status sl__rows_square(struct sl_context *context, const struct sl__launch *l,
                               struct sl__tensor *rows, struct sl__tensor *values,
                               struct sl__tensor *sum) {
  struct sl__rows_args a;
  enum sl_status status = sl__rows_check("rows_square", rows, values, 0, &a);
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_rows_square, l, 3, (struct sl__tensor *[]){rows, values, sum},
                    &a, sizeof a, 2.0 * (double)(a.capacity * a.width), 0);
}

enum sl_status sl__rows_dense(struct sl_context *context, const struct sl__launch *l,
                              struct sl__tensor *rows, struct sl__tensor *values,
                              struct sl__tensor *dense) {
  struct sl__rows_args a;
  int64_t count = sl_shape_count(&dense->shape);
  enum sl_status status = sl__rows_check("rows_dense", rows, values, 0, &a);
  if (status != SL_OK) return status;
  a.table = count / a.width;
  if (count % a.width)
    return sl__fail(SL_BAD_SHAPE, "rows_dense: %lld elements are no rows of %lld", (long long)count,
                    (long long)a.width);
  return sl__submit(context, &sl__op_rows_dense, l, 3, (struct sl__tensor *[]){rows, values, dense},
                    &a, sizeof a, (double)count, 0);
}

static void renew(void *args, const struct sl__step_record *step) {
  struct sl__rows_sgd_args *a = args;
  sl__update_renew(&a->update.u, step);
}

enum sl_status sl__rows_sgd(struct sl_context *context, const struct sl__launch *l,
                            struct sl__tensor *param, int64_t first, struct sl__tensor *rows,
                            struct sl__tensor *values, struct sl__tensor *norm,
                            const struct sl__update *update) {
  struct sl__rows_sgd_args a = {
      .first = first,
      .count = sl_shape_count(&param->shape),
      .update = {.param_first = (int64_t)param->first, .has_norm = norm != NULL, .u = *update}};
  struct sl__launch launch = *l;
  launch.pieces = true;
  launch.renew = renew;
  enum sl_status status = sl__rows_check("rows_sgd", rows, values, 0, &a.rows);
  if (status == SL_OK && (update->momentum > 0 || update->weight_decay > 0))
    status =
        sl__fail(SL_UNSUPPORTED,
                 "rows_sgd: momentum and weight decay move the other rows, too; rows_dense first");
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_rows_sgd, &launch, norm ? 4 : 3,
                    (struct sl__tensor *[]){param, rows, values, norm}, &a, sizeof a,
                    2.0 * (double)(a.rows.capacity * a.rows.width), 0);
}
