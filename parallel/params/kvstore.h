/* The inside of the public KVStore (include/starling/kvstore.h).
 *   kvstore.c             push and pull
 *   kvstore_keys.c        keys, their shards and the update of a push
 *   kvstore_server.c      a server of dist_sync, which waits for pushes
 *   kvstore_open.c        open and free
 *   kvstore_collective.c  calls that all ranks make together
 *   kvstore_end.c         the end of the messages, for close */
#ifndef SL_PARALLEL_PARAMS_KVSTORE_H
#define SL_PARALLEL_PARAMS_KVSTORE_H

#include <pthread.h>
#include <starling/kvstore.h>

#include "core/base/error.h"
#include "parallel/params/parameter_server.h"
#include "parallel/params/shard_owners.h"
#include "parallel/params/shard_update.h"

/* A key has an exchange of its own, so that workers may push keys in any order. In a dist_* store
 * its shards have all different ranks. */
struct sl__kvstore_key {
  struct sl_kvstore *store;
  int number;
  char name[24]; /* "key 3" */
  int64_t count;
  struct sl__shard
      *shards; /* param: on the owner and on workers; local_sum: a worker's last push */
  int shard_count;
  struct sl__exchange *exchange;
  int tags;         /* number of message numbers that it takes */
  bool is_counted;  /* in the owners' loads */
  int64_t pushes;   /* by this worker; on a server: pushes that it has applied */
  int64_t summed;   /* of them, those before the first optimizer: no steps of it */
  int64_t applied;  /* dist_async: this worker's pushes that are known to be applied */
  int64_t steps;    /* dist_async: this worker's pushes since the last barrier */
  int64_t expected; /* on a server of a store that closes: number of pushes in all */
};

struct sl_kvstore {
  struct sl_context *context;
  enum sl_kvstore_kind kind;
  struct sl__ranks ranks; /* rank 0 of 1 if it is not distributed */
  bool is_distributed;
  bool is_async; /* dist_async with more than one rank */
  int number;    /* of the context's stores over ranks, from 1; 0: of one rank */
  struct sl_kvstore *next;
  int64_t bigarray_bound;
  int max_staleness;
  struct sl__compress compress;
  struct sl__owners owners;
  struct sl__kvstore_key **keys; /* by number */
  int key_count;
  struct sl__tensor *close_content; /* [1], for closing messages */
  bool has_served;                  /* all workers have closed */
  /* of the fields below, and of the keys' pushes on a server */
  pthread_mutex_t lock;
  bool has_optimizer;
  struct sl_optimizer optimizer;
  bool is_closing;
  int open_keys; /* of a server: keys that wait for a push */
};

static inline bool sl__kvstore_has_others(const struct sl_kvstore *kv) {
  return kv->ranks.size > 1;
}
static inline bool sl__kvstore_is_server(const struct sl_kvstore *kv) {
  return !sl__is_worker(&kv->ranks);
}
static inline bool sl__kvstore_owns(const struct sl__kvstore_key *key, int shard) {
  return key->shards[shard].rank == key->store->ranks.rank;
}

/* The failure of another rank. */
enum sl_status sl__kvstore_check(const struct sl_kvstore *kv);

/* ---- keys ---- */

/* NULL if there is no key of that number. */
struct sl__kvstore_key *sl__kvstore_find(const struct sl_kvstore *kv, int number);

/* A key without values that is not in the store yet. */
enum sl_status sl__kvstore_key_new(struct sl_kvstore *kv, int number, int64_t count,
                                   struct sl__kvstore_key **key);
void sl__kvstore_key_free(struct sl__kvstore_key *key);
/* values: the same on all ranks. */
enum sl_status sl__kvstore_key_add(struct sl_kvstore *kv, struct sl__kvstore_key *key,
                                   const float *values);

/* Does this optimizer keep another state than the present one? */
bool sl__kvstore_other_state(const struct sl_kvstore *kv, const struct sl_optimizer *optimizer);
enum sl_status sl__kvstore_use_optimizer(struct sl_kvstore *kv,
                                         const struct sl_optimizer *optimizer);

/* On the owner: submit the update of this rank's shards by a push, the step-th from 0. */
enum sl_status sl__kvstore_update(struct sl__kvstore_key *key, int64_t step);

/* Wait until the parameters that this worker pulls are here. */
enum sl_status sl__kvstore_wait(struct sl__kvstore_key *key);

/* ---- a server of dist_sync ---- */

/* The message of the key's exchange that this server owns, or -1. */
int sl__kvstore_message(const struct sl__kvstore_key *key);

/* The server waits for pushes of the key, one after the other. StarPU's threads apply and answer
 * each, up to the last one (key->expected). */
enum sl_status sl__kvstore_serve_key(struct sl__kvstore_key *key);

/* ---- open and close ---- */

/* All workers have closed and pushed pushes[key]: ends the exchange of messages. */
enum sl_status sl__kvstore_end(struct sl_kvstore *kv, const int64_t *pushes);

/* After a failure: waits until no callback uses the store. */
void sl__kvstore_end_callbacks(struct sl_kvstore *kv);

/* Frees all; the end of the messages must be behind it. */
void sl__kvstore_free(struct sl_kvstore *kv);

#endif
