/* The ranks that train together: workers, groups of ranks, and owners of shards. */
#ifndef SL_PARALLEL_PARAMS_RANKS_H
#define SL_PARALLEL_PARAMS_RANKS_H

#include <starling/parallel.h>

#include "core/runtime/context.h"

/* Each worker is a group of `members` ranks that share the model's layers between them (0 means 1);
 * the first group is ranks 0 .. members - 1. If there are more ranks than those of the workers, the
 * others are servers and own all shards. Without servers, member j of each group owns shards of
 * the layers of member j. */
struct sl__ranks {
  int rank, size, workers, members;
};

static inline int sl__members(const struct sl__ranks *ranks) {
  return ranks->members > 1 ? ranks->members : 1;
}
static inline int sl__first_owner(const struct sl__ranks *ranks) {
  return ranks->size > ranks->workers * sl__members(ranks) ? ranks->workers : 0;
}
static inline bool sl__is_worker(const struct sl__ranks *ranks) {
  return ranks->rank < ranks->workers * sl__members(ranks);
}
/* Number of the worker that this rank belongs to, and the rank's place in the worker's group. */
static inline int sl__worker(const struct sl__ranks *ranks) {
  return ranks->rank / sl__members(ranks);
}
static inline int sl__member(const struct sl__ranks *ranks) {
  return ranks->rank % sl__members(ranks);
}

/* The ranks of a dist_* kind; all 0 for the other kinds. */
enum sl_status sl__ranks_find(const struct sl_context *context, enum sl_kvstore_kind kind,
                              int servers, struct sl__ranks *ranks);

#endif
