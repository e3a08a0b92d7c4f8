/* The collective calls of a KVStore. Rank 0 broadcasts which function it calls; the workers compare
 * it with the one that they call, the servers run it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/net/net.h"
#include "parallel/params/kvstore.h"
#include "parallel/step/kvstore_kind.h"

enum call { INIT, OPTIMIZER, COMPRESSION, BARRIER, CLOSE };

static const char *const functions[] = {[INIT] = "sl_kvstore_init",
                                        [OPTIMIZER] = "sl_kvstore_set_optimizer",
                                        [COMPRESSION] = "sl_kvstore_set_compression",
                                        [BARRIER] = "sl_kvstore_barrier",
                                        [CLOSE] = "sl_kvstore_close"};

struct command {
  int32_t what;
  int32_t store; /* its number in the context */
  int32_t key;
  int64_t count;
  struct sl_optimizer optimizer;
  struct sl__compress compress;
};

static const char *text_of(const struct command *c, char *text, size_t size) {
  char settings[SL__OPTIMIZER_TEXT], compression[SL__COMPRESS_TEXT];
  const char *function = functions[c->what];
  switch (c->what) {
    case INIT:
      snprintf(text, size, "%s of key %d with %lld values", function, c->key, (long long)c->count);
      break;
    case OPTIMIZER:
      snprintf(text, size, "%s (%s)", function, sl__optimizer_text(&c->optimizer, settings));
      break;
    case COMPRESSION:
      snprintf(text, size, "%s (%s)", function, sl__compress_text(&c->compress, compression));
      break;
    default: snprintf(text, size, "%s", function);
  }
  return text;
}

static enum sl_status sync_status(const struct sl_kvstore *kv, enum sl_status status) {
  return sl__kvstore_has_others(kv) ? sl__net_sync_status(kv->context->net, status, sl_error())
                                    : status;
}

/* dist_async: waits until this worker's pushes are applied. Workers that are ahead do not wait for
 * it meanwhile. */
static enum sl_status pause_worker(struct sl_kvstore *kv) {
  enum sl_status status = SL_OK;
  for (int k = 0; k < kv->key_count && kv->is_async; k++) {
    struct sl__kvstore_key *key = kv->keys[k];
    key->steps = 0;
    if (key->applied == key->pushes && !kv->max_staleness) continue;
    for (int m = 0; m < sl__exchange_messages(key->exchange); m++)
      SL__TRY(sl__parameter_server_pull(key->exchange, m, true));
  }
  for (int k = 0; k < kv->key_count && kv->is_async; k++) {
    SL__TRY(sl__kvstore_wait(kv->keys[k]));
    kv->keys[k]->applied = kv->keys[k]->pushes;
  }
out:
  return status;
}

/* The store that a command names, on a server of it; or NULL, with an error. */
static struct sl_kvstore *find_served(const struct sl_context *context, int number) {
  struct sl_kvstore *kv = context->kvstores;
  while (kv && kv->number != number) kv = kv->next;
  if (kv && sl__kvstore_is_server(kv)) return kv;
  sl__fail(SL_BAD_ARGUMENT,
           "the others call a function of KVStore number %d, of which this rank is no server, "
           "while it serves another one",
           number);
  return NULL;
}

static enum sl_status compare_calls(const struct command *mine, const struct command *first) {
  char text[400], first_text[400];
  text_of(mine, text, sizeof text);
  text_of(first, first_text, sizeof first_text);
  if (mine->store != first->store)
    return sl__fail(SL_BAD_ARGUMENT,
                    "this rank calls %s of KVStore number %d where rank 0 calls %s of KVStore "
                    "number %d, in the order in which they were opened",
                    text, mine->store, first_text, first->store);
  if (!strcmp(text, first_text)) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT, "this rank calls %s where rank 0 calls %s", text, first_text);
}

/* Compares the workers' calls and the faults that they found so far. A server receives the call. */
static enum sl_status match_calls(struct sl_kvstore *kv, struct command *command,
                                  enum sl_status fault) {
  struct sl__net *net = kv->context->net;
  struct command first;
  enum sl_status status;
  if (!sl__kvstore_has_others(kv) || fault == SL_LOST) return fault;
  if (sl__kvstore_is_server(kv)) {
    SL__TRY(sl__net_broadcast_no_timeout(net, command, sizeof *command));
    fault = find_served(kv->context, command->store) ? SL_OK : SL_BAD_ARGUMENT;
    return sl__net_sync_status(net, fault, sl_error());
  }
  /* workers that may be only so far ahead of this one would else never come to this call */
  status = kv->max_staleness || command->what == BARRIER ? pause_worker(kv) : SL_OK;
  if (status != SL_OK) fault = status;
  if (fault == SL_LOST) return fault;
  command->store = kv->number;
  first = *command;
  sl__net_name_call(net, functions[command->what]);
  SL__TRY(sl__net_broadcast(net, &first, sizeof first));
  if (fault == SL_OK) fault = compare_calls(command, &first);
  status = sl__net_sync_status(net, fault, sl_error());
out:
  sl__net_name_call(net, NULL);
  return status;
}

static enum sl_status check_worker(const struct sl_kvstore *kv, const char *what) {
  if (sl__is_worker(&kv->ranks)) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT, "%s on rank %d, which is a server: it calls sl_kvstore_serve",
                  what, kv->ranks.rank);
}

/* ---- the number of pushes of each key ---- */

/* pushes [ranks][keys]. With dist_sync all workers must have the same numbers. */
static enum sl_status compare_pushes(const struct sl_kvstore *kv, const int64_t *pushes) {
  for (int k = 0; k < kv->key_count && !kv->is_async; k++)
    for (int w = 1; w < kv->ranks.workers; w++) {
      long long first = (long long)pushes[k];
      long long other = (long long)pushes[(int64_t)w * kv->key_count + k];
      if (first != other)
        return sl__fail(SL_BAD_ARGUMENT,
                        "%s was pushed %lld times by rank 0, %lld times by rank %d",
                        kv->keys[k]->name, first, other, w);
    }
  return SL_OK;
}

/* *most [keys], to be freed, on all ranks: the pushes of the worker that pushed the key most. If
 * the numbers differ with dist_sync, messages wait for pushes that never come: the network ends. */
static enum sl_status count_pushes(struct sl_kvstore *kv, int64_t **most) {
  struct sl__net *net = kv->context->net;
  size_t keys = (size_t)kv->key_count, size = (size_t)kv->ranks.size;
  enum sl_status status;
  int64_t *own = sl__alloc(keys, sizeof *own, "numbers of pushes");
  int64_t *all = sl__alloc(keys * size, sizeof *all, "numbers of pushes");
  *most = NULL;
  SL__TRY(sync_status(kv, own && all ? SL_OK : SL_NO_MEMORY));
  pthread_mutex_lock(&kv->lock); /* a server counts in other threads */
  for (size_t k = 0; k < keys; k++) all[k] = own[k] = kv->keys[k]->pushes;
  pthread_mutex_unlock(&kv->lock);
  if (sl__kvstore_has_others(kv)) {
    SL__TRY(sl__net_gather(net, own, keys * sizeof *own, all));
    status = kv->ranks.rank ? SL_OK : compare_pushes(kv, all);
    status = sl__net_sync_status(net, status, sl_error());
    if (status == SL_BAD_ARGUMENT) sl__net_abandon(net, sl_error());
    if (status != SL_OK) goto out;
    for (int w = 0; w < kv->ranks.workers; w++)
      for (size_t k = 0; k < keys; k++)
        if (all[(size_t)w * keys + k] > own[k]) own[k] = all[(size_t)w * keys + k];
    SL__TRY(sl__net_broadcast(net, own, keys * sizeof *own));
  }
  *most = own;
  own = NULL;
out:
  free(own);
  free(all);
  return status;
}

/* ---- init ---- */

static enum sl_status add_key(struct sl_kvstore *kv, int number, int64_t count,
                              const float *values) {
  struct sl__kvstore_key *key = NULL;
  enum sl_status status;
  float *copy = sl__alloc((size_t)count, sizeof *copy, "a key's values");
  status = copy ? sl__kvstore_key_new(kv, number, count, &key) : SL_NO_MEMORY;
  SL__TRY(sync_status(kv, status));
  if (!kv->ranks.rank) memcpy(copy, values, (size_t)count * sizeof *copy);
  if (sl__kvstore_has_others(kv))
    SL__TRY(sl__net_broadcast(kv->context->net, copy, (size_t)count * sizeof *copy));
  status = sl__kvstore_key_add(kv, key, copy);
  key = NULL;
out:
  sl__kvstore_key_free(key);
  free(copy);
  return status;
}

static enum sl_status check_init(const struct sl_kvstore *kv, int key, int64_t count,
                                 const float *values) {
  if (sl__kvstore_find(kv, key))
    return sl__fail(SL_BAD_ARGUMENT, "key %d exists already: each key gets its values once", key);
  if (count < 1)
    return sl__fail(SL_BAD_ARGUMENT, "key %d: %lld values; at least one is needed", key,
                    (long long)count);
  if (!values && !kv->ranks.rank)
    return sl__fail(SL_BAD_ARGUMENT, "key %d: its values, rank 0's, are NULL", key);
  return SL_OK;
}

enum sl_status sl_kvstore_init(struct sl_kvstore *kv, int key, int64_t count, const float *values) {
  SL__NEEDS(kv);
  struct command command = {.what = INIT, .key = key, .count = count};
  enum sl_status status;
  SL__TRY(check_worker(kv, "sl_kvstore_init"));
  SL__TRY(match_calls(kv, &command, check_init(kv, key, count, values)));
  status = add_key(kv, key, count, values);
out:
  return status;
}

/* ---- optimizer, compression ---- */

/* Waits until this server has applied the pushes that use the optimizer before. */
static enum sl_status catch_up(struct sl_kvstore *kv, const int64_t *pushes) {
  for (int k = 0; k < kv->key_count && sl__kvstore_is_server(kv) && !kv->is_async; k++)
    while (sl__kvstore_message(kv->keys[k]) >= 0) {
      pthread_mutex_lock(&kv->lock);
      bool done = kv->keys[k]->pushes >= pushes[k];
      pthread_mutex_unlock(&kv->lock);
      if (done) break;
      enum sl_status status = sl__net_check(kv->context->net);
      if (status != SL_OK) return status;
      nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
  return SL_OK;
}

static enum sl_status use_optimizer(struct sl_kvstore *kv, const struct sl_optimizer *optimizer) {
  int64_t *pushes;
  bool begun = false;
  enum sl_status status = count_pushes(kv, &pushes);
  if (status != SL_OK) return status;
  for (int k = 0; k < kv->key_count; k++) begun |= pushes[k] > 0;
  if (begun && kv->has_optimizer && sl__kvstore_other_state(kv, optimizer))
    status = sl__fail(SL_BAD_ARGUMENT,
                      "this optimizer keeps another state than the one before: such a change is "
                      "possible before the first push only");
  if (status == SL_OK) status = catch_up(kv, pushes);
  if (status == SL_OK) status = sl__kvstore_use_optimizer(kv, optimizer);
  free(pushes);
  /* no worker pushes before all ranks have the new optimizer */
  return sync_status(kv, status);
}

static enum sl_status check_optimizer(struct sl_optimizer *optimizer) {
  enum sl_status status = sl_optimizer_check(optimizer);
  if (status == SL_OK && optimizer->clip > 0)
    status = sl__fail(SL_BAD_ARGUMENT,
                      "a KVStore cannot clip by the global norm, since no owner "
                      "has the whole gradient: clip before the push");
  if (status == SL_OK && optimizer->average > 0)
    status = sl__fail(SL_BAD_ARGUMENT,
                      "a KVStore keeps no averages of its values: average what is pulled, or use a "
                      "trainer");
  if (status == SL_OK && sl__optimizer_of(optimizer)->trusts)
    status = sl__fail(SL_BAD_ARGUMENT,
                      "a KVStore cannot train by %s, which needs the norm of each whole parameter, "
                      "since a key's parts have several owners: use a trainer, or adamw",
                      sl__optimizer_of(optimizer)->name);
  return status;
}

enum sl_status sl_kvstore_set_optimizer(struct sl_kvstore *kv,
                                        const struct sl_optimizer *optimizer) {
  SL__NEEDS(kv);
  struct command command = {.what = OPTIMIZER};
  enum sl_status status;
  SL__TRY(check_worker(kv, "sl_kvstore_set_optimizer"));
  if (optimizer) command.optimizer = *optimizer;
  status = optimizer ? check_optimizer(&command.optimizer)
                     : sl__fail(SL_BAD_ARGUMENT, "sl_kvstore_set_optimizer: the optimizer is NULL");
  SL__TRY(match_calls(kv, &command, status));
  status = use_optimizer(kv, &command.optimizer);
out:
  return status;
}

static enum sl_status check_compression(const struct sl_kvstore *kv, const char *text,
                                        struct sl__compress *compress) {
  if (!text) return sl__fail(SL_BAD_ARGUMENT, "sl_kvstore_set_compression: the text is NULL");
  if (!kv->is_distributed)
    return sl__fail(SL_BAD_ARGUMENT, "KVStore %s compresses nothing; take a dist_* one",
                    sl_kvstore_name(kv->kind));
  if (kv->key_count)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s exists already: set the compression before the first sl_kvstore_init",
                    kv->keys[0]->name);
  return sl__compress_parse(text, compress);
}

enum sl_status sl_kvstore_set_compression(struct sl_kvstore *kv, const char *text) {
  SL__NEEDS(kv);
  struct command command = {.what = COMPRESSION};
  enum sl_status status;
  SL__TRY(check_worker(kv, "sl_kvstore_set_compression"));
  SL__TRY(match_calls(kv, &command, check_compression(kv, text, &command.compress)));
  kv->compress = command.compress;
out:
  return status;
}

/* ---- barrier ---- */

static enum sl_status meet_at_barrier(struct sl_kvstore *kv) {
  int64_t *pushes;
  enum sl_status status = count_pushes(kv, &pushes);
  free(pushes);
  return status;
}

enum sl_status sl_kvstore_barrier(struct sl_kvstore *kv) {
  SL__NEEDS(kv);
  struct command command = {.what = BARRIER};
  enum sl_status status;
  SL__TRY(check_worker(kv, "sl_kvstore_barrier"));
  SL__TRY(match_calls(kv, &command, SL_OK));
  status = meet_at_barrier(kv);
out:
  return status;
}

/* ---- the end ---- */

static enum sl_status end(struct sl_kvstore *kv) {
  int64_t *pushes;
  if (!sl__kvstore_has_others(kv)) return SL_OK;
  enum sl_status status = count_pushes(kv, &pushes);
  if (status == SL_OK) status = sl__kvstore_end(kv, pushes);
  free(pushes);
  return status;
}

static enum sl_status run_command(struct sl_kvstore *kv, const struct command *command) {
  switch (command->what) {
    case INIT: return add_key(kv, command->key, command->count, NULL);
    case OPTIMIZER: return use_optimizer(kv, &command->optimizer);
    case COMPRESSION: kv->compress = command->compress; return SL_OK;
    case BARRIER: return meet_at_barrier(kv);
    default: kv->has_served = true; return end(kv);
  }
}

enum sl_status sl_kvstore_serve(struct sl_kvstore *kv) {
  SL__NEEDS(kv);
  enum sl_status status = SL_OK;
  struct command command = {0};
  if (!sl__kvstore_is_server(kv))
    return sl__fail(SL_BAD_ARGUMENT, "sl_kvstore_serve on rank %d, which is a worker",
                    kv->ranks.rank);
  while (!kv->has_served) {
    status = match_calls(kv, &command, SL_OK);
    if (status == SL_OK) status = run_command(find_served(kv->context, command.store), &command);
    /* the workers return other errors themselves */
    if (status == SL_LOST || sl__net_check(kv->context->net) != SL_OK) break;
  }
  kv->has_served = true;
  return status;
}

/* After a failure here, messages would wait for ranks that never answer: the network ends. */
enum sl_status sl_kvstore_close(struct sl_kvstore *kv) {
  struct command command = {.what = CLOSE};
  enum sl_status status;
  if (!kv) return SL_OK;
  if (sl__kvstore_is_server(kv)) {
    status = kv->has_served ? SL_OK : sl_kvstore_serve(kv);
  } else {
    status = match_calls(kv, &command, SL_OK);
    if (status == SL_OK) status = end(kv);
  }
  if (status != SL_OK && sl__kvstore_has_others(kv)) sl__net_abandon(kv->context->net, sl_error());
  sl__kvstore_end_callbacks(kv);
  sl__kvstore_free(kv);
  return status;
}
