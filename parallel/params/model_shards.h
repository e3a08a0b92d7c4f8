/* The shards of a model's parameters, for the trainer: their owners, their gradients, their update
 * and the optimizer state. The public KVStore (kvstore.h) has shards of its own. */
#ifndef SL_PARALLEL_PARAMS_MODEL_SHARDS_H
#define SL_PARALLEL_PARAMS_MODEL_SHARDS_H

#include <starling/parallel.h>

#include "parallel/params/parameter_server.h"
#include "parallel/params/shard_owners.h"
#include "parallel/params/shard_update.h"
#include "parallel/step/grid.h"
#include "parallel/step/kvstore_kind.h"

/* Sum of the replicas' row-sparse gradients of a layer (row_gradients.c). */
struct sl__row_sum {
  struct sl__tensor *rows, *values; /* those of the replica if there is only one */
  struct sl__tensor *dense;         /* cut like the block; NULL if the update reads the rows */
};

struct sl__model_shards_options {
  enum sl_kvstore_kind kind;
  int64_t big_shard;      /* number of elements above which a block is cut */
  struct sl__ranks ranks; /* size 0: not distributed */
  const char *compress;   /* for gradients between ranks; NULL: none */
  int max_staleness;      /* for dist_async; 0: any */
  bool log_gradients;     /* norm and replica_squares, also where nothing is clipped */
};

struct sl__model_shards {
  struct sl_model *model;
  bool is_counted; /* among the model's users */
  struct sl_optimizer optimizer;
  enum sl_kvstore_kind kind;
  bool is_async; /* dist_async with more than one rank */
  struct sl__ranks ranks;
  const struct sl__grid *grid;   /* tells which layers are here */
  bool is_exchanged;             /* gradients go to other ranks, all their rows */
  struct sl__exchange *exchange; /* between the ranks; NULL if gradients stay here */
  struct sl__owners owners;
  struct sl__shard *shards;
  int shard_count;
  int replicas;
  struct sl__tensor ***grads; /* [replica][layer]; cut like the block */
  /* The gradient of a layer that touches few rows (an embedding that shares its weight with no
   * other layer) is row-sparse: grads are the values of the rows, rows their numbers
   * (codelets/rows.c); NULL for other layers. */
  struct sl__tensor ***rows;
  struct sl__row_sum *sums; /* [layers] */
  int64_t positions;        /* number of tokens that the row-sparse gradients have room for */
  struct sl__tensor *norm;  /* square of the gradient's global norm; NULL if it is not needed */
  bool log_gradients;
  /* Sum of the squares of this rank's replicas' gradients, and its terms by shard and replica; NULL
   * if they are not wanted (gradient_squares.c). */
  struct sl__tensor *replica_squares, **replica_square;
  bool stop;                 /* dist_async: this rank wants all ranks to stop */
  struct sl__tensor **terms; /* room for the arguments of one reduction: 2 for each replica */
  struct sl__tensor **list;  /* [shards] room for those of one message, or of the norm */
};

/* grid is borrowed. */
enum sl_status sl__model_shards_new(struct sl_model *model, const struct sl_optimizer *optimizer,
                                    const struct sl__model_shards_options *options,
                                    const struct sl__grid *grid, struct sl__model_shards **kvstore);
void sl__model_shards_free(struct sl__model_shards *kvstore);

/* Make room for the rows that `positions` tokens of a replica can touch. Waits for all tasks if the
 * room must grow. To be called before the first step with as many tokens. */
enum sl_status sl__model_shards_reserve(struct sl__model_shards *kvstore, int64_t positions);

/* Submit, for each shard, the sum of the replicas' gradients in their order and the optimizer's
 * step (from 0). */
enum sl_status sl__model_shards_update(struct sl__model_shards *kvstore, int64_t step, float lr);

/* Submit: the parameters and their averages change places, on all ranks. The optimizer keeps
 * averages, and a step was made. */
enum sl_status sl__model_shards_swap_average(struct sl__model_shards *kvstore);

/* Only if gradients are logged and the step has several replicas: the tensors for the squares of
 * their gradients; submit the sum. */
enum sl_status sl__gradient_squares_new(struct sl__model_shards *kvstore);
enum sl_status sl__gradient_squares_submit(struct sl__model_shards *kvstore);
void sl__gradient_squares_free(struct sl__model_shards *kvstore);

/* dist_async, all ranks: wait for each other; then all have the same parameters. No effect with
 * other kinds. */
enum sl_status sl__model_shards_synchronize(struct sl__model_shards *kvstore);

/* Has the layer a gradient, and is it row-sparse? */
bool sl__model_shards_is_sparse(const struct sl__layer *layer);

/* Does this rank have the shard's optimizer state? */
static inline bool sl__shard_is_mine(const struct sl__model_shards *kv,
                                     const struct sl__shard *shard) {
  return shard->rank == kv->ranks.rank;
}

/* Is the layer, with its gradient and optimizer state, on this member of the group? */
static inline bool sl__model_shards_has_layer(const struct sl__model_shards *kv, int layer) {
  return sl__grid_is_here(kv->grid, layer);
}

/* Do gradients go through an exchange? With compression they do even on one rank. A worker that
 * owns all shards and compresses nothing computes the bits of KVStore local. */
static inline bool sl__model_shards_exchanges(const struct sl__ranks *ranks, const char *compress) {
  return ranks->size && (ranks->size > sl__members(ranks) || compress);
}

/* Bytes of parameters and optimizer state that a device of this rank owns. */
int64_t sl__model_shards_bytes(const struct sl__model_shards *kvstore, int device);

/* ---- for checkpoints (model_state.c) ---- */

/* State k of a layer's whole block, in its order, from or into all its shards. Waits for the tasks
 * on it. block has params.total places. Reading is collective and gives rank 0 the state. */
enum sl_status sl__model_shards_read_state(struct sl__model_shards *kvstore, int layer, int k,
                                           float *block);
enum sl_status sl__model_shards_write_state(struct sl__model_shards *kvstore, int layer, int k,
                                            const float *block);

/* Compression's residual of a worker's gradient of a layer, [total]. Reading is collective and
 * gives rank 0 that of any worker; writing sets this rank's. */
bool sl__model_shards_has_residual(const struct sl__model_shards *kvstore);
enum sl_status sl__model_shards_read_residual(struct sl__model_shards *kvstore, int layer,
                                              int worker, float *block);
enum sl_status sl__model_shards_write_residual(struct sl__model_shards *kvstore, int layer,
                                               const float *block);

#endif
