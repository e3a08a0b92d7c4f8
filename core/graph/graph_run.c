/* Runs a subgraph, as a whole or in parts. */
#include <string.h>

#include "core/base/clock.h"
#include "core/graph/graph_state.h"
#include "core/runtime/chain.h"
#include "core/runtime/failure.h"

/* A part of a call, and the member that does it. */
struct assignment {
  const struct fusion_group *group;
  int phase, part, parts, member;
};

/* A buffer as StarPU would pass it to the call's kernel. */
static struct starpu_vector_interface view_of(const struct sl__tensor *tensor, void *memory) {
  size_t rows = (size_t)tensor->shape.dim[0];
  return (struct starpu_vector_interface){.id = STARPU_VECTOR_INTERFACE_ID,
                                          .ptr = (uintptr_t)memory,
                                          .dev_handle = (uintptr_t)memory,
                                          .nx = (uint32_t)rows,
                                          .elemsize = tensor->bytes / rows,
                                          .allocsize = tensor->bytes};
}

/* The address of a tensor that is not a buffer of the task. Of a local tensor only the part's rows
 * exist; the address is where the tensor's first row would be. */
static char *memory_of(const struct job *j, const struct call *call, const struct tensor_use *u,
                       int buffer, const struct assignment *a) {
  const struct sl__subgraph *s = j->subgraph;
  char *own = j->memory + s->members_at + (size_t)a->member * s->member_bytes;
  if (u->weight_cache || u->whole)
    return (char *)STARPU_VECTOR_GET_PTR(j->buffers[buffer]) + u->offset;
  if (u->is_scratch)
    return a->group && sl__has_own_scratch(a->group, call) ? own : j->memory + s->common_at;
  if (!u->is_local) return j->memory + u->offset;
  int64_t before = call->rows * a->part / a->parts;
  return own + s->local_at + u->offset - u->tensor->bytes / (size_t)call->rows * (size_t)before;
}

/* given [count]: the buffers that the call's kernel gets; view has room for as many. */
static void give_buffers(const struct job *j, const struct call *call, const struct assignment *a,
                         struct starpu_vector_interface *view, void **given) {
  for (int k = 0; k < call->count; k++) {
    const struct tensor_use *u = &j->subgraph->graph->uses[call->tensor[k]];
    int buffer = call->buffer[k];
    bool is_own = buffer >= 0 && !u->weight_cache && !u->whole;
    if (!is_own) view[k] = view_of(u->tensor, memory_of(j, call, u, buffer, a));
    given[k] = is_own ? j->buffers[buffer] : (void *)&view[k];
  }
}

static void run_call(const struct job *j, const struct call *call, const struct assignment *a,
                     void *args) {
  struct starpu_vector_interface view[call->count];
  void *given[call->count];
  give_buffers(j, call, a, view, given);
  const struct sl__running_call running = {call->op->codelet.name, call->name, call->count, given};
  sl__call_runs(&running);
  (j->on_gpu ? call->op->codelet.cuda_funcs[0] : call->op->codelet.cpu_funcs[0])(given, args);
  sl__call_runs(NULL);
}

void sl__call_args(const struct job *j, const struct call *call, void *copy) {
  memcpy(copy, call->args, call->args_size);
  if (j->step && call->renew) call->renew((struct sl__args_header *)copy + 1, j->step);
}

/* The whole call, with the arguments of the step. */
static void run_undivided(const struct job *j, const struct call *call,
                          const struct assignment *a) {
  if (!j->step || !call->renew) {
    run_call(j, call, a, call->args);
    return;
  }
  _Alignas(8) char copy[call->args_size];
  sl__call_args(j, call, copy);
  run_call(j, call, a, copy);
}

/* The same with the part in the arguments, where the kernel looks for it. */
static void run_part(const struct job *j, const struct call *call, const struct assignment *a,
                     bool is_head) {
  _Alignas(8) char copy[call->args_size];
  struct sl__args_header *args = (struct sl__args_header *)copy;
  bool phased = is_head && a->group->phases;
  sl__call_args(j, call, copy);
  args->part = (uint32_t)a->part;
  args->parts = (uint32_t)a->parts;
  args->units = phased ? 0 : a->group->units;
  args->phase = phased ? (uint32_t)a->phase + 1 : 0;
  run_call(j, call, a, args);
}

/* Several calls' buffers and arguments. */
struct several {
  const struct call *first;
  int calls;
  size_t count, bytes; /* of all buffers, and of all arguments */
};

static struct several several_of(const struct call *first, int calls) {
  struct several s = {first, calls, 0, 0};
  for (int i = 0; i < calls; i++) {
    s.count += (size_t)first[i].count;
    s.bytes += sl__call_args_room(&first[i]);
  }
  return s;
}

/* view and given [count], copy [bytes]: their space; buffers and args [calls]: where each call's
 * are. */
static void give_several(const struct job *j, const struct several *s, const struct assignment *a,
                         struct starpu_vector_interface *view, void **given, void **buffers[],
                         char *copy, void *args[]) {
  for (int i = 0; i < s->calls; i++) {
    const struct call *call = &s->first[i];
    buffers[i] = given;
    args[i] = copy;
    sl__call_args(j, call, copy);
    give_buffers(j, call, a, view, given);
    view += call->count;
    given += call->count;
    copy += sl__call_args_room(call);
  }
}

/* Calls that run as one. A failure names the first of them. */
static void run_together(const struct job *j, const struct call *first, int calls) {
  const struct assignment assignment = {.parts = 1};
  const struct several all = several_of(first, calls);
  struct starpu_vector_interface view[all.count];
  void *given[all.count], **buffers[calls], *args[calls];
  _Alignas(8) char copy[all.bytes];
  give_several(j, &all, &assignment, view, given, buffers, copy, args);
  const struct sl__running_call running = {first->op->codelet.name, first->name, first->count,
                                           given};
  sl__call_runs(&running);
  first->op->cuda_many(calls, buffers, args);
  sl__call_runs(NULL);
}

/* Part `part` of the channels of one call: of one that knows no channels, these values of each
 * row. */
static void run_channels(const struct call *call, void **buffers, struct sl__args_header *args,
                         int64_t part, int64_t parts) {
  const struct sl__running_call running = {call->op->codelet.name, call->name, call->count,
                                           buffers};
  int64_t rows = call->cut.by_channels ? 1 : call->rows;
  args->parts = (uint32_t)(rows * parts);
  sl__call_runs(&running);
  for (int64_t row = 0; row < rows; row++) {
    args->part = (uint32_t)(row * parts + part);
    call->op->codelet.cpu_funcs[0](buffers, args);
  }
  sl__call_runs(NULL);
}

/* The group's calls alternate by channels. */
static void run_by_channels(const struct job *j, const struct assignment *a) {
  const struct fusion_group *group = a->group;
  const struct call *first = &j->subgraph->graph->calls[group->first];
  int calls = group->end - group->first;
  const struct several all = several_of(first, calls);
  struct starpu_vector_interface view[all.count];
  void *given[all.count], **buffers[calls], *args[calls];
  _Alignas(8) char copy[all.bytes];
  give_several(j, &all, a, view, given, buffers, copy, args);
  for (int64_t part = 0; part < group->channel_parts; part++)
    for (int i = 0; i < calls; i++)
      run_channels(&first[i], buffers[i], args[i], part, group->channel_parts);
}

void sl__subgraph_run_calls(const struct job *j, int first, int end) {
  const struct call *calls = j->subgraph->graph->calls;
  const struct assignment assignment = {.parts = 1};
  for (int c = first, count; c < end; c += count) {
    int last = j->on_gpu ? calls[c].end_together : c + 1;
    count = (last < end ? last : end) - c;
    if (count > 1)
      run_together(j, &calls[c], count);
    else
      run_undivided(j, &calls[c], &assignment);
  }
}

static void run_group(const struct job *j, const struct assignment *a) {
  const struct fusion_group *group = a->group;
  int end = a->phase + 1 < group->phases ? group->first + 1 : group->end;
  if (group->channel_parts) {
    run_by_channels(j, a);
    return;
  }
  if (!group->units) {
    for (int c = group->first; c < group->end; c++)
      run_undivided(j, &j->subgraph->graph->calls[c], a);
    return;
  }
  for (int c = group->first; c < end; c++)
    run_part(j, &j->subgraph->graph->calls[c], a, c == group->first);
}

/* All slices of a group, by one member. */
static void run_slices(const struct job *j, const struct fusion_group *group, int member) {
  int parts = group->slices ? group->slices : 1;
  for (int part = 0; part < parts; part++)
    run_group(j, &(struct assignment){group, .part = part, .parts = parts, .member = member});
}

void sl__subgraph_work(void *job, int superstep, int part, int parts, int member) {
  const struct job *j = job;
  const struct group_phase *at = &j->subgraph->group_phases[superstep];
  for (int i = at->group; i < at->end; i++)
    if (j->subgraph->groups[i].branch == part) run_slices(j, &j->subgraph->groups[i], member);
  if (at->end) return;
  const struct fusion_group *group = &j->subgraph->groups[at->group];
  run_group(j, &(struct assignment){group, at->phase, part, parts, member});
}

/* Without a team, whose progress is the subgraph's: several workers may run the subgraph at a time,
 * each with other tensors. */
static void run_alone(const struct job *j) {
  for (int i = 0; i < j->subgraph->group_count; i++) run_slices(j, &j->subgraph->groups[i], 0);
}

void sl__subgraph_run(const struct sl__subgraph_args *args, void *buffers[], bool on_gpu) {
  const struct sl__subgraph *s = args->subgraph;
  const struct sl__step_record *step = args->has_step ? &args->step : NULL;
  if (!s) {
    sl__chain_release();
    return;
  }
  if (s->graph->chain) sl__chain_hold(s->graph->chain);
  struct job job = {s, step, buffers, (char *)STARPU_VECTOR_GET_PTR(buffers[0]), on_gpu};
  double begin = sl__microseconds();
  if (s->team) {
    if (s->has_branches) sl__graph_ask_helpers(s->graph, s->members);
    sl__team_lead(s->team, s->graph->leader, &job);
  } else if (on_gpu) {
    sl__task_launches(true); /* a later failure cannot be attributed to a call */
    sl__subgraph_run_on_gpu(&job);
    sl__task_launches(false);
  } else {
    run_alone(&job);
  }
  int64_t ns = (int64_t)(1e3 * (sl__microseconds() - begin));
  __atomic_fetch_add(&s->graph->computed_ns, ns, __ATOMIC_RELAXED);
}

double sl__graph_computed(const struct sl__graph *graph) {
  return 1e-3 * (double)__atomic_load_n(&graph->computed_ns, __ATOMIC_RELAXED);
}
