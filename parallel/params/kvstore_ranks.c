/* What the ranks of a public KVStore do together. Rank 0 tells all what is called; the workers
 * compare it with what they call, the servers do it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/runtime/wait.h"
#include "parallel/step/plan.h"
#include "parallel/params/kvstore.h"

enum what { INIT, OPTIMIZER, COMPRESSION, BARRIER, CLOSE };

struct command {
  int32_t what;
  int32_t key;
  int64_t count;
  struct sl_optimizer optimizer;
  struct sl__compress compress;
};

static const char *text_of(const struct command *c, char *text, size_t size) {
  char settings[SL__OPTIMIZER_TEXT];
  switch (c->what) {
    case INIT:
      snprintf(text, size, "sl_kvstore_init of key %d with %lld values", c->key,
               (long long)c->count);
      break;
    case OPTIMIZER:
      snprintf(text, size, "sl_kvstore_set_optimizer (%s)",
               sl__optimizer_text(&c->optimizer, settings));
      break;
    case COMPRESSION:
      snprintf(text, size, "sl_kvstore_set_compression (%d: %g)", (int)c->compress.method,
               (double)c->compress.threshold);
      break;
    default:
      snprintf(text, size, "%s", c->what == BARRIER ? "sl_kvstore_barrier" : "sl_kvstore_close");
  }
  return text;
}

static enum sl_status share(const struct sl_kvstore *kv, enum sl_status status) {
  return sl__kvstore_has_others(kv) ? sl__net_sync_status(kv->context->net, status, sl_error())
                                    : status;
}

/* All workers call the same, and no rank has found a fault yet; a server learns what it is. */
static enum sl_status agree(struct sl_kvstore *kv, struct command *command, enum sl_status fault) {
  struct sl__net *net = kv->context->net;
  struct command first = *command;
  char mine[200], theirs[200];
  enum sl_status status;
  if (!sl__kvstore_has_others(kv) || fault == SL_LOST) return fault;
  if (sl__kvstore_serves(kv)) {
    SL__TRY(sl__net_broadcast_no_timeout(net, command, sizeof *command));
    return sl__net_sync_status(net, SL_OK, "");
  }
  SL__TRY(sl__net_broadcast(net, &first, sizeof first));
  text_of(command, mine, sizeof mine);
  text_of(&first, theirs, sizeof theirs);
  if (fault == SL_OK && strcmp(mine, theirs) != 0)
    fault = sl__fail(SL_BAD_ARGUMENT, "this rank calls %s where rank 0 calls %s", mine, theirs);
  status = sl__net_sync_status(net, fault, sl_error());
out:
  return status;
}

static enum sl_status check_worker(const struct sl_kvstore *kv, const char *what) {
  if (sl__is_worker(&kv->ranks)) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT, "%s on rank %d, which is a server: it calls sl_kvstore_serve",
                  what, kv->ranks.rank);
}

/* ---- how often each key was pushed ---- */

/* pushes [ranks][keys]. With dist_sync they must be the same. */
static enum sl_status compare(const struct sl_kvstore *kv, const int64_t *pushes) {
  for (int k = 0; k < kv->key_count && !kv->has_service; k++)
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

/* *most [keys], to be freed, on all ranks: by the worker that pushed it most. If they differ where
 * they must not, messages hang in the air: all is over. */
static enum sl_status tally(struct sl_kvstore *kv, int64_t **most) {
  struct sl__net *net = kv->context->net;
  size_t keys = (size_t)kv->key_count, size = (size_t)kv->ranks.size;
  enum sl_status status;
  int64_t *own = sl__alloc(keys, sizeof *own, "a tally");
  int64_t *all = sl__alloc(keys * size, sizeof *all, "a tally");
  *most = NULL;
  SL__TRY(share(kv, own && all ? SL_OK : SL_NO_MEMORY));
  for (size_t k = 0; k < keys; k++) all[k] = own[k] = kv->keys[k]->pushes;
  if (sl__kvstore_has_others(kv)) {
    SL__TRY(sl__net_gather(net, own, keys * sizeof *own, all));
    status = kv->ranks.rank ? SL_OK : compare(kv, all);
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

/* ---- open ---- */

static enum sl_status meet(const struct sl_kvstore *kv, const struct sl_kvstore_options *o) {
  char lines[200];
  snprintf(lines, sizeof lines, "kvstore %s\nservers %d\nbigarray bound %lld\nmost staleness %d\n",
           sl_kvstore_name(kv->kind), o->servers, (long long)kv->big, kv->max_staleness);
  return kv->is_distributed ? sl__net_agree(kv->context->net, lines) : SL_OK;
}

static enum sl_status check_options(enum sl_kvstore_kind kind, const struct sl_kvstore_options *o) {
  if ((unsigned)kind > SL_KVSTORE_DIST_ASYNC_DEVICE)
    return sl__fail(SL_BAD_ARGUMENT, "%d is no kind of KVStore", (int)kind);
  if (o->bigarray_bound < 0 || o->max_staleness < 0)
    return sl__fail(SL_BAD_ARGUMENT, "KVStore %s: %s is negative", sl_kvstore_name(kind),
                    o->bigarray_bound < 0 ? "bigarray_bound" : "max_staleness");
  if (o->servers && !sl__kvstore_is_distributed(kind))
    return sl__fail(SL_BAD_ARGUMENT, "KVStore %s has no servers; take a dist_* one",
                    sl_kvstore_name(kind));
  if (o->max_staleness && !sl__kvstore_is_async(kind))
    return sl__fail(SL_BAD_ARGUMENT, "KVStore %s: max_staleness is for dist_async",
                    sl_kvstore_name(kind));
  return SL_OK;
}

enum sl_status sl_kvstore_open(struct sl_context *context, enum sl_kvstore_kind kind,
                               const struct sl_kvstore_options *options, struct sl_kvstore **out) {
  static const struct sl_kvstore_options defaults;
  const int64_t usual = 1000000;
  const struct sl_kvstore_options *o = options ? options : &defaults;
  enum sl_status status;
  struct sl_kvstore *kv = NULL;
  *out = NULL;
  SL__TRY(check_options(kind, o));
  kv = sl__alloc(1, sizeof *kv, "a KVStore");
  if (!kv) return SL_NO_MEMORY;
  pthread_mutex_init(&kv->lock, NULL);
  kv->context = context;
  kv->kind = kind;
  kv->big = o->bigarray_bound ? o->bigarray_bound : usual;
  kv->max_staleness = o->max_staleness;
  SL__TRY(sl__ranks_find(context, kind, o->servers, &kv->ranks));
  kv->is_distributed = kv->ranks.size > 0;
  if (!kv->is_distributed) kv->ranks = (struct sl__ranks){0, 1, 1};
  kv->has_service = sl__kvstore_is_async(kind) && sl__kvstore_has_others(kv);
  SL__TRY(sl__owners_find(context, kind, &kv->owners, &kv->owner_count));
  kv->rank_load = sl__alloc((size_t)kv->ranks.size, sizeof *kv->rank_load, "a KVStore");
  kv->load = sl__alloc((size_t)kv->owner_count, sizeof *kv->load, "a KVStore");
  status = kv->rank_load && kv->load ? SL_OK : SL_NO_MEMORY;
  if (status != SL_OK) goto out;
  SL__TRY(sl__tensor_host(context, &SL_SHAPE(1), SL_F32, NULL, &kv->word));
  SL__TRY(meet(kv, o));
  *out = kv;
  kv = NULL;
out:
  sl__kvstore_free(kv);
  return status;
}

void sl__kvstore_free(struct sl_kvstore *kv) {
  if (!kv) return;
  for (int k = 0; k < kv->key_count; k++) sl__kvstore_key_free(kv->keys[k]);
  sl__tensor_free(kv->word);
  pthread_mutex_destroy(&kv->lock);
  free(kv->keys);
  free(kv->owners);
  free(kv->rank_load);
  free(kv->load);
  free(kv);
}

/* ---- init ---- */

static enum sl_status add_key(struct sl_kvstore *kv, int number, int64_t count,
                              const float *values) {
  struct sl__kvstore_key *key = NULL;
  enum sl_status status;
  float *copy = sl__alloc((size_t)count, sizeof *copy, "a key's values");
  status = copy ? sl__kvstore_key_new(kv, number, count, &key) : SL_NO_MEMORY;
  SL__TRY(share(kv, status));
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
    return sl__fail(SL_BAD_ARGUMENT, "key %d is there already: each key is given values once", key);
  if (count < 1)
    return sl__fail(SL_BAD_ARGUMENT, "key %d: %lld values; at least one is needed", key,
                    (long long)count);
  if (!values && !kv->ranks.rank)
    return sl__fail(SL_BAD_ARGUMENT, "key %d: its values, rank 0's, are NULL", key);
  return SL_OK;
}

enum sl_status sl_kvstore_init(struct sl_kvstore *kv, int key, int64_t count, const float *values) {
  struct command command = {.what = INIT, .key = key, .count = count};
  enum sl_status status;
  SL__TRY(check_worker(kv, "sl_kvstore_init"));
  SL__TRY(agree(kv, &command, check_init(kv, key, count, values)));
  status = add_key(kv, key, count, values);
out:
  return status;
}

/* ---- optimizer, compression ---- */

/* Until this server has applied what was pushed with the optimizer before. */
static enum sl_status catch_up(struct sl_kvstore *kv, const int64_t *pushes) {
  for (int k = 0; k < kv->key_count && sl__kvstore_serves(kv) && !kv->has_service; k++)
    while (sl__kvstore_message(kv->keys[k]) >= 0) {
      pthread_mutex_lock(&kv->lock);
      bool there = kv->keys[k]->pushes >= pushes[k];
      pthread_mutex_unlock(&kv->lock);
      if (there) break;
      enum sl_status status = sl__net_check(kv->context->net);
      if (status != SL_OK) return status;
      nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
  return SL_OK;
}

static enum sl_status use_optimizer(struct sl_kvstore *kv, const struct sl_optimizer *optimizer) {
  int64_t *pushes;
  bool begun = false;
  enum sl_status status = tally(kv, &pushes);
  if (status != SL_OK) return status;
  for (int k = 0; k < kv->key_count; k++) begun |= pushes[k] > 0;
  if (begun && kv->has_optimizer && sl__kvstore_other_state(kv, optimizer))
    status = sl__fail(SL_BAD_ARGUMENT,
                      "this optimizer keeps another state than the one before: such a change is "
                      "possible before the first push only");
  if (status == SL_OK) status = catch_up(kv, pushes);
  if (status == SL_OK) status = sl__kvstore_use_optimizer(kv, optimizer);
  free(pushes);
  /* nobody pushes before all have it */
  return share(kv, status);
}

static enum sl_status check_optimizer(struct sl_optimizer *optimizer) {
  enum sl_status status = sl_optimizer_check(optimizer);
  if (status == SL_OK && optimizer->clip > 0)
    status = sl__fail(SL_BAD_ARGUMENT,
                      "a KVStore cannot clip by the global norm, since no owner "
                      "knows the whole gradient: clip before the push");
  return status;
}

enum sl_status sl_kvstore_set_optimizer(struct sl_kvstore *kv,
                                        const struct sl_optimizer *optimizer) {
  struct command command = {.what = OPTIMIZER};
  enum sl_status status;
  SL__TRY(check_worker(kv, "sl_kvstore_set_optimizer"));
  if (optimizer) command.optimizer = *optimizer;
  status = optimizer ? check_optimizer(&command.optimizer)
                     : sl__fail(SL_BAD_ARGUMENT, "sl_kvstore_set_optimizer: it is NULL");
  SL__TRY(agree(kv, &command, status));
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
                    "%s is there already: set the compression before the first sl_kvstore_init",
                    kv->keys[0]->name);
  return sl__compress_parse(text, compress);
}

enum sl_status sl_kvstore_set_compression(struct sl_kvstore *kv, const char *text) {
  struct command command = {.what = COMPRESSION};
  enum sl_status status;
  SL__TRY(check_worker(kv, "sl_kvstore_set_compression"));
  SL__TRY(agree(kv, &command, check_compression(kv, text, &command.compress)));
  kv->compress = command.compress;
out:
  return status;
}

/* ---- barrier ---- */

/* dist_async: what this worker pushed has been applied, and nobody who is ahead waits for it. */
static enum sl_status rest(struct sl_kvstore *kv) {
  enum sl_status status = SL_OK;
  for (int k = 0; k < kv->key_count && kv->has_service; k++) {
    struct sl__kvstore_key *key = kv->keys[k];
    key->steps = 0;
    if (key->seen == key->pushes && !kv->max_staleness) continue;
    for (int m = 0; m < sl__exchange_messages(key->exchange); m++)
      SL__TRY(sl__parameter_server_ask(key->exchange, m, true));
  }
  for (int k = 0; k < kv->key_count && kv->has_service; k++) {
    SL__TRY(sl__kvstore_wait(kv->keys[k]));
    kv->keys[k]->seen = kv->keys[k]->pushes;
  }
out:
  return status;
}

static enum sl_status meet_at_barrier(struct sl_kvstore *kv) {
  int64_t *pushes;
  enum sl_status status = tally(kv, &pushes);
  free(pushes);
  return status;
}

enum sl_status sl_kvstore_barrier(struct sl_kvstore *kv) {
  struct command command = {.what = BARRIER};
  enum sl_status status;
  SL__TRY(check_worker(kv, "sl_kvstore_barrier"));
  SL__TRY(agree(kv, &command, rest(kv)));
  status = meet_at_barrier(kv);
out:
  return status;
}

/* ---- the end ---- */

/* Servers in step stop waiting for pushes when all workers say farewell. */
static enum sl_status say_farewell(struct sl_kvstore *kv) {
  enum sl_status status = SL_OK;
  const int *parts;
  for (int k = 0; k < kv->key_count && sl__is_worker(&kv->ranks); k++) {
    struct sl__kvstore_key *key = kv->keys[k];
    for (int m = 0; m < sl__exchange_messages(key->exchange); m++) {
      sl__exchange_parcels(key->exchange, m, &parts);
      if (key->parts[parts[0]].rank >= kv->ranks.workers)
        SL__TRY(sl__exchange_farewell(key->exchange, m, kv->word));
    }
  }
out:
  return status;
}

/* A lost rank ends them, too. */
static enum sl_status wait_for_farewells(struct sl_kvstore *kv) {
  sl__wait_for_none(&kv->lock, &kv->listening, INFINITY);
  return sl__net_check(kv->context->net);
}

static enum sl_status end_in_step(struct sl_kvstore *kv, const int64_t *pushes) {
  enum sl_status status;
  pthread_mutex_lock(&kv->lock);
  for (int k = 0; k < kv->key_count; k++) kv->keys[k]->last = pushes[k];
  kv->closes = true;
  pthread_mutex_unlock(&kv->lock);
  SL__TRY(sl__net_barrier(kv->context->net)); /* servers know how many pushes come */
  SL__TRY(say_farewell(kv));
  status = wait_for_farewells(kv);
out:
  return status;
}

static enum sl_status end_out_of_step(struct sl_kvstore *kv) {
  enum sl_status status = SL_OK;
  for (int k = 0; k < kv->key_count; k++)
    SL__TRY(sl__parameter_server_leave(kv->keys[k]->exchange));
  for (int k = 0; k < kv->key_count; k++) SL__TRY(sl__parameter_server_wait(kv->keys[k]->exchange));
out:
  return status;
}

static enum sl_status end(struct sl_kvstore *kv) {
  int64_t *pushes;
  if (!sl__kvstore_has_others(kv)) return SL_OK;
  enum sl_status status = tally(kv, &pushes);
  if (status == SL_OK) status = kv->has_service ? end_out_of_step(kv) : end_in_step(kv, pushes);
  free(pushes);
  return status;
}

static enum sl_status obey(struct sl_kvstore *kv, const struct command *command) {
  switch (command->what) {
    case INIT: return add_key(kv, command->key, command->count, NULL);
    case OPTIMIZER: return use_optimizer(kv, &command->optimizer);
    case COMPRESSION: kv->compress = command->compress; return SL_OK;
    case BARRIER: return meet_at_barrier(kv);
    default: kv->has_served = true; return end(kv);
  }
}

enum sl_status sl_kvstore_serve(struct sl_kvstore *kv) {
  enum sl_status status = SL_OK;
  struct command command = {0};
  if (!sl__kvstore_serves(kv))
    return sl__fail(SL_BAD_ARGUMENT, "sl_kvstore_serve on rank %d, which is a worker",
                    kv->ranks.rank);
  while (!kv->has_served) {
    status = agree(kv, &command, SL_OK);
    if (status == SL_OK) status = obey(kv, &command);
    /* other faults are the workers', who know of them */
    if (status == SL_LOST || sl__net_check(kv->context->net) != SL_OK) break;
  }
  kv->has_served = true;
  return status;
}

/* After a failure all messages end; callbacks still look at what is to be freed. */
static void calm(struct sl_kvstore *kv) {
  const double most_s = 5;
  if (!sl__kvstore_has_others(kv) || sl__net_check(kv->context->net) == SL_OK) return;
  for (int k = 0; k < kv->key_count; k++) sl__parameter_server_calm(kv->keys[k]->exchange);
  sl__wait_for_none(&kv->lock, &kv->listening, most_s);
  sl__wait_for_all(kv->context);
}

/* With a failure here, what is under way would wait for ranks that do not come. */
enum sl_status sl_kvstore_close(struct sl_kvstore *kv) {
  struct command command = {.what = CLOSE};
  enum sl_status status;
  if (!kv) return SL_OK;
  if (sl__kvstore_serves(kv)) {
    status = kv->has_served ? SL_OK : sl_kvstore_serve(kv);
  } else {
    status = agree(kv, &command, SL_OK);
    if (status == SL_OK) status = end(kv);
  }
  if (status != SL_OK && sl__kvstore_has_others(kv)) sl__net_abandon(kv->context->net, sl_error());
  calm(kv);
  sl__kvstore_free(kv);
  return status;
}
