/* The exchange's inside, shared by its two manners: in step (exchange.c) and not (async.c). */
#ifndef SL_PARALLEL_PARAMS_EXCHANGE_STATE_H
#define SL_PARALLEL_PARAMS_EXCHANGE_STATE_H

#include "core/base/error.h"
#include "parallel/params/exchange.h"
#include "parallel/step/plan.h"

enum { SL__TAG_SHARE, SL__TAG_MESSAGES };

struct sl__exchange_message {
  int owner;
  const int *parcels;
  int count;
};

struct sl__exchange {
  struct sl_context *context;
  struct sl__ranks ranks;
  struct sl__parcel *parcels;
  int parcel_count;
  int *order; /* parcels, message by message */
  struct sl__exchange_message *messages;
  int message_count;
  int tag;
  struct sl__tensor **
      *terms; /* [parcel][worker], on its owner; a worker's own is set by its push */
  struct sl__compress compress;
  /* [parcel], of compressed gradients; else NULL */
  struct sl__tensor **packed, **residual; /* of a worker */
  struct sl__tensor **total;              /* on the owner: all workers' added up */
  struct sl__tensor **list;               /* room for the tensors of one task */
  struct sl__parameter_server *service;   /* of dist_async; else NULL */
  enum sl__timeout_policy patience;       /* with gradients */
};

static inline int sl__push_tag(const struct sl__exchange *x, int m) {
  return x->tag + SL__TAG_MESSAGES + 2 * m;
}
static inline bool sl__is_compressed(const struct sl__exchange *x) {
  return x->compress.method != SL__COMPRESS_NONE;
}

/* Beginning a message takes no time and lets others go on: before all else. On the GPU that has the
 * shard, if it may be; large ones have one each. */
static inline struct sl__launch sl__message_launch(const struct sl__exchange *x, int m) {
  const struct sl__launch *first = &x->parcels[x->messages[m].parcels[0]].launch;
  struct sl__launch launch = {.name = x->parcels[x->messages[m].parcels[0]].name,
                              .priority = SL__PRIORITY_LOSS};
  if (first->place.where == STARPU_CUDA) launch.place = first->place;
  return launch;
}

/* Submit: what a worker sends of its gradient, compressed or not. */
enum sl_status sl__exchange_pack(struct sl__exchange *x, int parcel, struct sl__tensor *sum,
                                 struct sl__tensor **out);

#endif
