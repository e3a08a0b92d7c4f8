/* The end of a KVStore's messages. */
#include <math.h>

#include "core/net/net.h"
#include "core/runtime/wait.h"
#include "parallel/params/kvstore.h"

/* A closing message of each worker, which ends a server's wait for pushes. */
static enum sl_status send_close(struct sl_kvstore *kv) {
  enum sl_status status = SL_OK;
  const int *shards;
  for (int k = 0; k < kv->key_count && sl__is_worker(&kv->ranks); k++) {
    struct sl__kvstore_key *key = kv->keys[k];
    for (int m = 0; m < sl__exchange_messages(key->exchange); m++) {
      sl__exchange_shards(key->exchange, m, &shards);
      if (key->shards[shards[0]].rank >= kv->ranks.workers)
        SL__TRY(sl__exchange_send_close(key->exchange, m, kv->close_content));
    }
  }
out:
  return status;
}

/* The loss of a rank ends the wait, too. */
static enum sl_status wait_for_close(struct sl_kvstore *kv) {
  sl__wait_for_none(&kv->lock, &kv->open_keys, INFINITY);
  return sl__net_check(kv->context->net);
}

static enum sl_status end_in_step(struct sl_kvstore *kv, const int64_t *pushes) {
  enum sl_status status;
  pthread_mutex_lock(&kv->lock);
  for (int k = 0; k < kv->key_count; k++) kv->keys[k]->expected = pushes[k];
  kv->is_closing = true;
  pthread_mutex_unlock(&kv->lock);
  SL__TRY(sl__net_barrier(kv->context->net)); /* servers know how many pushes to expect */
  SL__TRY(send_close(kv));
  status = wait_for_close(kv);
out:
  return status;
}

static enum sl_status end_out_of_step(struct sl_kvstore *kv) {
  enum sl_status status = SL_OK;
  for (int k = 0; k < kv->key_count; k++)
    SL__TRY(sl__parameter_server_begin_close(kv->keys[k]->exchange));
  for (int k = 0; k < kv->key_count; k++)
    SL__TRY(sl__parameter_server_end_close(kv->keys[k]->exchange));
out:
  return status;
}

enum sl_status sl__kvstore_end(struct sl_kvstore *kv, const int64_t *pushes) {
  return kv->is_async ? end_out_of_step(kv) : end_in_step(kv, pushes);
}

/* After a failure all messages end, but callbacks still use the keys. */
void sl__kvstore_end_callbacks(struct sl_kvstore *kv) {
  const double most_s = 5;
  if (!sl__kvstore_has_others(kv) || sl__net_check(kv->context->net) == SL_OK) return;
  for (int k = 0; k < kv->key_count; k++) sl__parameter_server_end_callbacks(kv->keys[k]->exchange);
  sl__wait_for_none(&kv->lock, &kv->open_keys, most_s);
  sl__wait_for_all(kv->context);
}
