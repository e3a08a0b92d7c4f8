#include "parallel/params/shard_update.h"

#include "core/base/error.h"

enum sl_status sl__shard_make_state(struct sl_context *context,
                                    const struct sl_optimizer *optimizer, struct sl__shard *shard) {
  enum sl_status status = SL_OK;
  for (int k = 0; k < sl__optimizer_states(optimizer); k++) {
    SL__TRY(sl__tensor_temporary(context, &SL_SHAPE(shard->count), SL_F32, &shard->state[k]));
    SL__TRY(sl__fill(context, &shard->launch, shard->state[k], 0));
  }
out:
  return status;
}

enum sl_status sl__shard_update(struct sl_context *context, const struct sl__shard *shard,
                                struct sl__tensor *param, const struct sl_optimizer *optimizer,
                                const struct sl__update *update,
                                const struct sl__gradients *gradients) {
  return sl__update(context, sl__optimizer_of(optimizer)->update, &shard->launch, param,
                    shard->state, gradients->count, gradients->terms, gradients->norm, update);
}
