/* Compiles a captured graph: cuts its calls into subgraphs, and finds the buffers of their tasks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/graph/graph_state.h"
#include "core/memory/limits.h"
#include "core/runtime/cuda.h"

/* ---- cutting ---- */

/* The largest size of a task's tensors together: a model that is larger than a device's memory, or
 * than the limit on it, then passes through it piece by piece. Each worker has its own scratch
 * memory, of up to twice the size asked for. 0: no limit. */
static size_t most_bytes(const struct sl_context *context) {
  size_t workers = starpu_worker_get_count(), most = sl__memory_limit(context->memory);
  most /= 4 * (workers ? workers : 1);
  for (int w = 0; w < (int)workers; w++) {
    size_t room = sl__cuda_task_limit(w) / 4;
    if (room && (!most || room < most)) most = room;
  }
  return most;
}

/* Bytes that a call adds to the subgraph that begins at `first`. */
static size_t added_bytes(const struct sl__graph *g, int first, int at) {
  const struct call *call = &g->calls[at];
  size_t bytes = 0;
  for (int i = 0; i < call->count; i++) {
    bool known = false;
    for (int c = first; c < at && !known; c++)
      for (int k = 0; k < g->calls[c].count && !known; k++)
        known = g->calls[c].tensor[k] == call->tensor[i];
    if (!known) bytes += g->uses[call->tensor[i]].tensor->capacity;
  }
  return bytes;
}

static enum sl_status cut(struct sl__graph *g) {
  size_t most = most_bytes(g->context), bytes = 0;
  g->subgraphs = sl__alloc((size_t)g->call_count, sizeof *g->subgraphs, "a captured graph");
  if (!g->subgraphs) return SL_NO_MEMORY;
  for (int c = 0; c < g->call_count; c++) {
    struct sl__subgraph *s = &g->subgraphs[g->subgraph_count - (g->subgraph_count > 0)];
    size_t more = most && g->subgraph_count ? added_bytes(g, s->first, c) : 0;
    if (!g->subgraph_count || !sl__same_place(&s->place, &g->calls[c].place) ||
        (most && bytes + more > most)) {
      s = &g->subgraphs[g->subgraph_count++];
      *s = (struct sl__subgraph){.graph = g, .first = c, .place = g->calls[c].place};
      bytes = 0;
      if (most) more = added_bytes(g, c, c);
    }
    bytes += more;
    s->end = c + 1;
  }
  return SL_OK;
}

/* ---- a subgraph's task ---- */

/* How the subgraph's calls use the tensor, as a letter for tensors of any type. */
static char mode_in(const struct sl__graph *g, const struct sl__subgraph *s, int number) {
  char mode = 0;
  for (int c = s->first; c < s->end; c++) {
    const char *modes = g->calls[c].op->modes;
    for (int k = 0; k < g->calls[c].count; k++) {
      char access = sl__call_access(*modes, g->calls[c].args->accumulate);
      modes = sl__next_mode(modes);
      if (g->calls[c].tensor[k] != number) continue;
      if (!mode) mode = access == 'w' ? 'z' : access == 'r' ? 'x' : 'm';
      if (access != 'r' && mode == 'x') mode = 'm';
    }
  }
  return mode;
}

static void add_buffer(struct sl__subgraph *s, struct sl__tensor *tensor, char mode, int number) {
  s->tensors[s->count] = tensor;
  s->modes[s->count] = mode;
  if (number >= 0) s->buffer[number] = s->count;
  s->count++;
}

static enum sl_status find_buffers(struct sl__graph *g, int subgraph) {
  struct sl__subgraph *s = &g->subgraphs[subgraph];
  size_t most = (size_t)g->use_count + 1;
  struct sl__tensor *memory = NULL;
  enum sl_status status = SL_OK;
  s->tensors = sl__alloc(most, sizeof *s->tensors, "a captured graph");
  s->modes = sl__alloc(most + 1, 1, "a captured graph");
  s->buffer = sl__alloc(most, sizeof *s->buffer, "a captured graph");
  if (!s->tensors || !s->modes || !s->buffer) return SL_NO_MEMORY;
  for (int i = 0; i < g->use_count; i++) s->buffer[i] = -1;
  SL__TRY(sl__scratch(g->context, s->workspace_bytes ? s->workspace_bytes : 1, &memory));
  add_buffer(s, memory, 's', -1);
  for (int i = 0; i < g->use_count; i++) {
    const struct tensor_use *u = &g->uses[i];
    char mode = u->is_internal ? 0 : mode_in(g, s, i);
    if (!mode) continue;
    struct sl__tensor *tensor =
        u->weight_cache ? sl__weight_cache_tensor(u->weight_cache) : u->tensor;
    for (int b = 1; b < s->count && u->weight_cache; b++)
      if (s->tensors[b] == tensor) s->buffer[i] = b;
    if (s->buffer[i] < 0) add_buffer(s, tensor, mode, i);
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
  }
  return SL_OK;
}

enum sl_status sl__graph_compile(struct sl__graph *g, struct sl__tensor *result,
                                 enum sl_status status) {
  __atomic_store_n(&g->context->graphs->capturing, NULL, __ATOMIC_RELEASE);
  if (status != SL_OK) return status;
  if (!g->call_count) return sl__fail(SL_BAD_ARGUMENT, "a captured graph without calls");
  g->result = result;
  SL__TRY(sl__graph_fuse(g, result));
  SL__TRY(cut(g));
  SL__TRY(sl__graph_cache_weights(g));
  sl__graph_find_uses(g, result);
  for (int s = 0; s < g->subgraph_count; s++) {
    SL__TRY(sl__subgraph_plan(g, s));
    SL__TRY(find_buffers(g, s));
    SL__TRY(describe(g, &g->subgraphs[s]));
  }
out:
  return status;
}
