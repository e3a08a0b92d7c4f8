/* Compiles a captured graph: from calls to subgraphs with the buffers of their tasks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/graph/graph_state.h"

/* How the subgraph's calls use the tensor, as a letter for tensors of any type; 'y' is read and
 * write, as the task accumulates. */
static char mode_in(const struct sl__graph *g, const struct sl__subgraph *s, int number) {
  char mode = 0;
  for (int c = s->first; c < s->end; c++) {
    const char *modes = g->calls[c].op->modes;
    for (int k = 0; k < g->calls[c].count; k++) {
      char access = sl__call_access(*modes, g->calls[c].args->accumulate);
      modes = sl__next_mode(modes);
      if (sl__use_in_task(g, g->calls[c].tensor[k]) != number) continue;
      if (!mode) mode = access == 'w' ? 'z' : access == 'r' ? 'x' : 'y';
      if (access != 'r' && mode == 'x') mode = 'y';
    }
  }
  return mode;
}

static void add_buffer(struct sl__subgraph *s, struct sl__tensor *tensor, char mode, int use) {
  s->tensors[s->count] = tensor;
  s->modes[s->count] = mode;
  s->use[s->count++] = use;
}

/* The buffer that has the tensor of a use, added if there is none yet. */
static int buffer_of(struct sl__graph *g, struct sl__subgraph *s, int use) {
  int i = sl__use_in_task(g, use);
  const struct tensor_use *u = &g->uses[i];
  struct sl__tensor *tensor =
      u->weight_cache ? sl__weight_cache_tensor(u->weight_cache) : u->tensor;
  for (int b = 1; b < s->count; b++)
    if (s->tensors[b] == tensor) return b;
  add_buffer(s, tensor, mode_in(g, s, i), i);
  return s->count - 1;
}

static enum sl_status find_buffers(struct sl__graph *g, int subgraph) {
  struct sl__subgraph *s = &g->subgraphs[subgraph];
  struct sl__tensor *memory = NULL;
  enum sl_status status = SL_OK;
  size_t most = 1;
  for (int c = s->first; c < s->end; c++) most += (size_t)g->calls[c].count;
  s->tensors = sl__alloc(most, sizeof *s->tensors, "a captured graph");
  s->use = sl__alloc(most, sizeof *s->use, "a captured graph");
  s->modes = sl__alloc(most + 1, 1, "a captured graph");
  if (!s->tensors || !s->use || !s->modes) return SL_NO_MEMORY;
  SL__TRY(sl__scratch(g->context, s->workspace_bytes ? s->workspace_bytes : 1, &memory));
  add_buffer(s, memory, 's', -1);
  for (int c = s->first; c < s->end; c++) {
    struct call *call = &g->calls[c];
    call->buffer = sl__alloc((size_t)call->count, sizeof *call->buffer, "a captured graph");
    if (!call->buffer) return SL_NO_MEMORY;
    for (int k = 0; k < call->count; k++)
      call->buffer[k] =
          g->uses[call->tensor[k]].is_internal ? -1 : buffer_of(g, s, call->tensor[k]);
  }
out:
  return status;
}

/* Its name, such as "conv1..fc2", and the sums of its calls. */
static enum sl_status describe(struct sl__graph *g, struct sl__subgraph *s) {
  const char *first = g->calls[s->first].name, *last = g->calls[s->end - 1].name;
  size_t size = strlen(first) + strlen(last) + 3;
  s->name = sl__alloc(size, 1, "a captured graph");
  if (!s->name) return SL_NO_MEMORY;
  snprintf(s->name, size, "%s%s%s", first, strcmp(first, last) ? ".." : "",
           strcmp(first, last) ? last : "");
  for (int c = s->first; c < s->end; c++) {
    const struct call *call = &g->calls[c];
    uint32_t part[] = {call->args->footprint, call->args->is_prepacked,
                       starpu_hash_crc32c_string(call->op->codelet.name, 0)};
    s->footprint = starpu_hash_crc32c_be_n(part, sizeof part, s->footprint);
    s->flops += call->flops;
    if (g->slice_us > 0 && call->priority > s->priority) s->priority = call->priority;
  }
  return SL_OK;
}

enum sl_status sl__graph_compile(struct sl__graph *g, enum sl_status status) {
  __atomic_store_n(&g->context->graphs->capturing, NULL, __ATOMIC_RELEASE);
  if (status != SL_OK) return status;
  if (!g->call_count) return sl__fail(SL_BAD_ARGUMENT, "a captured graph without calls");
  sl__graph_mark_kept(g);
  SL__TRY(sl__graph_fuse(g));
  SL__TRY(sl__graph_absorb(g));
  SL__TRY(sl__graph_cut_calls(g));
  SL__TRY(sl__graph_cache_weights(g));
  sl__graph_find_uses(g);
  for (int s = 0; s < g->subgraph_count; s++) {
    bool is_message = sl__subgraph_is_message(&g->subgraphs[s]);
    if (!is_message) SL__TRY(sl__subgraph_plan(g, s));
    SL__TRY(find_buffers(g, s));
    if (!is_message) SL__TRY(sl__subgraph_plan_gpu(&g->subgraphs[s]));
    SL__TRY(describe(g, &g->subgraphs[s]));
  }
  status = sl__graph_find_chain(g);
out:
  return status;
}

void sl__graph_drop_handles(struct sl__graph *g) {
  for (int i = 0; i < g->use_count; i++)
    if (g->uses[i].is_internal && !g->uses[i].is_scratch) sl__tensor_drop_handle(g->uses[i].tensor);
}
