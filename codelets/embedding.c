/* Embedding: rows of a table, picked by token. */
#include <math.h>
#include <string.h>

#include "codelets/elementwise.h"

struct embedding_args {
  int64_t rows, columns, from, steps; /* tokens [rows, columns], of which `steps` columns count */
  int64_t vocabulary, features;
};

/* ---- CPU kernels ------------------------------------------------------------------------- */

SL_INLINE int32_t token_at(const struct embedding_args *a, const int32_t *tokens, int64_t n) {
  return tokens[n / a->steps * a->columns + a->from + n % a->steps];
}

SL_KERNEL void embedding_forward_cpu(void *buffers[], void *cl_arg) {
  const struct embedding_args *a = sl__args(cl_arg);
  const int32_t *tokens = sl__buffer(buffers, 0);
  const float *table = sl__buffer(buffers, 1);
  float *y = sl__buffer(buffers, 2);
  for (int64_t n = 0; n < a->rows * a->steps; n++, y += a->features) {
    int32_t token = token_at(a, tokens, n);
    if (token >= 0 && token < a->vocabulary)
      memcpy(y, table + token * a->features, (size_t)a->features * sizeof *y);
    else
      for (int64_t d = 0; d < a->features; d++) y[d] = NAN; /* the loss will tell */
  }
}

/* A token that comes twice gets both gradients, in the order of the batch. */
SL_KERNEL void embedding_backward_weight_cpu(void *buffers[], void *cl_arg) {
  const struct embedding_args *a = sl__args(cl_arg);
  const int32_t *tokens = sl__buffer(buffers, 0);
  const float *dy = sl__buffer(buffers, 1);
  float *grad = sl__buffer(buffers, 2);
  if (!sl__accumulate(cl_arg))
    memset(grad, 0, (size_t)(a->vocabulary * a->features) * sizeof *grad);
  for (int64_t n = 0; n < a->rows * a->steps; n++, dy += a->features) {
    int32_t token = token_at(a, tokens, n);
    if (token < 0 || token >= a->vocabulary) continue;
    float *row = grad + token * a->features;
    for (int64_t d = 0; d < a->features; d++) row[d] += dy[d];
  }
}

/* ---- submission -------------------------------------------------------------------------- */

static enum sl_status submit(struct sl_context *context, struct sl__op *op,
                             const struct sl__launch *l, struct sl_tensor *const *tensors,
                             const struct sl_tensor *table, const struct sl_tensor *values,
                             int64_t vocabulary, int64_t from) {
  const struct sl_tensor *tokens = tensors[0];
  struct embedding_args a = {.rows = tokens->shape.dim[0], .from = from, .vocabulary = vocabulary};
  a.columns = sl_shape_count(&tokens->shape) / a.rows;
  if (vocabulary > 0) a.features = sl_shape_count(&table->shape) / vocabulary;
  if (a.features > 0) a.steps = sl_shape_count(&values->shape) / (a.rows * a.features);
  if (a.features < 1 || sl_shape_count(&table->shape) != vocabulary * a.features || a.steps < 1 ||
      sl_shape_count(&values->shape) != a.rows * a.steps * a.features || from < 0 ||
      from + a.steps > a.columns || tokens->type != SL_I32)
    return sl_fail(
        SL_BAD_SHAPE,
        "%s: %lld x %lld tokens (i32), %lld values from position %lld on and a table of %lld x "
        "%lld do not fit",
        op->codelet.name, (long long)a.rows, (long long)a.columns,
        (long long)sl_shape_count(&values->shape), (long long)from, (long long)vocabulary,
        (long long)a.features);
  return sl__submit(context, op, l, 3, tensors, &a, sizeof a,
                    (double)(a.rows * a.steps * a.features), 0);
}

enum sl_status sl__embedding_forward(struct sl_context *context, const struct sl__launch *l,
                                     struct sl_tensor *tokens, struct sl_tensor *param,
                                     struct sl_tensor *y, int64_t vocabulary, int64_t from) {
  return submit(context, &sl__op_embedding_forward, l, (struct sl_tensor *[]){tokens, param, y},
                param, y, vocabulary, from);
}

enum sl_status sl__embedding_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                             struct sl_tensor *tokens, struct sl_tensor *dy,
                                             struct sl_tensor *grad, int64_t vocabulary,
                                             int64_t from) {
  return submit(context, &sl__op_embedding_backward_weight, l,
                (struct sl_tensor *[]){tokens, dy, grad}, grad, dy, vocabulary, from);
}
