/* The public KVStore: keys, push and pull. Every key has an exchange of its own (exchange.h), so
 * that workers may push keys in any order; a server applies and answers as they come. */
#include "parallel/params/kvstore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/runtime/failure.h"
#include "core/runtime/wait.h"
#include "parallel/step/plan.h"

int sl_kvstore_rank(const struct sl_kvstore *kv) { return kv->ranks.rank; }
bool sl_kvstore_is_worker(const struct sl_kvstore *kv) { return sl__is_worker(&kv->ranks); }
int sl_kvstore_num_workers(const struct sl_kvstore *kv) { return kv->ranks.workers; }

/* ---- keys ---- */

/* The place of a number among the keys, or where it would be. */
static int place_of(const struct sl_kvstore *kv, int number) {
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
  int place = place_of(kv, number);
  return place < kv->key_count && kv->keys[place]->number == number ? kv->keys[place] : NULL;
}

static bool is_mine(const struct sl__kvstore_key *key, int part) {
  return key->parts[part].rank == key->store->ranks.rank;
}

static struct sl__launch part_launch(const struct sl__kvstore_key *key, int part) {
  return (struct sl__launch){.name = key->name,
                             .place = key->store->owners[key->parts[part].device].place,
                             .priority = SL__PRIORITY_UPDATE};
}

static int lightest(const int64_t *load, int first, int end, const bool *taken) {
  int least = -1;
  for (int i = first; i < end; i++)
    if (!(taken && taken[i]) && (least < 0 || load[i] < load[least])) least = i;
  return least;
}

/* Each part to the rank that has the least, of those without a part of this key, and there to the
 * device that has the least. */
static enum sl_status choose_owners(struct sl__kvstore_key *key) {
  struct sl_kvstore *kv = key->store;
  bool *taken = sl__alloc((size_t)kv->ranks.size, sizeof *taken, "a key");
  if (!taken) return SL_NO_MEMORY;
  for (int p = 0; p < key->part_count; p++) {
    struct sl__kvstore_part *part = &key->parts[p];
    int first = sl__first_owner(&kv->ranks);
    part->rank =
        lightest(kv->rank_load, first, kv->ranks.size, sl__kvstore_has_others(kv) ? taken : NULL);
    part->device = lightest(kv->load, 0, kv->owner_count, NULL);
    taken[part->rank] = true;
    kv->rank_load[part->rank] += part->count;
    if (is_mine(key, p)) kv->load[part->device] += part->count;
  }
  free(taken);
  key->has_owners = true;
  return SL_OK;
}

/* A key that failed on one rank goes on all of them: their loads stay alike. */
static void forget_owners(const struct sl__kvstore_key *key) {
  for (int p = 0; p < key->part_count && key->has_owners; p++) {
    const struct sl__kvstore_part *part = &key->parts[p];
    key->store->rank_load[part->rank] -= part->count;
    if (is_mine(key, p)) key->store->load[part->device] -= part->count;
  }
}

static enum sl_status make_parts(struct sl__kvstore_key *key) {
  struct sl_kvstore *kv = key->store;
  const struct sl__ranks none = {0};
  enum sl_status status;
  key->part_count = sl__parts_of(kv->is_distributed ? &kv->ranks : &none, key->count, kv->big);
  key->parts = sl__alloc((size_t)key->part_count, sizeof *key->parts, "a key");
  key->sums = sl__alloc((size_t)key->part_count, sizeof *key->sums, "a key");
  if (!key->parts || !key->sums) return SL_NO_MEMORY;
  int64_t first = 0;
  for (int p = 0; p < key->part_count; p++) {
    int64_t count = sl__part_length(key->count, key->part_count, p);
    key->parts[p] = (struct sl__kvstore_part){.first = first, .count = count};
    first += count;
  }
  SL__TRY(choose_owners(key));
  for (int p = 0; p < key->part_count; p++) {
    struct sl__kvstore_part *part = &key->parts[p];
    struct sl_shape shape = SL_SHAPE(part->count);
    if (sl__is_worker(&kv->ranks) || is_mine(key, p))
      SL__TRY(sl__tensor_temporary(kv->context, &shape, SL_F32, &part->param));
    if (sl__is_worker(&kv->ranks))
      SL__TRY(sl__tensor_temporary(kv->context, &shape, SL_F32, &part->sum));
    key->sums[p] = part->sum;
  }
out:
  return status;
}

static enum sl_status make_states(struct sl__kvstore_key *key) {
  struct sl_kvstore *kv = key->store;
  enum sl_status status = SL_OK;
  for (int p = 0; p < key->part_count && kv->has_optimizer; p++) {
    struct sl__launch launch = part_launch(key, p);
    if (is_mine(key, p))
      SL__TRY(sl__states_new(kv->context, &launch, &kv->optimizer, key->parts[p].count,
                             key->parts[p].state));
  }
out:
  return status;
}

static void free_states(struct sl__kvstore_key *key) {
  for (int p = 0; p < key->part_count; p++)
    for (int k = 0; k < 2; k++) {
      sl__tensor_free(key->parts[p].state[k]);
      key->parts[p].state[k] = NULL;
    }
}

/* dist_async: one worker's push, by whichever thread. */
static enum sl_status apply(void *user, int p, struct sl__tensor *master,
                            struct sl__tensor *gradient, struct sl__tensor *norm, int64_t version,
                            float lr) {
  struct sl__kvstore_key *key = user;
  struct sl_kvstore *kv = key->store;
  struct sl__launch launch = part_launch(key, p);
  pthread_mutex_lock(&kv->lock);
  struct sl_optimizer optimizer = kv->optimizer;
  pthread_mutex_unlock(&kv->lock);
  struct sl__update update = sl__update_of(&optimizer, version, lr);
  return sl__optimizer_step(kv->context, &launch, &optimizer, master, key->parts[p].state, 1,
                            &gradient, norm, &update);
}

static enum sl_status make_exchange(struct sl__kvstore_key *key) {
  struct sl_kvstore *kv = key->store;
  int count = key->part_count;
  struct sl__parcel *parcels = sl__alloc((size_t)count, sizeof *parcels, "a key");
  if (!parcels) return SL_NO_MEMORY;
  for (int p = 0; p < count; p++)
    parcels[p] = (struct sl__parcel){.name = key->name,
                                     .owner = key->parts[p].rank,
                                     .count = key->parts[p].count,
                                     .launch = part_launch(key, p),
                                     .param = key->parts[p].param};
  enum sl_status status =
      sl__exchange_new(kv->context, &kv->ranks, count, parcels, &kv->compress,
                       SL__TAG_STORES + kv->context->tags, &key->exchange, &key->tags);
  free(parcels);
  if (status != SL_OK) return status;
  if (kv->has_service || sl__kvstore_serves(kv)) sl__exchange_listen(key->exchange);
  if (!kv->has_service) return SL_OK;
  return sl__parameter_server_new(key->exchange, apply, key,
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
  SL__TRY(make_parts(key));
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
  int place = place_of(kv, key->number);
  enum sl_status status = SL_OK;
  memmove(kv->keys + place + 1, kv->keys + place,
          (size_t)(kv->key_count - place) * sizeof *kv->keys);
  kv->keys[place] = key;
  kv->key_count++;
  if (sl__kvstore_has_others(kv)) kv->context->tags += key->tags;
  for (int p = 0; p < key->part_count; p++)
    if (key->parts[p].param)
      SL__TRY(sl__tensor_write(key->parts[p].param, values + key->parts[p].first));
  if (kv->has_service)
    status = sl__parameter_server_open(key->exchange, 0);
  else if (sl__kvstore_serves(kv))
    status = sl__kvstore_listen(key);
out:
  return status;
}

void sl__kvstore_key_free(struct sl__kvstore_key *key) {
  if (!key) return;
  sl__exchange_free(key->exchange);
  if (key->parts) free_states(key);
  forget_owners(key);
  for (int p = 0; key->parts && p < key->part_count; p++) {
    sl__tensor_free(key->parts[p].param);
    sl__tensor_free(key->parts[p].sum);
  }
  free(key->parts);
  free(key->sums);
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
  for (int k = 0; k < kv->key_count && other; k++) {
    free_states(kv->keys[k]);
    SL__TRY(make_states(kv->keys[k]));
  }
out:
  return status;
}

enum sl_status sl__kvstore_update(struct sl__kvstore_key *key, int64_t step) {
  struct sl_kvstore *kv = key->store;
  enum sl_status status = SL_OK;
  pthread_mutex_lock(&kv->lock);
  bool replaces = !kv->has_optimizer;
  struct sl_optimizer optimizer = kv->optimizer;
  pthread_mutex_unlock(&kv->lock);
  struct sl__update update = sl__update_of(&optimizer, step, optimizer.lr);
  for (int p = 0; p < key->part_count; p++) {
    struct sl__kvstore_part *part = &key->parts[p];
    struct sl__launch launch = part_launch(key, p);
    int count;
    if (!is_mine(key, p)) continue;
    struct sl__tensor *const *terms = sl__exchange_terms(key->exchange, p, &count);
    if (replaces)
      SL__TRY(sl__reduce(kv->context, &launch, part->param, count, terms));
    else
      SL__TRY(sl__optimizer_step(kv->context, &launch, &optimizer, part->param, part->state, count,
                                 terms, NULL, &update));
  }
out:
  return status;
}

/* ---- push and pull ---- */

/* A copy of the caller's arrays, added up. It becomes the part's sum by a task: so pushes go their
 * way in the order of the calls, and the call need not wait for the one before. */
static enum sl_status take(struct sl__kvstore_key *key, int p, int n, const float *const *values) {
  struct sl_context *context = key->store->context;
  struct sl__kvstore_part *part = &key->parts[p];
  struct sl__launch launch = {.name = key->name, .priority = SL__PRIORITY_UPDATE};
  struct sl__tensor *copy;
  enum sl_status status = sl__tensor_temporary(context, &SL_SHAPE(part->count), SL_F32, &copy);
  if (status != SL_OK) return status;
  SL__TRY(sl__acquire(context, copy->handle, STARPU_W));
  float *sum = starpu_data_get_local_ptr(copy->handle);
  memcpy(sum, values[0] + part->first, copy->bytes);
  for (int t = 1; t < n; t++) {
    const float *term = values[t] + part->first;
    for (int64_t i = 0; i < part->count; i++) sum[i] += term[i];
  }
  starpu_data_release(copy->handle);
  status = sl__reduce(context, &launch, part->sum, 1, &copy);
out:
  sl__tensor_free_later(copy);
  return status;
}

/* The owner's part of it is submitted by its own push. */
static enum sl_status push_in_step(struct sl__kvstore_key *key) {
  struct sl__exchange *x = key->exchange;
  enum sl_status status = SL_OK;
  for (int m = 0; m < sl__exchange_messages(x); m++) SL__TRY(sl__exchange_push(x, m, key->sums));
  SL__TRY(sl__kvstore_update(key, key->pushes));
  for (int m = 0; m < sl__exchange_messages(x); m++) SL__TRY(sl__exchange_pull(x, m));
out:
  return status;
}

static enum sl_status push_out_of_step(struct sl__kvstore_key *key, bool silent) {
  const struct sl__push push = {
      .step = ++key->steps, .lr = key->store->optimizer.lr, .silent = silent};
  enum sl_status status = SL_OK;
  for (int m = 0; m < sl__exchange_messages(key->exchange) && status == SL_OK; m++)
    status = sl__parameter_server_push(key->exchange, m, key->sums, &push);
  return status;
}

/* The key, or NULL and why not. */
static struct sl__kvstore_key *look_up(const struct sl_kvstore *kv, const char *what, int number) {
  struct sl__kvstore_key *key = sl__kvstore_find(kv, number);
  if (sl__kvstore_serves(kv))
    sl__fail(SL_BAD_ARGUMENT, "%s of key %d on rank %d, which is a server: only workers do that",
             what, number, kv->ranks.rank);
  else if (!key)
    sl__fail(SL_BAD_ARGUMENT, "%s of key %d, which is unknown: sl_kvstore_init it first", what,
             number);
  return sl__kvstore_serves(kv) ? NULL : key;
}

static enum sl_status check_values(int number, int n, const float *const *values) {
  if (n < 1 || !values)
    return sl__fail(SL_BAD_ARGUMENT, "push of key %d: %d arrays; at least one is needed", number,
                    values ? n : 0);
  for (int i = 0; i < n; i++)
    if (!values[i])
      return sl__fail(SL_BAD_ARGUMENT, "push of key %d: array %d of %d is NULL", number, i, n);
  return SL_OK;
}

static enum sl_status check_net(const struct sl_kvstore *kv) {
  return sl__kvstore_has_others(kv) ? sl__net_check(kv->context->net) : SL_OK;
}

static enum sl_status push(struct sl_kvstore *kv, int number, int n, const float *const *values,
                           bool silent) {
  enum sl_status status;
  struct sl__kvstore_key *key = look_up(kv, "push", number);
  if (!key) return SL_BAD_ARGUMENT;
  SL__TRY(check_values(number, n, values));
  if (sl__kvstore_is_async(kv->kind) && !kv->has_optimizer)
    return sl__fail(SL_BAD_ARGUMENT,
                    "push of key %d: %s needs an optimizer; call sl_kvstore_set_optimizer first",
                    number, sl_kvstore_name(kv->kind));
  SL__TRY(check_net(kv));
  for (int p = 0; p < key->part_count; p++) SL__TRY(take(key, p, n, values));
  status = kv->has_service ? push_out_of_step(key, silent) : push_in_step(key);
  for (int p = 0; p < key->part_count; p++) sl__tensor_invalidate(key->parts[p].sum);
  key->pushes++;
out:
  return status;
}

enum sl_status sl__kvstore_wait(struct sl__kvstore_key *key) {
  for (int p = 0; p < key->part_count; p++) {
    starpu_data_handle_t handle = key->parts[p].param->handle;
    enum sl_status status = sl__acquire(key->store->context, handle, STARPU_R);
    if (status != SL_OK) return status;
    starpu_data_release(handle);
  }
  enum sl_status status = sl__task_failure();
  return status == SL_OK ? check_net(key->store) : status;
}

static enum sl_status read_value(struct sl__kvstore_key *key, float *values) {
  enum sl_status status = SL_OK;
  for (int p = 0; p < key->part_count; p++)
    SL__TRY(sl__tensor_read(key->parts[p].param, values + key->parts[p].first));
  key->seen = key->pushes;
  status = check_net(key->store); /* else something came, but no value */
out:
  return status;
}

enum sl_status sl_kvstore_push(struct sl_kvstore *kv, int key, int n, const float *const *values) {
  return push(kv, key, n, values, true);
}

enum sl_status sl_kvstore_pull(struct sl_kvstore *kv, int number, float *values) {
  struct sl__kvstore_key *key = look_up(kv, "pull", number);
  enum sl_status status = SL_OK;
  if (!key) return SL_BAD_ARGUMENT;
  if (!values) return sl__fail(SL_BAD_ARGUMENT, "pull of key %d: values is NULL", number);
  SL__TRY(check_net(kv));
  for (int m = 0; m < sl__exchange_messages(key->exchange) && kv->has_service; m++)
    SL__TRY(sl__parameter_server_ask(key->exchange, m, false));
  status = read_value(key, values);
out:
  return status;
}

enum sl_status sl_kvstore_pushpull(struct sl_kvstore *kv, int key, int n,
                                   const float *const *values, float *result) {
  if (!result) return sl__fail(SL_BAD_ARGUMENT, "pushpull of key %d: result is NULL", key);
  enum sl_status status = push(kv, key, n, values, false);
  return status == SL_OK ? read_value(sl__kvstore_find(kv, key), result) : status;
}

/* ---- a server in step ---- */

int sl__kvstore_message(const struct sl__kvstore_key *key) {
  const int *parts;
  for (int m = 0; m < sl__exchange_messages(key->exchange); m++) {
    sl__exchange_parcels(key->exchange, m, &parts);
    if (is_mine(key, parts[0])) return m;
  }
  return -1;
}

static void pushed(void *argument);

static enum sl_status listen_once(struct sl__kvstore_key *key) {
  const int *parts;
  int count, m = sl__kvstore_message(key);
  enum sl_status status = sl__exchange_push(key->exchange, m, key->sums);
  if (status != SL_OK) return status;
  sl__exchange_parcels(key->exchange, m, &parts);
  struct sl__tensor *first = sl__exchange_terms(key->exchange, parts[0], &count)[0];
  if (!starpu_data_acquire_cb(first->handle, STARPU_R, pushed, key)) return SL_OK;
  return sl__fail(SL_STARPU, "StarPU cannot call back when %s is pushed", key->name);
}

/* By any thread, when all workers' push of a key, or their farewell, is there. */
static void pushed(void *argument) {
  struct sl__kvstore_key *key = argument;
  struct sl_kvstore *kv = key->store;
  const int *parts;
  int count, m = sl__kvstore_message(key);
  sl__exchange_parcels(key->exchange, m, &parts);
  starpu_data_release(sl__exchange_terms(key->exchange, parts[0], &count)[0]->handle);
  pthread_mutex_lock(&kv->lock);
  bool ends = kv->closes && key->pushes == key->last;
  pthread_mutex_unlock(&kv->lock);
  ends = ends || check_net(kv) != SL_OK; /* nothing came */
  enum sl_status status = ends ? SL_OK : sl__kvstore_update(key, key->pushes);
  if (!ends && status == SL_OK) status = sl__exchange_pull(key->exchange, m);
  pthread_mutex_lock(&kv->lock);
  key->pushes += !ends;
  pthread_mutex_unlock(&kv->lock);
  if (!ends && status == SL_OK) status = listen_once(key);
  if (status != SL_OK) sl__net_abandon(kv->context->net, sl_error());
  if (!ends && status == SL_OK) return;
  pthread_mutex_lock(&kv->lock);
  kv->listening--;
  pthread_mutex_unlock(&kv->lock);
}

enum sl_status sl__kvstore_listen(struct sl__kvstore_key *key) {
  if (sl__kvstore_message(key) < 0) return SL_OK;
  pthread_mutex_lock(&key->store->lock);
  key->store->listening++;
  pthread_mutex_unlock(&key->store->lock);
  return listen_once(key);
}
