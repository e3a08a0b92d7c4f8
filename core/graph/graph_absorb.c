/* Calls that compute inputs of theirs by themselves (struct sl__launch, absorb_input), so that
 * these are never stored: of captured steps, an optimizer's step with a layer's gradient. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/graph/graph_state.h"

/* A call's use of a tensor or of a part of it. */
struct access {
  int call;
  char way; /* 'r', 'w', 'm' or 's' */
};

/* What is known of the calls so far. */
struct absorption {
  struct sl__graph *graph;
  bool *absorbs, *is_removed; /* [calls] */
  /* The accesses to each tensor, in the order of the calls; of the one that use i is of, or is a
   * part of, those from first[whole[i]] on, before first[whole[i] + 1]. */
  int *whole, *first; /* [uses], [uses + 1] */
  struct access *accesses;
  bool *is_kept; /* [uses] is any part of the tensor of whole[i] kept? At whole[i]. */
};

/* ---- the accesses to each tensor ---- */

static void count_accesses(struct absorption *a) {
  const struct sl__graph *g = a->graph;
  for (int c = 0; c < g->call_count; c++)
    for (int k = 0; k < g->calls[c].count; k++) a->first[a->whole[g->calls[c].tensor[k]] + 1]++;
  for (int i = 0; i < g->use_count; i++) a->first[i + 1] += a->first[i];
}

/* `next` has room for a number a use. */
static void list_accesses(struct absorption *a, int *next) {
  const struct sl__graph *g = a->graph;
  memcpy(next, a->first, (size_t)g->use_count * sizeof *next);
  for (int c = 0; c < g->call_count; c++) {
    const struct call *call = &g->calls[c];
    const char *modes = call->op->modes;
    for (int k = 0; k < call->count; k++, modes = sl__next_mode(modes))
      a->accesses[next[a->whole[call->tensor[k]]]++] =
          (struct access){c, sl__call_access(*modes, call->args->accumulate)};
  }
}

static enum sl_status find_accesses(struct absorption *a) {
  size_t uses = (size_t)a->graph->use_count, count = 0;
  for (int c = 0; c < a->graph->call_count; c++) count += (size_t)a->graph->calls[c].count;
  int *next = sl__alloc(uses, sizeof *next, "a captured graph");
  a->whole = sl__graph_wholes(a->graph);
  a->first = sl__alloc(uses + 1, sizeof *a->first, "a captured graph");
  a->accesses = sl__alloc(count, sizeof *a->accesses, "a captured graph");
  a->is_kept = sl__alloc(uses, sizeof *a->is_kept, "a captured graph");
  bool fine = next && a->whole && a->first && a->accesses && a->is_kept;
  if (fine) {
    for (size_t i = 0; i < uses; i++) a->is_kept[a->whole[i]] |= a->graph->uses[i].is_kept;
    count_accesses(a);
    list_accesses(a, next);
  }
  free(next);
  return fine ? SL_OK : SL_NO_MEMORY;
}

/* Is the tensor that this use is of, or is a part of, written by a call from `begin` to before
 * `end`?
 */
static bool is_written(const struct absorption *a, int use, int begin, int end) {
  int whole = a->whole[use];
  for (int i = a->first[whole]; i < a->first[whole + 1]; i++)
    if (a->accesses[i].call >= begin && a->accesses[i].call < end && a->accesses[i].way != 'r')
      return true;
  return false;
}

/* ---- the call that writes an input ---- */

/* The only call that writes any part of the tensor; -1: there are several, or none. */
static int only_writer(const struct absorption *a, int use) {
  int writer = -1, whole = a->whole[use];
  for (int i = a->first[whole]; i < a->first[whole + 1]; i++) {
    const struct access *access = &a->accesses[i];
    if (access->way == 'r' || access->call == writer) continue;
    if (writer >= 0) return -1;
    writer = access->call;
  }
  return writer;
}

/* It writes this tensor alone, as a whole, and reads the others. */
static bool is_simple(const struct sl__graph *g, int c, const struct sl__tensor *whole) {
  const struct call *call = &g->calls[c];
  const char *modes = call->op->modes;
  for (int k = 0; k < call->count; k++, modes = sl__next_mode(modes)) {
    char access = sl__call_access(*modes, call->args->accumulate);
    if (access != 'r' && (access != 'w' || g->uses[call->tensor[k]].tensor != whole)) return false;
  }
  return true;
}

/* Do its inputs have the same values when call `later` begins? */
static bool inputs_last(const struct absorption *a, int c, int later) {
  const struct call *call = &a->graph->calls[c];
  const char *modes = call->op->modes;
  for (int k = 0; k < call->count; k++, modes = sl__next_mode(modes)) {
    if (sl__call_access(*modes, call->args->accumulate) != 'r') continue;
    if (is_written(a, call->tensor[k], c + 1, later)) return false;
  }
  return true;
}

/* The call that writes this input of call c, if c could do its work: both run on CPUs, and no stage
 * of a pipeline gives work away. -1: there is none. */
static int absorbed_writer(const struct absorption *a, int c, int use) {
  const struct sl__graph *g = a->graph;
  const struct sl__tensor *tensor = g->uses[use].tensor, *whole = sl__whole_of(tensor);
  int writer = tensor->is_piece || a->is_kept[a->whole[use]] ? -1 : only_writer(a, use);
  if (writer < 0 || writer >= c) return -1;
  const struct call *call = &g->calls[writer];
  bool may = !call->args->bf16_mask && !call->mark.stage && sl__call_is_for_cpus(call);
  return may && is_simple(g, writer, whole) && inputs_last(a, writer, c) ? writer : -1;
}

/* The element of the whole at which a view begins. */
static int64_t first_element(const struct sl__tensor *tensor) {
  size_t before = 0; /* bytes: there may be thousands of views, which are asked one by one */
  for (const struct sl__tensor *view = tensor->whole ? tensor->whole->views : tensor;
       view != tensor; view++)
    before += view->bytes;
  return (int64_t)(before / sl__type_size(tensor->type));
}

/* ---- the call that absorbs it ---- */

/* Asks about all inputs; args get the answer. */
static bool can_absorb(const struct absorption *a, int c, void *args) {
  const struct sl__graph *g = a->graph;
  const struct call *call = &g->calls[c];
  const char *modes = call->op->modes;
  int inputs = 0;
  for (int k = 0; k < call->count; k++, modes = sl__next_mode(modes)) {
    if (sl__call_access(*modes, call->args->accumulate) != 'r') continue;
    int writer = absorbed_writer(a, c, call->tensor[k]);
    if (writer < 0) return false;
    const struct call *from = &g->calls[writer];
    int64_t first = first_element(g->uses[call->tensor[k]].tensor);
    if (!call->absorb_input(args, from->op, from->args + 1, first)) return false;
    inputs++;
  }
  return inputs > 0;
}

static bool ask(const struct absorption *a, int c) {
  const struct call *call = &a->graph->calls[c];
  if (!call->absorb_input || !sl__call_is_for_cpus(call) || call->mark.stage) return false;
  _Alignas(8) char copy[call->args_size];
  memcpy(copy, call->args, call->args_size);
  return can_absorb(a, c, (struct sl__args_header *)copy + 1);
}

/* Do all readers of this call's output absorb it? */
static bool all_readers_absorb(const struct absorption *a, int c) {
  const struct sl__graph *g = a->graph;
  const struct call *call = &g->calls[c];
  const char *modes = call->op->modes;
  for (int k = 0; k < call->count; k++, modes = sl__next_mode(modes)) {
    if (sl__call_access(*modes, call->args->accumulate) == 'r') continue;
    int whole = a->whole[call->tensor[k]];
    for (int i = a->first[whole]; i < a->first[whole + 1]; i++)
      if (a->accesses[i].way == 'r' && !a->absorbs[a->accesses[i].call]) return false;
  }
  return true;
}

/* A call that keeps one of its inputs keeps all, and so the inputs of other readers of them. */
static void drop_partly_absorbed(const struct absorption *a) {
  const struct sl__graph *g = a->graph;
  for (bool changed = true; changed;) {
    changed = false;
    for (int c = 0; c < g->call_count; c++) {
      const char *modes = g->calls[c].op->modes;
      for (int k = 0; k < g->calls[c].count && a->absorbs[c]; k++, modes = sl__next_mode(modes)) {
        if (sl__call_access(*modes, g->calls[c].args->accumulate) != 'r') continue;
        if (all_readers_absorb(a, absorbed_writer(a, c, g->calls[c].tensor[k]))) continue;
        a->absorbs[c] = false;
        changed = true;
      }
    }
  }
}

/* ---- doing it ---- */

static void take_inputs(const struct absorption *a, struct call *call, int use, int writer,
                        int *tensor, int *count) {
  const struct sl__graph *g = a->graph;
  const struct call *from = &g->calls[writer];
  const struct sl__tensor *part = g->uses[use].tensor, *whole = sl__whole_of(part);
  const char *modes = from->op->modes;
  uint32_t both[] = {call->args->footprint, from->args->footprint};
  for (int k = 0; k < from->count; k++, modes = sl__next_mode(modes))
    if (sl__call_access(*modes, from->args->accumulate) == 'r')
      tensor[(*count)++] = from->tensor[k];
  call->flops += from->flops * (double)part->bytes / (double)whole->bytes;
  call->args->footprint = starpu_hash_crc32c_be_n(both, sizeof both, 0);
  a->is_removed[writer] = true;
}

static int most_tensors(const struct sl__graph *g) {
  int most = 0;
  for (int c = 0; c < g->call_count; c++)
    if (g->calls[c].count > most) most = g->calls[c].count;
  return most * most;
}

static enum sl_status absorb(const struct absorption *a, int c) {
  struct sl__graph *g = a->graph;
  struct call *call = &g->calls[c];
  const char *modes = call->op->modes;
  int count = 0, *tensor = sl__alloc((size_t)most_tensors(g), sizeof *tensor, "a captured graph");
  if (!tensor) return SL_NO_MEMORY;
  can_absorb(a, c, call->args + 1);
  for (int k = 0; k < call->count; k++, modes = sl__next_mode(modes)) {
    if (sl__call_access(*modes, call->args->accumulate) == 'r')
      take_inputs(a, call, call->tensor[k], absorbed_writer(a, c, call->tensor[k]), tensor, &count);
    else
      tensor[count++] = call->tensor[k];
  }
  free(call->tensor);
  call->tensor = tensor;
  call->count = count;
  call->args->count = (uint32_t)count;
  return SL_OK;
}

static void remove_calls(const struct absorption *a) {
  struct sl__graph *g = a->graph;
  int count = 0;
  for (int c = 0; c < g->call_count; c++) {
    if (a->is_removed[c]) {
      free(g->calls[c].tensor);
      free(g->calls[c].args);
    } else {
      g->calls[count++] = g->calls[c];
    }
  }
  g->call_count = count;
}

enum sl_status sl__graph_absorb(struct sl__graph *g) {
  struct absorption a = {.graph = g};
  enum sl_status status = SL_OK;
  a.absorbs = sl__alloc((size_t)g->call_count, sizeof *a.absorbs, "a captured graph");
  a.is_removed = sl__alloc((size_t)g->call_count, sizeof *a.is_removed, "a captured graph");
  status = a.absorbs && a.is_removed ? find_accesses(&a) : SL_NO_MEMORY;
  for (int c = 0; c < g->call_count && status == SL_OK; c++) a.absorbs[c] = ask(&a, c);
  if (status == SL_OK) drop_partly_absorbed(&a);
  for (int c = 0; c < g->call_count && status == SL_OK; c++)
    if (a.absorbs[c]) status = absorb(&a, c);
  if (status == SL_OK) remove_calls(&a);
  free(a.absorbs);
  free(a.is_removed);
  free(a.whole);
  free(a.first);
  free(a.accesses);
  free(a.is_kept);
  return status;
}
