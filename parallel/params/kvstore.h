/* The public KVStore's inside: keys and what a push does (store.c), and what the ranks do together
 * (store_ranks.c). */
#ifndef SL_PARALLEL_PARAMS_KVSTORE_H
#define SL_PARALLEL_PARAMS_KVSTORE_H

#include <pthread.h>
#include <starling/kvstore.h>

#include "core/base/error.h"
#include "parallel/step/grid.h"
#include "parallel/params/shard_update.h"

/* A shard of a value. A key's shards of a dist_* store have all different owners. */
struct sl__kvstore_part {
  int64_t first, count;     /* elements */
  int rank, device;         /* that own it */
  struct sl__tensor *param; /* on its owner and on workers */
  struct sl__tensor *sum;   /* of a worker: what its last push was */
  struct sl__tensor *state[SL__OPTIMIZER_STATES];
};

struct sl__kvstore_key {
  struct sl_kvstore *store;
  int number;
  char name[24]; /* "key 3" */
  int64_t count;
  int part_count;
  struct sl__kvstore_part *parts;
  struct sl__tensor **sums; /* the parts', as an exchange wants them */
  struct sl__exchange *exchange;
  int tags;        /* that it takes */
  bool has_owners; /* and counts among their loads */
  int64_t pushes;  /* by this worker; on a server: that it has applied */
  int64_t seen;    /* dist_async: of this worker's, known to have been applied */
  int64_t steps;   /* dist_async: of this worker's since the last barrier */
  int64_t last;    /* on a server that closes: so many pushes come */
};

struct sl_kvstore {
  struct sl_context *context;
  enum sl_kvstore_kind kind;
  struct sl__ranks ranks; /* 0 of 1 where it is not distributed */
  bool is_distributed;
  bool has_service; /* dist_async with more than one rank */
  int64_t big;
  int max_staleness;
  struct sl__compress compress;
  struct sl__device *owners; /* this rank's devices that may own */
  int owner_count;
  int64_t *rank_load, *load;     /* elements that each rank, and each of the owners, has */
  struct sl__kvstore_key **keys; /* by number */
  int key_count;
  struct sl__tensor *word; /* [1], of no meaning */
  bool has_served;         /* all workers have closed */
  pthread_mutex_t lock;    /* of what follows, and of the keys' pushes on a server */
  bool has_optimizer;
  struct sl_optimizer optimizer;
  bool closes;
  int listening; /* a server's keys that wait for a push */
};

static inline bool sl__kvstore_has_others(const struct sl_kvstore *kv) {
  return kv->ranks.size > 1;
}
static inline bool sl__kvstore_serves(const struct sl_kvstore *kv) {
  return !sl__is_worker(&kv->ranks);
}

/* NULL: none of that number. */
struct sl__kvstore_key *sl__kvstore_find(const struct sl_kvstore *kv, int number);

/* All but its place in the store; values come later. */
enum sl_status sl__kvstore_key_new(struct sl_kvstore *kv, int number, int64_t count,
                                   struct sl__kvstore_key **key);
void sl__kvstore_key_free(struct sl__kvstore_key *key);
/* values: of all ranks. */
enum sl_status sl__kvstore_key_add(struct sl_kvstore *kv, struct sl__kvstore_key *key,
                                   const float *values);

/* Does this optimizer keep another state than the one before? */
bool sl__kvstore_other_state(const struct sl_kvstore *kv, const struct sl_optimizer *optimizer);
enum sl_status sl__kvstore_use_optimizer(struct sl_kvstore *kv,
                                         const struct sl_optimizer *optimizer);

/* On the owner: submit what a push, the step-th from 0, does to this rank's parts. */
enum sl_status sl__kvstore_update(struct sl__kvstore_key *key, int64_t step);

/* Of a server: the message of the key's exchange that is its own, or -1. */
int sl__kvstore_message(const struct sl__kvstore_key *key);

/* On a server of a store in step: from now on pushes of the key are waited for, one after the
 * other, each applied and answered by StarPU's threads, until the key's last one (see key->last).
 */
enum sl_status sl__kvstore_listen(struct sl__kvstore_key *key);

/* Wait until what was asked of the owners has come. */
enum sl_status sl__kvstore_wait(struct sl__kvstore_key *key);

/* Frees all; nothing may be under way that other ranks do not end. */
void sl__kvstore_free(struct sl_kvstore *kv);

#endif
