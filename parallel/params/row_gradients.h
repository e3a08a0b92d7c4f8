/* Row-sparse gradients of a model's layers, inside model_shards.h: which rows a step touched, and
 * their values. */
#ifndef SL_PARALLEL_PARAMS_ROW_GRADIENTS_H
#define SL_PARALLEL_PARAMS_ROW_GRADIENTS_H

#include "parallel/params/model_shards.h"

static inline bool sl__layer_is_sparse(const struct sl__model_shards *kv, int layer) {
  return sl__model_shards_is_sparse(&kv->model->layers[layer]);
}

/* Submit: the sum of the replicas' rows, and their dense form if the update reads that. first: of
 * the layer's shards. */
enum sl_status sl__row_gradients_sum(struct sl__model_shards *kv, const struct sl__shard *first);

/* The update was submitted; the contents are of no use. */
void sl__row_gradients_invalidate(struct sl__model_shards *kv, int layer);

void sl__row_gradients_free(struct sl__model_shards *kv, int layer);

#endif
