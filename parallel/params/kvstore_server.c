/* A server of a dist_sync store: callbacks apply each push of a key and answer it. */
#include "core/net/net.h"
#include "parallel/params/kvstore.h"

int sl__kvstore_message(const struct sl__kvstore_key *key) {
  const int *shards;
  for (int m = 0; m < sl__exchange_messages(key->exchange); m++) {
    sl__exchange_shards(key->exchange, m, &shards);
    if (sl__kvstore_owns(key, shards[0])) return m;
  }
  return -1;
}

static void pushed(void *argument);

static enum sl_status receive_push(struct sl__kvstore_key *key) {
  const int *shards;
  int count, m = sl__kvstore_message(key);
  enum sl_status status = sl__exchange_push(key->exchange, m);
  if (status != SL_OK) return status;
  sl__exchange_shards(key->exchange, m, &shards);
  struct sl__tensor *first = sl__exchange_terms(key->exchange, shards[0], &count)[0];
  if (!starpu_data_acquire_cb(first->handle, STARPU_R, pushed, key)) return SL_OK;
  return sl__fail(SL_STARPU, "StarPU cannot call back when %s is pushed", key->name);
}

/* All workers' pushes of a key, or their closing messages, are here. Any thread calls this. */
static void pushed(void *argument) {
  struct sl__kvstore_key *key = argument;
  struct sl_kvstore *kv = key->store;
  const int *shards;
  int count, m = sl__kvstore_message(key);
  sl__exchange_shards(key->exchange, m, &shards);
  starpu_data_release(sl__exchange_terms(key->exchange, shards[0], &count)[0]->handle);
  pthread_mutex_lock(&kv->lock);
  bool ends = kv->is_closing && key->pushes == key->expected;
  pthread_mutex_unlock(&kv->lock);
  ends = ends || sl__kvstore_check(kv) != SL_OK; /* after a failure the message has no content */
  enum sl_status status = ends ? SL_OK : sl__kvstore_update(key, key->pushes);
  if (!ends && status == SL_OK) status = sl__exchange_pull(key->exchange, m);
  pthread_mutex_lock(&kv->lock);
  key->pushes += !ends;
  pthread_mutex_unlock(&kv->lock);
  if (!ends && status == SL_OK) status = receive_push(key);
  if (status != SL_OK) sl__net_abandon(kv->context->net, sl_error());
  if (!ends && status == SL_OK) return;
  pthread_mutex_lock(&kv->lock);
  kv->open_keys--;
  pthread_mutex_unlock(&kv->lock);
}

enum sl_status sl__kvstore_serve_key(struct sl__kvstore_key *key) {
  if (sl__kvstore_message(key) < 0) return SL_OK;
  pthread_mutex_lock(&key->store->lock);
  key->store->open_keys++;
  pthread_mutex_unlock(&key->store->lock);
  return receive_push(key);
}
