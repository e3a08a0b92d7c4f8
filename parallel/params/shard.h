/* A shard: a range of a block of parameters, which one device of one rank owns and updates. The
 * blocks are a model's layers (model_shards.h) or the values of a public KVStore (kvstore.h). */
#ifndef SL_PARALLEL_PARAMS_SHARD_H
#define SL_PARALLEL_PARAMS_SHARD_H

#include "nn/optimizer.h"
#include "parallel/params/ranks.h"

/* A run of a shard's elements that have, or have no, weight decay. */
struct sl__decay_run {
  int64_t count;
  bool decays;
};

struct sl__shard {
  int block;            /* number of its layer; 0 in a KVStore, where each key has one block */
  int part;             /* number of the shard in its block */
  bool is_cut;          /* the block has other shards, too */
  int64_t first, count; /* elements of the block */
  int rank;             /* of its owner; 0 if there is only one rank */
  int device;           /* of its owner: index into sl__owners.devices of that rank */
  float lr_factor, decay_factor;            /* see sl_group_rate, sl_group_decay */
  struct sl__decay_run run[SL__MOST_PARTS]; /* in their order; all of the shard */
  int run_count;
  struct sl__update_parts parts; /* the layer's parameters in the shard */
  bool is_elsewhere;             /* other members of the group have the block: no messages here */
  bool is_shared;                /* several workers have the parameters in their caches */
  struct sl__launch launch;      /* for the tasks of its owner; the name outlives the shard */
  struct sl__tensor *param; /* f32 [count]: this rank's copy, a view of the block if that is cut;
                               NULL if this rank has none */
  struct sl__tensor *state[SL__STATES]; /* on its owner; NULL if not needed */
  struct sl__tensor *local_sum;         /* sum of this rank's gradients; NULL if no sum is needed */
  struct sl__tensor *gradient; /* that this rank sends to the owner: local_sum, or borrowed */
  /* Only if gradients are clipped or logged: the sum of all gradients (NULL if there is one alone)
   * and of its squares; NULL if another shard's serve. */
  struct sl__tensor *sum, *square;
  /* Only of LAMB: the squares of the shard's parts, and, on the first shard of a block that is cut,
   * of all its shards; squares of other owners' shards are received. */
  struct sl__tensor *trust, *trust_sum;
};

/* Number of shards of a block. On one rank (ranks->size 0) each has at most `bound` elements, and
 * only the block's size decides: the kind of KVStore or the number of owners would also change
 * the rounding of the norm. Over ranks, a block above the bound gets a shard for each
 * owning rank. */
int sl__shard_count(const struct sl__ranks *ranks, int64_t elements, int64_t bound);

/* Elements of part i of a block. */
int64_t sl__part_length(int64_t elements, int parts, int i);

/* Sets shards[0 .. parts - 1] to the parts of a block, with factors of 1 and one run; all other
 * fields become 0. */
void sl__shards_cut(int block, int64_t elements, int parts, struct sl__shard *shards);

void sl__shard_free_state(struct sl__shard *shard);

/* Frees the shard's tensors except param and gradient, which it borrows. */
void sl__shard_clear(struct sl__shard *shard);

#endif
