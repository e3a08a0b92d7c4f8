/* Captures calls into a graph (core/graph/graph.h). */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/graph/graph_state.h"
#include "core/memory/limits.h"
#include "core/runtime/chain.h"

enum sl_status sl__graph_new(struct sl_context *context, struct sl__op *op,
                             struct sl__op *helper_op, struct sl__graph **graph) {
  *graph = sl__alloc(1, sizeof **graph, "a captured graph");
  if (!*graph) return SL_NO_MEMORY;
  (*graph)->context = context;
  (*graph)->op = op;
  (*graph)->helper_op = helper_op;
  (*graph)->join_message.run = sl__graph_join_team;
  return SL_OK;
}

static void subgraph_clear(struct sl__subgraph *s) {
  sl__subgraph_forget_recordings(s);
  sl__team_free(s->team);
  free(s->group_phases);
  free(s->groups);
  free(s->tensors);
  free(s->use);
  free(s->modes);
  free(s->name);
}

void sl__graph_free(struct sl__graph *g) {
  if (!g) return;
  while (__atomic_load_n(&g->helpers, __ATOMIC_ACQUIRE)) {
    if (__atomic_load_n(&g->context->abandoned, __ATOMIC_ACQUIRE))
      return; /* a helper may still come */
    sched_yield();
  }
  sl__chain_free(g->chain);
  if (g->memory) __atomic_fetch_sub(&g->context->chain_bytes, g->memory->bytes, __ATOMIC_RELAXED);
  sl__tensor_free(g->memory);
  for (int i = 0; i < g->subgraph_count; i++) subgraph_clear(&g->subgraphs[i]);
  for (int i = 0; i < g->call_count; i++) {
    free(g->calls[i].tensor);
    free(g->calls[i].buffer);
    free(g->calls[i].args);
  }
  free(g->subgraphs);
  free(g->calls);
  free(g->uses);
  free(g->kept);
  free(g);
}

int sl__graph_tasks(const struct sl__graph *graph) { return graph->subgraph_count; }

int sl__graph_members(const struct sl__graph *graph) {
  int most = 0;
  for (int i = 0; i < graph->subgraph_count; i++)
    if (graph->subgraphs[i].members > most) most = graph->subgraphs[i].members;
  return most;
}

/* ---- capturing calls ---- */

static bool grow(void **list, int count, int *room, size_t size) {
  if (count < *room) return true;
  int more = *room ? 2 * *room : 32;
  void *longer = sl__realloc(*list, (size_t)more, size, "a captured graph");
  if (!longer) return false;
  *list = longer;
  *room = more;
  return true;
}

struct whole_use {
  const struct sl__tensor *whole;
  int use;
};

static int by_whole(const void *a, const void *b) {
  const struct whole_use *x = a, *y = b;
  if (x->whole == y->whole) return (x->use > y->use) - (x->use < y->use);
  return (uintptr_t)x->whole < (uintptr_t)y->whole ? -1 : 1;
}

int *sl__graph_wholes(const struct sl__graph *g) {
  size_t count = (size_t)g->use_count;
  int *wholes = sl__alloc(count, sizeof *wholes, "a captured graph");
  struct whole_use *sorted = sl__alloc(count, sizeof *sorted, "a captured graph");
  for (int i = 0; sorted && i < g->use_count; i++)
    sorted[i] = (struct whole_use){sl__whole_of(g->uses[i].tensor), i};
  if (sorted && count) qsort(sorted, count, sizeof *sorted, by_whole);
  for (int i = 0, first = 0; wholes && sorted && i < g->use_count; i++) {
    if (sorted[i].whole != sorted[first].whole) first = i;
    wholes[sorted[i].use] = sorted[first].use;
  }
  if (!sorted) free(wholes);
  bool fine = sorted;
  free(sorted);
  return fine ? wholes : NULL;
}

int sl__graph_add_use(struct sl__graph *g, const struct tensor_use *use) {
  if (!grow((void **)&g->uses, g->use_count, &g->use_room, sizeof *g->uses)) return -1;
  g->uses[g->use_count] = *use;
  return g->use_count++;
}

/* Its index in the graph's uses; -1 without memory. */
static int use_of(struct sl__graph *g, struct sl__tensor *tensor, char access) {
  for (int i = 0; i < g->use_count; i++)
    if (g->uses[i].tensor == tensor) return i;
  const struct tensor_use use = {
      .tensor = tensor, .is_written_first = access == 'w', .is_scratch = access == 's'};
  return sl__graph_add_use(g, &use);
}

void sl__graph_use_weight_cache(struct sl__graph *graph, struct sl__weight_cache *cache,
                                const struct sl__tensor *input) {
  graph->weight_cache = cache;
  graph->input = input;
}

void sl__graph_cores(struct sl__graph *graph, int most) { graph->cores = most; }

void sl__graph_join_slices(struct sl__graph *graph, double microseconds) {
  graph->slice_us = microseconds;
}

static enum sl_status keep(struct sl__graph *g, const struct kept_tensor *kept) {
  if (!grow((void **)&g->kept, g->kept_count, &g->kept_room, sizeof *g->kept)) return SL_NO_MEMORY;
  g->kept[g->kept_count++] = *kept;
  return SL_OK;
}

enum sl_status sl__graph_keep(struct sl__graph *graph, struct sl__tensor *tensor) {
  return keep(graph, &(struct kept_tensor){.tensor = tensor});
}

enum sl_status sl__graph_pass_on(struct sl__graph *graph, struct sl__tensor *tensor) {
  return keep(graph, &(struct kept_tensor){.tensor = tensor, .is_passed_on = true});
}

enum sl_status sl__graph_bind(struct sl__graph *graph, struct sl__tensor *tensor) {
  enum sl_status status =
      keep(graph, &(struct kept_tensor){.tensor = tensor, .bound = graph->bound_count + 1});
  graph->bound_count += status == SL_OK;
  return status;
}

void sl__graph_mark_kept(struct sl__graph *g) {
  for (int i = 0; i < g->use_count; i++)
    for (int k = 0; k < g->kept_count; k++) {
      if (g->uses[i].tensor != g->kept[k].tensor) continue;
      g->uses[i].is_kept = true;
      g->uses[i].is_passed_on |= g->kept[k].is_passed_on;
      if (g->kept[k].bound) g->uses[i].bound = g->kept[k].bound;
    }
}

void sl__graph_cut(struct sl__graph *graph, int parts) { graph->forced_parts = parts; }

char sl__call_access(char letter, bool accumulate) {
  char access = sl__access(letter);
  return access == 'a' ? (accumulate ? 'm' : 'w') : access;
}

static enum sl_status append(struct sl__graph *g, const struct sl__call *from) {
  const char *modes = from->op->modes;
  int scratches = 0;
  if (!grow((void **)&g->calls, g->call_count, &g->call_room, sizeof *g->calls))
    return SL_NO_MEMORY;
  bool on_gpu = from->op->codelet.cuda_funcs[0] && starpu_cuda_worker_get_count();
  struct call *call = &g->calls[g->call_count];
  *call = (struct call){.op = from->op,
                        .name = from->launch->name ? from->launch->name : from->op->codelet.name,
                        .place = from->launch->place,
                        .mark = from->launch->mark,
                        .priority = from->launch->priority,
                        .renew = from->launch->renew,
                        .varies = from->launch->varies,
                        .absorb_input = from->launch->absorb_input,
                        .flops = from->flops,
                        .count = from->count,
                        .args_size = sizeof *call->args + from->args_size};
  /* two calls that may run at the same places get equal places */
  if (call->place.where != STARPU_CUDA) sl__place_here(&call->place, on_gpu);
  call->tensor = sl__alloc((size_t)from->count, sizeof *call->tensor, "a captured graph");
  call->args = sl__alloc(1, call->args_size, "a captured graph");
  if (!from->header->bf16_mask) {
    call->cut = from->launch->cut;
    call->prepack = from->launch->prepack;
  }
  g->call_count++; /* sl__graph_free frees it from here on */
  if (!call->tensor || !call->args) return SL_NO_MEMORY;
  *call->args = *from->header;
  if (from->args_size) memcpy(call->args + 1, from->args, from->args_size);
  for (int i = 0; i < from->count; i++) {
    char access = sl__call_access(*modes, from->header->accumulate);
    call->tensor[i] = use_of(g, from->tensors[i], access);
    if (call->tensor[i] < 0) return SL_NO_MEMORY;
    if (access != 'r') g->uses[call->tensor[i]].is_written = true;
    scratches += access == 's'; /* all scratch tensors of a task share their memory */
    if (access == 'w' && !call->rows) {
      call->rows = from->tensors[i]->shape.dim[0];
      call->outputs = sl_shape_count(&from->tensors[i]->shape);
    }
    if (scratches > 1)
      return sl__fail(SL_UNSUPPORTED, "%s: a call with two scratch tensors cannot be captured",
                      from->op->codelet.name);
    modes = sl__next_mode(modes);
  }
  return SL_OK;
}

bool sl__call_is_for_cpus(const struct call *call) {
  return !(call->place.where & STARPU_CUDA && starpu_cuda_worker_get_count());
}

bool sl__call_goes_by_rows(const struct call *call, int64_t rows) {
  return call->cut.units && call->cut.flat && !call->cut.phases && rows && call->rows == rows &&
         call->cut.units % rows == 0;
}

bool sl__same_place(const struct sl__place *a, const struct sl__place *b) {
  return a->where == b->where && a->worker == b->worker;
}

/* ---- the context's part ---- */

/* Other threads may submit meanwhile, and compare the thread. */
void sl__graph_capture(struct sl__graph *graph) {
  struct sl__graphs *graphs = graph->context->graphs;
  __atomic_store_n(&graphs->capturer, pthread_self(), __ATOMIC_RELAXED);
  __atomic_store_n(&graphs->capturing, graph, __ATOMIC_RELEASE);
}

struct sl__graph *sl__graph_capturing(const struct sl_context *context) {
  const struct sl__graphs *graphs = context->graphs;
  struct sl__graph *graph = __atomic_load_n(&graphs->capturing, __ATOMIC_ACQUIRE);
  pthread_t capturer = __atomic_load_n(&graphs->capturer, __ATOMIC_RELAXED);
  return graph && pthread_equal(capturer, pthread_self()) ? graph : NULL;
}

/* A hook instead of a submission. */
static bool capture_call(void *context, const struct sl__call *call, enum sl_status *status) {
  struct sl__graph *graph = sl__graph_capturing(context);
  if (!graph) return false;
  bool has_no_kernel = call->launch->place.where == STARPU_CUDA && !call->op->codelet.cuda_funcs[0];
  *status = has_no_kernel ? sl__fail_no_kernel(call) : append(graph, call);
  return true;
}

/* StarPU numbers a worker's ordered tasks from its start on: no context can share that with another
 * one. Where memory or the number of tasks is limited, a submission waits for other tasks to end.
 */
static bool may_chain(const struct sl_context *context) {
  bool is_limited = sl__gpu_memory_is_limited() || sl__graph_memory_is_limited() ||
                    sl__memory_limit(context->memory) || getenv("STARPU_MINIMUM_AVAILABLE_MEM") ||
                    getenv("STARPU_LIMIT_MAX_SUBMITTED_TASKS");
  return starpu_cuda_worker_get_count() && context->began_starpu && !is_limited;
}

enum sl_status sl__graphs_open(struct sl_context *context) {
  context->graphs = sl__alloc(1, sizeof *context->graphs, "the context");
  if (!context->graphs) return SL_NO_MEMORY;
  context->may_chain = may_chain(context);
  const struct sl__submit_hook hook = {.instead = capture_call, .data = context};
  return sl__submit_hook_add(context, &hook);
}

void sl__graphs_close(struct sl_context *context) {
  free(context->graphs);
  context->graphs = NULL;
}
