/* Finds graphs whose runs may begin while the one before still runs: steps of a training that are
 * one task of one GPU (core/runtime/chain.h). */
#include <stdlib.h>

#include "core/base/error.h"
#include "core/graph/graph_state.h"
#include "core/runtime/chain.h"

/* Bytes of memory of all chains, at most: a step with more takes milliseconds, so a pause of 20 us
 * after it does not matter, and its memory should serve other tasks, too. */
static const size_t most_memory = (size_t)1 << 30;

/* Is the tensor neither split nor a part of another one? */
static bool is_undivided(const struct sl__tensor *t) {
  return !t->whole && !t->view_count && !t->is_piece;
}

/* Bound tensors are others in each run. */
static bool is_own(const struct sl__graph *g, int use) { return use < 0 || !g->uses[use].bound; }

/* Is the graph one task of a GPU, whose results stay there? */
static bool is_lone_on_gpu(const struct sl__graph *g) {
  const struct sl__subgraph *s = &g->subgraphs[0];
  if (g->slice_us < 1 || g->forced_parts || g->subgraph_count > 1 || !s->place.worker ||
      sl__subgraph_is_message(s) ||
      starpu_worker_get_type(s->place.worker - 1) != STARPU_CUDA_WORKER)
    return false;
  for (int i = 0; i < g->use_count; i++)
    if (g->uses[i].is_passed_on) return false;
  size_t bytes = __atomic_load_n(&g->context->chain_bytes, __ATOMIC_RELAXED);
  return g->context->may_chain && bytes + s->workspace_bytes <= most_memory;
}

/* Do its runs depend on each other; and by whole tensors alone? Otherwise StarPU sees no dependency
 * between them, or one that a chain could not take the place of. */
static bool may_chain(const struct sl__graph *g) {
  const struct sl__subgraph *s = &g->subgraphs[0];
  bool writes_own = false;
  for (int b = 1; b < s->count; b++) {
    if (!is_own(g, s->use[b]) || s->modes[b] == 'x') continue;
    if (!is_undivided(s->tensors[b])) return false;
    writes_own = true;
  }
  return writes_own;
}

/* Memory of its own: scratch memory would be as much for each run that has begun. */
static enum sl_status give_memory(struct sl__graph *g) {
  struct sl__subgraph *s = &g->subgraphs[0];
  struct sl_shape shape = SL_SHAPE((int64_t)(s->workspace_bytes + 4) / 4);
  enum sl_status status = sl__tensor_temporary(g->context, &shape, SL_F32, &g->memory);
  if (status != SL_OK) return status;
  __atomic_fetch_add(&g->context->chain_bytes, g->memory->bytes, __ATOMIC_RELAXED);
  s->tensors[0] = g->memory;
  s->modes[0] = 'z';
  return SL_OK;
}

enum sl_status sl__graph_find_chain(struct sl__graph *g) {
  static const struct sl__subgraph_args nothing;
  struct sl__subgraph *s = &g->subgraphs[0];
  if (!is_lone_on_gpu(g) || !may_chain(g)) return SL_OK;
  bool *own = sl__alloc((size_t)s->count, sizeof *own, "a captured graph");
  if (!own) return SL_NO_MEMORY;
  for (int b = 0; b < s->count; b++) own[b] = is_own(g, s->use[b]);
  const struct sl__chain_options options = {.worker = s->place.worker - 1,
                                            .count = s->count,
                                            .is_own = own,
                                            .op = g->op,
                                            .args = &nothing,
                                            .args_size = sizeof nothing};
  enum sl_status status = give_memory(g);
  if (status == SL_OK) status = sl__chain_new(g->context, &options, &g->chain);
  free(own);
  return status;
}
