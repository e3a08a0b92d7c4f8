/* Runs a subgraph on a GPU. With buffers at addresses that it has not met, its calls start their
 * kernels themselves: that makes what libraries and operations keep for such buffers. The second
 * time they are recorded as CUDA graphs (core/runtime/cuda_graph.h), which later runs launch. A
 * CUDA graph has its kernels' arguments. Calls whose functions may start other work each time are
 * no part of one: they run between CUDA graphs. So do, from then on, calls that follow the step
 * record and once had other arguments than in a recording. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/graph/graph_state.h"
#include "core/runtime/cuda_graph.h"
#include "core/runtime/log.h"

/* ---- parts ---- */

static bool is_recorded(const struct call *call, bool changes) { return !call->varies && !changes; }

static void find_parts(const struct sl__subgraph *s, struct recordings *r) {
  r->part_count = 0;
  for (int c = s->first; c < s->end; c++) {
    struct gpu_part *last = r->part_count ? &r->parts[r->part_count - 1] : NULL;
    bool recorded = is_recorded(&s->graph->calls[c], r->changes[c - s->first]);
    if (last && last->is_recorded == recorded)
      last->end++;
    else
      r->parts[r->part_count++] = (struct gpu_part){c, c + 1, recorded};
  }
}

/* ---- compiling ---- */

/* Bytes of its arguments in a recording. */
static size_t kept_bytes(const struct call *call) {
  return call->renew && !call->varies ? sl__call_args_room(call) : 0;
}

static enum sl_status make_room(const struct sl__subgraph *s, struct recordings *r) {
  size_t buffers = (size_t)s->count, calls = (size_t)(s->end - s->first);
  for (int c = s->first; c < s->end; c++) r->args_bytes += kept_bytes(&s->graph->calls[c]);
  r->parts = sl__alloc(calls, sizeof *r->parts, "a captured graph");
  r->changes = sl__alloc(calls, sizeof *r->changes, "a captured graph");
  r->addresses = sl__alloc(MOST_RECORDINGS * buffers, sizeof *r->addresses, "a captured graph");
  r->graphs = sl__alloc(MOST_RECORDINGS * calls, sizeof *r->graphs, "a captured graph");
  r->args = sl__alloc(MOST_RECORDINGS * r->args_bytes + 1, 1, "a captured graph");
  if (!r->parts || !r->changes || !r->addresses || !r->graphs || !r->args) return SL_NO_MEMORY;
  for (size_t i = 0; i < MOST_RECORDINGS; i++) {
    r->list[i].address = r->addresses + i * buffers;
    r->list[i].graph = r->graphs + i * calls;
    r->list[i].args = r->args + i * r->args_bytes;
  }
  find_parts(s, r);
  return SL_OK;
}

enum sl_status sl__subgraph_plan_gpu(struct sl__subgraph *s) {
  int workers = starpu_worker_get_count_by_type(STARPU_CUDA_WORKER);
  enum sl_status status = SL_OK;
  if (!(s->place.where & STARPU_CUDA) || workers <= 0) return SL_OK;
  s->recordings = sl__alloc((size_t)workers, sizeof *s->recordings, "a captured graph");
  if (!s->recordings) return SL_NO_MEMORY;
  for (int i = 0; i < workers; i++) {
    int worker = starpu_worker_get_by_type(STARPU_CUDA_WORKER, i);
    if (!sl__place_has(&s->place, worker)) continue;
    struct recordings *r = &s->recordings[s->gpu_count++];
    r->worker = worker;
    SL__TRY(make_room(s, r));
  }
out:
  return status;
}

/* ---- recordings ---- */

static void forget(const struct recordings *r, struct recording *recording) {
  for (int p = 0; p < r->part_count; p++) {
    sl__cuda_graph_free(recording->graph[p]);
    recording->graph[p] = NULL;
  }
  recording->is_made = false;
}

void sl__subgraph_forget_recordings(struct sl__subgraph *s) {
  for (int w = 0; w < s->gpu_count; w++) {
    struct recordings *r = &s->recordings[w];
    for (int i = 0; i < MOST_RECORDINGS; i++)
      if (r->list[i].graph) forget(r, &r->list[i]);
    free(r->args);
    free(r->graphs);
    free(r->addresses);
    free(r->changes);
    free(r->parts);
  }
  free(s->recordings);
}

static bool is_at(const struct recording *recording, const struct job *j) {
  for (int b = 0; b < j->subgraph->count; b++)
    if (recording->address[b] != (void *)STARPU_VECTOR_GET_PTR(j->buffers[b])) return false;
  return recording->last_run > 0;
}

/* The recording for the job's buffers: if there is none, that in the place of the one which has not
 * run for longest. (If that is still running, CUDA frees its graphs afterwards.) */
static struct recording *find(struct recordings *r, const struct job *j, bool *is_new) {
  struct recording *oldest = &r->list[0];
  *is_new = false;
  for (int i = 0; i < MOST_RECORDINGS; i++) {
    if (is_at(&r->list[i], j)) return &r->list[i];
    if (r->list[i].last_run < oldest->last_run) oldest = &r->list[i];
  }
  forget(r, oldest);
  for (int b = 0; b < j->subgraph->count; b++)
    oldest->address[b] = (void *)STARPU_VECTOR_GET_PTR(j->buffers[b]);
  *is_new = true;
  return oldest;
}

static bool record_part(const struct job *j, const struct gpu_part *part,
                        struct sl__cuda_graph **graph, char *why, size_t size) {
  if (!sl__cuda_graph_begin(why, size)) return false;
  sl__subgraph_run_calls(j, part->first, part->end);
  *graph = sl__cuda_graph_end(why, size);
  return *graph;
}

static bool record(const struct job *j, const struct recordings *r, struct recording *recording,
                   char *why, size_t size) {
  const struct sl__subgraph *s = j->subgraph;
  for (int p = 0; p < r->part_count; p++) {
    const struct gpu_part *part = &r->parts[p];
    if (part->is_recorded && !record_part(j, part, &recording->graph[p], why, size)) return false;
  }
  char *kept = recording->args;
  for (int c = s->first; c < s->end; c++) {
    const struct call *call = &s->graph->calls[c];
    if (kept_bytes(call)) sl__call_args(j, call, kept);
    kept += kept_bytes(call);
  }
  recording->is_made = true;
  return true;
}

/* Has the call other arguments in this run than in the recording, where they are at `kept`? */
static bool has_changed(const struct job *j, const struct call *call, const char *kept) {
  _Alignas(8) char now[call->args_size];
  sl__call_args(j, call, now);
  return memcmp(now, kept, call->args_size);
}

/* Notes the calls that have. Those that run as one with such a call follow it. Returns whether
 * there are any. */
static bool note_changes(const struct job *j, struct recordings *r,
                         const struct recording *recording) {
  const struct sl__subgraph *s = j->subgraph;
  const char *kept = recording->args;
  bool any = false;
  for (int c = s->first; c < s->end; c++) {
    const struct call *call = &s->graph->calls[c];
    bool is_kept = kept_bytes(call) && !r->changes[c - s->first];
    if (is_kept && has_changed(j, call, kept)) {
      for (int i = call->first_together; i < call->end_together; i++)
        r->changes[i - s->first] = true;
      any = true;
    }
    kept += kept_bytes(call);
  }
  return any;
}

/* No recording is of use any more if a call must leave the CUDA graphs. */
static void follow_changes(const struct job *j, struct recordings *r,
                           const struct recording *recording) {
  if (!note_changes(j, r, recording)) return;
  for (int i = 0; i < MOST_RECORDINGS; i++) forget(r, &r->list[i]);
  find_parts(j->subgraph, r);
}

/* From here on the subgraph runs without CUDA graphs on this worker. The log gets the first reason
 * in a context. */
static void refuse(const struct job *j, struct recordings *r, const char *why) {
  struct sl__graph *g = j->subgraph->graph;
  r->is_refused = true;
  if (!*why || __atomic_exchange_n(&g->context->graphs->told, true, __ATOMIC_RELAXED)) return;
  sl__log(g->context, SL_LOG_WARNING, "%s is no CUDA graph, each kernel is launched by itself: %s",
          j->subgraph->name, why);
}

/* ---- running ---- */

static void replay(const struct job *j, struct recordings *r, const struct recording *recording) {
  char why[400];
  for (int p = 0; p < r->part_count; p++) {
    const struct gpu_part *part = &r->parts[p];
    bool launches = part->is_recorded && !r->is_refused;
    if (launches && sl__cuda_graph_launch(recording->graph[p], why, sizeof why)) continue;
    if (launches) refuse(j, r, why);
    sl__subgraph_run_calls(j, part->first, part->end);
  }
}

static struct recordings *of_this_worker(const struct sl__subgraph *s) {
  int worker = starpu_worker_get_id();
  for (int i = 0; i < s->gpu_count; i++)
    if (s->recordings[i].worker == worker) return &s->recordings[i];
  return NULL;
}

void sl__subgraph_run_on_gpu(const struct job *j) {
  struct recordings *r = of_this_worker(j->subgraph);
  struct recording *recording = NULL;
  bool is_new = true;
  char why[400] = "";
  if (r && !r->is_refused) {
    recording = find(r, j, &is_new);
    recording->last_run = ++r->runs;
  }
  if (!is_new && recording->is_made) follow_changes(j, r, recording);
  if (!is_new && !recording->is_made && !record(j, r, recording, why, sizeof why)) {
    forget(r, recording);
    refuse(j, r, why);
  }
  if (recording && recording->is_made && !r->is_refused)
    replay(j, r, recording);
  else
    sl__subgraph_run_calls(j, j->subgraph->first, j->subgraph->end);
}
