/* Submits the tasks of a compiled graph, and its messages. */
#include <sched.h>

#include "core/graph/graph_state.h"

/* A tensor that passes values between tasks is not needed after the last of them. Of another use
 * the captured tensor may be gone: a run has others in the place of bound ones. */
static void drop_passed(const struct sl__graph *g, int subgraph) {
  const struct sl__subgraph *s = &g->subgraphs[subgraph];
  for (int b = 1; b < s->count; b++) {
    const struct tensor_use *u = &g->uses[s->use[b]];
    if (!sl__use_passes(u) || u->last_subgraph != subgraph) continue;
    bool keeps_memory = g->keeps_small && u->tensor->bytes <= SL__SMALL_TENSOR;
    if (!keeps_memory) sl__tensor_invalidate(u->tensor);
  }
}

/* The tensor that the run has in the place of a use. */
static struct sl__tensor *in_run(const struct sl__graph *g, const struct sl__graph_run *run,
                                 int use, struct sl__tensor *captured) {
  int bound = use >= 0 ? g->uses[use].bound : 0;
  return run->bound && bound ? run->bound[bound - 1] : captured;
}

static enum sl_status submit_message(const struct sl__graph *g, const struct sl__subgraph *s,
                                     const struct sl__graph_run *run) {
  const struct call *call = &g->calls[s->first];
  const struct sl__launch launch = {.name = call->name,
                                    .place = call->place,
                                    .priority = run->priority + call->priority,
                                    .pieces = true,
                                    .mark = call->mark};
  struct sl__tensor *tensors[call->count];
  for (int k = 0; k < call->count; k++)
    tensors[k] = in_run(g, run, call->tensor[k], g->uses[call->tensor[k]].tensor);
  return sl__submit(g->context, call->op, &launch, call->count, tensors, call->args + 1,
                    call->args_size - sizeof *call->args, 0, 0);
}

static enum sl_status submit(const struct sl__graph *g, const struct sl__subgraph *s,
                             const struct sl__place *place, const struct sl__graph_run *run,
                             uint32_t footprint) {
  struct sl__launch launch = {.name = s->name,
                              .place = *place,
                              .priority = run->priority + s->priority,
                              .accumulate = true,
                              .pieces = true, /* each call was asked when it was captured */
                              .modes = s->modes,
                              .chain = g->chain};
  const struct call *head = &g->calls[s->first];
  struct sl__subgraph_args args = {.subgraph = s, .has_step = run->step};
  struct sl__tensor *tensors[s->count];
  if (run->step) args.step = *run->step;
  if (g->slice_us > 0) { /* all calls are of one part of the step */
    launch.mark = head->mark;
    launch.traced_as = head->op;
  }
  for (int b = 0; b < s->count; b++) tensors[b] = in_run(g, run, s->use[b], s->tensors[b]);
  return sl__submit(g->context, g->op, &launch, s->count, tensors, &args, sizeof args, s->flops,
                    s->footprint ^ footprint);
}

/* Without priorities of its own, a graph's later subgraphs come first: they end a run. */
static struct sl__graph_run ranked(const struct sl__graph *g, const struct sl__graph_run *run,
                                   int subgraph) {
  struct sl__graph_run ranked = *run;
  if (!(g->slice_us > 0)) ranked.priority += subgraph;
  return ranked;
}

/* This thread still uses its core for a moment: a worker on another core begins at once. */
static int member_elsewhere(int members) {
  int core = sched_getcpu();
  for (int member = 0; member < members && core >= 0; member++)
    if (sl__member_core(member) != core) return member;
  return 0;
}

/* One task a step leaves the scheduler no choice but the worker: always the same one has the
 * parameters in its cache. It is the same for all graphs, so that no worker has to help with one
 * while another one's task waits for it; and one of the first two, which are members of any team.
 */
static int home_of_steps(struct sl_context *context) {
  int *home = &context->graphs->home, none = 0, workers = (int)starpu_cpu_worker_get_count();
  if (!__atomic_load_n(home, __ATOMIC_RELAXED))
    __atomic_compare_exchange_n(home, &none, 1 + member_elsewhere(workers > 1 ? 2 : 1), false,
                                __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return __atomic_load_n(home, __ATOMIC_RELAXED) - 1;
}

enum sl_status sl__graph_submit(struct sl__graph *g, const struct sl__graph_run *run) {
  const struct sl__subgraph *first = &g->subgraphs[0];
  bool is_lone = sl__subgraph_is_lone(g, first);
  int leader = is_lone ? home_of_steps(g->context) : 0;
  enum sl_status status = SL_OK;
  if (g->leader != leader) g->leader = leader; /* a task of the run before may read it */
  for (int i = 0; i < g->subgraph_count && status == SL_OK; i++) {
    const struct sl__subgraph *s = &g->subgraphs[i];
    const struct sl__graph_run own = ranked(g, run, i);
    const struct sl__place place = is_lone ? sl__member_place(leader) : s->place;
    if (sl__subgraph_is_message(s))
      status = submit_message(g, s, &own);
    else
      status = submit(g, s, &place, &own, s->has_branches ? (uint32_t)s->members : 0);
    if (status == SL_OK) drop_passed(g, i);
  }
  if (status == SL_OK && first->has_branches)
    sl__graph_want_helpers(g, first->members, run->priority);
  return status;
}

enum sl_status sl__graph_submit_to_all(struct sl__graph *g, const struct sl__graph_run *run) {
  const struct sl__subgraph *s = &g->subgraphs[0];
  if (g->subgraph_count > 1 || s->members < 2 || g->forced_parts) return sl__graph_submit(g, run);
  g->leader = member_elsewhere(s->members);
  const struct sl__place place = sl__member_place(g->leader);
  sl__team_expect(s->team);
  /* a team takes another time than one worker: the footprint keeps the two apart */
  enum sl_status status = submit(g, s, &place, run, (uint32_t)s->members);
  sl__inbox_put(g->context, g->leader, NULL); /* it stops polling, and finds the task */
  for (int member = 0; member < s->members && status == SL_OK; member++)
    if (member != g->leader) sl__graph_ask_helper(g, member, run->priority);
  return status;
}
