#include "parallel/params/shard_update.h"

#include "core/base/error.h"
#include "core/base/streaming.h"

enum sl_status sl__shard_make_state(struct sl_context *context,
                                    const struct sl_optimizer *optimizer, struct sl__shard *shard) {
  enum sl_status status = SL_OK;
  for (int k = 0; k < SL__STATES; k++) {
    if (!sl__optimizer_state(optimizer, k)) continue;
    SL__TRY(sl__tensor_temporary(context, &SL_SHAPE(shard->count), SL_F32, &shard->state[k]));
    SL__TRY(sl__fill(context, &shard->launch, shard->state[k], 0));
  }
out:
  return status;
}

/* Smaller shards, which stay in the caches, gain nothing (8 inputs and three layers of 64). */
enum { LEAST_STREAMED = 16384 }; /* elements */

struct sl__update sl__shard_settings(const struct sl__shard *shard,
                                     const struct sl__update *update) {
  struct sl__update own = *update;
  own.lr *= shard->lr_factor;
  own.lr_factor = shard->lr_factor;
  own.weight_decay *= shard->decay_factor;
  own.streams = shard->is_shared && shard->count >= LEAST_STREAMED && sl__streaming_is_faster();
  return own;
}

enum sl_status sl__shard_update(struct sl_context *context, const struct sl__shard *shard,
                                struct sl__tensor *param, const struct sl_optimizer *optimizer,
                                const struct sl__update *update,
                                const struct sl__gradients *gradients) {
  struct sl__op *op = sl__optimizer_of(optimizer)->update;
  struct sl__update own = sl__shard_settings(shard, update);
  const float decay = own.weight_decay;
  if (sl__optimizer_of(optimizer)->trusts)
    return sl__lamb_moments(context, &shard->launch, param, shard->state, gradients->count,
                            gradients->terms, gradients->norm, &own, &shard->parts, shard->trust);
  bool whole = shard->run_count == 1 || decay <= 0; /* then its runs do not differ */
  enum sl_status status = SL_OK;
  for (int i = 0; i < (whole ? 1 : shard->run_count) && status == SL_OK; i++) {
    own.weight_decay = shard->run[i].decays ? decay : 0;
    own.count = whole ? 0 : shard->run[i].count;
    status = sl__update(context, op, &shard->launch, param, shard->state, gradients->count,
                        gradients->terms, gradients->norm, &own);
    own.first += own.count;
  }
  return status;
}
