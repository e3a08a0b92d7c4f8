/* Embedding: rows of a table, picked by token. */
#include <math.h>
#include <string.h>

#include "codelets/elementwise.h"

struct embedding_args {
  int64_t tokens, vocabulary, features;
};

/* ---- CPU kernels ------------------------------------------------------------------------- */

SL_KERNEL void embedding_forward_cpu(void *buffers[], void *cl_arg) {
  const struct embedding_args *a = sl__args(cl_arg);
  const int32_t *tokens = sl__buffer(buffers, 0);
  const float *table = sl__buffer(buffers, 1);
  float *y = sl__buffer(buffers, 2);
  for (int64_t n = 0; n < a->tokens; n++, y += a->features) {
    if (tokens[n] >= 0 && tokens[n] < a->vocabulary)
      memcpy(y, table + tokens[n] * a->features, (size_t)a->features * sizeof *y);
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
  for (int64_t n = 0; n < a->tokens; n++, dy += a->features) {
    if (tokens[n] < 0 || tokens[n] >= a->vocabulary) continue;
    float *row = grad + tokens[n] * a->features;
    for (int64_t d = 0; d < a->features; d++) row[d] += dy[d];
  }
}

/* ---- submission -------------------------------------------------------------------------- */

static enum sl_status submit(struct sl_context *context, struct sl__op *op,
                             const struct sl__launch *l, struct sl_tensor *const *tensors,
                             const struct sl_tensor *table, const struct sl_tensor *values,
                             int64_t vocabulary) {
  struct embedding_args a = {.tokens = sl_shape_count(&tensors[0]->shape),
                             .vocabulary = vocabulary};
  if (vocabulary > 0) a.features = sl_shape_count(&table->shape) / vocabulary;
  if (a.features < 1 || sl_shape_count(&table->shape) != vocabulary * a.features ||
      sl_shape_count(&values->shape) != a.tokens * a.features || tensors[0]->type != SL_I32)
    return sl_fail(SL_BAD_SHAPE,
                   "%s: %lld tokens (i32), %lld values and a table of %lld x %lld do not fit",
                   op->codelet.name, (long long)a.tokens, (long long)sl_shape_count(&values->shape),
                   (long long)vocabulary, (long long)a.features);
  return sl__submit(context, op, l, 3, tensors, &a, sizeof a, (double)(a.tokens * a.features), 0);
}

enum sl_status sl__embedding_forward(struct sl_context *context, const struct sl__launch *l,
                                     struct sl_tensor *tokens, struct sl_tensor *param,
                                     struct sl_tensor *y, int64_t vocabulary) {
  return submit(context, &sl__op_embedding_forward, l, (struct sl_tensor *[]){tokens, param, y},
                param, y, vocabulary);
}

enum sl_status sl__embedding_backward_weight(struct sl_context *context, const struct sl__launch *l,
                                             struct sl_tensor *tokens, struct sl_tensor *dy,
                                             struct sl_tensor *grad, int64_t vocabulary) {
  return submit(context, &sl__op_embedding_backward_weight, l,
                (struct sl_tensor *[]){tokens, dy, grad}, grad, dy, vocabulary);
}
