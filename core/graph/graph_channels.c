/* Runs of calls that alternate by channels in a training's step: all of them do some channels
 * before the first one does the next. What one writes of them is in a core's cache when the next
 * reads it. Such are a batch normalisation's passes and the sums of residual edges next to them. */
#include "core/graph/graph_state.h"

/* The tensors that a run of calls [first, end) works on: [rows, channels, ...]. */
struct run {
  struct sl__graph *graph;
  int first, end;
  int64_t rows, channels, count;
};

static int64_t count_of(const struct sl__graph *g, int use) {
  return sl_shape_count(&g->uses[use].tensor->shape);
}

static char access_of(const struct call *call, int buffer) {
  const char *modes = call->op->modes;
  for (int k = 0; k < buffer; k++) modes = sl__next_mode(modes);
  return sl__call_access(*modes, call->args->accumulate);
}

/* ---- which calls? ---- */

static bool is_pointwise(const struct run *run, const struct call *call) {
  if (!call->cut.pointwise || call->cut.units != run->count || call->rows != run->rows)
    return false;
  for (int k = 0; k < call->count; k++)
    if (count_of(run->graph, call->tensor[k]) != run->count) return false;
  return true;
}

/* A tensor of one axis has some values of each channel. */
static bool is_by_channels(const struct run *run, const struct call *call) {
  const struct sl_shape *shape = &run->graph->uses[call->tensor[0]].tensor->shape;
  bool is_same = shape->dim[0] == run->rows && sl_shape_count(shape) == run->count;
  return call->cut.by_channels && call->cut.units == run->channels && (is_same || shape->ndim == 1);
}

static bool joins(const struct run *run, int c) {
  const struct call *call = &run->graph->calls[c], *head = &run->graph->calls[run->first];
  bool alike = sl__same_part(call, head) && call->mark.aside == head->mark.aside &&
               sl__same_place(&call->place, &head->place) && sl__call_is_for_cpus(call);
  return alike && (is_pointwise(run, call) || is_by_channels(run, call));
}

static bool uses_large(const struct run *run, int c) {
  const struct call *call = &run->graph->calls[c];
  for (int k = 0; k < call->count; k++)
    if (count_of(run->graph, call->tensor[k]) == run->count) return true;
  return false;
}

/* Do call c and the next one, the first of the run, use the same large tensor? */
static bool leads_to(const struct run *run, int c) {
  const struct call *call = &run->graph->calls[c], *next = &run->graph->calls[c + 1];
  for (int k = 0; k < call->count; k++)
    for (int i = 0; i < next->count; i++)
      if (call->tensor[k] == next->tensor[i] && count_of(run->graph, call->tensor[k]) == run->count)
        return true;
  return false;
}

enum { MOST_CALLS = 16 }; /* of a run, whose buffers are on the stack when it runs */

/* The run of call c, which is cut by channels: pointwise calls in front of it, each of which shares
 * a large tensor with the next, and calls behind it. */
static struct run run_at(struct sl__graph *g, int c) {
  const struct sl_shape *shape = &g->uses[g->calls[c].tensor[0]].tensor->shape;
  struct run run = {g, c, c + 1, shape->dim[0], g->calls[c].cut.units, sl_shape_count(shape)};
  while (run.first > 0 && c - run.first < MOST_CALLS / 2 &&
         !g->calls[run.first - 1].channel_parts && joins(&run, run.first - 1) &&
         leads_to(&run, run.first - 1))
    run.first--;
  while (run.end < g->call_count && run.end - run.first < MOST_CALLS && joins(&run, run.end))
    run.end++;
  while (run.end > c + 1 && !uses_large(&run, run.end - 1)) run.end--;
  return run;
}

/* ---- how many channels at a time? ---- */

/* As few as are a page of memory in each row, since shorter pieces are not read ahead; all parts
 * have as many. */
static int64_t parts_of(const struct run *run) {
  const int64_t page = 1024; /* values */
  int64_t plane = run->count / (run->rows * run->channels), each = 1;
  while (each < run->channels && (each * plane < page || run->channels % each)) each++;
  return run->channels / each;
}

/* ---- outputs that lie in the memory of others ---- */

/* By one of the calls [begin, end)? */
static bool is_used(const struct sl__graph *g, int use, int begin, int end) {
  for (int c = begin; c < end; c++)
    for (int k = 0; k < g->calls[c].count; k++)
      if (g->calls[c].tensor[k] == use) return true;
  return false;
}

static bool is_temporary(const struct run *run, int use) {
  const struct sl__graph *g = run->graph;
  return sl__use_is_temporary(&g->uses[use]) && !is_used(g, use, 0, run->first) &&
         !is_used(g, use, run->end, g->call_count);
}

/* The output of call c that may take the place of its input k; -1: none. */
static int output_for(const struct run *run, int c, int k) {
  const struct sl__graph *g = run->graph;
  const struct call *call = &g->calls[c];
  if (k >= 32 || !(call->cut.in_place >> k & 1)) return -1;
  for (int i = k + 1; i < call->count; i++) {
    int output = call->tensor[i];
    bool is_new = !is_used(g, output, run->first, c) && !g->uses[output].is_scratch;
    if (access_of(call, i) == 'w' && is_new && count_of(g, output) == run->count) return output;
  }
  return -1;
}

/* A value of the run that call c reads last, and nothing else uses: it gets the memory of an output
 * of call c, so that it needs none of its own, which the caches would write back. */
static void place_input(const struct run *run, int c, int k) {
  struct sl__graph *g = run->graph;
  int use = g->calls[c].tensor[k], output = output_for(run, c, k);
  if (output < 0 || count_of(g, use) != run->count) return;
  if (!is_temporary(run, use) || is_used(g, use, c + 1, run->end)) return;
  for (int i = 0; i < g->calls[c].count; i++) {
    bool is_read = access_of(&g->calls[c], i) != 'w';
    if (i != k && is_read && (g->calls[c].tensor[i] == use || g->calls[c].tensor[i] == output))
      return;
  }
  for (int before = run->first; before <= c; before++)
    for (int i = 0; i < g->calls[before].count; i++)
      if (g->calls[before].tensor[i] == use) g->calls[before].tensor[i] = output;
}

/* ---- all runs ---- */

static void mark(const struct run *run, int number) {
  struct sl__graph *g = run->graph;
  for (int c = run->first; c < run->end; c++) {
    g->calls[c].channel_run = number;
    g->calls[c].channel_parts = parts_of(run);
    for (int k = 0; k < g->calls[c].count; k++)
      if (access_of(&g->calls[c], k) == 'r') place_input(run, c, k);
  }
}

void sl__graph_find_channel_runs(struct sl__graph *g) {
  int count = 0;
  for (int c = 0; c < g->call_count; c++) {
    const struct call *call = &g->calls[c];
    if (!call->cut.by_channels || g->uses[call->tensor[0]].tensor->shape.ndim < 2) continue;
    struct run run = run_at(g, c);
    int64_t parts = parts_of(&run);
    if (run.end - run.first < 2 || parts < 2 || parts * run.rows > INT32_MAX) continue;
    mark(&run, ++count);
    c = run.end - 1;
  }
}
