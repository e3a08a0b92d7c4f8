#include "parallel/params/row_gradients.h"

#include "core/runtime/wait.h"

bool sl__model_shards_is_sparse(const struct sl__layer *layer) {
  return layer->touches_rows && !layer->is_tied && !layer->is_frozen;
}

/* Room for `capacity` rows of layer i's weight. */
static enum sl_status make_rows(struct sl__model_shards *kv, int i, int64_t capacity,
                                struct sl__tensor **rows, struct sl__tensor **values) {
  struct sl_context *context = kv->model->context;
  const struct sl_shape *weight = &kv->model->layers[i].params.part[0].shape;
  int64_t width = sl_shape_count(weight) / weight->dim[0];
  if (capacity > weight->dim[0]) capacity = weight->dim[0];
  enum sl_status status = sl__tensor_temporary(context, &SL_SHAPE(capacity + 1), SL_I32, rows);
  if (status == SL_OK)
    status = sl__tensor_temporary(context, &SL_SHAPE(capacity, width), SL_F32, values);
  return status;
}

/* Has the sum tensors of its own? A single replica's gradient is the sum itself. */
static bool has_own_sum(const struct sl__model_shards *kv, int i) {
  return kv->sums[i].rows && kv->sums[i].rows != kv->rows[0][i];
}

void sl__row_gradients_free(struct sl__model_shards *kv, int i) {
  struct sl__row_sum *sum = &kv->sums[i];
  if (has_own_sum(kv, i)) {
    sl__tensor_free(sum->rows);
    sl__tensor_free(sum->values);
  }
  sum->rows = sum->values = NULL;
  for (int r = 0; r < kv->replicas; r++) {
    sl__tensor_free(kv->rows[r][i]);
    sl__tensor_free(kv->grads[r][i]);
    kv->rows[r][i] = kv->grads[r][i] = NULL;
  }
}

enum sl_status sl__model_shards_reserve(struct sl__model_shards *kv, int64_t positions) {
  enum sl_status status = SL_OK;
  if (positions <= kv->positions) return SL_OK;
  /* with dist_async a task that waits for another rank never ends before the close */
  if (!kv->is_async) SL__TRY(sl__wait_for_all(kv->model->context));
  for (int i = 0; i < kv->model->count; i++) {
    struct sl__row_sum *sum = &kv->sums[i];
    if (!sl__layer_is_sparse(kv, i) || !sl__model_shards_has_layer(kv, i)) continue;
    sl__row_gradients_free(kv, i);
    for (int r = 0; r < kv->replicas; r++)
      SL__TRY(make_rows(kv, i, positions, &kv->rows[r][i], &kv->grads[r][i]));
    if (kv->replicas > 1)
      SL__TRY(make_rows(kv, i, positions * kv->replicas, &sum->rows, &sum->values));
    else
      *sum = (struct sl__row_sum){kv->rows[0][i], kv->grads[0][i], sum->dense};
  }
  kv->positions = positions;
out:
  return status;
}

enum sl_status sl__row_gradients_sum(struct sl__model_shards *kv, const struct sl__shard *first) {
  struct sl_context *context = kv->model->context;
  int i = first->block;
  struct sl__row_sum *sum = &kv->sums[i];
  struct sl__tensor **rows = kv->terms, **values = kv->terms + kv->replicas;
  enum sl_status status = SL_OK;
  for (int r = 0; r < kv->replicas; r++) {
    rows[r] = kv->rows[r][i];
    values[r] = kv->grads[r][i];
  }
  if (has_own_sum(kv, i))
    status = sl__rows_reduce(context, &first->launch, sum->rows, sum->values, kv->replicas, rows,
                             values, kv->model->layers[i].params.part[0].shape.dim[0]);
  if (status == SL_OK && sum->dense)
    status = sl__rows_dense(context, &first->launch, sum->rows, sum->values, sum->dense);
  return status;
}

void sl__row_gradients_invalidate(struct sl__model_shards *kv, int i) {
  struct sl__tensor *dense = kv->sums[i].dense;
  for (int r = 0; r < kv->replicas; r++)
    if (kv->rows[r][i]) sl__tensor_invalidate(kv->rows[r][i]);
  if (has_own_sum(kv, i)) {
    sl__tensor_invalidate(kv->sums[i].rows);
    sl__tensor_invalidate(kv->sums[i].values);
  }
  if (dense && !sl__tensor_is_cut(dense)) sl__tensor_invalidate(dense);
}
