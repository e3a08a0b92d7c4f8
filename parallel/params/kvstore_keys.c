/* The keys of a KVStore: their shards, owners, optimizer state, and the update of a push. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/net/net.h"
#include "parallel/params/kvstore.h"
#include "parallel/step/kvstore_kind.h"
#include "parallel/step/plan.h"

/* The index of a number among the keys, or where it would be. */
static int index_of(const struct sl_kvstore *kv, int number) {
  int low = 0, high = kv->key_count;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (kv->keys[middle]->number < number)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

struct sl__kvstore_key *sl__kvstore_find(const struct sl_kvstore *kv, int number) {
  int index = index_of(kv, number);
  return index < kv->key_count && kv->keys[index]->number == number ? kv->keys[index] : NULL;
}

/* ---- making a key ---- */

/* Each shard goes to the rank that owns least, of those without a shard of this key, and there to
 * the device that owns least. */
static enum sl_status choose_owners(struct sl__kvstore_key *key) {
  struct sl_kvstore *kv = key->store;
  struct sl__owners *owners = &kv->owners;
  int first = sl__first_owner(&kv->ranks);
  bool *taken = sl__alloc((size_t)kv->ranks.size, sizeof *taken, "a key");
  if (!taken) return SL_NO_MEMORY;
  for (int s = 0; s < key->shard_count; s++) {
    struct sl__shard *shard = &key->shards[s];
    shard->rank = sl__owners_lightest(owners->rank_load, first, kv->ranks.size, 1,
                                      sl__kvstore_has_others(kv) ? taken : NULL);
    shard->device = sl__owners_lightest(owners->load, 0, owners->count, 1, NULL);
    shard->launch = (struct sl__launch){.name = key->name,
                                        .place = owners->devices[shard->device].place,
                                        .priority = SL__PRIORITY_UPDATE};
    taken[shard->rank] = true;
    sl__owners_count(owners, shard, sl__kvstore_owns(key, s), 1);
  }
  free(taken);
  key->is_counted = true;
  return SL_OK;
}

/* A key that fails on one rank is freed on all of them, so that their loads stay alike. */
static void leave_owners(const struct sl__kvstore_key *key) {
  for (int s = 0; s < key->shard_count && key->is_counted; s++)
    sl__owners_count(&key->store->owners, &key->shards[s], sl__kvstore_owns(key, s), -1);
}

static enum sl_status make_shards(struct sl__kvstore_key *key) {
  static const struct sl__ranks alone;
  struct sl_kvstore *kv = key->store;
  const struct sl__ranks *ranks = kv->is_distributed ? &kv->ranks : &alone;
  enum sl_status status;
  int count = sl__shard_count(ranks, key->count, kv->bigarray_bound);
  key->shards = sl__alloc((size_t)count, sizeof *key->shards, "a key");
  if (!key->shards) return SL_NO_MEMORY;
  sl__shards_cut(0, key->count, count, key->shards);
  key->shard_count = count;
  SL__TRY(choose_owners(key));
  for (int s = 0; s < count; s++) {
    struct sl__shard *shard = &key->shards[s];
    struct sl_shape shape = SL_SHAPE(shard->count);
    if (sl__is_worker(&kv->ranks) || sl__kvstore_owns(key, s))
      SL__TRY(sl__tensor_temporary(kv->context, &shape, SL_F32, &shard->param));
    if (sl__is_worker(&kv->ranks))
      SL__TRY(sl__tensor_temporary(kv->context, &shape, SL_F32, &shard->local_sum));
    shard->gradient = shard->local_sum;
  }
out:
  return status;
}

static enum sl_status make_states(struct sl__kvstore_key *key) {
  struct sl_kvstore *kv = key->store;
  enum sl_status status = SL_OK;
  for (int s = 0; s < key->shard_count && kv->has_optimizer && status == SL_OK; s++)
    if (sl__kvstore_owns(key, s))
      status = sl__shard_make_state(kv->context, &kv->optimizer, &key->shards[s]);
  return status;
}

static enum sl_status make_exchange(struct sl__kvstore_key *key) {
  struct sl_kvstore *kv = key->store;
  enum sl_status status =
      sl__exchange_new(kv->context, &kv->ranks, key->shard_count, key->shards, &kv->compress,
                       SL__TAG_STORES + kv->context->tags, &key->exchange, &key->tags);
  if (status != SL_OK) return status;
  /* an owner that is no worker does not know when the next push comes */
  if (kv->is_async || sl__kvstore_is_server(kv))
    sl__exchange_set_timeout(key->exchange, SL__NO_TIMEOUT);
  if (!kv->is_async) return SL_OK;
  return sl__parameter_server_new(key->exchange, &kv->optimizer,
                                  kv->max_staleness ? kv->max_staleness : -1, false);
}

enum sl_status sl__kvstore_key_new(struct sl_kvstore *kv, int number, int64_t count,
                                   struct sl__kvstore_key **out) {
  enum sl_status status;
  *out = NULL;
  struct sl__kvstore_key *key = sl__alloc(1, sizeof *key, "a key");
  if (!key) return SL_NO_MEMORY;
  struct sl__kvstore_key **keys =
      sl__realloc(kv->keys, (size_t)kv->key_count + 1, sizeof *keys, "keys");
  status = keys ? SL_OK : SL_NO_MEMORY;
  if (!keys) goto out;
  kv->keys = keys;
  key->store = kv;
  key->number = number;
  key->count = count;
  snprintf(key->name, sizeof key->name, "key %d", number);
  SL__TRY(make_shards(key));
  SL__TRY(make_states(key));
  SL__TRY(make_exchange(key));
  *out = key;
  key = NULL;
out:
  sl__kvstore_key_free(key);
  return status;
}

enum sl_status sl__kvstore_key_add(struct sl_kvstore *kv, struct sl__kvstore_key *key,
                                   const float *values) {
  int index = index_of(kv, key->number);
  enum sl_status status = SL_OK;
  memmove(kv->keys + index + 1, kv->keys + index,
          (size_t)(kv->key_count - index) * sizeof *kv->keys);
  kv->keys[index] = key;
  kv->key_count++;
  if (sl__kvstore_has_others(kv)) kv->context->tags += key->tags;
  for (int s = 0; s < key->shard_count; s++)
    if (key->shards[s].param)
      SL__TRY(sl__tensor_write(key->shards[s].param, values + key->shards[s].first));
  if (kv->is_async)
    status = sl__parameter_server_open(key->exchange, 0);
  else if (sl__kvstore_is_server(kv))
    status = sl__kvstore_serve_key(key);
out:
  return status;
}

void sl__kvstore_key_free(struct sl__kvstore_key *key) {
  if (!key) return;
  sl__exchange_free(key->exchange);
  leave_owners(key);
  for (int s = 0; s < key->shard_count; s++) {
    sl__tensor_free(key->shards[s].param);
    sl__shard_clear(&key->shards[s]);
  }
  free(key->shards);
  free(key);
}

/* ---- the optimizer ---- */

bool sl__kvstore_other_state(const struct sl_kvstore *kv, const struct sl_optimizer *optimizer) {
  if (!kv->has_optimizer) return true;
  return sl__optimizer_of(&kv->optimizer)->update != sl__optimizer_of(optimizer)->update;
}

enum sl_status sl__kvstore_use_optimizer(struct sl_kvstore *kv,
                                         const struct sl_optimizer *optimizer) {
  bool other = sl__kvstore_other_state(kv, optimizer);
  enum sl_status status = SL_OK;
  pthread_mutex_lock(&kv->lock);
  kv->optimizer = *optimizer;
  kv->has_optimizer = true;
  pthread_mutex_unlock(&kv->lock);
  for (int k = 0; k < kv->key_count; k++) {
    struct sl__kvstore_key *key = kv->keys[k];
    if (kv->is_async) sl__parameter_server_set_optimizer(key->exchange, optimizer);
    if (!other) continue;
    key->summed = key->pushes; /* a server has caught up with the workers by now */
    for (int s = 0; s < key->shard_count; s++) sl__shard_free_state(&key->shards[s]);
    SL__TRY(make_states(key));
  }
out:
  return status;
}

enum sl_status sl__kvstore_update(struct sl__kvstore_key *key, int64_t step) {
  struct sl_kvstore *kv = key->store;
  enum sl_status status = SL_OK;
  pthread_mutex_lock(&kv->lock);
  bool has_optimizer = kv->has_optimizer;
  struct sl_optimizer optimizer = kv->optimizer;
  pthread_mutex_unlock(&kv->lock);
  struct sl__update update = sl__update_of(&optimizer, step - key->summed, optimizer.lr);
  for (int s = 0; s < key->shard_count; s++) {
    const struct sl__shard *shard = &key->shards[s];
    struct sl__gradients sum = {0};
    if (!sl__kvstore_owns(key, s)) continue;
    sum.terms = sl__exchange_terms(key->exchange, s, &sum.count);
    if (has_optimizer)
      SL__TRY(sl__shard_update(kv->context, shard, shard->param, &optimizer, &update, &sum));
    else
      SL__TRY(sl__reduce(kv->context, &shard->launch, shard->param, sum.count, sum.terms));
  }
out:
  return status;
}
