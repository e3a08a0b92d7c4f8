/* Opening and freeing a KVStore. */
#include <stdio.h>
#include <stdlib.h>

#include "core/net/net.h"
#include "parallel/params/kvstore.h"
#include "parallel/step/kvstore_kind.h"

/* All ranks must give the same options. */
static enum sl_status compare_options(const struct sl_kvstore *kv,
                                      const struct sl_kvstore_options *o) {
  char lines[200];
  snprintf(lines, sizeof lines, "kvstore %s\nservers %d\nbigarray bound %lld\nmost staleness %d\n",
           sl_kvstore_name(kv->kind), o->servers, (long long)kv->bigarray_bound, kv->max_staleness);
  return kv->is_distributed ? sl__net_agree(kv->context->net, lines) : SL_OK;
}

static enum sl_status check_options(enum sl_kvstore_kind kind, const struct sl_kvstore_options *o) {
  if ((unsigned)kind > SL_KVSTORE_DIST_ASYNC_DEVICE)
    return sl__fail(SL_BAD_ARGUMENT, "%d is not a kind of KVStore", (int)kind);
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

/* The part of an opening that needs no other rank. *kv is to be freed after a failure, too. */
static enum sl_status make_store(struct sl_context *context, enum sl_kvstore_kind kind,
                                 const struct sl_kvstore_options *o, struct sl_kvstore **kv) {
  const int64_t default_bound = 1000000;
  enum sl_status status = check_options(kind, o);
  if (status != SL_OK) return status;
  struct sl_kvstore *k = *kv = sl__alloc(1, sizeof *k, "a KVStore");
  if (!k) return SL_NO_MEMORY;
  pthread_mutex_init(&k->lock, NULL);
  k->context = context;
  k->kind = kind = sl_kvstore_choose(context, kind);
  k->bigarray_bound = o->bigarray_bound ? o->bigarray_bound : default_bound;
  k->max_staleness = o->max_staleness;
  SL__TRY(sl__ranks_find(context, kind, o->servers, &k->ranks));
  k->is_distributed = k->ranks.size > 0;
  if (!k->is_distributed) k->ranks = (struct sl__ranks){0, 1, 1};
  k->is_async = sl__kvstore_is_async(kind) && sl__kvstore_has_others(k);
  SL__TRY(sl__owners_open(context, kind, &k->ranks, &k->owners));
  status = sl__tensor_host(context, &SL_SHAPE(1), SL_F32, NULL, &k->close_content);
out:
  return status;
}

/* All ranks open the same stores in the same order, so they have the same numbers. */
static void enter(struct sl_kvstore *kv) {
  struct sl_context *context = kv->context;
  if (!sl__kvstore_has_others(kv)) return;
  kv->number = ++context->kvstore_count;
  kv->next = context->kvstores;
  context->kvstores = kv;
}

static void leave(struct sl_kvstore *kv) {
  struct sl_kvstore **place = &kv->context->kvstores;
  while (*place && *place != kv) place = &(*place)->next;
  if (*place) *place = kv->next;
}

enum sl_status sl_kvstore_open(struct sl_context *context, enum sl_kvstore_kind kind,
                               const struct sl_kvstore_options *options, struct sl_kvstore **kv) {
  SL__NEEDS(context, kv);
  static const struct sl_kvstore_options defaults;
  const struct sl_kvstore_options *o = options ? options : &defaults;
  struct sl_kvstore *k = NULL;
  *kv = NULL;
  if (context->net) sl__net_name_call(context->net, "sl_kvstore_open");
  enum sl_status status = make_store(context, kind, o, &k);
  if (sl__kvstore_is_distributed(kind)) status = sl_share(context, status, sl_error());
  if (status == SL_OK) status = compare_options(k, o);
  if (context->net) sl__net_name_call(context->net, NULL);
  if (status != SL_OK) {
    sl__kvstore_free(k);
    return status;
  }
  enter(k);
  *kv = k;
  return SL_OK;
}

void sl__kvstore_free(struct sl_kvstore *kv) {
  if (!kv) return;
  leave(kv);
  for (int k = 0; k < kv->key_count; k++) sl__kvstore_key_free(kv->keys[k]);
  sl__tensor_free(kv->close_content);
  pthread_mutex_destroy(&kv->lock);
  free(kv->keys);
  sl__owners_close(&kv->owners);
  free(kv);
}
