#include "parallel/train/captured_step.h"

#include <stdlib.h>
#include <string.h>

#include "core/runtime/log.h"
#include "parallel/step/precision.h"

/* On CPUs calls are joined up to this time: StarPU takes about 10 us for a task. A longer call that
 * joins a short one would hold back the calls that wait for the short one, and long tasks leave the
 * scheduler no choice; a team needs none (core/graph/graph_cut.c). */
static const double task_us = 50;

/* With a trace each call is a task, or those are that alternate, so that the trace shows all
 * layers. Zero would mean no limit. */
static const double traced_task_us = 1e-6;

/* Steps of the same plan are alike but for the record, the batch, and whether recurrent layers go
 * on from an earlier state. */
struct sl__captured_step {
  const struct sl__plan *plan;
  bool training, carries;
  int64_t positions; /* tokens for which row-sparse gradients had room: their tensors then */
  struct sl__graph *graph;
  struct sl__tensor **bound; /* x and labels of each slice, then the pending step's tensors */
};

bool sl__may_capture_steps(void) {
  return starpu_worker_get_count() ==
         starpu_cpu_worker_get_count() + starpu_cuda_worker_get_count();
}

enum sl_status sl__step_graph_new(struct sl_context *context, struct sl__graph **graph) {
  enum sl_status status = sl__graph_new(context, &sl__op_subgraph, &sl__op_helper, graph);
  if (status == SL_OK) sl__graph_join_slices(*graph, context->trace ? traced_task_us : task_us);
  return status;
}

/* Does the graph have all of the step? With dist_async the pushes follow it, task by task:
 * callbacks answer them, each time in another order. */
static bool is_whole(const struct sl_trainer *t) { return !t->is_async; }

static void list_bound(const struct sl__plan *plan, const struct sl__step *step,
                       const struct sl__pending_step *p, struct sl__tensor **bound) {
  for (int i = 0; i < plan->count; i++) {
    *bound++ = sl__part(step->x, i);
    *bound++ = sl__part(step->labels, i);
  }
  *bound++ = p->stats;
  *bound++ = p->flags;
  for (int k = 0; k < 2 && p->squares[k]; k++) *bound++ = p->squares[k];
}

/* The length of that list. */
static int bound_count(const struct sl_trainer *t, const struct sl__plan *plan) {
  return 2 * plan->count + 2 + (t->gradient_stats ? 2 : 0);
}

/* What the tasks behind the graph read. */
static enum sl_status keep_results(const struct sl_trainer *t, struct sl__captured_step *c,
                                   const struct sl__step *step) {
  const struct sl__plan *plan = c->plan;
  enum sl_status status = SL_OK;
  for (int i = 0; i < plan->count; i++)
    for (int k = 0; k < plan->chunks / plan->span; k++)
      SL__TRY(sl__graph_pass_on(c->graph, plan->slices[i].stats[k]));
  for (int r = 0; r < t->grid.replicas && step->training; r++)
    for (int l = 0; l < plan->model->count; l++) {
      if (step->grads[r][l]) SL__TRY(sl__graph_pass_on(c->graph, step->grads[r][l]));
      if (step->rows[r][l]) SL__TRY(sl__graph_pass_on(c->graph, step->rows[r][l]));
    }
out:
  return status;
}

/* Does the graph make the copies of parameters that bf16 passes read? Where it has the updates it
 * makes those of the next step: each would be a task otherwise. */
static bool makes_copies(const struct sl_trainer *t, const struct sl__plan *plan, bool training) {
  return training && is_whole(t) && plan->grid->math == SL_MATH_BF16;
}

static enum sl_status submit_copies(const struct sl__plan *plan) {
  enum sl_status status = SL_OK;
  for (int i = 0; i < plan->model->count; i++)
    if (sl__grid_is_here(plan->grid, i))
      SL__TRY(sl__bf16_copy_submit(plan->model, i, &sl__grid_device(plan->grid, i, 0)->place));
out:
  return status;
}

/* And the parameters, of which passes may read the copies only: where another rank updates them,
 * they would seem to be written anew in each run. */
static enum sl_status keep_copies(struct sl__captured_step *c) {
  const struct sl__plan *plan = c->plan;
  enum sl_status status = SL_OK;
  for (int i = 0; i < plan->model->count; i++) {
    const struct sl__layer *layer = &plan->model->layers[i];
    if (!sl__grid_is_here(plan->grid, i) || !sl__has_bf16_copy(layer, SL_MATH_BF16)) continue;
    SL__TRY(sl__graph_keep(c->graph, layer->params.half));
    SL__TRY(sl__graph_keep(c->graph, layer->params.tensor));
  }
out:
  return status;
}

static enum sl_status bind(const struct sl_trainer *t, struct sl__captured_step *c,
                           const struct sl__step *step, const struct sl__pending_step *p) {
  const struct sl__plan *plan = c->plan;
  enum sl_status status = SL_OK;
  list_bound(plan, step, p, c->bound);
  for (int i = 0; i < bound_count(t, plan); i++) SL__TRY(sl__graph_bind(c->graph, c->bound[i]));
  for (int i = 0; i < plan->count && step->keep; i++)
    for (int l = 0; l < plan->model->count; l++)
      if (plan->slices[i].state[l]) SL__TRY(sl__graph_keep(c->graph, plan->slices[i].state[l]));
  if (makes_copies(t, plan, step->training)) SL__TRY(keep_copies(c));
  if (!is_whole(t)) status = keep_results(t, c, step);
out:
  return status;
}

static enum sl_status submit_calls(struct sl_trainer *t, struct sl__plan *plan,
                                   const struct sl__step *step, struct sl__pending_step *p) {
  enum sl_status status = sl__plan_submit(plan, step);
  if (status == SL_OK && is_whole(t)) status = sl__trainer_end_step(t, plan, step, p);
  if (status == SL_OK && makes_copies(t, plan, step->training)) status = submit_copies(plan);
  return status;
}

/* One capture at a time: a predictor's thread may want to capture, too. */
static enum sl_status capture(struct sl_trainer *t, struct sl__captured_step *c,
                              struct sl__plan *plan, const struct sl__step *step,
                              struct sl__pending_step *p) {
  struct sl_context *context = t->model->context;
  bool had_state = plan->has_state;
  enum sl_status status;
  SL__TRY(sl__step_graph_new(context, &c->graph));
  SL__TRY(bind(t, c, step, p));
  starpu_pthread_mutex_lock(&context->submit_mutex);
  sl__graph_capture(c->graph);
  status = sl__graph_compile(c->graph, submit_calls(t, plan, step, p));
  starpu_pthread_mutex_unlock(&context->submit_mutex);
  plan->has_state = had_state;
out:
  return status;
}

static void clear(struct sl__captured_step *c) {
  sl__graph_free(c->graph);
  free(c->bound);
  *c = (struct sl__captured_step){0};
}

static enum sl_status append(struct sl_trainer *t, struct sl__captured_step *c) {
  struct sl__captured_step *all =
      sl__realloc(t->captured, (size_t)t->captured_count + 1, sizeof *all, "captured steps");
  if (!all) return SL_NO_MEMORY;
  all[t->captured_count++] = *c;
  t->captured = all;
  return SL_OK;
}

static struct sl__captured_step *find(const struct sl_trainer *t,
                                      const struct sl__captured_step *like) {
  for (int i = 0; i < t->captured_count; i++) {
    struct sl__captured_step *c = &t->captured[i];
    if (c->plan == like->plan && c->training == like->training && c->carries == like->carries &&
        c->positions == like->positions)
      return c;
  }
  return NULL;
}

/* The graph of such a step, captured if there is none yet. */
static enum sl_status look_up(struct sl_trainer *t, struct sl__plan *plan,
                              const struct sl__step *step, struct sl__pending_step *p,
                              struct sl__captured_step **found) {
  struct sl__captured_step c = {.plan = plan,
                                .training = step->training,
                                .carries = step->carry && plan->has_state,
                                .positions = t->shards->positions};
  *found = find(t, &c);
  if (*found) return SL_OK;
  c.bound = sl__alloc((size_t)bound_count(t, plan), sizeof *c.bound, "a captured step");
  enum sl_status status = c.bound ? capture(t, &c, plan, step, p) : SL_NO_MEMORY;
  if (status == SL_OK) status = append(t, &c);
  if (status != SL_OK) clear(&c);
  *found = status == SL_OK ? &t->captured[t->captured_count - 1] : NULL;
  return status;
}

static enum sl_status run(struct sl_trainer *t, struct sl__captured_step *c, struct sl__plan *plan,
                          const struct sl__step *step, struct sl__pending_step *p) {
  struct sl__step_record record = {.number = (int64_t)step->number, .lr = (float)p->report.lr};
  enum sl_status status = SL_OK;
  memcpy(record.scale, step->scale, sizeof record.scale);
  sl__trainer_asks(t, record.asks);
  for (int i = 0; i < plan->model->count && plan->grid->math == SL_MATH_BF16; i++)
    if (sl__grid_is_here(plan->grid, i))
      SL__TRY(sl__bf16_copy_refresh(plan->model, i, &sl__grid_device(plan->grid, i, 0)->place));
  list_bound(plan, step, p, c->bound);
  SL__TRY(sl__graph_submit(c->graph, &(struct sl__graph_run){.bound = c->bound, .step = &record}));
  for (int i = 0; i < plan->model->count && makes_copies(t, plan, step->training); i++)
    if (sl__grid_is_here(plan->grid, i)) sl__bf16_copy_made(plan->model, i);
  plan->has_state = true;
  if (!is_whole(t)) status = sl__trainer_end_step(t, plan, step, p);
out:
  return status;
}

enum sl_status sl__captured_step_submit(struct sl_trainer *t, struct sl__plan *plan,
                                        const struct sl__step *step, struct sl__pending_step *p) {
  struct sl__captured_step *captured;
  enum sl_status status = look_up(t, plan, step, p, &captured);
  if (status == SL_OK) return run(t, captured, plan, step, p);
  if (status != SL_UNSUPPORTED) return status;
  sl__log(t->model->context, SL_LOG_WARNING, "steps are not captured, each call is a task: %s",
          sl_error());
  t->captures = false;
  return sl__trainer_submit_step(t, plan, step, p);
}

void sl__captured_steps_free(struct sl_trainer *t) {
  for (int i = 0; i < t->captured_count; i++) clear(&t->captured[i]);
  free(t->captured);
  t->captured = NULL;
  t->captured_count = 0;
}
