/* The one update of a shard: the sum of gradients and the optimizer's step. */
#ifndef SL_PARALLEL_PARAMS_SHARD_UPDATE_H
#define SL_PARALLEL_PARAMS_SHARD_UPDATE_H

#include <starling/parallel.h>

#include "parallel/params/shard.h"

/* Makes the shard's state. Its first task, on the owner's device, fills it with zeros there. */
enum sl_status sl__shard_make_state(struct sl_context *context,
                                    const struct sl_optimizer *optimizer, struct sl__shard *shard);

struct sl__gradients {
  int count;
  struct sl__tensor *const *terms; /* [count], added up in this order */
  struct sl__tensor *norm;         /* of the whole gradient; NULL if it is not clipped */
};

/* The update with the shard's factors. */
struct sl__update sl__shard_settings(const struct sl__shard *shard,
                                     const struct sl__update *update);

/* Submit, on the shard's owner: the optimizer's step (of LAMB: its first half) on param, which is
 * the shard's own or the parameter server's copy of it. */
enum sl_status sl__shard_update(struct sl_context *context, const struct sl__shard *shard,
                                struct sl__tensor *param, const struct sl_optimizer *optimizer,
                                const struct sl__update *update,
                                const struct sl__gradients *gradients);

#endif
