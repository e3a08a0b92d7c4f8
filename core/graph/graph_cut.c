/* Cuts the calls of a captured graph into subgraphs. */
#include <stdlib.h>

#include "core/base/error.h"
#include "core/graph/graph_state.h"
#include "core/memory/limits.h"
#include "core/runtime/cuda.h"

/* The cut so far. A view's reads and writes count for its whole. */
struct cut {
  struct sl__graph *graph;
  size_t most;         /* bytes of a subgraph; 0: no limit */
  int *subgraph;       /* [calls] */
  int *whole;          /* [uses] the first use of the tensor or of any view of it */
  int *written, *read; /* [uses] by `whole`: the last subgraph that writes it, that uses it */
  bool *has_both;      /* [uses] by `whole`: calls use it, and others a view of it */
  bool *is_closed;     /* [calls] of each subgraph: no call joins it any more */
  double *us;          /* [calls] of each subgraph */
  bool is_small_step;  /* one task has all of the step */
  bool mixes_views;    /* that task may use a tensor and views of it */
  bool *is_small_part; /* [calls] one task has the call's part of the step */
  size_t *bytes;       /* [calls] the same; only counted with a limit */
};

/* The largest size of a task's tensors together: a model that is larger than a device's memory, or
 * than the limit on it, then passes through it piece by piece. Each worker has its own scratch
 * memory, of up to twice the size asked for, and keeps it in several sizes: on a GPU, which has the
 * parameters as well, a quarter of the memory at most. 0: no limit. */
static size_t most_bytes(const struct sl_context *context) {
  size_t workers = starpu_worker_get_count(), most = sl__memory_limit(context->memory);
  most /= 4 * (workers ? workers : 1);
  for (int w = 0; w < (int)workers; w++) {
    size_t room = sl__cuda_task_limit(w) / 16;
    if (room && (!most || room < most)) most = room;
  }
  return most;
}

/* ---- the tensors of a subgraph ---- */

static bool has_use(const struct cut *cut, int subgraph, int end, int use) {
  const struct sl__graph *g = cut->graph;
  for (int c = g->subgraphs[subgraph].first; c < end; c++)
    for (int k = 0; k < g->calls[c].count; k++)
      if (cut->subgraph[c] == subgraph && g->calls[c].tensor[k] == use) return true;
  return false;
}

/* Bytes of the tensors that the call uses, without those that the subgraph has. */
static size_t added_bytes(const struct cut *cut, int subgraph, int at) {
  const struct call *call = &cut->graph->calls[at];
  size_t bytes = 0;
  for (int k = 0; k < call->count; k++)
    if (!has_use(cut, subgraph, at, call->tensor[k]))
      bytes += cut->graph->uses[call->tensor[k]].tensor->capacity;
  return bytes;
}

/* Is one of the uses a view of the other's tensor? */
static bool are_whole_and_view(const struct cut *cut, int i, int k) {
  const struct tensor_use *uses = cut->graph->uses;
  return cut->whole[i] == cut->whole[k] && !uses[i].tensor->whole != !uses[k].tensor->whole;
}

/* StarPU lets no task use a tensor and a view of it. */
static bool would_mix_views(const struct cut *cut, int subgraph, int at) {
  const struct sl__graph *g = cut->graph;
  const struct call *call = &g->calls[at];
  for (int k = 0; k < call->count; k++) {
    if (!cut->has_both[cut->whole[call->tensor[k]]]) continue;
    for (int c = g->subgraphs[subgraph].first; c < at; c++)
      for (int i = 0; i < g->calls[c].count && cut->subgraph[c] == subgraph; i++)
        if (are_whole_and_view(cut, g->calls[c].tensor[i], call->tensor[k])) return true;
  }
  return false;
}

/* ---- joining a call to a subgraph ---- */

/* An estimate, at rates that a core reaches with large tensors. */
static double estimated_us(const struct sl__graph *g, const struct call *call) {
  const double flops_per_us = 5e4, bytes_per_us = 2e4;
  double bytes = 0;
  for (int k = 0; k < call->count; k++)
    if (!g->uses[call->tensor[k]].is_scratch)
      bytes += (double)g->uses[call->tensor[k]].tensor->bytes;
  double computing = call->flops / flops_per_us, moving = bytes / bytes_per_us;
  return computing > moving ? computing : moving;
}

/* A GPU works on one subgraph after the other, whatever part of a step it is. */
static bool joins_parts(const struct sl__graph *g, const struct sl__place *place) {
  bool one_by_one = g->slice_us > 0 && g->slice_us < 1;
  return place->worker && starpu_worker_get_type(place->worker - 1) == STARPU_CUDA_WORKER &&
         !one_by_one;
}

static bool same_slice(const struct cut *cut, int i, int k) {
  const struct call *a = &cut->graph->calls[i], *b = &cut->graph->calls[k];
  if (cut->is_small_step) return true;
  if (!sl__same_part(a, b)) return false;
  return cut->is_small_part[i] ||
         (a->mark.aside == b->mark.aside && a->op->updates == b->op->updates);
}

enum { NO_REPLICA = -1 };

/* Can a team do the replicas side by side, and then the updates? Not where a replica uses a
 * tensor that another one wrote (the running statistics of a batch normalisation), nor where
 * updates read one that a call beside the replicas wrote (a norm, a sum): these would be done one
 * after the other. */
static bool has_branches(const struct cut *cut) {
  const struct sl__graph *g = cut->graph;
  int *writer = cut->written; /* a replica, NO_REPLICA, or 0: not written, or by an update */
  bool fine = true;
  for (int c = 0; c < g->call_count && fine; c++) {
    const struct call *call = &g->calls[c];
    const char *modes = call->op->modes;
    int replica = call->mark.replica, own = replica || call->op->updates ? replica : NO_REPLICA;
    for (int k = 0; k < call->count; k++, modes = sl__next_mode(modes)) {
      int *last = &writer[cut->whole[call->tensor[k]]];
      char access = sl__call_access(*modes, call->args->accumulate);
      if (replica && *last > 0 && *last != replica) fine = false;
      if (call->op->updates && *last == NO_REPLICA) fine = false;
      if (access == 'w' || access == 'm') *last = own;
    }
  }
  for (int i = 0; i < g->use_count; i++) writer[i] = 0;
  return fine;
}

static bool names_scheduler(void) {
  const char *name = getenv("STARPU_SCHED");
  return name && *name;
}

/* May a team do the step as one task? Each worker needs a replica. If the user has named
 * a scheduler of StarPU's, that is to choose. A view is found in the whole tensor, which has a
 * value as soon as one of its views has one: not if those are written first. */
static bool is_for_team(const struct cut *cut) {
  const struct sl__graph *g = cut->graph;
  int workers = (int)starpu_cpu_worker_get_count(), replicas = 0;
  if (cut->most || workers > SL__TEAM_MOST || !sl__graph_may_branch(g)) return false;
  if (names_scheduler()) return false;
  for (int c = 0; c < g->call_count; c++) {
    const struct sl__place *place = &g->calls[c].place;
    if (place->worker || place->where != STARPU_CPU) return false;
    if (g->calls[c].mark.replica > replicas) replicas = g->calls[c].mark.replica;
  }
  for (int i = 0; i < g->use_count; i++) {
    const struct tensor_use *u = &g->uses[i];
    if (u->tensor->is_piece || (u->tensor->whole && u->is_written_first)) return false;
  }
  return replicas >= workers && has_branches(cut);
}

/* The calls of each part of the step one after the other. */
static int compare_parts(const void *left, const void *right) {
  const struct call *a = *(const struct call *const *)left, *b = *(const struct call *const *)right;
  const int of_a[] = {a->mark.stage, a->mark.replica, a->mark.microbatch, a->mark.chunk},
            of_b[] = {b->mark.stage, b->mark.replica, b->mark.microbatch, b->mark.chunk};
  for (int i = 0; i < 4; i++)
    if (of_a[i] != of_b[i]) return of_a[i] < of_b[i] ? -1 : 1;
  return a < b ? -1 : a > b;
}

/* Which calls are in a part that is small enough to be one task? */
static enum sl_status find_small_parts(struct cut *cut) {
  const struct sl__graph *g = cut->graph;
  const struct call **sorted = sl__alloc((size_t)g->call_count, sizeof(void *), "a captured graph");
  if (!sorted) return SL_NO_MEMORY;
  for (int c = 0; c < g->call_count; c++) sorted[c] = &g->calls[c];
  qsort(sorted, (size_t)g->call_count, sizeof *sorted, compare_parts);
  for (int c = 0, end; c < g->call_count; c = end) {
    double part = 0;
    for (end = c; end < g->call_count && sl__same_part(sorted[end], sorted[c]); end++)
      part += cut->us[sorted[end] - g->calls];
    for (int i = c; i < end; i++)
      cut->is_small_part[sorted[i] - g->calls] = !sorted[i]->mark.stage && part <= 4 * g->slice_us;
  }
  free(sorted);
  return SL_OK;
}

/* Tasks that wait for each other cost more time than a second worker gains, if they are short
 * (measured on two cores: a perceptron of 8 inputs and three layers of 64, batch 256, trains twice
 * as fast in one task as in ten). A team loses no time between tasks, and each of its members has
 * the same work in every step. But StarPU has no choice then, and other tasks wait for the end of
 * the step: so a team does steps that take two cores some milliseconds. Stages are left alone, of
 * this rank and of others: each hands over as early as it can. */
static enum sl_status find_small(struct cut *cut) {
  const struct sl__graph *g = cut->graph;
  double step = 0, *us = cut->us; /* of each call; later of each subgraph */
  bool has_stages = false, is_team = is_for_team(cut);
  for (int c = 0; c < g->call_count; c++) {
    us[c] = estimated_us(g, &g->calls[c]);
    has_stages |= g->calls[c].mark.stage > 0;
    step += us[c];
  }
  if (find_small_parts(cut) != SL_OK) return SL_NO_MEMORY;
  cut->is_small_step = !has_stages && step <= (is_team ? 400 : 8) * g->slice_us;
  cut->mixes_views = cut->is_small_step && is_team;
  for (int c = 0; c < g->call_count; c++) us[c] = 0;
  return SL_OK;
}

/* The first subgraph that the call may join: the call must come after the calls that write its
 * inputs, and after those that use its outputs. */
static int earliest(const struct cut *cut, const struct call *call) {
  const char *modes = call->op->modes;
  int first = 0;
  for (int k = 0; k < call->count; k++, modes = sl__next_mode(modes)) {
    char access = sl__call_access(*modes, call->args->accumulate);
    int whole = cut->whole[call->tensor[k]];
    int last = access == 'r' ? cut->written[whole] : access == 's' ? 0 : cut->read[whole];
    if (last > first) first = last;
  }
  return first;
}

/* Does the call alternate with the next one? */
static bool alternate(const struct call *call) {
  return call->passes_rows || (call->channel_run && call->channel_run == call[1].channel_run);
}

static bool fits(const struct cut *cut, int subgraph, int at) {
  const struct sl__graph *g = cut->graph;
  double us = cut->us[subgraph] + estimated_us(g, &g->calls[at]);
  bool follows = at && alternate(&g->calls[at - 1]) && cut->subgraph[at - 1] == subgraph;
  bool is_short = cut->is_small_step || cut->is_small_part[at];
  bool is_timed = g->slice_us > 0 && !is_short && !joins_parts(g, &g->calls[at].place);
  bool is_late = is_timed && us > g->slice_us && !follows;
  if (cut->is_closed[subgraph] || is_late) return false;
  if (!cut->mixes_views && would_mix_views(cut, subgraph, at)) return false;
  return !cut->most || cut->bytes[subgraph] + added_bytes(cut, subgraph, at) <= cut->most;
}

/* The subgraph that call `at` joins; -1: none. */
static int find_subgraph(const struct cut *cut, int at) {
  const struct sl__graph *g = cut->graph;
  const struct call *call = &g->calls[at];
  int last = g->subgraph_count - 1, first = g->slice_us > 0 ? earliest(cut, call) : last;
  if (sl__call_is_message(call)) return -1;
  for (int s = last; s >= first && s >= 0; s--) {
    const struct call *head = &g->calls[g->subgraphs[s].first];
    if (sl__call_is_message(head)) continue;
    bool by_place = !(g->slice_us > 0) || joins_parts(g, &call->place);
    bool alike = sl__same_place(&head->place, &call->place) &&
                 (by_place || same_slice(cut, g->subgraphs[s].first, at));
    if (alike) return fits(cut, s, at) ? s : -1; /* only the last one of a kind is open */
  }
  return -1;
}

/* Does another device or a message read use k of call `at` before it is written anew, or a task
 * behind the graph? */
static bool leaves(const struct cut *cut, int at, int k) {
  const struct sl__graph *g = cut->graph;
  int whole = cut->whole[g->calls[at].tensor[k]];
  for (int c = at + 1; c < g->call_count; c++) {
    const struct call *call = &g->calls[c];
    const char *modes = call->op->modes;
    bool is_written = false;
    for (int i = 0; i < call->count; i++, modes = sl__next_mode(modes)) {
      if (cut->whole[call->tensor[i]] != whole) continue;
      char access = sl__call_access(*modes, call->args->accumulate);
      bool is_other =
          sl__call_is_message(call) || !sl__same_place(&call->place, &g->calls[at].place);
      if (access != 'w' && is_other) return true;
      is_written = is_written || access != 'r';
    }
    if (is_written) return false;
  }
  return g->uses[g->calls[at].tensor[k]].is_passed_on;
}

/* On a GPU, a subgraph ends where the results of its last call leave the device, so that others
 * need not wait for calls that do not concern them. */
static bool ends_subgraph(const struct cut *cut, int at) {
  const struct call *call = &cut->graph->calls[at];
  const char *modes = call->op->modes;
  if (!joins_parts(cut->graph, &call->place)) return false;
  for (int k = 0; k < call->count; k++, modes = sl__next_mode(modes)) {
    char access = sl__call_access(*modes, call->args->accumulate);
    if ((access == 'w' || access == 'm') && leaves(cut, at, k)) return true;
  }
  return false;
}

/* Nothing more joins the subgraph whose result a message sends, so that it leaves at once. */
static void close_for_message(struct cut *cut, int at) {
  const struct call *call = &cut->graph->calls[at];
  const char *modes = call->op->modes;
  if (!sl__call_is_message(call)) return;
  for (int k = 0; k < call->count; k++, modes = sl__next_mode(modes))
    if (sl__access(*modes) == 'r') cut->is_closed[cut->written[cut->whole[call->tensor[k]]]] = true;
}

static void record(struct cut *cut, int at, int subgraph) {
  const struct call *call = &cut->graph->calls[at];
  const char *modes = call->op->modes;
  if (ends_subgraph(cut, at)) cut->is_closed[subgraph] = true;
  close_for_message(cut, at);
  if (cut->most) cut->bytes[subgraph] += added_bytes(cut, subgraph, at);
  cut->subgraph[at] = subgraph;
  cut->us[subgraph] += estimated_us(cut->graph, call);
  for (int k = 0; k < call->count; k++, modes = sl__next_mode(modes)) {
    char access = sl__call_access(*modes, call->args->accumulate);
    int whole = cut->whole[call->tensor[k]];
    if (access == 's') continue;
    if (cut->read[whole] < subgraph) cut->read[whole] = subgraph;
    if (access != 'r' && cut->written[whole] < subgraph) cut->written[whole] = subgraph;
  }
}

/* ---- all calls ---- */

static enum sl_status cut_open(struct cut *cut, struct sl__graph *g) {
  size_t calls = (size_t)g->call_count, uses = (size_t)g->use_count;
  *cut = (struct cut){.graph = g, .most = most_bytes(g->context)};
  cut->subgraph = sl__alloc(calls, sizeof *cut->subgraph, "a captured graph");
  cut->is_closed = sl__alloc(calls, sizeof *cut->is_closed, "a captured graph");
  cut->us = sl__alloc(calls, sizeof *cut->us, "a captured graph");
  cut->is_small_part = sl__alloc(calls, sizeof *cut->is_small_part, "a captured graph");
  cut->bytes = sl__alloc(calls, sizeof *cut->bytes, "a captured graph");
  cut->whole = sl__graph_wholes(g);
  cut->written = sl__alloc(uses, sizeof *cut->written, "a captured graph");
  cut->read = sl__alloc(uses, sizeof *cut->read, "a captured graph");
  cut->has_both = sl__alloc(uses, sizeof *cut->has_both, "a captured graph");
  bool fine = cut->subgraph && cut->is_closed && cut->us && cut->is_small_part && cut->bytes &&
              cut->whole && cut->written && cut->read && cut->has_both;
  if (!fine) return SL_NO_MEMORY;
  for (int i = 0; i < g->use_count; i++) {
    bool is_view = g->uses[i].tensor->whole, first_is = g->uses[cut->whole[i]].tensor->whole;
    cut->has_both[cut->whole[i]] |= is_view != first_is;
  }
  return find_small(cut);
}

static void cut_close(struct cut *cut) {
  free(cut->subgraph);
  free(cut->is_closed);
  free(cut->us);
  free(cut->is_small_part);
  free(cut->bytes);
  free(cut->whole);
  free(cut->written);
  free(cut->read);
  free(cut->has_both);
}

/* Puts each subgraph's calls together, in their order. */
static enum sl_status sort_calls(const struct cut *cut) {
  struct sl__graph *g = cut->graph;
  struct call *sorted = sl__alloc((size_t)g->call_count, sizeof *sorted, "a captured graph");
  if (!sorted) return SL_NO_MEMORY;
  int count = 0;
  for (int s = 0; s < g->subgraph_count; s++) {
    g->subgraphs[s].first = count;
    for (int c = 0; c < g->call_count; c++)
      if (cut->subgraph[c] == s) sorted[count++] = g->calls[c];
    g->subgraphs[s].end = count;
  }
  free(g->calls);
  g->calls = sorted;
  g->call_room = g->call_count;
  return SL_OK;
}

/* A view is found in the buffer of its whole tensor, if the task has that. */
static void find_wholes(const struct cut *cut) {
  struct tensor_use *uses = cut->graph->uses;
  for (int i = 0; i < cut->graph->use_count; i++) cut->read[i] = -1;
  for (int i = 0; i < cut->graph->use_count; i++)
    if (!uses[i].tensor->whole) cut->read[cut->whole[i]] = i;
  for (int i = 0; i < cut->graph->use_count; i++) {
    const struct sl__tensor *tensor = uses[i].tensor, *whole = tensor->whole;
    if (!whole || cut->read[cut->whole[i]] < 0) continue;
    uses[i].whole = 1 + cut->read[cut->whole[i]];
    for (const struct sl__tensor *view = whole->views; view != tensor; view++)
      uses[i].offset += view->bytes;
  }
}

enum sl_status sl__graph_cut_calls(struct sl__graph *g) {
  struct cut cut;
  enum sl_status status = cut_open(&cut, g);
  if (status == SL_OK) {
    g->subgraphs = sl__alloc((size_t)g->call_count, sizeof *g->subgraphs, "a captured graph");
    if (!g->subgraphs) status = SL_NO_MEMORY;
  }
  for (int c = 0; c < g->call_count && status == SL_OK; c++) {
    int s = find_subgraph(&cut, c);
    if (s < 0) {
      s = g->subgraph_count++;
      g->subgraphs[s] = (struct sl__subgraph){.graph = g, .first = c, .place = g->calls[c].place};
    }
    record(&cut, c, s);
  }
  if (status == SL_OK) status = sort_calls(&cut);
  if (status == SL_OK && cut.mixes_views) find_wholes(&cut);
  cut_close(&cut);
  return status;
}
