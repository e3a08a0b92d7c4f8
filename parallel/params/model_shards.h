/* The KVStore: shards of the parameter blocks, their owners, the optimizer's state, the update. */
#ifndef SL_PARALLEL_PARAMS_MODEL_SHARDS_H
#define SL_PARALLEL_PARAMS_MODEL_SHARDS_H

#include <starling/parallel.h>

#include "parallel/step/grid.h"
#include "parallel/params/shard_update.h"

struct sl__shard {
  int layer;
  int part;      /* of the layer's block; its tensors are views where the block is cut */
  int rank;      /* that owns it: 0 where there is one */
  int owner;     /* index into kvstore->owners, the devices of its rank */
  int64_t first; /* element of the block */
  int64_t count; /* elements */
  struct sl__tensor *state[SL__OPTIMIZER_STATES]; /* the optimizer's; NULL where not needed */
  struct sl__tensor *sum, *square; /* only where gradients are clipped; NULL where others' serve */
  struct sl__tensor *own; /* of an exchange: this rank's replicas added up; NULL where one has it */
};

/* The replicas' row-sparse gradients added up. */
struct sl__row_sum {
  struct sl__tensor *rows, *values; /* one replica's own where it is the only one */
  struct sl__tensor *dense; /* cut like the block; NULL for plain descent, which needs none */
};

struct sl__model_shards_options {
  enum sl_kvstore_kind kind;
  int64_t big_shard;      /* elements above which a block is cut */
  struct sl__ranks ranks; /* size 0: not distributed */
  const char *compress;   /* of the gradients between ranks; NULL: none */
  int max_staleness;      /* of dist_async; 0: any */
};

struct sl__model_shards {
  struct sl_model *model;
  bool counted; /* among the model's users */
  struct sl_optimizer optimizer;
  enum sl_kvstore_kind kind;
  bool is_async; /* dist_async, and there is somebody else */
  struct sl__ranks ranks;
  const struct sl__grid *grid;   /* which layers are here */
  bool exchanges;                /* gradients go to other ranks, all their rows */
  struct sl__exchange *exchange; /* between the ranks; NULL: there is none */
  struct sl__tensor **lent;      /* [2 x shards], room for the arguments of an exchange */
  int *lenders;                  /* [shards], their ranks */
  struct sl__device *owners;     /* who may own: the CPU, or every worker of the listed devices */
  int owner_count;
  struct sl__shard *shards;
  int shard_count;
  int replicas;
  struct sl__tensor ***grads; /* [replica][layer]; cut like the block */
  /* A layer that touches rows only (an embedding that nobody shares) has a row-sparse gradient:
   * grads are the rows' values, rows their numbers (codelets/rows.c); NULL for the others. */
  struct sl__tensor ***rows;
  struct sl__row_sum *sums;  /* [layers] */
  int64_t positions;         /* tokens there is room for */
  struct sl__tensor *norm;   /* square of the gradient's global norm; only where it is clipped */
  bool stop;                 /* dist_async: this rank wants all to stop */
  struct sl__tensor **terms; /* room for the arguments of one reduction: 2 a replica */
};

/* grid is borrowed. */
enum sl_status sl__model_shards_new(struct sl_model *model, const struct sl_optimizer *optimizer,
                                    const struct sl__model_shards_options *options,
                                    const struct sl__grid *grid, struct sl__model_shards **kvstore);

/* Make room for the rows that so many tokens of a replica can touch; waits for all tasks where it
 * must. To be called before the first step with that many. */
enum sl_status sl__model_shards_reserve(struct sl__model_shards *kvstore, int64_t positions);

/* Submit, for every shard, the sum of the replicas' gradients in their order and the optimizer's
 * step (from 0). */
enum sl_status sl__model_shards_update(struct sl__model_shards *kvstore, int64_t step, float lr);

/* dist_async, all ranks: wait for each other; then all have the same parameters. Else nothing. */
enum sl_status sl__model_shards_settle(struct sl__model_shards *kvstore);

/* Is the layer's gradient row-sparse? */
bool sl__model_shards_is_sparse(const struct sl__layer *layer);

/* Does this rank have the shard's optimizer state? */
static inline bool sl__shard_is_mine(const struct sl__model_shards *kv,
                                     const struct sl__shard *shard) {
  return shard->rank == kv->ranks.rank;
}

/* Are there other ranks to exchange gradients with, or are they to be as if? One worker that owns
 * all is like KVStore local, to the bit. */
static inline bool sl__model_shards_exchanges(const struct sl__ranks *ranks, const char *compress) {
  return ranks->size && (ranks->size > sl__members(ranks) || compress);
}

/* State k of a layer's whole block, in its order: out of all its shards, or into them. Waits for
 * the tasks on it. block has params.total places. */
enum sl_status sl__model_shards_read_state(struct sl__model_shards *kvstore, int layer, int k,
                                           float *block);
enum sl_status sl__model_shards_write_state(struct sl__model_shards *kvstore, int layer, int k,
                                            const float *block);

/* Bytes of parameters and optimizer state that an owner holds. */
int64_t sl__model_shards_bytes(const struct sl__model_shards *kvstore, int owner);

/* What compression keeps back of a worker's gradient of a layer, [total]. Reading is collective and
 * gives rank 0 that of any worker; writing sets this rank's. */
bool sl__model_shards_has_residual(const struct sl__model_shards *kvstore);
enum sl_status sl__model_shards_read_residual(struct sl__model_shards *kvstore, int layer,
                                              int worker, float *block);
enum sl_status sl__model_shards_write_residual(struct sl__model_shards *kvstore, int layer,
                                               const float *block);

void sl__model_shards_free(struct sl__model_shards *kvstore);

#endif
