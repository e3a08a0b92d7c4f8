/* The inside of an exchange, for exchange.c and parameter_server*.c. */
#ifndef SL_PARALLEL_PARAMS_EXCHANGE_STATE_H
#define SL_PARALLEL_PARAMS_EXCHANGE_STATE_H

#include "core/base/error.h"
#include "parallel/params/exchange.h"
#include "parallel/step/plan.h"

struct sl__exchange_message {
  int owner;
  const int *shards;
  int count;
};

struct sl__exchange {
  struct sl_context *context;
  struct sl__ranks ranks;
  const struct sl__shard *shards;
  int shard_count;
  int *order; /* shards, message by message */
  struct sl__exchange_message *messages;
  int message_count;
  int tag;
  struct sl__tensor ***terms; /* [shard][worker], on the owner; its own worker's is borrowed */
  struct sl__compress compress;
  /* [shard], only if gradients are compressed */
  struct sl__tensor **packed, **residual; /* on a worker */
  struct sl__tensor **total;              /* on the owner: sum of all workers' gradients */
  struct sl__tensor **list;               /* room for the tensors of one task */
  struct sl__parameter_server *server;    /* of dist_async; else NULL */
  enum sl__timeout_policy timeout;        /* for gradients */
};

static inline int sl__push_tag(const struct sl__exchange *x, int m) {
  return x->tag + SL__TAG_MESSAGES + 2 * m;
}
static inline int sl__pull_tag(const struct sl__exchange *x, int m) {
  return sl__push_tag(x, m) + 1;
}
static inline bool sl__is_compressed(const struct sl__exchange *x) {
  return x->compress.method != SL__COMPRESS_NONE;
}

/* To begin a message takes no time and lets other ranks go on, so it has the highest priority. It
 * runs on the GPU that has the shard; large shards have a message each. */
static inline struct sl__launch sl__message_launch(const struct sl__exchange *x, int m) {
  const struct sl__launch *first = &x->shards[x->messages[m].shards[0]].launch;
  struct sl__launch launch = {.name = first->name, .priority = SL__PRIORITY_LOSS};
  if (first->place.where == STARPU_CUDA) launch.place = first->place;
  return launch;
}

/* Submit: *out receives the tensor that a worker sends for its gradient, compressed or not. */
enum sl_status sl__exchange_pack(struct sl__exchange *x, int shard, struct sl__tensor **out);

/* For sl__exchange_free. */
void sl__parameter_server_free(struct sl__exchange *x);

#endif
