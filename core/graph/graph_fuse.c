/* Fusing calls: a call whose kernel can also do the next one takes that over. In a training's step,
 * where every call must give the bits of its single task, the two may alternate instead. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/graph/graph_state.h"

static int first_written(const struct call *call) {
  const char *modes = call->op->modes;
  for (int k = 0; k < call->count; k++, modes = sl__next_mode(modes))
    if (sl__call_access(*modes, call->args->accumulate) == 'w') return k;
  return -1;
}

/* The buffer of call c + 1 that reads the output of call c, if no other call uses that output; else
 * -1. */
static int reading_buffer(const struct sl__graph *g, int c) {
  int written = first_written(&g->calls[c]), which = -1, uses = 0;
  if (written < 0) return -1;
  int number = g->calls[c].tensor[written];
  const struct tensor_use *u = &g->uses[number];
  if (!u->is_written_first || u->is_kept || u->tensor->host) return -1;
  for (int i = 0; i < g->call_count; i++) {
    const char *modes = g->calls[i].op->modes;
    for (int k = 0; k < g->calls[i].count; k++, modes = sl__next_mode(modes)) {
      if (g->calls[i].tensor[k] != number) continue;
      if (i == c + 1 && sl__call_access(*modes, false) == 'r') which = k;
      uses++;
    }
  }
  return uses == 2 ? which : -1;
}

/* Call c also does call c + 1, which is removed. */
static enum sl_status merge_next(struct sl__graph *g, int c, int which) {
  struct call *call = &g->calls[c], *next = &g->calls[c + 1];
  const char *modes = next->op->modes;
  int *tensor = sl__realloc(call->tensor, (size_t)(call->count + next->count), sizeof *tensor,
                            "a captured graph");
  if (!tensor) return SL_NO_MEMORY;
  call->tensor = tensor;
  tensor[first_written(call)] = next->tensor[first_written(next)];
  for (int k = 0; k < next->count; k++, modes = sl__next_mode(modes))
    if (k != which && sl__call_access(*modes, false) == 'r')
      tensor[call->count++] = next->tensor[k];
  call->args->count = (uint32_t)call->count;
  call->args->footprint = starpu_hash_crc32c_be(next->args->footprint, call->args->footprint);
  call->flops += next->flops;
  free(next->tensor);
  free(next->args);
  g->call_count--;
  memmove(next, next + 1, (size_t)(g->call_count - c - 1) * sizeof *next);
  return SL_OK;
}

/* In slices of a few rows a kernel would make a prepacked weight for each of them. */
static bool may_be_sliced(const struct call *call, int64_t rows) {
  return rows > 1 && sl__call_goes_by_rows(call, rows) && !call->prepack.make;
}

/* A few rows at a time, the output stays in a core's cache. */
static void find_passed_rows(struct sl__graph *g) {
  for (int c = 0; c + 1 < g->call_count; c++) {
    struct call *call = &g->calls[c];
    if (call->channel_run || call[1].channel_run) continue;
    call->passes_rows = may_be_sliced(call, call->rows) && may_be_sliced(call + 1, call->rows) &&
                        reading_buffer(g, c) >= 0;
  }
}

enum sl_status sl__graph_fuse(struct sl__graph *g) {
  enum sl_status status = SL_OK;
  if (g->slice_us > 0) {
    sl__graph_find_channel_runs(g);
    find_passed_rows(g);
    return SL_OK;
  }
  for (int c = 0; c + 1 < g->call_count && status == SL_OK;) {
    const struct call *call = &g->calls[c], *next = &g->calls[c + 1];
    bool may = call->cut.absorb && sl__call_is_for_cpus(call) &&
               sl__same_place(&call->place, &next->place) && !next->args->bf16_mask;
    int which = may ? reading_buffer(g, c) : -1;
    if (which >= 0 && call->cut.absorb(call->args + 1, next->op, next->args + 1, which))
      status = merge_next(g, c, which);
    else
      c++;
  }
  return status;
}
