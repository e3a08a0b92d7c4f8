#include "parallel/params/ranks.h"

#include "core/base/error.h"
#include "core/net/net.h"
#include "parallel/step/kvstore_kind.h"

enum sl_status sl__ranks_find(const struct sl_context *context, enum sl_kvstore_kind kind,
                              int servers, struct sl__ranks *ranks) {
  *ranks = (struct sl__ranks){0};
  if (!sl__kvstore_is_distributed(kind)) return SL_OK;
  if (!context->net)
    return sl__fail(SL_BAD_ARGUMENT,
                    "KVStore %s: open the context with sl_context_options.distributed",
                    sl_kvstore_name(kind));
  int size = sl__net_size(context->net);
  if (servers < 0 || servers >= size)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%d servers of %d ranks: at least one rank must be a worker; start more ranks "
                    "(mpirun -np %d) or take fewer servers",
                    servers, size, servers + 1);
  *ranks = (struct sl__ranks){
      .rank = sl__net_rank(context->net), .size = size, .workers = size - servers, .members = 1};
  return SL_OK;
}
