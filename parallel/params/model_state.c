/* The optimizer state and the residuals of a model's shards, for checkpoints. */
#include "core/net/net.h"
#include "parallel/params/model_shards.h"

/* Rank 0 reads a tensor of another rank, or its own; both ranks call this. */
static enum sl_status fetch(struct sl__model_shards *kv, int rank, struct sl__tensor *tensor,
                            int64_t count, float *values) {
  struct sl__net *net = kv->model->context->net;
  size_t bytes = (size_t)count * sizeof *values;
  enum sl_status status = SL_OK;
  if (rank == kv->ranks.rank) SL__TRY(sl__tensor_read(tensor, values));
  if (!rank) return SL_OK;
  if (rank == kv->ranks.rank) return sl__net_send(net, 0, values, bytes);
  if (!kv->ranks.rank) status = sl__net_receive(net, rank, values, bytes);
out:
  return status;
}

enum sl_status sl__model_shards_read_state(struct sl__model_shards *kv, int layer, int k,
                                           float *block) {
  enum sl_status status = SL_OK;
  for (int s = 0; s < kv->shard_count; s++) {
    const struct sl__shard *shard = &kv->shards[s];
    if (shard->block == layer)
      SL__TRY(fetch(kv, shard->rank, shard->state[k], shard->count, block + shard->first));
  }
out:
  return status;
}

enum sl_status sl__model_shards_write_state(struct sl__model_shards *kv, int layer, int k,
                                            const float *block) {
  enum sl_status status = SL_OK;
  for (int s = 0; s < kv->shard_count; s++) {
    const struct sl__shard *shard = &kv->shards[s];
    if (shard->block == layer && sl__shard_is_mine(kv, shard))
      SL__TRY(sl__tensor_write(shard->state[k], block + shard->first));
  }
out:
  return status;
}

/* All shards have a residual, or none has. */
bool sl__model_shards_has_residual(const struct sl__model_shards *kv) {
  return kv->exchange && sl__exchange_has_residual(kv->exchange);
}

enum sl_status sl__model_shards_read_residual(struct sl__model_shards *kv, int layer, int worker,
                                              float *block) {
  enum sl_status status = SL_OK;
  int rank = worker * sl__members(&kv->ranks) + sl__grid_member(kv->grid, layer);
  for (int s = 0; s < kv->shard_count; s++) {
    const struct sl__shard *shard = &kv->shards[s];
    if (shard->block == layer)
      SL__TRY(fetch(kv, rank, sl__exchange_residual(kv->exchange, s), shard->count,
                    block + shard->first));
  }
out:
  return status;
}

enum sl_status sl__model_shards_write_residual(struct sl__model_shards *kv, int layer,
                                               const float *block) {
  enum sl_status status = SL_OK;
  if (!sl__is_worker(&kv->ranks) || !sl__model_shards_has_layer(kv, layer)) return SL_OK;
  for (int s = 0; s < kv->shard_count; s++) {
    const struct sl__shard *shard = &kv->shards[s];
    if (shard->block == layer)
      SL__TRY(sl__tensor_write(sl__exchange_residual(kv->exchange, s), block + shard->first));
  }
out:
  return status;
}
