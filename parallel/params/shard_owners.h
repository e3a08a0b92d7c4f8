/* The devices that may own shards, and the number of elements that each one owns. */
#ifndef SL_PARALLEL_PARAMS_SHARD_OWNERS_H
#define SL_PARALLEL_PARAMS_SHARD_OWNERS_H

#include "parallel/params/shard.h"

struct sl__owners {
  struct sl__device *devices; /* of this rank: the CPU, or every worker of the listed devices */
  int count;
  int64_t *load;      /* [count] elements that each device owns */
  int64_t *rank_load; /* [ranks, at least 1] elements that each rank owns */
};

enum sl_status sl__owners_open(const struct sl_context *context, enum sl_kvstore_kind kind,
                               const struct sl__ranks *ranks, struct sl__owners *owners);
void sl__owners_close(struct sl__owners *owners);

/* Index of the least of load[first], load[first + stride], ... below end; of equals, the first.
 * Indices whose `excluded` is true are left out (NULL: none). -1 if all are excluded. */
int sl__owners_lightest(const int64_t *load, int first, int end, int stride, const bool *excluded);

/* A shard whose rank and device are chosen adds to their loads, or (sign -1) leaves them. is_mine:
 * this rank owns it. */
void sl__owners_count(struct sl__owners *owners, const struct sl__shard *shard, bool is_mine,
                      int sign);

#endif
