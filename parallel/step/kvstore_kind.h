/* The kinds of KVStore: between which ranks gradients travel, and which devices own parameters. */
#ifndef SL_PARALLEL_STEP_KVSTORE_KIND_H
#define SL_PARALLEL_STEP_KVSTORE_KIND_H

#include <starling/parallel.h>

static inline bool sl__kvstore_is_distributed(enum sl_kvstore_kind kind) {
  return kind >= SL_KVSTORE_DIST_SYNC;
}
static inline bool sl__kvstore_is_async(enum sl_kvstore_kind kind) {
  return kind == SL_KVSTORE_DIST_ASYNC || kind == SL_KVSTORE_DIST_ASYNC_DEVICE;
}
/* Are the listed devices the owners? With the other kinds the CPU owns all shards. */
static inline bool sl__kvstore_is_on_devices(enum sl_kvstore_kind kind) {
  return kind == SL_KVSTORE_DEVICE || kind == SL_KVSTORE_DIST_SYNC_DEVICE ||
         kind == SL_KVSTORE_DIST_ASYNC_DEVICE;
}

#endif
