/* What every owner of parameters does, the trainer's KVStore (kvstore.h) and the public one
 * (store.h): who may own, how a block is cut, the optimizer's state and its step. */
#ifndef SL_PARALLEL_PARAMS_SHARD_UPDATE_H
#define SL_PARALLEL_PARAMS_SHARD_UPDATE_H

#include <starling/parallel.h>

#include "nn/optimizer.h"
#include "parallel/params/exchange.h"
#include "parallel/step/kvstore_kind.h"

/* The ranks of a dist_* kind; all 0 for the others. */
enum sl_status sl__ranks_find(const struct sl_context *context, enum sl_kvstore_kind kind,
                              int servers, struct sl__ranks *ranks);

/* This rank's owners: the CPU, or every worker of the listed devices; *owners is to be freed. */
enum sl_status sl__owners_find(const struct sl_context *context, enum sl_kvstore_kind kind,
                               struct sl__device **owners, int *count);

/* How many shards a block is cut into. On one rank (ranks->size 0) each has at most `big` elements:
 * a question of the block's size alone. If the kind of KVStore or the number of owners had a say,
 * so would they in the rounding of the norm. Over ranks they have: a large block is spread over all
 * that own. */
int sl__parts_of(const struct sl__ranks *ranks, int64_t count, int64_t big);

/* Elements of part i. */
int64_t sl__part_length(int64_t count, int parts, int i);

/* State lives where the owner is: made there by its first task, zero, never copied. */
enum sl_status sl__states_new(struct sl_context *context, const struct sl__launch *launch,
                              const struct sl_optimizer *optimizer, int64_t count,
                              struct sl__tensor *state[SL__OPTIMIZER_STATES]);

/* Submit: the optimizer's step on a shard, with the gradients added up in their order. */
enum sl_status sl__optimizer_step(struct sl_context *context, const struct sl__launch *launch,
                                  const struct sl_optimizer *optimizer, struct sl__tensor *param,
                                  struct sl__tensor *const state[SL__OPTIMIZER_STATES], int count,
                                  struct sl__tensor *const *gradients, struct sl__tensor *norm,
                                  const struct sl__update *update);

#endif
