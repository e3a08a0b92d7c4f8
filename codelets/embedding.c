/* Embedding: rows of a table, picked by token. */
#include "codelets/embedding.h"

#include <math.h>
#include <string.h>

#include "codelets/kernels/bf16_adapter.h"
#include "codelets/kernels/elementwise.h"
#include "core/base/half.h"

/* ---- CPU kernels ------------------------------------------------------------------------- */

/* The table's rows of the tokens, whose values have `size` bytes. no_number: NaN as such a value,
 * which the loss check reports, where there is no such row. */
static void pick_rows(void *buffers[], const void *cl_arg, size_t size, const void *no_number) {
  const struct sl__embedding_args *a = sl__args(cl_arg);
  const void *tokens = sl__buffer(buffers, 0);
  const char *table = sl__buffer(buffers, 1);
  char *y = sl__buffer(buffers, 2);
  size_t row = (size_t)a->features * size;
  for (int64_t n = 0; n < a->rows * a->steps; n++, y += row) {
    int32_t token = sl__embedding_token(a, tokens, n);
    if (sl__embedding_has(a, token))
      memcpy(y, table + (size_t)token * row, row);
    else
      for (size_t at = 0; at < row; at += size) memcpy(y + at, no_number, size);
  }
}

SL__KERNEL void sl__embedding_forward_cpu(void *buffers[], void *cl_arg) {
  const float no_number = NAN;
  pick_rows(buffers, cl_arg, sizeof no_number, &no_number);
}

bool sl__embedding_forward_bf16(void *buffers[], void *cl_arg) {
  const uint16_t no_number = sl__bf16_code(NAN);
  pick_rows(buffers, cl_arg, sizeof no_number, &no_number);
  return true;
}

/* A repeated token gets all its gradients, in the order of the batch. */
SL__KERNEL void sl__embedding_backward_weight_cpu(void *buffers[], void *cl_arg) {
  const struct sl__embedding_args *a = sl__args(cl_arg);
  const void *tokens = sl__buffer(buffers, 0);
  const float *dy = sl__buffer(buffers, 1);
  float *grad = sl__buffer(buffers, 2);
  if (!sl__accumulate(cl_arg))
    memset(grad, 0, (size_t)(a->vocabulary * a->features) * sizeof *grad);
  for (int64_t n = 0; n < a->rows * a->steps; n++, dy += a->features) {
    int32_t token = sl__embedding_token(a, tokens, n);
    if (!sl__embedding_has(a, token)) continue;
    float *row = grad + token * a->features;
    for (int64_t d = 0; d < a->features; d++) row[d] += dy[d];
  }
}

SL__SIMD static void collect(const struct sl__embedding_args *a, const void *tokens,
                             const float *dy, struct sl__rows *rows) {
  for (int64_t n = 0; n < a->rows * a->steps; n++, dy += a->features) {
    int32_t token = sl__embedding_token(a, tokens, n);
    if (sl__embedding_has(a, token)) sl__rows_add(rows, token, dy);
  }
}

SL__KERNEL void sl__embedding_backward_rows_cpu(void *buffers[], void *cl_arg) {
  const struct sl__embedding_rows_args *a = sl__args(cl_arg);
  struct sl__rows rows = sl__rows_begin(&a->rows, sl__buffer(buffers, 2), sl__buffer(buffers, 3),
                                        sl__buffer(buffers, 4), sl__accumulate(cl_arg));
  collect(&a->tokens, sl__buffer(buffers, 0), sl__buffer(buffers, 1), &rows);
  sl__rows_end(&rows);
}

struct sl__rowwise sl__embedding_backward_weight_rows(void *args) {
  struct sl__embedding_args *a = args;
  return (struct sl__rowwise){.rows = &a->rows, .buffers = 1 << 0 | 1 << 1, .sums = true};
}

/* ---- submission -------------------------------------------------------------------------- */

/* features: values a row of the table; 0 where the table does not fit the vocabulary. */
static enum sl_status check(const char *name, const struct sl__tensor *tokens,
                            const struct sl__tensor *values, int64_t features, int64_t vocabulary,
                            int64_t from, struct sl__embedding_args *a) {
  *a = (struct sl__embedding_args){.rows = tokens->shape.dim[0],
                                   .from = from,
                                   .vocabulary = vocabulary,
                                   .features = features,
                                   .floats = tokens->type == SL_F32};
  a->columns = sl_shape_count(&tokens->shape) / a->rows;
  if (features > 0) a->steps = sl_shape_count(&values->shape) / (a->rows * features);
  if (features >= 1 && vocabulary >= 1 && a->steps >= 1 && from >= 0 &&
      sl_shape_count(&values->shape) == a->rows * a->steps * features &&
      from + a->steps <= a->columns && (tokens->type == SL_I32 || a->floats))
    return SL_OK;
  return sl__fail(SL_BAD_SHAPE,
                  "%s: %lld x %lld tokens (i32 or f32), %lld values from position %lld on and a "
                  "table of %lld x "
                  "%lld do not fit",
                  name, (long long)a->rows, (long long)a->columns,
                  (long long)sl_shape_count(&values->shape), (long long)from, (long long)vocabulary,
                  (long long)features);
}

static enum sl_status submit(struct sl_context *context, struct sl__op *op,
                             const struct sl__launch *l, struct sl__tensor *const *tensors,
                             const struct sl__tensor *table, const struct sl__tensor *values,
                             int64_t vocabulary, int64_t from) {
  struct sl__embedding_args a;
  int64_t count = sl_shape_count(&table->shape);
  int64_t features = vocabulary > 0 && count % vocabulary == 0 ? count / vocabulary : 0;
  enum sl_status status =
      check(op->codelet.name, tensors[0], values, features, vocabulary, from, &a);
  if (status != SL_OK) return status;
  return sl__submit(context, op, l, 3, tensors, &a, sizeof a,
                    (double)(a.rows * a.steps * a.features), 0);
}

enum sl_status sl__embedding_forward(struct sl_context *context, const struct sl__launch *l,
                                     struct sl__tensor *tokens, struct sl__tensor *param,
                                     struct sl__tensor *y, int64_t vocabulary, int64_t from) {
  return submit(context, &sl__op_embedding_forward, l, (struct sl__tensor *[]){tokens, param, y},
                param, y, vocabulary, from);
}

enum sl_status sl__embedding_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                             struct sl__tensor *tokens, struct sl__tensor *dy,
                                             struct sl__tensor *grad, int64_t vocabulary,
                                             int64_t from) {
  return submit(context, &sl__op_embedding_backward_weight, l,
                (struct sl__tensor *[]){tokens, dy, grad}, grad, dy, vocabulary, from);
}

enum sl_status sl__embedding_backward_rows(struct sl_context *context, const struct sl__launch *l,
                                           struct sl__tensor *tokens, struct sl__tensor *dy,
                                           struct sl__tensor *rows, struct sl__tensor *values,
                                           int64_t vocabulary, int64_t from) {
  struct sl__embedding_rows_args a = {0};
  struct sl__tensor *scratch;
  const char *name = "embedding_backward_rows";
  enum sl_status status = sl__rows_check(name, rows, values, vocabulary, &a.rows);
  if (status == SL_OK) status = check(name, tokens, dy, a.rows.width, vocabulary, from, &a.tokens);
  if (status == SL_OK)
    status = sl__scratch(context, ((size_t)vocabulary + 1) * sizeof(int32_t), &scratch);
  if (status != SL_OK) return status;
  return sl__submit(context, &sl__op_embedding_backward_rows, l, 5,
                    (struct sl__tensor *[]){tokens, dy, rows, values, scratch}, &a, sizeof a,
                    (double)(a.tokens.rows * a.tokens.steps * a.tokens.features), 0);
}
