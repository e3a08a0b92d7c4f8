/* The public KVStore: push and pull. Workers push and pull keys in any order; a server applies and
 * answers each push as it comes. */
#include "parallel/params/kvstore.h"

#include <string.h>

#include "core/net/net.h"
#include "core/runtime/failure.h"
#include "core/runtime/wait.h"
#include "parallel/step/kvstore_kind.h"
#include "parallel/step/plan.h"

int sl_kvstore_rank(const struct sl_kvstore *kv) {
  SL__NEEDS_OR(0, kv);
  return kv->ranks.rank;
}
bool sl_kvstore_is_worker(const struct sl_kvstore *kv) {
  SL__NEEDS_OR(false, kv);
  return sl__is_worker(&kv->ranks);
}
int sl_kvstore_num_workers(const struct sl_kvstore *kv) {
  SL__NEEDS_OR(0, kv);
  return kv->ranks.workers;
}

/* ---- push ---- */

/* Adds up the caller's arrays into a tensor, which a task copies to the shard's local sum. So
 * pushes are sent in the order of the calls, and no call waits for the one before. */
static enum sl_status copy_values(struct sl__kvstore_key *key, int s, int n,
                                  const float *const *values) {
  struct sl_context *context = key->store->context;
  const struct sl__shard *shard = &key->shards[s];
  struct sl__launch launch = {.name = key->name, .priority = SL__PRIORITY_UPDATE};
  struct sl__tensor *copy;
  enum sl_status status = sl__tensor_temporary(context, &SL_SHAPE(shard->count), SL_F32, &copy);
  if (status != SL_OK) return status;
  SL__TRY(sl__acquire(copy, STARPU_W));
  float *sum = starpu_data_handle_to_pointer(copy->handle, STARPU_MAIN_RAM);
  memcpy(sum, values[0] + shard->first, copy->bytes);
  for (int t = 1; t < n; t++) {
    const float *term = values[t] + shard->first;
    for (int64_t i = 0; i < shard->count; i++) sum[i] += term[i];
  }
  starpu_data_release(copy->handle);
  status = sl__reduce(context, &launch, shard->local_sum, 1, &copy);
out:
  sl__tensor_free_later(copy);
  return status;
}

/* The owner's own push submits the update of its shards. */
static enum sl_status push_in_step(struct sl__kvstore_key *key) {
  struct sl__exchange *x = key->exchange;
  enum sl_status status = SL_OK;
  for (int m = 0; m < sl__exchange_messages(x); m++) SL__TRY(sl__exchange_push(x, m));
  SL__TRY(sl__kvstore_update(key, key->pushes));
  for (int m = 0; m < sl__exchange_messages(x); m++) SL__TRY(sl__exchange_pull(x, m));
out:
  return status;
}

static enum sl_status push_out_of_step(struct sl__kvstore_key *key, bool without_pull) {
  const struct sl__push push = {
      .step = ++key->steps, .lr = key->store->optimizer.lr, .without_pull = without_pull};
  enum sl_status status = SL_OK;
  for (int m = 0; m < sl__exchange_messages(key->exchange) && status == SL_OK; m++)
    status = sl__parameter_server_push(key->exchange, m, &push);
  return status;
}

/* Returns the key, or NULL with an error. */
static struct sl__kvstore_key *look_up(const struct sl_kvstore *kv, const char *what, int number) {
  struct sl__kvstore_key *key = sl__kvstore_find(kv, number);
  if (sl__kvstore_is_server(kv))
    sl__fail(SL_BAD_ARGUMENT, "%s of key %d on rank %d, which is a server: only workers do that",
             what, number, kv->ranks.rank);
  else if (!key)
    sl__fail(SL_BAD_ARGUMENT, "%s of key %d, which is unknown: sl_kvstore_init it first", what,
             number);
  return sl__kvstore_is_server(kv) ? NULL : key;
}

static enum sl_status check_values(int number, int n, const float *const *values) {
  if (!values) return sl__fail(SL_BAD_ARGUMENT, "push of key %d: values is NULL", number);
  if (n < 1)
    return sl__fail(SL_BAD_ARGUMENT, "push of key %d: %d arrays; at least one is needed", number,
                    n);
  for (int i = 0; i < n; i++)
    if (!values[i])
      return sl__fail(SL_BAD_ARGUMENT, "push of key %d: array %d of %d is NULL", number, i, n);
  return SL_OK;
}

enum sl_status sl__kvstore_check(const struct sl_kvstore *kv) {
  return sl__kvstore_has_others(kv) ? sl__net_check(kv->context->net) : SL_OK;
}

static enum sl_status push(struct sl_kvstore *kv, int number, int n, const float *const *values,
                           bool without_pull) {
  enum sl_status status;
  struct sl__kvstore_key *key = look_up(kv, "push", number);
  if (!key) return SL_BAD_ARGUMENT;
  SL__TRY(check_values(number, n, values));
  if (sl__kvstore_is_async(kv->kind) && !kv->has_optimizer)
    return sl__fail(SL_BAD_ARGUMENT,
                    "push of key %d: %s needs an optimizer; call sl_kvstore_set_optimizer first",
                    number, sl_kvstore_name(kv->kind));
  SL__TRY(sl__kvstore_check(kv));
  for (int s = 0; s < key->shard_count; s++) SL__TRY(copy_values(key, s, n, values));
  status = kv->is_async ? push_out_of_step(key, without_pull) : push_in_step(key);
  for (int s = 0; s < key->shard_count; s++) sl__tensor_invalidate(key->shards[s].local_sum);
  key->pushes++;
out:
  return status;
}

enum sl_status sl__kvstore_wait(struct sl__kvstore_key *key) {
  for (int s = 0; s < key->shard_count; s++) {
    enum sl_status status = sl__acquire(key->shards[s].param, STARPU_R);
    if (status != SL_OK) return status;
    starpu_data_release(key->shards[s].param->handle);
  }
  enum sl_status status = sl__task_failure();
  return status == SL_OK ? sl__kvstore_check(key->store) : status;
}

static enum sl_status read_value(struct sl__kvstore_key *key, float *values) {
  enum sl_status status = SL_OK;
  for (int s = 0; s < key->shard_count; s++)
    SL__TRY(sl__tensor_read(key->shards[s].param, values + key->shards[s].first));
  key->applied = key->pushes;
  status = sl__kvstore_check(key->store); /* after a failure a message has no content */
out:
  return status;
}

enum sl_status sl_kvstore_push(struct sl_kvstore *kv, int key, int n, const float *const *values) {
  SL__NEEDS(kv);
  return push(kv, key, n, values, true);
}

enum sl_status sl_kvstore_pull(struct sl_kvstore *kv, int number, float *values) {
  SL__NEEDS(kv);
  struct sl__kvstore_key *key = look_up(kv, "pull", number);
  enum sl_status status = SL_OK;
  if (!key) return SL_BAD_ARGUMENT;
  if (!values) return sl__fail(SL_BAD_ARGUMENT, "pull of key %d: values is NULL", number);
  SL__TRY(sl__kvstore_check(kv));
  for (int m = 0; m < sl__exchange_messages(key->exchange) && kv->is_async; m++)
    SL__TRY(sl__parameter_server_pull(key->exchange, m, false));
  status = read_value(key, values);
out:
  return status;
}

enum sl_status sl_kvstore_pushpull(struct sl_kvstore *kv, int key, int n,
                                   const float *const *values, float *result) {
  SL__NEEDS(kv);
  if (!result) return sl__fail(SL_BAD_ARGUMENT, "pushpull of key %d: result is NULL", key);
  enum sl_status status = push(kv, key, n, values, false);
  return status == SL_OK ? read_value(sl__kvstore_find(kv, key), result) : status;
}
