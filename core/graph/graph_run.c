#include "core/graph/graph_state.h"

#include <string.h>

#include "core/base/clock.h"
#include "core/runtime/failure.h"

struct job {
  const struct sl__subgraph *segment;
  void **buffers;
  char *memory;
  bool on_gpu;
};

/* Which part of a call, and who does it. */
struct turn {
  const struct stretch *stretch;
  int phase, part, parts, member;
};

/* A buffer as StarPU would hand it to the call's kernel. */
static struct starpu_vector_interface view_of(const struct sl__tensor *tensor, void *memory) {
  size_t rows = (size_t)tensor->shape.dim[0];
  return (struct starpu_vector_interface){.id = STARPU_VECTOR_INTERFACE_ID,
                                          .ptr = (uintptr_t)memory,
                                          .dev_handle = (uintptr_t)memory,
                                          .nx = (uint32_t)rows,
                                          .elemsize = tensor->bytes / rows,
                                          .allocsize = tensor->bytes};
}

/* Where a tensor that is no buffer of its own lies. A local one is no more than the part's rows:
 * the address is where its first row would be. */
static char *memory_of(const struct job *j, const struct call *call, const struct used *u,
                       int buffer, const struct turn *turn) {
  const struct sl__subgraph *s = j->segment;
  char *own = j->memory + s->members_at + (size_t)turn->member * s->member_bytes;
  if (u->pack) return (char *)STARPU_VECTOR_GET_PTR(j->buffers[buffer]) + u->offset;
  if (u->is_scratch) return turn->stretch && !call->cut.phases ? own : j->memory + s->common_at;
  if (!u->is_local) return j->memory + u->offset;
  int64_t before = call->rows * turn->part / turn->parts;
  return own + s->local_at + u->offset - u->tensor->bytes / (size_t)call->rows * (size_t)before;
}

static void run_call(const struct job *j, const struct call *call, const struct turn *turn,
                     void *args) {
  const struct sl__subgraph *s = j->segment;
  struct starpu_vector_interface view[call->count];
  void *given[call->count];
  for (int k = 0; k < call->count; k++) {
    const struct used *u = &s->program->used[call->tensor[k]];
    int buffer = s->buffer[call->tensor[k]];
    bool is_own = buffer >= 0 && !u->pack;
    if (!is_own) view[k] = view_of(u->tensor, memory_of(j, call, u, buffer, turn));
    given[k] = is_own ? j->buffers[buffer] : (void *)&view[k];
  }
  (j->on_gpu ? call->op->codelet.cuda_funcs[0] : call->op->codelet.cpu_funcs[0])(given, args);
}

/* The same call with the part noted where its kernel looks. */
static void run_part(const struct job *j, const struct call *call, const struct turn *turn,
                     bool is_head) {
  _Alignas(8) char copy[call->args_size];
  struct sl__args_header *args = (struct sl__args_header *)copy;
  bool phased = is_head && turn->stretch->phases;
  memcpy(copy, call->args, call->args_size);
  args->part = (uint32_t)turn->part;
  args->parts = (uint32_t)turn->parts;
  args->units = phased ? 0 : turn->stretch->units;
  args->phase = phased ? (uint32_t)turn->phase + 1 : 0;
  run_call(j, call, turn, args);
}

/* By the task's own thread, which says what it is at. */
static void run_whole(const struct job *j, int first, int end) {
  const struct turn turn = {.parts = 1};
  struct starpu_task *task = starpu_task_get_current();
  const char *name = task ? task->name : NULL;
  struct starpu_codelet *codelet = task ? task->cl : NULL;
  for (int c = first; c < end; c++) {
    const struct call *call = &j->segment->program->calls[c];
    if (task) { /* for what a kernel says that fails at once */
      task->name = call->name;
      task->cl = &call->op->codelet;
    }
    run_call(j, call, &turn, call->args);
  }
  if (!task) return;
  task->name = name;
  task->cl = codelet;
}

void sl__subgraph_work(void *job, int round, int part, int parts, int member) {
  const struct job *j = job;
  const struct step *step = &j->segment->steps[round];
  const struct stretch *st = &j->segment->stretches[step->stretch];
  const struct turn turn = {st, step->phase, part, parts, member};
  int end = step->phase + 1 < st->phases ? st->first + 1 : st->end;
  if (!st->units) {
    run_whole(j, st->first, st->end);
    return;
  }
  for (int c = st->first; c < end; c++)
    run_part(j, &j->segment->program->calls[c], &turn, c == st->first);
}

void sl__subgraph_run(const struct sl__subgraph *s, void *buffers[], bool on_gpu) {
  struct job job = {s, buffers, (char *)STARPU_VECTOR_GET_PTR(buffers[0]), on_gpu};
  double begin = sl__microseconds();
  if (s->team) {
    sl__team_lead(s->team, s->program->leader, &job);
  } else {
    if (on_gpu) sl__task_launches(true); /* of what fails later nobody knows which call it was */
    run_whole(&job, s->first, s->end);
    if (on_gpu) sl__task_launches(false);
  }
  int64_t ns = (int64_t)(1e3 * (sl__microseconds() - begin));
  __atomic_fetch_add(&s->program->computed_ns, ns, __ATOMIC_RELAXED);
}

double sl__graph_computed(const struct sl__graph *program) {
  return 1e-3 * (double)__atomic_load_n(&program->computed_ns, __ATOMIC_RELAXED);
}
