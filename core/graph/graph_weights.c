/* The graph's weights in the weight cache: plain copies, and the layouts that kernels read. */
#include <stdlib.h>

#include "core/base/error.h"
#include "core/graph/graph_state.h"

static bool may_be_cached(const struct sl__graph *g, const struct tensor_use *u) {
  return !u->is_written && u->tensor != g->input;
}

/* Does any call read the tensor itself, and not its prepacked layout? */
static bool is_read_itself(const struct sl__graph *g, int number) {
  for (int c = 0; c < g->call_count; c++)
    for (int k = 0; k < g->calls[c].count; k++) {
      const struct call *call = &g->calls[c];
      bool is_prepacked = call->prepack.make && call->prepack.buffer == k;
      if (call->tensor[k] == number && !is_prepacked) return true;
    }
  return false;
}

static struct sl__weight_cache_item plain_item(const struct tensor_use *u) {
  return (struct sl__weight_cache_item){.tensor = u->tensor, .bytes = u->tensor->bytes};
}

static struct sl__weight_cache_item prepacked_item(const struct sl__graph *g,
                                                   const struct call *call) {
  return (struct sl__weight_cache_item){
      .tensor = g->uses[call->tensor[call->prepack.buffer]].tensor,
      .make = call->prepack.make,
      .bytes = call->prepack.bytes,
      .key = call->prepack.key,
      .args = call->args + 1,
      .args_size = call->args_size - sizeof *call->args};
}

/* Prepacked layouts first: a weight that calls read only in such a layout needs no plain copy. A
 * GPU reads plain copies only, so these get a member of their own. */
static enum sl_status fill_cache(struct sl__graph *g) {
  enum sl_status status = SL_OK;
  for (int c = 0; c < g->call_count; c++) {
    if (!g->calls[c].prepack.make) continue;
    const struct sl__weight_cache_item item = prepacked_item(g, &g->calls[c]);
    SL__TRY(sl__weight_cache_add(g->weight_cache, &item));
    if (!sl__weight_cache_holds(g->weight_cache, &item)) g->calls[c].prepack.make = NULL;
  }
  if (starpu_cuda_worker_get_count()) SL__TRY(sl__weight_cache_close(g->weight_cache));
  for (int i = 0; i < g->use_count; i++) {
    const struct sl__weight_cache_item item = plain_item(&g->uses[i]);
    if (may_be_cached(g, &g->uses[i]) && is_read_itself(g, i))
      SL__TRY(sl__weight_cache_add(g->weight_cache, &item));
  }
  SL__TRY(sl__weight_cache_close(g->weight_cache));
out:
  return status;
}

/* The call reads the prepacked layout, which is a tensor_use of its own. */
static enum sl_status use_prepacked(struct sl__graph *g, struct call *call) {
  const struct sl__weight_cache_item item = prepacked_item(g, call);
  const struct sl__weight_cache *member = sl__weight_cache_member(g->weight_cache, &item);
  if (!member) return SL_OK;
  int *tensor = &call->tensor[call->prepack.buffer];
  const struct tensor_use use = {.tensor = item.tensor,
                                 .weight_cache = member,
                                 .offset = (size_t)sl__weight_cache_offset(member, &item)};
  *tensor = sl__graph_add_use(g, &use);
  if (*tensor < 0) return SL_NO_MEMORY;
  call->args->is_prepacked = 1;
  return SL_OK;
}

/* Only for a graph of one task: each of several tasks would need the whole cache, of which it reads
 * a part. And only if there are CPUs, which fill the cache. */
enum sl_status sl__graph_cache_weights(struct sl__graph *g) {
  enum sl_status status = SL_OK;
  if (!g->weight_cache || g->subgraph_count > 1 || !starpu_cpu_worker_get_count()) return SL_OK;
  for (int c = 0; c < g->call_count; c++) {
    struct call *call = &g->calls[c];
    bool may = call->prepack.make && sl__call_is_for_cpus(call);
    if (!may || !may_be_cached(g, &g->uses[call->tensor[call->prepack.buffer]]))
      call->prepack.make = NULL;
  }
  SL__TRY(fill_cache(g));
  int count = g->use_count;
  for (int c = 0; c < g->call_count; c++)
    if (g->calls[c].prepack.make) SL__TRY(use_prepacked(g, &g->calls[c]));
  for (int i = 0; i < count; i++) {
    struct tensor_use *u = &g->uses[i];
    const struct sl__weight_cache_item item = plain_item(u);
    u->weight_cache = may_be_cached(g, u) ? sl__weight_cache_member(g->weight_cache, &item) : NULL;
    if (u->weight_cache) u->offset = (size_t)sl__weight_cache_offset(u->weight_cache, &item);
  }
out:
  return status;
}
