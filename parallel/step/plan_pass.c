/* The pass of a layer on a slice: the plan's tensors for the layer's functions. */
#include "parallel/step/plan_tasks.h"
#include "parallel/step/precision.h"

struct sl__slice_mark sl__slice_mark_of(const struct sl__plan *plan, const struct sl__slice *slice,
                                        int c, int layer) {
  const struct sl__grid *grid = plan->grid;
  return (struct sl__slice_mark){.stage = grid->stages > 1 ? 1 + grid->stage[layer] : 0,
                                 .replica = grid->replicas > 1 ? 1 + slice->replica : 0,
                                 .microbatch = grid->microbatches > 1 ? 1 + slice->microbatch : 0,
                                 .chunk = plan->chunks > 1 ? 1 + c : 0};
}

int sl__plan_output(const struct sl__plan *plan, int i) {
  return plan->relu[i] >= 0 ? plan->relu[i] : i;
}

bool sl__plan_is_applied(const struct sl__plan *plan, int i) {
  int from = plan->model->layers[i].input[0];
  return from != SL__INPUT && plan->relu[from] == i;
}

struct sl__tensor *sl__plan_value(const struct sl__slice *slice, int at, bool backward) {
  return backward && slice->y_again[at] ? slice->y_again[at] : slice->y[at];
}

struct sl__tensor *sl__plan_saved(const struct sl__slice *slice, int at, bool backward) {
  return backward && slice->saved_again[at] ? slice->saved_again[at] : slice->saved[at];
}

/* A cache of the sequence so far is of no use where a pass has the whole sequence. */
static bool uses_state(const struct sl__plan *plan, const struct sl__step *step, int i) {
  return !plan->model->layers[i].state_is_cache || plan->chunks > 1 || step->carry || step->keep;
}

struct sl__pass sl__plan_pass(struct sl__plan *plan, const struct sl__step *step, int s, int c,
                              int i, bool backward) {
  const struct sl__slice *slice = &plan->slices[s];
  const struct sl__layer *layers = plan->model->layers, *layer = &layers[i];
  int chunk = c * plan->model->count, out = chunk + sl__plan_output(plan, i);
  struct sl__pass pass = {.context = plan->model->context,
                          .launch = {.name = layer->name,
                                     .place = sl__grid_device(plan->grid, i, slice->replica)->place,
                                     .tf32 = plan->grid->math == SL_MATH_TF32,
                                     .batch_invariant = plan->batch_invariant,
                                     .mark = sl__slice_mark_of(plan, slice, c, i)},
                          .param = sl__param_of(plan->model, i, plan->grid->math),
                          .x = plan->x,
                          .dx = plan->dx,
                          .add_dx = plan->add_dx,
                          .y = sl__plan_value(slice, out, backward),
                          .saved = sl__plan_saved(slice, chunk + i, backward),
                          .dy = slice->dy[out],
                          .has_relu = plan->relu[i] >= 0,
                          .defers_activation = plan->defers_activation[i],
                          .training = step->training,
                          .step = step->number,
                          .first_row = step->first_row + slice->first_row,
                          .slices = plan->count};
  /* a sample that is not cut in time has all its steps, whatever its axes mean */
  if (plan->chunks > 1 || (plan->steps && plan->steps < plan->model->sample.dim[0]))
    sl__chunk_steps(plan, c, &pass.first_step, &pass.steps);
  pass.position = step->position + pass.first_step;
  if (uses_state(plan, step, i)) {
    pass.state = slice->state[i];
    pass.dstate = slice->dstate[i];
  }
  if (layer->input[0] != SL__INPUT && plan->defers_activation[layer->input[0]])
    pass.input_activation = layers[layer->input[0]].kind->activation(&layers[layer->input[0]]);
  if (layer->tied_to >= 0)
    pass.shared = sl__param_of(plan->model, layer->tied_to, plan->grid->math);
  for (int k = 0; k < layer->input_count; k++) {
    pass.dx[k] = NULL;
    pass.add_dx[k] = false;
    pass.x[k] = layer->input[k] != SL__INPUT
                    ? sl__plan_value(slice, chunk + layer->input[k], backward)
                : slice->x && !layer->gives_tokens ? slice->x
                                                   : sl__part(step->x, s);
  }
  return pass;
}

bool sl__plan_keeps_saved(const struct sl__plan *plan, int i) {
  return plan->training && plan->model->layers[i].needs_gradient;
}

bool sl__plan_joins_loss(const struct sl__plan *plan, const struct sl__step *step, int i) {
  return i == plan->model->count - 1 && sl__plan_joins_head(plan, step);
}
